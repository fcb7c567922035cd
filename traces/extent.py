"""When a trace takes place, whatever single impossible timestamps say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from .pairs import LONGEST_NS
from .reading.header import base_ns
from .schema import GPU_KINDS

if TYPE_CHECKING:
    from .trace import Trace, TraceSet

_HOUR_NS = 3_600 * 10**9
_SECOND_NS = 10**9
_TIMES_FARTHER = 100
_FEW = 3
_FEW_SHARE = 0.05
_YEAR_NS = 365 * 24 * _HOUR_NS
_LAST_NS = 2**63 - 1


def extent(traces: TraceSet) -> pl.DataFrame:
    """Return when each part of a set takes place.

    Timestamps far from the rest are impossible: over an hour away and over 100 times as far as the rest is long, where they
    are few (at most 3, or 5 %); or at or before time zero of the file, over a second and 100 times the rest's length
    away from it, where they are the minority. What lies over a century from the largest group is, however many they are.

    Lengths of host ranges are judged likewise: those over an hour and over 100 times the time from the first to the last start
    are impossible where they are few, and those over a year always.

    Args:
        traces: the set.

    Returns:
        part, first_ns and last_ns (the first and the last possible start), end_ns (the last end of a host event or start of any
        event), zero_ns (time zero of the file), longest_ns (host ranges that last longer are impossible; null where none is) and
        too_long (how many do); null where a part holds no timed events.

    Example:
        >>> import kinetop
        >>> trace = kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False)
        >>> extent(trace).select(pl.col("end_ns") - pl.col("first_ns")).item()
        400000
    """
    closed = traces.pairs.frame
    rows = [_part(part, trace, closed.filter(pl.col("part") == part)) for part, trace in enumerate(traces.traces)]
    kinds = dict.fromkeys(("first_ns", "last_ns", "end_ns", "zero_ns", "longest_ns", "too_long"), pl.Int64)
    return pl.DataFrame(rows, schema={"part": pl.Int32, **kinds}, orient="row")


_Row = tuple[int, int | None, int | None, int | None, int, int | None, int | None]


def _part(part: int, trace: Trace, closed: pl.DataFrame) -> _Row:
    zero = base_ns(trace.header)
    timed = trace.events.filter(pl.col("ph").is_in(["X", "B", "b", "i", "I"]), pl.col("ts_ns").is_not_null())
    longest = pl.col("dur_ns").filter(_ON_HOST).max()
    told = timed.select(pl.col("ts_ns").min(), pl.col("ts_ns").max().alias("last"), _end(), longest).collect()
    first, last, end, longest = told.row(0)
    if first is None:
        return part, None, None, None, zero, None, None
    if last - first > _HOUR_NS or (first <= zero and last - first > _SECOND_NS):
        first, last = _cluster(timed.select(pl.col("ts_ns").sort()).collect()["ts_ns"], zero)
        end = timed.filter(pl.col("ts_ns").is_between(first, last)).select(_end()).collect().item()
    bound, too_long = _longest(timed, closed, first, last, longest)
    if too_long:
        inside = pl.col("ts_ns").is_between(first, last), pl.col("dur_ns") <= bound
        end = timed.filter(*inside).select(_end()).collect().item()
    return part, first, last, last if end is None else max(last, end), zero, bound if too_long else None, too_long


_ON_HOST = ~pl.col("cat").is_in(list(GPU_KINDS)).fill_null(value=False)
"""The end stamps of GPU rows are not trusted here: `kinetop.traces.faults` looks at them stream by stream."""


def _end() -> pl.Expr:
    """Last end of a host event."""
    return (pl.col("ts_ns") + pl.col("dur_ns").clip(0, LONGEST_NS)).filter(_ON_HOST).max().alias("end")


def _longest(timed: pl.LazyFrame, closed: pl.DataFrame, first: int, last: int, longest: int | None) -> tuple[int, int]:
    """Return how long a host range may last, and how many last longer.

    Args:
        timed: the events of a trace that have a start.
        closed: begins of the trace with their ends.
        first: first possible start.
        last: last possible start.
        longest: the longest of `timed`.
    """
    bound = min(_YEAR_NS, last - first + max(_HOUR_NS, _TIMES_FARTHER * (last - first)))
    ends = closed["end_ns"]
    if (longest or 0) <= bound and not (ends > min(last + bound, _LAST_NS)).any():
        return bound, 0
    durations = timed.filter(_ON_HOST).select("dur_ns").collect()["dur_ns"]
    many = len(durations) + len(ends)
    for limit in (bound, _YEAR_NS):
        too_long = int((durations > limit).sum()) + int((ends > min(last + limit, _LAST_NS)).sum())
        if limit == _YEAR_NS or (too_long <= max(_FEW, _FEW_SHARE * many) and 2 * too_long < many):
            break
    return limit, too_long


def _cluster(times: pl.Series, zero: int) -> tuple[int, int]:
    """First and last of the sorted times that can be meant."""
    head, body = times.filter(times <= zero), times.filter(times > zero)
    if body.is_empty():
        return _body(times)
    first, last = _body(body)
    if head.is_empty():
        return first, last
    apart = first - head.item(-1) > max(_SECOND_NS, _TIMES_FARTHER * (last - first))
    return (first, last) if apart and head.len() < body.len() else _body(times)


def _body(times: pl.Series) -> tuple[int, int]:
    """First and last of the sorted times, without the few that lie far from the largest group."""
    groups = (
        pl.DataFrame({"time": times})
        # Microseconds: the difference of two nanosecond stamps may be more than 64 bits hold.
        .with_columns(group=((pl.col("time") // 1000).diff() > _HOUR_NS // 1000).fill_null(value=False).cum_sum())
        .group_by("group", maintain_order=True)
        .agg(first=pl.col("time").first(), last=pl.col("time").last(), rows=pl.len())
    )
    first, last = groups.sort("rows", descending=True, maintain_order=True).select("first", "last").row(0)
    reach = max(_HOUR_NS, _TIMES_FARTHER * (last - first))
    near = groups.filter(pl.col("first") <= last + reach, pl.col("last") >= first - reach)
    far = times.len() - int(near["rows"].sum())
    if far > max(_FEW, _FEW_SHARE * times.len()) or 2 * far >= times.len():
        near = groups
    low, high = near.select(pl.col("first").min(), pl.col("last").max()).row(0)
    # No trace lasts a century, and 64 bits hold no sums of such times: the largest group alone then.
    return (low, high) if high - low <= LONGEST_NS else (first, last)
