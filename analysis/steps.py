"""Steps of a run: where they are, and which GPU work belongs to which."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from kinetop.traces import schema

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
    name, cat = pl.col("name").cast(pl.String), pl.col("cat").cast(pl.String)
    mark = pl.coalesce(*(pl.when(name.str.contains(pattern)).then(pl.lit(kind)) for kind, pattern in enumerate(_MARKS)))
    host = cat.is_in(["user_annotation", *schema.OP_CATS])
    # Each distinct name is looked at once: they are few, and events millions.
    names = trace.events.select(pl.col("name").unique()).collect()["name"]
    marking = names.filter(names.cast(pl.String).str.contains("|".join(_MARKS)).fill_null(value=False))
    closed = trace.pairs.frame.lazy().select("part", "event_id", __closed="end_ns")
    rows = (
        trace.events.filter(pl.col("name").is_in(marking.implode()), host)
        .select("part", "event_id", "dur_ns", name=name, start_ns="ts_ns", mark=mark)
        .filter(pl.col("mark").is_not_null())
        .join(closed, on=["part", "event_id"], how="left")
        .with_columns(end_ns=pl.coalesce("__closed", pl.col("start_ns") + pl.col("dur_ns")))
        .filter(pl.col("end_ns") >= pl.col("start_ns"))
        .filter(pl.col("mark") == pl.col("mark").min().over("part"))
        .sort("part", "start_ns")
        .collect()
    )
    written = pl.col("name").str.extract(r"^ProfilerStep\s*#\s*(\d+)").cast(pl.Int64, strict=False)
    return rows.with_columns(step=pl.coalesce(written, pl.int_range(1, pl.len() + 1).over("part"))).select(*STEP_COLUMNS)


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
    launched = trace.launches.select("part", "event_id", "launch_start_ns")
    moment = pl.coalesce("launch_start_ns", "start_ns").alias("__moment")
    keyed = activities.with_row_index("__row").select("__row", "part", "event_id", "start_ns")
    rows = keyed.join(launched, on=["part", "event_id"], how="left").select("__row", "part", moment).sort("__moment")
    spans = found.select("part", "step", __begin="start_ns", __end="end_ns").sort("__begin")
    # The step that began last is the innermost where two overlap.
    at = rows.join_asof(spans, left_on="__moment", right_on="__begin", by="part", strategy="backward", check_sortedness=False)
    inside = pl.when(pl.col("__moment") < pl.col("__end")).then(pl.col("step"))
    return activities.with_columns(at.sort("__row").select(inside.alias("step")).to_series())
