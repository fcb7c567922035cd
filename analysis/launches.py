"""Whether the GPU waits for launches: their delay, how many stand before it, what launching and synchronising calls cost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from . import intervals
from .captures import PLACE, RANK, WINDOW, told
from .gaps import cut_gaps
from .linked import call_number, with_links
from .question import Column, Table, question
from .queues import FULL, STREAM, depths, weighted
from .shares import percent
from .waits import sync_calls
from .work import DEVICE, Work, host_windows

if TYPE_CHECKING:
    from collections.abc import Sequence

BOUND_PCT = 10.0
"""A device is launch-bound when it idles for its launches for this share of the window or more, ..."""
FOUND_IDLE_PCT = 25.0
"""... and at least this share of the launches find it idle."""
KNOWN_PCT = 50.0
"""With a smaller share of the work linked to launches, there is no verdict."""

_DELAY = (
    Column("activities", "count", "kernels and copies in scope", "work", priority=1),
    Column("linked_pct", "pct", "share of them whose launch call is in the trace; the figures below are of these", "linked"),
    Column(
        "delay_median_us", "us", "start of the work less start of its launch call, median", "delay median", priority=0, free=True
    ),
    Column("delay_p95_us", "us", "95th percentile of the delay", "delay p95", priority=1, free=True),
    Column("delay_max_us", "us", "greatest delay", "delay max", priority=2, free=True),
    Column(
        "delay_min_us",
        "us",
        "smallest delay; a negative one says that the clocks of host and GPU disagree",
        "delay min",
        2,
        free=True,
    ),
    Column("negative", "count", "work that is stamped as starting before its launch", "negative", priority=3),
)
_DEPTH = (
    Column("queue_mean", "ratio", "launches made whose work has not started, mean over time", "queue mean", priority=0),
    Column("queue_max", "count", "most of them at a time", "queue max", priority=0),
    Column("unfinished_mean", "ratio", "launches made whose work has not ended, mean over time", "unfinished mean", priority=2),
    Column("unfinished_max", "count", "most of them at a time", "unfinished max", priority=3),
    Column("empty_pct", "pct", "share of the window in which no launch waits: the host has no lead", "empty", priority=0),
    Column(
        "full_us", "us", f"time with {FULL:,} or more launches waiting on a stream: launching blocks there", "full", priority=2
    ),
)

DEVICE_COLUMNS = (
    *PLACE,
    Column("verdict", "text", "launch-bound, not launch-bound, or unknown", priority=0),
    *_DELAY,
    *_DEPTH,
    Column("waited_us", "us", "idle time in which the host was at work on the next launch, or that was on its way", "waited", 1),
    Column("waited_pct", "pct", "share of the window", "waited %", priority=1),
    Column("found_idle_pct", "pct", "share of the launches that found the device idle", "found idle", priority=1),
    Column("short", "count", "kernels that run shorter than their own launch call takes", "short kernels", priority=1),
    Column("short_pct", "pct", "share of the linked kernels, those of graphs aside", "short %", priority=2),
    Column("launch_us", "us", "sum of the durations of the launch calls", "launch calls", priority=1),
    Column("reason", "text", "why the verdict is so", priority=1),
    WINDOW,
)
"""Columns of the main table."""
STREAM_COLUMNS = (*PLACE, Column("stream", "id", "stream", priority=0), *_DELAY, *_DEPTH, WINDOW)
"""Columns of the table per stream."""

API_COLUMNS = (
    RANK,
    Column("api", "text", "name of the launch call", priority=0),
    Column("calls", "count", "calls that launched work in scope", priority=0),
    Column("total_us", "us", "sum of their durations", "total", priority=0),
    Column("mean_us", "us", "mean duration of a call", "mean", priority=1),
    Column("median_us", "us", "median duration", "median", priority=0),
    Column("max_us", "us", "longest call", "max", priority=1),
    Column("activities", "count", "kernels and copies that they launched", "launched", priority=1),
    WINDOW,
)
"""Columns of the table per launch call."""

SYNC_COLUMNS = (
    RANK,
    Column("call", "text", "name of the synchronising call", priority=0),
    Column("calls", "count", "how often it was called", priority=0),
    Column("total_us", "us", "sum of the durations", "total", priority=0),
    Column("mean_us", "us", "mean duration", "mean", priority=1),
    Column("max_us", "us", "longest call", "max", priority=1),
    Column("idle_us", "us", "time in these calls and in the window in which no device of the rank runs anything", "GPU idle", 0),
    WINDOW,
)
"""Columns of the table per synchronising call."""

_VERDICTS = (
    f"launch-bound: the device idles for {BOUND_PCT:.0f} % of the window or more because its next launch is not there yet (the "
    "host at work, or the launch on its way; waits for a batch, a collective or the GPU itself aside), and "
    f"{FOUND_IDLE_PCT:.0f} % of the launches or more find it idle. Unknown where less than {KNOWN_PCT:.0f} % of the work is "
    "linked to a launch."
)


@question(
    name="launches",
    title="Launches",
    about="Whether the GPU waits for launches: delay, queue depth, what launching and synchronising calls cost.",
    tables=(
        Table(
            "devices",
            DEVICE_COLUMNS,
            about=f"{_VERDICTS} Queues and idle time are those of the device, whatever filter is set.",
            none="the trace holds no GPU work",
        ),
        Table("streams", STREAM_COLUMNS, about="The same of each stream by itself.", none="the trace holds no GPU work"),
        Table("apis", API_COLUMNS, sort="total_us", none="no launch call of the work in scope is in the trace"),
        Table(
            "syncs",
            SYNC_COLUMNS,
            sort="total_us",
            about="Host calls that return when the GPU has caught up.",
            none="the trace holds no synchronising call",
        ),
    ),
    order=7,
)
def launches(work: Work) -> dict[str, pl.DataFrame]:
    """Return delays, queues and the verdict of each device, and the cost of launching and synchronising calls.

    Example:
        >>> import kinetop
        >>> answer = kinetop.launches.ask(kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False))
        >>> answer.main.select("delay_median_us", "queue_max", "verdict").row(0)
        (49.0, 4, 'not launch-bound')
        >>> answer.tables["apis"].select("api", "calls", "median_us").rows()
        [('cudaLaunchKernel', 5, 5.0), ('cudaMemcpyAsync', 1, 5.0)]
    """
    linked = _linked(work, work.gpu)
    every = linked if work.scope.where is None else _linked(work, work.all_gpu)
    rows = _delays(linked, work, DEVICE).join(_waited(work, every), on=list(DEVICE), how="left", maintain_order="left")
    rows = rows.join(_short(linked), on=list(DEVICE), how="left", maintain_order="left")
    return {
        "devices": told(_judged(rows), work, DEVICE_COLUMNS),
        "streams": told(_delays(linked, work, STREAM), work, STREAM_COLUMNS),
        "apis": told(_apis(linked), work, API_COLUMNS),
        "syncs": told(_syncs(work), work, SYNC_COLUMNS),
    }


def _linked(work: Work, gpu: pl.DataFrame) -> pl.DataFrame:
    """Return GPU work with its launch call; `first` marks one row of each call, `single` calls that launched nothing else."""
    columns = ("api", "launch_id", "launch_start_ns", "launch_end_ns", "delay_ns")
    rows = with_links(gpu.select(*STREAM, "event_id", "kind", "dur_ns"), work.trace, *columns)
    call = call_number()
    known = pl.col("launch_id").is_not_null()
    return rows.with_columns(
        call_ns=pl.col("launch_end_ns") - pl.col("launch_start_ns"),
        first=known & call.is_first_distinct(),
        single=known & call.is_unique(),
    )


def _delays(linked: pl.DataFrame, work: Work, keys: Sequence[str]) -> pl.DataFrame:
    """Return delay and depth of each group."""
    delay = pl.col("delay_ns")
    rows = linked.group_by(keys).agg(
        activities=pl.len().cast(pl.Int64),
        linked=pl.col("launch_id").count().cast(pl.Int64),
        delay_median_ns=delay.median(),
        delay_p95_ns=delay.quantile(0.95, "linear"),
        delay_max_ns=delay.max(),
        delay_min_ns=delay.min(),
        negative=(delay < 0).sum().cast(pl.Int64),
        launch_ns=pl.col("call_ns").filter("first").sum(),
    )
    found = weighted(depths(work, keys), keys)
    rows = rows.join(found, on=list(keys), how="left").sort(*keys)
    return rows.with_columns(
        linked_pct=percent(pl.col("linked"), pl.col("activities")),
        empty_pct=percent(pl.col("empty_ns"), pl.col("total_ns")),
        queue_mean="waiting_mean",
        queue_max="waiting_max",
    )


def _waited(work: Work, every: pl.DataFrame) -> pl.DataFrame:
    """Return how long each device idled because its next launch was not there yet, and for how many launches."""
    rows = work.windows.with_columns(window_ns=pl.col("window_end_ns") - pl.col("window_start_ns"))
    calls = every.group_by(*DEVICE).agg(calls=pl.col("first").sum().cast(pl.Int64))
    found = cut_gaps(replace(work, scope=replace(work.scope, where=None)))
    found = found.group_by(*DEVICE).agg(
        waited_ns=(pl.col("host_late_ns") + pl.col("launch_latency_ns")).sum(),
        found_idle=(pl.col("late_ns") > pl.col("start_ns")).sum().cast(pl.Int64),
    )
    rows = rows.join(found, on=list(DEVICE), how="left").join(calls, on=list(DEVICE), how="left")
    rows = rows.with_columns(pl.col("waited_ns", "found_idle").fill_null(0))
    waited, found_idle = percent(pl.col("waited_ns"), pl.col("window_ns")), percent(pl.col("found_idle"), pl.col("calls"))
    return rows.select(*DEVICE, "waited_ns", waited_pct=waited, found_idle_pct=found_idle)


def _short(linked: pl.DataFrame) -> pl.DataFrame:
    """Count the kernels that run shorter than their own launch call takes; those of a graph share theirs."""
    own = pl.col("single") & (pl.col("kind") == "kernel")
    short = own & (pl.col("dur_ns") < pl.col("call_ns"))
    rows = linked.group_by(*DEVICE).agg(own=own.sum().cast(pl.Int64), short=short.sum().cast(pl.Int64))
    short_pct = percent(pl.col("short"), pl.col("own"))
    return rows.select(*DEVICE, short=pl.when(pl.col("own") > 0).then("short"), short_pct=short_pct)


def _judged(rows: pl.DataFrame) -> pl.DataFrame:
    """Say of each device whether it is launch-bound, and why."""
    known = pl.col("linked_pct").fill_null(0) >= KNOWN_PCT
    bound = (pl.col("waited_pct") >= BOUND_PCT) & (pl.col("found_idle_pct") >= FOUND_IDLE_PCT)
    unknown = pl.format("only {} % of the work is linked to a launch call", pl.col("linked_pct").fill_null(0).round(1))
    why = pl.format(
        "idle {} % of the window while its next launch was being made or on its way; {} % of the launches found it idle",
        pl.col("waited_pct").fill_null(0).round(1),
        pl.col("found_idle_pct").fill_null(0).round(1),
    )
    said = pl.when(bound.fill_null(value=False)).then(pl.lit("launch-bound")).otherwise(pl.lit("not launch-bound"))
    return rows.with_columns(
        verdict=pl.when(known).then(said).otherwise(pl.lit("unknown")), reason=pl.when(known).then(why).otherwise(unknown)
    )


def _apis(linked: pl.DataFrame) -> pl.DataFrame:
    """Sum up the launch calls by name."""
    rows = linked.filter(pl.col("launch_id").is_not_null())
    call = pl.col("call_ns").filter("first")
    return (
        rows.group_by("part", "rank", "api")
        .agg(
            calls=call.len().cast(pl.Int64),
            total_ns=call.sum(),
            mean_ns=call.mean(),
            median_ns=call.median(),
            max_ns=call.max(),
            activities=pl.len().cast(pl.Int64),
        )
        .sort("total_ns", "part", "rank", "api", descending=[True, False, False, False])
    )


def _syncs(work: Work) -> pl.DataFrame:
    """Sum up the synchronising calls by name, and how long the rank's devices stood still in them."""
    calls = _of_ranks(work, sync_calls(work.trace))
    if (stretch := host_windows(work)) is not None:
        calls = calls.join(stretch, on="part", suffix="_of_stretch")
        inside = (pl.col("end_ns") > pl.col("start_ns_of_stretch")) & (pl.col("start_ns") < pl.col("end_ns_of_stretch"))
        calls = calls.filter(inside)
    lane = ["part", "rank"]
    spans = work.windows.select(*lane, start_ns="window_start_ns", end_ns="window_end_ns")
    still = intervals.subtract(spans, work.all_gpu, lane)
    calm = intervals.intersect(
        calls.select(*lane, "name", "start_ns", "end_ns"),
        still.join(calls.select(*lane, "name").unique(), on=lane),
        [*lane, "name"],
    )
    idle = intervals.total(calm, [*lane, "name"]).rename({"total_ns": "idle_ns"})
    dur = pl.col("end_ns") - pl.col("start_ns")
    rows = calls.group_by(*lane, "name").agg(
        calls=pl.len().cast(pl.Int64), total_ns=dur.sum(), mean_ns=dur.mean(), max_ns=dur.max()
    )
    rows = rows.join(idle, on=[*lane, "name"], how="left").with_columns(pl.col("idle_ns").fill_null(0), call="name")
    return rows.sort("total_ns", *lane, "name", descending=[True, False, False, False])


def _of_ranks(work: Work, calls: pl.DataFrame) -> pl.DataFrame:
    """Give each host call its rank: that of the work its process launched, else that of its file; keep those in scope."""
    launched = work.trace.links.with_columns(work.trace.activities["rank"]).filter(pl.col("launch_id").is_not_null())
    hosts = launched.group_by("part", "process").agg(rank=pl.col("rank").min())
    ranks = {part: one.rank for part, one in enumerate(work.trace.traces)}
    file_rank = pl.col("part").replace_strict(ranks, return_dtype=pl.Int32)
    calls = calls.join(hosts, on=["part", "process"], how="left").with_columns(rank=pl.coalesce("rank", file_rank))
    return calls if work.scope.rank is None else calls.filter(pl.col("rank") == work.scope.rank)
