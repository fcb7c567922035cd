"""HolisticTraceAnalysis' figures by its own choices, so that a user can reconcile the two tools.

Follows version 0.5.0: a row is GPU work when its args carry a `stream` (so waits and Triton operators with a stream count);
classes come from the name; with two or more profiler steps the last one is dropped, together with all GPU work that has no
launch record; and where timestamps have a fraction, starts are rounded up and ends down to whole microseconds, which
shortens each row by 0 to 2 us and turns short ones negative. `rounded=False` leaves that last choice out, as HTA does with
`HTA_DISABLE_NS_ROUNDING=1`.

Against stored outputs of HTA on 25 public traces, every trace for which HTA prints a breakdown agrees, with rounding and
without (tests/analysis/test_hta.py). Kinetop's own figures are the same as these only where all of this has no effect:
whole-microsecond traces with no sync or Triton rows, before the last step is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from kinetop.traces.reading.header import base_ns

from . import intervals
from .captures import RANK, WINDOW, told
from .question import Column

if TYPE_CHECKING:
    from kinetop.traces.trace import Trace

    from .work import Work

COLUMNS = (
    RANK,
    Column("kernel_time_us", "us", "from the first start to the last end of a row with a stream", priority=1, free=True),
    Column("idle_time_us", "us", "kernel time - time in which any such row runs", priority=1, free=True),
    Column("compute_time_us", "us", "time in which a row runs that HTA takes for computation", priority=1),
    Column(
        "non_compute_time_us",
        "us",
        "kernel time - compute time - idle time; below zero where rounding makes HTA stop",
        priority=1,
        free=True,
    ),
    Column("idle_time_pct", "pct", "idle time / kernel time", priority=2, free=True),
    Column("compute_time_pct", "pct", "compute time / kernel time", priority=2, free=True),
    Column("non_compute_time_pct", "pct", "non-compute time / kernel time", priority=2, free=True),
    Column(
        "overlap_pct",
        "pct",
        "communication time with computation beside it / communication time; null without communication",
        priority=1,
    ),
    WINDOW,
)
"""Columns of the table."""

_COMM = r"^nccl.*Kernel"
_NOT_COMPUTE = r"^nccl.*Kernel|^.*Memcpy|^Memset|^.*Sync|^dma"


def temporal(work: Work, *, rounded: bool = True) -> pl.DataFrame:
    """Return HTA's temporal breakdown and overlap of each trace; window, step, device and filter do not narrow it.

    Args:
        work: the work in scope; its `rank` is honoured.
        rounded: round to whole microseconds as HTA does.

    Returns:
        One row per trace with GPU rows: `COLUMNS`, times in microseconds.

    Example:
        >>> import kinetop
        >>> from kinetop.analysis.work import scoped
        >>> work = scoped(kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False))
        >>> temporal(work).select("kernel_time_us", "idle_time_us", "overlap_pct").row(0)
        (130.0, 20.0, 62.5)
    """
    rank = work.scope.rank
    rows = [
        (part, one.rank, *found)
        for part, one in enumerate(work.trace.traces)
        if rank in (None, one.rank) and (found := _one(one, rounded=rounded))
    ]
    figures = (column.name for column in COLUMNS if column not in (RANK, WINDOW))
    schema = {"part": pl.Int32(), "rank": pl.Int32(), **dict.fromkeys(figures, pl.Float64())}
    return told(pl.DataFrame(rows, schema=schema, orient="row"), work, COLUMNS)


def _one(trace: Trace, *, rounded: bool) -> tuple[float | None, ...] | None:
    """Compute the figures of one trace."""
    found = figures(in_microseconds(kept(gpu_rows(trace)), base_ns(trace.header), rounded=rounded))
    if found is None:
        return None
    span, *parts = (found[f"{name}_us"] or 0 for name in ("span", "idle", "compute", "other"))
    percent = [round(100 * value / span, 2) if span else None for value in parts]
    overlap = found["overlap_pct"]
    return span, *parts, *percent, None if overlap is None else round(overlap, 2)


def gpu_rows(trace: Trace) -> pl.DataFrame:
    """Return the rows of a trace that HTA takes for GPU work: those with a stream.

    Args:
        trace: one trace file.

    Returns:
        ts_ns, dur_ns, name, the flags of `by_name`, kept (flag: it stays when HTA drops the last step) and linked (flag: a host
        row has its correlation).
    """
    timed = pl.col("ts_ns").is_not_null(), pl.col("dur_ns").is_not_null()
    rows = trace.events.filter(*timed, pl.col("cat").is_in(["Trace"]).not_()).select(
        "ts_ns", "dur_ns", "name", pl.col("stream").fill_null(-1), pl.col("correlation").fill_null(-1)
    )
    on_host = pl.col("stream") == -1
    gpu, names, calls = pl.collect_all(
        [
            rows.filter(~on_host).with_columns(pl.col("name").cast(pl.String)),
            rows.filter(on_host).group_by("name").agg(last_ns=pl.col("ts_ns").max()),
            rows.filter(on_host).group_by("correlation").agg(first_ns=pl.col("ts_ns").min()),
        ]
    )
    marks = names.filter(pl.col("name").cast(pl.String).str.starts_with("ProfilerStep").fill_null(value=False))
    found = gpu.join(calls, on="correlation", how="left", maintain_order="left")
    before = (pl.col("first_ns") < pl.lit(marks["last_ns"].max(), pl.Int64)).fill_null(value=False)
    stays = pl.lit(value=True) if marks.height < 2 else before
    return by_name(
        found.select(
            "ts_ns", "dur_ns", "name", kept=stays, linked=pl.col("first_ns").is_not_null() & (pl.col("correlation") != -1)
        )
    )


def by_name(rows: pl.DataFrame) -> pl.DataFrame:
    """Add what HTA takes kernels for by their name: the flags compute and comm.

    Args:
        rows: has name; each distinct one is looked at once.
    """
    names = rows.select(pl.col("name").unique())
    text = pl.col("name").fill_null("")
    known = names.with_columns(compute=~text.str.contains(_NOT_COMPUTE), comm=text.str.contains(_COMM))
    return rows.join(known, on="name", how="left", nulls_equal=True, maintain_order="left")


def kept(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of `gpu_rows` that HTA keeps: with two steps or more, those launched before the last one."""
    return rows.filter("kept")


