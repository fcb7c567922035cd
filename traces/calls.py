"""The call tree of each host thread: which range runs inside which, how deep, and how long each one is itself at work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from . import host, schema
from .nesting import THREAD, innermost, laid_out
from .pairs import ranges

if TYPE_CHECKING:
    from .trace import TraceSet

KINDS = (*schema.OP_CATS, *schema.LAUNCH_CATS, "user_annotation", "python_function")
"""Categories whose ranges nest on a thread."""

CALL_COLUMNS: dict[str, str] = {
    "part": "i32, position of the trace in its set",
    "event_id": "u64",
    "process": "text, process it ran in",
    "thread": "text, thread it ran on",
    "cat": "text, category as written",
    "name": "text",
    "start_ns": "i64",
    "end_ns": "i64",
    "parent": "u32?, row of the range that began last among those that contain its start; null at the bottom",
    "depth": "i32, ranges below it on its thread; 0 at the bottom",
    "self_ns": "i64, time in which it is the innermost range of its thread",
}
"""Columns of the call frame: in order of thread, start and depth, so that a range stands before what it calls."""


def calls(traces: TraceSet) -> pl.DataFrame:
    """Return the host ranges of a set as call trees.

    Self times of a thread sum to the time in which any range of it is open, also where ranges cross: a range that outlasts its
    caller (some profilers write such) keeps its own time, and the caller loses what the two share.

    Args:
        traces: the set.

    Returns:
        A frame with `CALL_COLUMNS`.

    Example:
        >>> import kinetop
        >>> calls(kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False)).select("name", "depth").row(1)
        ('aten::linear', 1)
    """
    columns = (*THREAD[1:], "cat", "name")
    kept, frames = (ranges(traces, cats, *columns).drop("raw_dur_ns") for cats in (host.CATS, ["python_function"]))
    if not frames.is_empty():  # in file order: it decides which of two equal ranges is the outer one
        kept = pl.concat([kept, frames]).sort("event_id" if len(traces.traces) == 1 else ["part", "event_id"])
    return tree(kept).select(*CALL_COLUMNS)


def tree(rows: pl.DataFrame) -> pl.DataFrame:
    """Add parent, depth and self_ns to ranges and sort them so that a range stands before what it calls.

    Args:
        rows: part, process, thread, start_ns, end_ns and any other columns.

    Example:
        >>> import polars as pl
        >>> thread = {"part": 0, "process": "1", "thread": "1"}
        >>> rows = pl.DataFrame({**thread, "start_ns": [10, 0, 20], "end_ns": [30, 100, 25]})
        >>> tree(rows).select("start_ns", "parent", "depth", "self_ns").rows()
        [(0, None, 0, 80), (10, 0, 1, 15), (20, 1, 2, 5)]
    """
    spans = laid_out(rows)
    rows = rows if spans["row"].is_sorted() else rows[spans["row"]]
    made = rows.with_columns(parent=spans["outer"], depth=depths(spans["outer"]))
    return made.with_columns(_self_ns(made, spans["lane"]))


def depths(outer: pl.Series) -> pl.Series:
    """Return how many ranges lie below each.

    Args:
        outer: row of the range that each lies in (u32), null at the bottom.

    Example:
        >>> import polars as pl
        >>> depths(pl.Series([None, 0, 1, 0], dtype=pl.UInt32)).to_list()
        [0, 1, 2, 1]
    """
    # Each round doubles the distance looked at.
    depth, further = outer.is_not_null().cast(pl.Int32), outer
    while further.null_count() < len(further):
        depth = depth + depth.gather(further).fill_null(0)
        further = further.gather(further)
    return depth


def _self_ns(made: pl.DataFrame, lane: pl.Series) -> pl.Series:
    """Return each range's duration less its callees'; threads whose ranges cross are swept instead."""
    end_of_caller = made["end_ns"].gather(made["parent"])
    whole = made["end_ns"] - made["start_ns"]
    crossed = lane.filter((made["end_ns"] > end_of_caller).fill_null(value=False)).unique()
    inner = pl.DataFrame({"caller": made["parent"], "dur": whole}).drop_nulls("caller")
    inner = inner.sort("caller").group_by("caller").agg(pl.col("dur").sum())  # to sort first takes half the time
    own = whole.scatter(inner["caller"], whole.gather(inner["caller"]) - inner["dur"]).rename("self_ns")
    if crossed.is_empty():
        return own
    rows = lane.is_in(crossed.implode()).arg_true()
    return own.scatter(rows, _swept_ns(made[rows]))


def _swept_ns(rows: pl.DataFrame) -> pl.Series:
    """Return for each range the time in which it is the innermost: between two marks of a thread that is one and the same."""
    moments = pl.concat([rows.select(*THREAD, at_ns=name) for name in ("start_ns", "end_ns")]).unique().sort(*THREAD, "at_ns")
    same_thread = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift(-1)) for name in THREAD)
    stretch = pl.when(same_thread).then(pl.col("at_ns").shift(-1) - pl.col("at_ns"))
    owned = (
        moments.select(dur=stretch)
        .with_columns(row=innermost(moments, rows))
        .drop_nulls()
        .group_by("row")
        .agg(pl.col("dur").sum())
    )
    return pl.repeat(0, rows.height, dtype=pl.Int64, eager=True).scatter(owned["row"], owned["dur"])
