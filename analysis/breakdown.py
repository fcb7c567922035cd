"""Where the time of each GPU went: compute, communication, copies, idle."""

from __future__ import annotations

import polars as pl

from . import hta, intervals
from .captures import PLACE, WINDOW, told
from .classify import CLASSES
from .question import Column, Parameter, Table, question
from .shares import percent
from .work import DEVICE, Work

DEVICE_COLUMNS = (
    *PLACE,
    Column("kernels", "count", "kernels, zero-length ones included", priority=1),
    Column("copies", "count", "copies and memsets", priority=2),
    Column(
        "kernel_sum_us", "us", "sum of kernel durations; overlapping ones count as often as they occur", "kernel sum", priority=3
    ),
    Column("busy_us", "us", "time in which at least one kernel or copy runs", priority=1),
    Column("span_us", "us", "from the first start to the last end of a kernel or copy", priority=2),
    Column("idle_us", "us", "span - busy: time in the span in which nothing runs", "idle in span", priority=1),
    Column("compute_us", "us", "time in which at least one kernel that is not communication runs", priority=1),
    Column("comm_us", "us", "time in which at least one communication kernel runs", priority=1),
    Column("memory_us", "us", "time in which at least one copy or memset runs", priority=2),
    Column("overlap_us", "us", "time in which communication and compute run together", priority=3),
    Column("exposed_comm_us", "us", "comm - overlap: communication with no compute beside it", "exposed comm", priority=2),
    Column("overlap_pct", "pct", "overlap / comm; null where there is no communication", priority=3),
    WINDOW,
)
"""Columns of the main table."""

_EXACT = 12
"""Decimals of shares that sum to 100, which with three each they would not."""

BREAKDOWN_COLUMNS = (
    *PLACE,
    Column("window_us", "us", "length of the window that the shares are of", priority=1),
    Column("compute_us", "us", "time in the window in which compute runs", priority=1),
    Column("exposed_comm_us", "us", "time in which communication runs and no compute", "exposed comm", priority=1),
    Column(
        "exposed_memory_us", "us", "time in which copies run and neither compute nor communication", "exposed memory", priority=1
    ),
    Column("idle_us", "us", "time in the window in which nothing runs", "idle in window", priority=1),
    Column("compute_pct", "pct", "compute / window", priority=1, decimals=_EXACT),
    Column("exposed_comm_pct", "pct", "exposed communication / window", "exposed comm %", priority=1, decimals=_EXACT),
    Column("exposed_memory_pct", "pct", "exposed memory / window", "exposed memory %", priority=2, decimals=_EXACT),
    Column("idle_pct", "pct", "idle / window; the four shares sum to 100", "idle in window %", priority=1, decimals=_EXACT),
    WINDOW,
)
"""Columns of the exclusive breakdown."""

SHARES = ("compute", "exposed_comm", "exposed_memory", "idle")
"""The exclusive shares, in order of priority."""


@question(
    name="summary",
    title="Overview",
    about="Where the time of each GPU went.",
    tables=(
        Table("devices", DEVICE_COLUMNS, about="Figures per device; idle is that of the span, whatever the window."),
        Table(
            "breakdown",
            BREAKDOWN_COLUMNS,
            about="Each moment of the window counted once, idle included; the four shares sum to 100 %.",
        ),
        Table("hta", hta.COLUMNS, about="With compat=hta only: what HolisticTraceAnalysis 0.5.0 prints, for the whole trace."),
    ),
    parameters=(
        Parameter(
            "compat", "none", "add a table that follows another tool's choices, to reconcile the two", choices=("none", "hta")
        ),
    ),
    order=1,
)
def summary(work: Work, *, compat: str) -> dict[str, pl.DataFrame]:
    """Return the figures of each device.

    Example:
        >>> import kinetop
        >>> trace = kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False)
        >>> kinetop.summary(trace).select("kernels", "busy_us", "idle_us", "overlap_us").row(0)
        (5, 110.0, 20.0, 25.0)
    """
    lanes = _measured(work)
    tables = {"devices": _devices(lanes, work), "breakdown": _shares(lanes, work)}
    return tables if compat == "none" else {**tables, "hta": hta.temporal(work)}


def busy_share(work: Work, buckets: int, *, by_class: bool = False, streams: bool = False) -> pl.DataFrame:
    """Return how busy each device, and each of its streams, is in every bucket of its window.

    Args:
        work: the work in scope.
        buckets: number of equal parts that the window is cut into.
        by_class: one row per class too; classes that overlap count fully in each.
        streams: one row per stream too.

    Returns:
        part, rank, device, stream (null: the device), class (null: all classes), bucket (i32, from 0), busy_ns and share
        (0 to 1); buckets in which nothing runs have no row.

    Example:
        >>> import kinetop
        >>> from kinetop.analysis.work import scoped
        >>> work = scoped(kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False))
        >>> busy_share(work, 2)["busy_ns"].to_list()
        [65000, 45000]
    """
    lanes, classes = [[], ["stream"]][: 1 + streams], [[], ["class"]][: 1 + by_class]
    return pl.concat([_busy_in(work, buckets, lane + class_) for lane in lanes for class_ in classes])


