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


def extent(traces: TraceSet) -> pl.DataFrame:
    """Return when each part of a set takes place.

    Timestamps far from the rest are impossible: over an hour away and over 100 times as far as the rest is long, where they
    are few (at most 3, or 5 %); or at or before time zero of the file, over a second and 100 times the rest's length
    away from it, where they are the minority. What lies over a century from the largest group is, however many they are.

    Args:
        traces: the set.

    Returns:
        part, first_ns and last_ns (the first and the last possible start), end_ns (the last end of a host event or start of any
        event), zero_ns (time zero of the file); null where a part holds no timed events.

    Example:
        >>> import kinetop
        >>> trace = kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False)
        >>> extent(trace).select(pl.col("end_ns") - pl.col("first_ns")).item()
        400000
    """
    rows = [_part(part, trace) for part, trace in enumerate(traces.traces)]
    kinds = {"part": pl.Int32, "first_ns": pl.Int64, "last_ns": pl.Int64, "end_ns": pl.Int64, "zero_ns": pl.Int64}
    return pl.DataFrame(rows, schema=kinds, orient="row")


def _part(part: int, trace: Trace) -> tuple[int, int | None, int | None, int | None, int]:
    zero = base_ns(trace.header)
    timed = trace.events.filter(pl.col("ph").is_in(["X", "B", "b", "i", "I"]), pl.col("ts_ns").is_not_null())
    first, last, end = timed.select(pl.col("ts_ns").min(), pl.col("ts_ns").max().alias("last"), _end()).collect().row(0)
    if first is None:
        return part, None, None, None, zero
    if last - first > _HOUR_NS or (first <= zero and last - first > _SECOND_NS):
        first, last = _cluster(timed.select(pl.col("ts_ns").sort()).collect()["ts_ns"], zero)
        end = timed.filter(pl.col("ts_ns").is_between(first, last)).select(_end()).collect().item()
    return part, first, last, last if end is None else max(last, end), zero


def _end() -> pl.Expr:
    """Last end of a host event: the end stamps of GPU rows are not trusted here."""
    ends = pl.col("ts_ns") + pl.col("dur_ns").clip(0, LONGEST_NS)
    return ends.filter(~pl.col("cat").is_in(list(GPU_KINDS)).fill_null(value=False)).max().alias("end")


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
