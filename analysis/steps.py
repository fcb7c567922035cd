"""Steps of a run: where they are, and which GPU work belongs to which."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from kinetop.traces import schema
from kinetop.traces.once import once
from kinetop.traces.pairs import ranges

from .linked import with_links

if TYPE_CHECKING:
    from kinetop.traces.trace import TraceSet

_MARKS = (r"^ProfilerStep\s*#\s*\d+", r"^step\[", r"^execute_(\w+_)?context_\d+", r"^kinetop\.step\|")
"""PyTorch's profiler, SGLang, vLLM, a session of `kinetop live`: the first kind that a trace holds marks its steps."""

STEP_COLUMNS: dict[str, str] = {
    "part": "i32, position of the trace in its set",
    "step": "i64, number of the step as written, else counted from 1 in order of time",
    "name": "text, as annotated",
    "start_ns": "i64",
    "end_ns": "i64",
}
"""Columns of the step table; rows in order of part and time."""


def steps(trace: TraceSet) -> pl.DataFrame:
    """Return the annotated steps of a trace set.

    Args:
        trace: the opened set.

    Returns:
        A frame with `STEP_COLUMNS`; empty where nothing marks a step.

    Example:
        >>> import kinetop
        >>> steps(kinetop.open("tests/data/hazards/69_step_gap_and_overlap.json", cache=False))["step"].to_list()
        [10, 11, 13]
    """
    return once(trace, "_steps", lambda: _marked(trace))  # most questions ask, and each answer costs two scans


def _marked(trace: TraceSet) -> pl.DataFrame:
    cats = ["user_annotation", *schema.OP_CATS]
    rows = ranges(trace, cats, "name").filter(pl.col("raw_dur_ns") >= 0)
    # Each distinct name is looked at once: they are few, and events millions.
    names = pl.DataFrame({"name": rows["name"].unique()})
    text = pl.col("name").cast(pl.String)
    mark = pl.coalesce(*(pl.when(text.str.contains(pattern)).then(pl.lit(kind)) for kind, pattern in enumerate(_MARKS)))
    names = names.with_columns(mark=mark).drop_nulls()
    rows = (
        rows.filter(pl.col("name").is_in(names["name"].implode()))
        .join(names, on="name", maintain_order="left")
        .filter(pl.col("mark") == pl.col("mark").min().over("part"))
        .sort("part", "start_ns")
    )
    written = text.str.extract(r"^ProfilerStep\s*#\s*(\d+)").cast(pl.Int64, strict=False)
    number = pl.coalesce(written, pl.int_range(1, pl.len() + 1).over("part"))
    return rows.with_columns(text, step=number).select(*STEP_COLUMNS)


def with_step(activities: pl.DataFrame, trace: TraceSet) -> pl.DataFrame:
    """Return GPU activities with the column `step` (i64?): the step of their launch, else the one they start in.

    Args:
        activities: rows of `TraceSet.activities`, any of them, in any order.
        trace: the set they are of.

    Example:
        >>> import kinetop
        >>> trace = kinetop.open("tests/data/hazards/68_no_profiler_step.json", cache=False)
        >>> with_step(trace.activities, trace)["step"].null_count()
        4
    """
    found = steps(trace)
    if found.is_empty():
        return activities.with_columns(step=pl.lit(None, pl.Int64))
    launched = with_links(activities.select("part", "event_id", "start_ns"), trace, "launch_start_ns")
    moments = launched.select("part", at_ns=pl.coalesce("launch_start_ns", "start_ns"))
    return activities.with_columns(step_at(moments, found))


def step_at(moments: pl.DataFrame, found: pl.DataFrame) -> pl.Series:
    """Return the step that each moment lies in; of steps that overlap, the one that began last.

    Args:
        moments: part, at_ns.
        found: steps (part, step, start_ns, end_ns).

    Example:
        >>> import polars as pl
        >>> found = pl.DataFrame({"part": [0, 0], "step": [7, 8], "start_ns": [10, 20], "end_ns": [20, 30]})
        >>> step_at(pl.DataFrame({"part": [0, 0, 0], "at_ns": [5, 20, 30]}), found).to_list()
        [None, 8, None]
    """
    # Steps are few: their starts are searched, part by part, and the moments never sorted.
    rows = moments.with_row_index("row")
    made = []
    for (part,), mine in rows.partition_by("part", as_dict=True).items():
        spans = found.filter(pl.col("part") == part).sort("start_ns", maintain_order=True)
        before = spans["start_ns"].search_sorted(mine["at_ns"], side="right").cast(pl.Int64) - 1
        at = before.set(before < 0, None)
        inside = mine["at_ns"] < spans["end_ns"].gather(at)
        made.append(mine.select("row", pl.select(pl.when(inside).then(spans["step"].gather(at))).to_series().alias("step")))
    return pl.concat(made).sort("row")["step"] if made else pl.Series("step", [], dtype=pl.Int64)