def bucket_width_ns(work: Work, buckets: int) -> pl.DataFrame:
    """Return part, rank, device and `width_ns`, the length of one of `buckets` equal parts of each window."""
    length = pl.col("window_end_ns") - pl.col("window_start_ns")
    return work.windows.select(*DEVICE, width_ns=((length + buckets - 1) // buckets).clip(1))


def _busy_in(work: Work, buckets: int, more: list[str]) -> pl.DataFrame:
    """Busy time per bucket, grouped by device and `more`."""
    keys = [*DEVICE, *more]
    frames = work.windows.join(bucket_width_ns(work, buckets), on=list(DEVICE))
    pieces = intervals.union(work.gpu, keys).join(frames, on=list(DEVICE))
    busy = intervals.buckets(pieces, [*keys, "width_ns"], pl.col("window_start_ns"), pl.col("width_ns"))
    stream = pl.col("stream") if "stream" in more else pl.lit(None, pl.Int64)
    class_ = pl.col("class") if "class" in more else pl.lit(None, pl.String)
    return busy.select(
        *DEVICE,
        stream.alias("stream"),
        class_.alias("class"),
        pl.col("bucket").cast(pl.Int32),
        busy_ns="covered_ns",
        share=pl.col("covered_ns") / pl.col("width_ns"),
    )


def exclusive(work: Work) -> pl.DataFrame:
    """Return the segments of time in which a class runs, each with how many activities of every class run.

    Args:
        work: the work in scope.

    Returns:
        part, rank, device, start_ns, end_ns, compute, comm, memory (i32 counts); time in which nothing runs has no row.

    Example:
        >>> import kinetop
        >>> from kinetop.analysis.work import scoped
        >>> lanes = exclusive(scoped(kinetop.open("tests/data/hazards/38_same_stream_overlap_pdl.json", cache=False)))
        >>> both = lanes.filter(pl.col("comm") > 0, pl.col("compute") > 0)
        >>> both.select((pl.col("end_ns") - pl.col("start_ns")).sum()).item()
        5000
    """
    pieces = intervals.union(work.gpu, [*DEVICE, "class"])
    return intervals.sweep({name: pieces.filter(pl.col("class") == name) for name in CLASSES}, DEVICE)


def _measured(work: Work) -> pl.DataFrame:
    """How long each combination of classes runs, per device."""
    runs = {name: pl.col(name) > 0 for name in CLASSES}
    measures = {
        "busy": pl.lit(value=True),
        **runs,
        "overlap": runs["comm"] & runs["compute"],
        "exposed_comm": runs["comm"] & ~runs["compute"],
        "exposed_memory": runs["memory"] & ~runs["compute"] & ~runs["comm"],
    }
    length = pl.col("end_ns") - pl.col("start_ns")
    found = (
        exclusive(work).group_by(*DEVICE).agg(length.filter(test).sum().alias(f"{name}_ns") for name, test in measures.items())
    )
    names = [f"{name}_ns" for name in measures]
    return work.windows.join(found, on=list(DEVICE), how="left", maintain_order="left").with_columns(pl.col(names).fill_null(0))


def _devices(lanes: pl.DataFrame, work: Work) -> pl.DataFrame:
    """Make the main table."""
    kernel = pl.col("kind") == "kernel"
    counts = work.gpu.group_by(*DEVICE).agg(
        kernels=kernel.sum().cast(pl.Int64),
        copies=(~kernel).sum().cast(pl.Int64),
        kernel_sum_ns=pl.col("dur_ns").filter(kernel).sum(),
        span_ns=pl.col("end_ns").max() - pl.col("start_ns").min(),
    )
    rows = lanes.join(counts, on=list(DEVICE), how="left", maintain_order="left").with_columns(
        pl.col(counts.columns[3:]).fill_null(0)
    )
    rows = rows.with_columns(
        idle_ns=pl.col("span_ns") - pl.col("busy_ns"),
        overlap_pct=percent(pl.col("overlap_ns"), pl.col("comm_ns")),
    )
    return told(rows, work, DEVICE_COLUMNS)


def _shares(lanes: pl.DataFrame, work: Work) -> pl.DataFrame:
    """Make the exclusive breakdown."""
    window = pl.col("window_end_ns") - pl.col("window_start_ns")
    rows = lanes.with_columns(window_ns=window, idle_ns=window - pl.col("busy_ns"))
    shares = {f"{name}_pct": percent(pl.col(f"{name}_ns"), pl.col("window_ns")) for name in SHARES}
    return told(rows.with_columns(**shares), work, BREAKDOWN_COLUMNS)
