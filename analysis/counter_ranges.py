"""CUPTI ranges: which kernel and operator each one measured, and the counters in it.

The profiler runs kernels one by one while it measures them, and writes a range for each in the order in which they were launched.
The times that it writes are not theirs (they are spread evenly), so that only names and order can join the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from kinetop.traces import schema
from kinetop.traces.nesting import innermost
from kinetop.traces.pairs import ranges

if TYPE_CHECKING:
    from kinetop.traces.trace import TraceSet

    from .work import Work

_MISSING = "__missing__"
_LAUNCHES = r"(?i)launch(?:cooperative)?kernel"
_MEMBER = r'[{,]\s*"(?:[^"\\]|\\.)*"\s*:\s*-?\d[\d.eE+\-]*'
_PARTS = r'^[{,]\s*"((?:[^"\\]|\\.)*)"\s*:\s*(-?[\d.eE+\-]+)$'
_BY_NAME = "by name: the n-th range of a name is the n-th kernel of that name"
_BY_ORDER = "by order: the n-th range is the n-th launch of a kernel"


def numbers(rows: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each number among the members of `args`.

    Args:
        rows: has args (JSON text?).

    Returns:
        The other columns, counter (text) and value (f64).

    Example:
        >>> numbers(pl.DataFrame({"args": ['{"dram.sum":12,"note":"a:1","sm.avg":0.5}']})).rows()
        [('dram.sum', 12.0), ('sm.avg', 0.5)]
    """
    members = rows.with_columns(pl.col("args").str.extract_all(_MEMBER)).explode("args").drop_nulls("args")
    parts = pl.col("args").str.extract_groups(_PARTS).struct.rename_fields(["counter", "value"])
    made = members.with_columns(parts).unnest("args").with_columns(pl.col("value").cast(pl.Float64, strict=False))
    return made.drop_nulls("value")


def matched(work: Work) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the CUPTI ranges with the operator each belongs to, and how they were joined.

    Ranges and kernels of a name are joined in order where there are as many of one as of the other; else all ranges and all
    launches of kernels are, where these are as many. Else they stay apart, and the reason is said.

    Args:
        work: what was asked; its rank narrows the ranges, a window cannot.

    Returns:
        part, event_id, rank, name (text?), args, op (text?); and part, rank, ranges, kernels, launches, joined, rule,
        reason.
    """
    trace = work.trace
    found = ranges(trace, ["cuda_profiler_range"], "rank", "args", pl.col("name").cast(pl.String)).sort("start_ns", "event_id")
    if work.scope.rank is not None:
        found = found.filter(pl.col("rank") == work.scope.rank)
    found = found.select("part", "event_id", "rank", "args", name=pl.when(pl.col("name") != _MISSING).then("name"))
    if found.is_empty():
        empty = {"part": pl.Int32, "rank": pl.Int32, **dict.fromkeys(("ranges", "kernels", "launches", "joined"), pl.Int64)}
        kinds = {**empty, "rule": pl.String, "reason": pl.String}
        return found.with_columns(op=pl.lit(None, pl.String)), pl.DataFrame(schema=kinds)
    kernels, launches = _kernels(trace), _launches(trace)
    by_name = _paired(found.drop_nulls("name"), kernels, ["part", "name"])
    by_order = _paired(found, launches, ["part"])
    keys = ["part", "event_id"]
    made = found.join(by_name.select(*keys, op_name="op", named=True), on=keys, how="left", maintain_order="left")
    made = made.join(by_order.select(*keys, op_order="op", ordered=True), on=keys, how="left", maintain_order="left")
    made = made.with_columns(pl.col("named", "ordered").fill_null(value=False))
    made = made.with_columns(op=pl.when("named").then("op_name").when("ordered").then("op_order"))
    return made, _said(made, kernels, launches)


def _paired(left: pl.DataFrame, right: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Join the n-th of one with the n-th of the other, in the groups that have as many of one as of the other."""
    one, other = (
        frame.with_columns(place=pl.int_range(pl.len()).over(keys), size=pl.len().over(keys)) for frame in (left, right)
    )
    return one.join(other.select(*keys, "place", "size", "op"), on=[*keys, "place", "size"], how="inner", maintain_order="left")