def in_microseconds(rows: pl.DataFrame, zero_ns: int, *, rounded: bool) -> pl.DataFrame:
    """Return start_ns, end_ns, compute and comm, rounded inwards to whole microseconds where the timestamps have a fraction.

    HTA reads timestamps as float64 before it rounds, so this must too: epoch microseconds then have steps of 0.25.

    Args:
        rows: ts_ns, dur_ns, compute, comm.
        zero_ns: what the timestamps of the file are relative to.
        rounded: False leaves them as they are.
    """
    start, end = pl.col("ts_ns") - zero_ns, pl.col("ts_ns") - zero_ns + pl.col("dur_ns")
    whole = rows.select((start % 1000 == 0).all()).item()
    if rounded and not whole:
        begin_us = start // 1000 + (start % 1000) / 1000
        end_us = begin_us + pl.col("dur_ns") / 1000
        start, end = (begin_us.ceil().cast(pl.Int64) * 1000, end_us.floor().cast(pl.Int64) * 1000)
    return rows.select("compute", "comm", start_ns=start, end_ns=end)


def figures(rows: pl.DataFrame) -> dict[str, float | None] | None:
    """Return what HTA computes from GPU rows on one timeline; None without rows.

    Args:
        rows: start_ns, end_ns and the flags compute and comm.

    Returns:
        span_us, idle_us, compute_us, other_us (neither idle nor compute), kernel_sum_us, rows (a count) and overlap_pct, which is
        None without communication.
    """
    if rows.is_empty():
        return None
    busy, compute, comm = (_merged(rows), _merged(rows.filter("compute")), _merged(rows.filter("comm")))
    span = busy["end_ns"][-1] - busy["start_ns"][0]
    idle, computing, communicating = span - _length(busy), _length(compute), _length(comm)
    times = {"span": span, "idle": idle, "compute": computing, "other": span - idle - computing, "kernel_sum": _length(rows)}
    overlap = 100 * _length(intervals.intersect(comm, compute)) / communicating if communicating else None
    return {**{f"{name}_us": ns / 1000 for name, ns in times.items()}, "rows": rows.height, "overlap_pct": overlap}


def _merged(rows: pl.DataFrame) -> pl.DataFrame:
    """Merge intervals as HTA does: negative ones stay, and count as negative time."""
    ordered = rows.sort("start_ns", maintain_order=True)
    begins = (pl.col("start_ns") > pl.col("end_ns").shift(1).cum_max()).fill_null(value=False).cum_sum().alias("piece")
    return (
        ordered.with_columns(begins).group_by("piece", maintain_order=True).agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    )


def _length(pieces: pl.DataFrame) -> int:
    return int(pieces.select((pl.col("end_ns") - pl.col("start_ns")).sum()).item())
