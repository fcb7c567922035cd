"""Which host call launched each GPU activity, and which operator that call belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from . import schema
from .faults import counted, grouped
from .lookup import rows_of
from .merged import claims, merged
from .nesting import innermost
from .pairs import ranges
from .report import Notice

if TYPE_CHECKING:
    from .trace import TraceSet

LAUNCH_COLUMNS: dict[str, str] = {
    "part": "i32",
    "event_id": "u64 of the GPU activity",
    "launch_id": "u64? of the launch call; null when the trace holds no record of it",
    "api": "text?, name of the launch call",
    "process": "text?, process that launched",
    "thread": "text?, its thread that launched",
    "launch_start_ns": "i64?",
    "launch_end_ns": "i64?",
    "delay_ns": "i64?, activity start - launch start, signed",
    "op_id": "u64? of the innermost operator around the launch call, else of the one with the activity's external id",
    "op": "text?, its name",
}
"""Columns of the launch frame: one row per activity, same order as `TraceSet.activities`."""


_LINK = ("part", "rank", "correlation")


def links(traces: TraceSet) -> pl.DataFrame:
    """Return the launch call of each GPU activity; `launches` adds the operator, which costs more.

    A launch is any host call of a runtime or driver category with the activity's correlation id, in the same trace (and the same
    rank, where a file merges several); one graph launch has many activities. Where several calls carry the id, it is
    the one whose name says launch, copy or set, else the earliest.

    Args:
        traces: the set.

    Returns:
        `LAUNCH_COLUMNS` without op_id and op, and `external_id` (the activity's, else the call's).

    Example:
        >>> import kinetop
        >>> links(kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False))["delay_ns"].min()
        40000
    """
    gpu = traces.activities.select("part", "rank", "event_id", "start_ns", "correlation", "external_id")
    calls = _calls(traces)
    found = calls.drop(_LINK).select(pl.all().gather(_launching(gpu, calls)))
    linked = gpu.hstack(found).with_columns(
        pl.col("api", "process", "thread").cast(pl.String),
        delay_ns=pl.col("start_ns") - pl.col("launch_start_ns"),
        external_id=pl.coalesce("external_id", "call_external_id"),
    )
    return linked.select(*(name for name in LAUNCH_COLUMNS if not name.startswith("op")), "external_id")


def launches(traces: TraceSet) -> pl.DataFrame:
    """Return the launch call and operator of each GPU activity.

    The operator is the innermost one on the launching thread when the launch began, else the one with the activity's external
    id. (Some traces number the ids of operators and of GPU work apart: where they contradict the nesting as often
    as not, they are not used.)

    Args:
        traces: the set.

    Returns:
        A frame with `LAUNCH_COLUMNS`, one row per row of `traces.activities`.

    Example:
        >>> import kinetop
        >>> launches(kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False))["op"][0]
        'aten::linear'
    """
    external = pl.coalesce("external_id", "external_id_legacy").alias("external_id")
    ops = ranges(traces, schema.OP_CATS, "process", "thread", "name", external)
    moments = traces.links.select("part", pl.col("process", "thread").cast(pl.Categorical), at_ns="launch_start_ns")
    row = _by_external_id(traces.links, ops, innermost(moments, ops))
    found = traces.links.with_columns(op_id=ops["event_id"].gather(row), op=ops["name"].gather(row).cast(pl.String))
    return found.select(*LAUNCH_COLUMNS)


def launch_notices(traces: TraceSet) -> tuple[Notice, ...]:
    """Say how many activities are stamped as starting before their launch, if any.

    Args:
        traces: the set.
    """
    early = traces.links.filter(pl.col("delay_ns") < 0)
    if early.is_empty():
        return ()
    linked = int(traces.links["launch_id"].count())
    worst = early.select(-pl.col("delay_ns").min() / 1000).item()
    kinds = traces.activities.join(early, on=["part", "event_id"], how="semi")["kind"]
    noun = "kernel" if (kinds == "kernel").all() else "GPU event"
    start, its = ("starts", "its") if early.height == 1 else ("start", "their")
    stay = "both stay" if linked == 2 else "all stay"
    said = f"{early.height} of {counted(linked, noun)} {start} before {its} launch (worst {grouped(worst)} us); {stay} linked"
    # Traces in whole microseconds round a start and its launch apart.
    return (Notice("starts-before-launch", early.height, said, level="warning" if worst > 1 else "info"),)


def _calls(traces: TraceSet) -> pl.DataFrame:
    """Return the launching call of each correlation id: part, rank, correlation, and what is known of the call."""
    found = ranges(
        traces,
        schema.LAUNCH_CATS,
        *("rank", "correlation", "process", "thread"),
        pl.col("name").alias("api"),
        pl.coalesce("external_id", "external_id_legacy").alias("call_external_id"),
    ).filter(pl.col("correlation").is_not_null())
    calls = _with_rank(traces, found).rename({"event_id": "launch_id", "start_ns": "launch_start_ns", "end_ns": "launch_end_ns"})
    if calls.select(_telling(calls, calls)).n_unique() < calls.height:
        # Several calls with 0 or -1: it says that there is no id.
        calls = calls.filter(~(pl.col("correlation").is_in([0, -1]) & pl.struct(_LINK).is_duplicated()))
        calls = calls.join(traces.activities.select(_LINK).unique(), on=_LINK, how="semi")
        launching = pl.col("api").cast(pl.String).str.contains("(?i)launch|memcpy|memset|enqueue|copy|fill")
        calls = calls.sort(~launching, "launch_start_ns", "launch_id").unique(_LINK, keep="first", maintain_order=True)
    return calls.drop("raw_dur_ns")


def _telling(gpu: pl.DataFrame, calls: pl.DataFrame) -> list[str]:
    """Return which of `_LINK` tell apart: one part and rank is the rule, and a join by one number takes a third of the time."""

    def varies(name: str) -> bool:
        return len({end for frame in (gpu, calls) for end in (frame[name].min(), frame[name].max())}) > 1

    return [*filter(varies, _LINK[:2]), "correlation"]


def _launching(gpu: pl.DataFrame, calls: pl.DataFrame) -> pl.Series:
    """Return the row of `calls` that launched each activity, null where there is none."""
    keys = _telling(gpu, calls)
    if keys == ["correlation"]:
        return rows_of(gpu["correlation"], calls["correlation"])
    return gpu.select(keys).join(calls.select(keys).with_row_index("row"), on=keys, how="left", maintain_order="left")["row"]


def _with_rank(traces: TraceSet, calls: pl.DataFrame) -> pl.DataFrame:
    """Give the calls of files that merge several ranks the rank of their process."""
    gpu = claims(traces.activities)
    if not merged(gpu, gpu.clear()).parts:
        return calls
    hosts = calls.group_by("part", pl.col("process").cast(pl.String)).agg(first_id=pl.col("event_id").min())
    found = merged(gpu, hosts)
    ranks = found.rank_of(hosts).with_columns(pl.col("process").cast(calls.schema["process"]))
    calls = calls.join(ranks, on=["part", "process"], how="left", maintain_order="left")
    return calls.with_columns(rank=pl.coalesce("merged_rank", "rank")).drop("merged_rank")


def _by_external_id(linked: pl.DataFrame, ops: pl.DataFrame, around: pl.Series) -> pl.Series:
    """Fill rows of `ops` that nesting did not find (`around` is null) by external id, unless the two contradict each other."""
    if not (around.is_null() & linked["external_id"].is_not_null()).any():
        return around
    numbered = ops.select("part", "external_id", row=pl.int_range(pl.len(), dtype=pl.UInt32)).filter(pl.col("external_id") > 0)
    numbered = numbered.unique(["part", "external_id"], keep="first", maintain_order=True)
    both = linked.select("part", "external_id", around=around).join(
        numbered, on=["part", "external_id"], how="left", maintain_order="left"
    )
    differ, agree = ((test.sum()).over("part") for test in (pl.col("row") != pl.col("around"), pl.col("row") == pl.col("around")))
    return both.select(pl.coalesce("around", pl.when(2 * differ <= agree).then("row"))).to_series()
