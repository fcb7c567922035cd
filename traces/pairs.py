"""Ranges of a trace: complete events, and begin events with the end that closes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from .host import kept
from .report import Notice
from .schema import GPU_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .trace import TraceSet

_THREAD = ("part", "process", "thread")
LONGEST_NS = 4 * 10**18
"""No duration is taken for longer, so that a start plus a duration stays a 64-bit number."""


@dataclass(frozen=True)
class Pairs:
    """Begin events of a set and the end events that close them."""

    frame: pl.DataFrame
    """part, event_id (of the begin), end_id, end_ns."""
    stray_ends: int = 0
    """End events with no begin to close."""
    open_begins: int = 0
    """Begin events that never end."""

    @property
    def notices(self) -> tuple[Notice, ...]:
        """What there is to say about the ones without a partner."""
        count = self.stray_ends + self.open_begins
        if not count:
            return ()
        ends = f"{self.stray_ends} {'end' if self.stray_ends == 1 else 'ends'} without begin"
        begins = f"{self.open_begins} {'begin' if self.open_begins == 1 else 'begins'} without end"
        said = ", ".join(text for text, n in ((ends, self.stray_ends), (begins, self.open_begins)) if n)
        return (Notice("unpaired-begin-end", count, f"{said} (left out of the figures)"),)


def pairs(events: pl.LazyFrame) -> Pairs:
    """Match begin and end events, thread by thread.

    An end closes the innermost open begin of its thread, and the innermost one of its own name where it has a name.
    Order is by time; at one time ends come before begins, unless there is nothing to close yet. Asynchronous marks of GPU work
    (`b` and `e`) are matched in the same way among those of their category and id.

    Args:
        events: the event table with a `part` column.

    Example:
        >>> import polars as pl
        >>> marks = pl.DataFrame({"ph": ["B", "E", "B", "E"], "name": ["a", None, "b", None], "ts_ns": [0, 10, 10, 30]})
        >>> same = dict.fromkeys(["part", "process", "thread", "cat", "id"], 1)
        >>> marks = marks.with_row_index("event_id").with_columns(**same)
        >>> pairs(marks.lazy()).frame["end_ns"].to_list()
        [10, 30]
    """
    marks = (
        events.filter(pl.col("ph").is_in(["B", "E", "b", "e"]), pl.col("ts_ns").is_not_null())
        .select(*_THREAD, "event_id", "ts_ns", pl.col("ph", "cat", "id", "name").cast(pl.String))
        .collect()
    )
    # Of asynchronous ranges, which belong to an id and to no thread, only GPU work is wanted: others are requests of a server.
    alone = pl.col("ph").is_in(["b", "e"])
    marks = marks.filter(~alone | pl.col("cat").is_in(list(GPU_KINDS)))
    if marks.is_empty():
        return Pairs(pl.DataFrame(schema={"part": pl.Int32, "event_id": pl.UInt64, "end_id": pl.UInt64, "end_ns": pl.Int64}))
    owner = pl.when(alone).then(pl.struct("cat", "id"))
    lane = pl.struct("part", *(pl.when(~alone).then(name) for name in _THREAD[1:]), owner).rank("dense")
    marks = marks.with_columns(
        lane=lane,
        begin=pl.col("ph").is_in(["B", "b"]),
        name=pl.when(pl.col("name") != "").then("name"),
        part=pl.col("part").cast(pl.Int32),
    )
    found = _matched(marks, "lane")
    crossed = (
        found.filter(pl.col("end_name").is_not_null() & pl.col("end_name").ne_missing(pl.col("name")))["lane"].unique().implode()
    )
    found = pl.concat([found.filter(~pl.col("lane").is_in(crossed)), _by_name(marks.filter(pl.col("lane").is_in(crossed)))])
    begins = int(marks["begin"].sum())
    return Pairs(
        found.select("part", "event_id", "end_id", "end_ns"), marks.height - begins - found.height, begins - found.height
    )


def _by_name(marks: pl.DataFrame) -> pl.DataFrame:
    """Match by name where ends have one; what is left over by nesting alone."""
    named = marks.filter(pl.col("begin") | pl.col("name").is_not_null()).with_columns(
        both=pl.struct("lane", "name").rank("dense")
    )
    first = _matched(named, "both")
    rest = marks.filter(pl.col("begin") | pl.col("name").is_null()).join(first, on=["part", "event_id"], how="anti")
    return pl.concat([first, _matched(rest, "lane")])


def _matched(marks: pl.DataFrame, group: str) -> pl.DataFrame:
    """Match by nesting within a group; rows are the begins that found an end."""
    order = pl.col("begin").cast(pl.Int8)
    ordered = _with_stray(marks.with_columns(order=order), group)
    # An end with nothing open comes after the begins of its own moment: a range of no length.
    late = pl.when("stray").then(2).otherwise("order").cast(pl.Int8)
    ordered = _with_stray(ordered.with_columns(order=late), group).filter(~pl.col("stray"))
    depth = pl.when("begin").then(1).otherwise(-1).cum_sum().over(group) + (~pl.col("begin")).cast(pl.Int32)
    level = [group, "depth"]
    return (
        ordered.with_columns(depth=depth)
        .with_columns(
            end_id=pl.col("event_id").shift(-1).over(level),
            end_ns=pl.col("ts_ns").shift(-1).over(level),
            end_name=pl.col("name").shift(-1).over(level),
            closed=~pl.col("begin").shift(-1).over(level),
        )
        .filter("begin", "closed")
        .select("part", "lane", "event_id", "name", "end_id", "end_ns", "end_name")
    )


def _with_stray(marks: pl.DataFrame, group: str) -> pl.DataFrame:
    """Sort by time and mark the ends that come when nothing is open: where the running depth reaches a new low."""
    return (
        marks.sort(group, "ts_ns", "order", "event_id")
        .with_columns(run=pl.when("begin").then(1).otherwise(-1).cum_sum().over(group))
        .with_columns(low=pl.col("run").cum_min().clip(upper_bound=0).over(group))
        .with_columns(stray=pl.col("low") < pl.col("low").shift(1).over(group).fill_null(0))
    )


def ranges(traces: TraceSet, cats: Iterable[str], *columns: str | pl.Expr) -> pl.DataFrame:
    """Return the ranges of some categories: complete events, and begins that have an end.

    Args:
        traces: the set.
        cats: categories as written.
        columns: further columns or expressions of the event table.

    Returns:
        part, event_id, start_ns, end_ns (never before the start; of host ranges of impossible length, see
        `kinetop.traces.extent`, the start), raw_dur_ns (as written) and `columns`, in file order.

    Example:
        >>> import kinetop
        >>> ranges(kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False), ["kernel"], "stream").height
        5
    """
    wanted = set(cats)
    rows, length = kept(traces, wanted, *columns), pl.col("raw_dur_ns").fill_null(0).clip(0, LONGEST_NS)
    if not wanted & GPU_KINDS.keys() and not (limits := traces.extent.drop_nulls("longest_ns")).is_empty():
        limit = pl.col("part").replace_strict(limits["part"], limits["longest_ns"], default=None, return_dtype=pl.Int64)
        length = pl.when(pl.col("raw_dur_ns") > limit).then(0).otherwise(length)
    return rows.with_columns(end_ns=pl.col("start_ns") + length).collect()
