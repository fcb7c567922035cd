"""What each host call costs in scope: its own time on the CPU, and the GPU work that it launched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from kinetop.traces import schema
from kinetop.traces.calls import tree
from kinetop.traces.lookup import rows_of
from kinetop.traces.nesting import THREAD
from kinetop.traces.once import once

from . import intervals
from .forest import among, subtree_ends
from .linked import with_links
from .work import Work, host_windows

if TYPE_CHECKING:
    from kinetop.traces.trace import TraceSet

COST_COLUMNS: dict[str, str] = {
    "begun": "flag: it begins in scope",
    "self_ns": "i64, time in scope in which it is the innermost range of its thread",
    "device_ns": "i64, durations of the GPU work in scope that it launched",
    "kernels": "i64, how many those are",
}
"""Columns that `charged` adds to those of `TraceSet.calls`, or cuts to the scope."""


def charged(work: Work, paid: pl.DataFrame | None = None) -> pl.DataFrame:
    """Return the calls of a set with what they cost in scope.

    Args:
        work: the work in scope.
        paid: `charges(work)`, where it is known already.

    Returns:
        `TraceSet.calls`, in its order, with `COST_COLUMNS`.

    Example:
        >>> import kinetop
        >>> from kinetop.analysis.work import scoped
        >>> made = charged(scoped(kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False)))
        >>> made.filter(pl.col("device_ns") > 0).select("name", "device_ns", "kernels").row(0)
        ('cudaLaunchKernel', 40000, 1)
    """
    calls = _in_scope(work.trace.calls, work)
    paid = charges(work) if paid is None else paid
    spent = paid.drop_nulls("row").sort("row").group_by("row").agg(pl.col("dur_ns").sum(), kernels=pl.len().cast(pl.Int64))
    none = pl.repeat(0, calls.height, dtype=pl.Int64, eager=True)
    return calls.with_columns(
        none.scatter(spent["row"], spent["dur_ns"]).alias("device_ns"),
        none.scatter(spent["row"], spent["kernels"]).alias("kernels"),
    )


def charges(work: Work) -> pl.DataFrame:
    """Return for each GPU activity in scope the call that it is charged to.

    That is its launch call; where this is in no operator, or there is no record of it, the operator with the work's external id.

    Args:
        work: the work in scope.

    Returns:
        row (u32?, of `TraceSet.calls`; null where there is no call), name and dur_ns of the activity, in order of `Work.gpu`.
    """
    calls, key = work.trace.calls, ["part", "event_id"]
    row = pl.int_range(pl.len(), dtype=pl.UInt32).alias("row")
    found = with_links(work.gpu.select(*key, "name", "dur_ns"), work.trace, "launch_id", "external_id")
    if len(work.trace.traces) == 1:  # and the events of a trace are numbered
        found = found.with_columns(row=rows_of(found["launch_id"], calls["event_id"]))
    else:
        launching = calls.select(*key, row).filter(calls["cat"].is_in(list(schema.LAUNCH_CATS)))
        found = found.join(launching, left_on=["part", "launch_id"], right_on=key, how="left", maintain_order="left")
    op = op_tree(work.trace)[0].gather(found["row"])
    lost = found.select(op.is_null() & (pl.col("external_id") > 0)).to_series().fill_null(value=False)
    if lost.any():
        named = work.trace.launches.select(*key, "op_id").drop_nulls("op_id")
        by_id = found.join(named, on=key, how="left", maintain_order="left").join(
            calls.select(*key, row), left_on=["part", "op_id"], right_on=key, how="left", maintain_order="left", suffix="_op"
        )
        found = by_id.with_columns(row=pl.when(lost).then(pl.coalesce("row_op", "row")).otherwise("row"))
    return found.select("row", "name", "dur_ns")


def op_tree(trace: TraceSet) -> tuple[pl.Series, pl.Series]:
    """Return the operators of a set as a tree of their own; kept with the set.

    Args:
        trace: the set.

    Returns:
        For each row of `TraceSet.calls` the operator that it is or lies in, counted among the operators, and their parents.
    """
    return once(trace, "_op_tree", lambda: among(is_op(trace.calls), trace.calls["parent"]))


def call_ends(trace: TraceSet) -> pl.Series:
    """Return the `subtree_ends` of `TraceSet.calls`; kept with the set.

    Args:
        trace: the set.
    """
    return once(trace, "_call_ends", lambda: subtree_ends(trace.calls["parent"]))


def is_op(calls: pl.DataFrame) -> pl.Series:
    """Return which calls are operators.

    Args:
        calls: rows of `TraceSet.calls`.
    """
    return calls["cat"].is_in(list(schema.OP_CATS))


def _in_scope(calls: pl.DataFrame, work: Work) -> pl.DataFrame:
    """Cut the calls' own times to the stretch of time and the rank in scope."""
    calls = calls.with_columns(begun=pl.lit(value=True))
    windows = host_windows(work)
    if windows is not None:
        calls = _cut(calls, windows)
    if work.scope.rank is None:
        return calls
    mine = _processes(work.trace).filter(pl.col("rank") == work.scope.rank)
    mine = calls.select("part", "process").join(mine, on=["part", "process"], how="left", maintain_order="left")
    kept = mine["rank"].is_not_null()
    return calls.with_columns(begun=pl.col("begun") & kept, self_ns=pl.col("self_ns") * kept)


def _cut(calls: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    spans = calls.select(*THREAD, "start_ns", "end_ns").with_row_index("place")
    spans = spans.join(windows.select("part", low="start_ns", high="end_ns"), on="part", how="left", maintain_order="left")
    begun = spans.select((pl.col("start_ns") >= pl.col("low")) & (pl.col("start_ns") < pl.col("high"))).to_series()
    inside = tree(intervals.clip(spans.drop_nulls("low"), pl.col("low"), pl.col("high")))
    own = pl.repeat(0, calls.height, dtype=pl.Int64, eager=True).scatter(inside["place"], inside["self_ns"])
    return calls.with_columns(begun.fill_null(value=False).alias("begun"), own.alias("self_ns"))


def _processes(trace: TraceSet) -> pl.DataFrame:
    """Return the rank of each process: of the GPU work that it launched where a file merges several, else of its file."""
    ranks = pl.DataFrame(
        {"part": range(len(trace.traces)), "file_rank": [one.rank for one in trace.traces]},
        schema={"part": pl.Int32, "file_rank": pl.Int32},
    )
    work = trace.activities.select("part", "event_id", "rank").join(trace.links, on=["part", "event_id"])
    launching = work.drop_nulls("process").select("part", pl.col("process").cast(trace.calls.schema["process"]), "rank").unique()
    found = trace.calls.select("part", "process").unique().join(ranks, on="part")
    return found.join(launching, on=["part", "process"], how="left").with_columns(pl.coalesce("rank", "file_rank").alias("rank"))