def _kernels(trace: TraceSet) -> pl.DataFrame:
    rows = trace.activities.filter(pl.col("kind") == "kernel").select("part", "event_id", "name", "start_ns")
    known = rows.join(trace.launches.select("part", "event_id", "op"), on=["part", "event_id"], how="left")
    return known.sort("start_ns", "event_id").select("part", "name", "op")


def _launches(trace: TraceSet) -> pl.DataFrame:
    """Calls that launch a kernel, in order of time, with the innermost operator around each."""
    calls = ranges(trace, schema.LAUNCH_CATS, "process", "thread", "name")
    calls = calls.filter(pl.col("name").cast(pl.String).str.contains(_LAUNCHES)).sort("start_ns", "event_id")
    ops = ranges(trace, schema.OP_CATS, "process", "thread", "name")
    around = innermost(calls.select("part", "process", "thread", at_ns="start_ns"), ops)
    return calls.select("part").with_columns(op=ops["name"].gather(around).cast(pl.String))


def _said(made: pl.DataFrame, kernels: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Say for each trace how many ranges were joined, by which rule, and why not the others."""
    count = pl.len().cast(pl.Int64)
    rows = made.group_by("part", "rank").agg(
        ranges=count, named=pl.col("named").sum(), ordered=(pl.col("ordered") & ~pl.col("named")).sum()
    )
    for name, frame in (("kernels", kernels), ("launches", launches)):
        rows = rows.join(frame.group_by("part").agg(count.alias(name)), on="part", how="left")
    rows = rows.with_columns(
        pl.col("kernels", "launches").fill_null(0), joined=(pl.col("named") + pl.col("ordered")).cast(pl.Int64)
    )
    rules = [pl.when(pl.col(name) > 0).then(pl.lit(rule)) for name, rule in (("named", _BY_NAME), ("ordered", _BY_ORDER))]
    left = pl.col("ranges") - pl.col("joined")
    why = pl.format(
        "{} ranges are not joined: the trace has {} kernels, not as many of each name, and {} launches for {} ranges",
        left, "kernels", "launches", "ranges",
    )  # fmt: skip
    told = rows.with_columns(rule=pl.concat_str(rules, separator="; ", ignore_nulls=True), reason=pl.when(left > 0).then(why))
    return told.with_columns(rule=pl.when(pl.col("rule") != "").then("rule")).sort("part")


def measured(found: pl.DataFrame, trace: TraceSet) -> pl.DataFrame:
    """Return every counter of every range: part, event_id, rank, name, op, counter and value.

    Args:
        found: see `matched`.
        trace: the set, whose typed columns hold a counter that is called like one of them.
    """
    rows = numbers(found.select("part", "event_id", "rank", "name", "op", "args"))
    typed = typed_numbers(trace, pl.col("cat") == "cuda_profiler_range")
    more = found.select("part", "event_id", "rank", "name", "op").join(typed, on=["part", "event_id"])
    return pl.concat([rows, more.select(rows.columns)])


def typed_numbers(trace: TraceSet, chosen: pl.Expr) -> pl.DataFrame:
    """Return the numbers of events that have a column of their own in the event table: part, event_id, counter and value.

    Args:
        trace: the set.
        chosen: which events.
    """
    keys = {arg.column: arg.key for arg in schema.ARGS if arg.kind in ("int", "uint", "float")}
    rows = trace.events.filter(chosen).select("part", "event_id", *(pl.col(name).cast(pl.Float64) for name in keys)).collect()
    filled = [name for name in keys if rows[name].null_count() < rows.height]
    long = rows.select("part", "event_id", *filled).unpivot(filled, index=["part", "event_id"], variable_name="counter")
    kinds = {"part": pl.Int32, "event_id": pl.UInt64, "counter": pl.String, "value": pl.Float64}
    return long.drop_nulls("value").with_columns(pl.col("counter").replace(keys)).cast(kinds).select(*kinds)  # type: ignore[arg-type]


def measured_by(values: pl.DataFrame, key: str) -> pl.DataFrame:
    """Return the counters by kernel or by operator.

    Args:
        values: see `measured`.
        key: name or op.
    """
    made = values.group_by("part", "rank", key, "counter").agg(
        ranges=pl.len().cast(pl.Int64),
        total=pl.col("value").sum(),
        mean=pl.col("value").mean(),
        min=pl.col("value").min(),
        max=pl.col("value").max(),
    )
    return made.sort("rank", "part", "counter", "total", key, descending=[False, False, False, True, False], nulls_last=True)
