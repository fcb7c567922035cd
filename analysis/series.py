"""Figures over time, in equal buckets: launch queue, copy bandwidth, busy share, allocated memory."""

from __future__ import annotations

import polars as pl

from kinetop.traces.errors import FilterError

from . import intervals
from .captures import PLACE, WINDOW, told
from .question import Column, Parameter, Table, question
from .queues import depths
from .work import DEVICE, Work, since_first

COPIES: tuple[tuple[str, str], ...] = (
    (r"(?i)HtoD|HostToDevice|host to device", "HtoD"),
    (r"(?i)DtoH|DeviceToHost|device to host", "DtoH"),
    (r"(?i)PtoP|PeerToPeer|peer", "PtoP"),
    (r"(?i)DtoD|DeviceToDevice|device to device", "DtoD"),
    (r"(?i)memset|fillbuffer", "memset"),
)
"""Kind of a copy by its name; the first that fits, else `other`."""

_WHEN = (
    *PLACE,
    Column("bucket", "id", "number of the bucket, from 0", priority=2),
    Column("start_us", "us", "when the bucket begins, since the first event", "start", priority=0),
    Column("dur_us", "us", "length of the bucket", "length", priority=3),
)
SERIES_COLUMNS = (
    *_WHEN,
    Column("busy_pct", "pct", "share of the bucket in which at least one kernel or copy runs", "busy", priority=0),
    Column("queue_mean", "ratio", "launches made whose work has not started, mean over the bucket", "queue", priority=0),
    Column("unfinished_mean", "ratio", "launches made whose work has not ended, mean over the bucket", "unfinished", priority=2),
    Column("copy_gbps", "GB/s", "bytes copied in the bucket over its length; null where a copy does not say its bytes", "copies"),
    Column(
        "allocated_bytes", "bytes", "most that the allocator had given out; null before its first record", "allocated", priority=0
    ),
    Column("reserved_bytes", "bytes", "most that it had reserved", "reserved", priority=1),
    WINDOW,
)
"""Columns of the series."""
COPY_COLUMNS = (
    *_WHEN,
    Column("kind", "text", "HtoD, DtoH, DtoD, PtoP, memset or other", priority=0),
    Column("copies", "count", "copies that run in the bucket", priority=2),
    Column("bytes", "bytes", "bytes moved in the bucket, a copy's spread evenly over its time; null where unknown", priority=1),
    Column("gbps", "GB/s", "these bytes over the length of the bucket", "GB/s", priority=0),
    Column("busy_pct", "pct", "share of the bucket in which a copy of this kind runs", "busy", priority=1),
    WINDOW,
)
"""Columns of the copies by kind; buckets without one have no row."""

MOST = 1_000_000
"""Buckets that one answer may have."""


@question(
    name="series",
    title="Series",
    about="Launch queue, copy bandwidth, busy share and allocated memory over time, in equal buckets.",
    parameters=(Parameter("buckets", 100, "buckets that the window of each device is cut into"),),
    tables=(
        Table(
            "series",
            SERIES_COLUMNS,
            about="Work in scope makes the busy share and the copies; queue and memory are those of the device.",
            none="the trace holds no GPU work",
        ),
        Table("copies", COPY_COLUMNS, none="no copy runs in the window"),
    ),
    order=16,
)
def series(work: Work, *, buckets: int) -> dict[str, pl.DataFrame]:
    """Return the figures of each bucket of each device.

    Example:
        >>> import kinetop
        >>> trace = kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False)
        >>> kinetop.series(trace, buckets=2).select("busy_pct", "queue_mean").rows()
        [(92.308, 2.538), (76.923, 0.0)]
    """
    if not 1 <= buckets <= MOST:
        raise FilterError(f"Buckets are 1 to {MOST:,}, not {buckets}.")
    rows, copies = over_time(work, buckets)
    return {"series": _told(rows, work, SERIES_COLUMNS), "copies": _told(copies, work, COPY_COLUMNS)}


def over_time(work: Work, buckets: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the two tables with part, start_ns, end_ns and dur_ns on each trace's own clock.

    Args:
        work: what the question was asked about.
        buckets: at most so many of each device.
    """
    windows = _windows(work, buckets)
    grid, pieces = _grid(windows), _pieces(work, windows)
    rows = grid
    for found in (_busy(work, grid), _queue(work, grid), _moved(pieces), _memory(work, windows, grid)):
        rows = rows.join(found, on=[*DEVICE, "bucket"], how="left", maintain_order="left")
    rows = rows.with_columns(
        busy_pct=100 * pl.col("busy_ns") / pl.col("dur_ns"),
        # No copy is no bytes; a copy without a record of its bytes is unknown.
        copy_gbps=pl.when(pl.col("copied").is_null()).then(0.0).otherwise(pl.col("moved") / pl.col("dur_ns")),
    )
    return rows, _by_kind(pieces, grid)


def _windows(work: Work, buckets: int) -> pl.DataFrame:
    """Return the windows with the length of a bucket, width_ns, and how many there are, count."""
    length = pl.col("window_end_ns") - pl.col("window_start_ns")
    rows = work.windows.filter(length > 0).with_columns(width_ns=(length + buckets - 1) // buckets)
    return rows.with_columns(count=(length + pl.col("width_ns") - 1) // pl.col("width_ns"))


def _grid(windows: pl.DataFrame) -> pl.DataFrame:
    """Return the buckets of each device: bucket, start_ns, end_ns, dur_ns; the last ends with the window."""
    rows = windows.with_columns(bucket=pl.int_ranges(0, "count")).explode("bucket")
    start = pl.col("window_start_ns") + pl.col("bucket") * pl.col("width_ns")
    rows = rows.select(*DEVICE, "bucket", start_ns=start, end_ns=pl.min_horizontal(start + pl.col("width_ns"), "window_end_ns"))
    return rows.with_columns(dur_ns=pl.col("end_ns") - pl.col("start_ns"))


def _busy(work: Work, grid: pl.DataFrame) -> pl.DataFrame:
    busy = intervals.covered(grid, work.gpu.select(*DEVICE, "start_ns", "end_ns"), DEVICE)
    return grid.select(*DEVICE, "bucket").with_columns(busy.alias("busy_ns"))


def _queue(work: Work, grid: pl.DataFrame) -> pl.DataFrame:
    """Return the mean depth of the launch queue in each bucket."""
    pieces = depths(work, DEVICE)
    length = pl.col("end_ns") - pl.col("start_ns")
    names = ("waiting", "unfinished")
    sums = pieces.select(
        *DEVICE,
        "start_ns",
        *(pl.col(name).cast(pl.Int64) for name in names),
        *(((pl.col(name) * length).cum_sum() - pl.col(name) * length).over(DEVICE).alias(f"{name}_before") for name in names),
    ).sort("start_ns")
    found = grid.select(*DEVICE, "bucket", "dur_ns")
    upto = []
    for edge in ("start_ns", "end_ns"):
        at = grid.select(*DEVICE, "bucket", at=edge).sort("at")
        at = at.join_asof(sums, left_on="at", right_on="start_ns", by=list(DEVICE), check_sortedness=False)
        area = (pl.col(f"{name}_before") + pl.col(name) * (pl.col("at") - pl.col("start_ns")) for name in names)
        upto.append(at.select(*DEVICE, "bucket", *(text.alias(f"{name}_{edge}") for name, text in zip(names, area, strict=True))))
    for frame in upto:
        found = found.join(frame, on=[*DEVICE, "bucket"], how="left", maintain_order="left")
    mean = {name: (pl.col(f"{name}_end_ns") - pl.col(f"{name}_start_ns")) / pl.col("dur_ns") for name in names}
    return found.select(*DEVICE, "bucket", queue_mean=mean["waiting"], unfinished_mean=mean["unfinished"])


def _pieces(work: Work, windows: pl.DataFrame) -> pl.DataFrame:
    """Cut the copies where buckets meet: kind, bucket, start_ns, end_ns, and the bytes moved there."""
    kind = pl.coalesce(*(pl.when(pl.col("name").str.contains(test)).then(pl.lit(name)) for test, name in COPIES), pl.lit("other"))
    whole = work.trace.activities.select("part", "event_id", whole_ns="dur_ns")
    copies = work.gpu.filter(pl.col("kind") != "kernel").select(*DEVICE, "event_id", "start_ns", "end_ns", "bytes", kind=kind)
    rows = copies.join(whole, on=["part", "event_id"], how="left").join(windows, on=list(DEVICE))
    origin, width = pl.col("window_start_ns"), pl.col("width_ns")
    first = ((pl.col("start_ns") - origin) // width).clip(0, pl.col("count") - 1)
    last = pl.max_horizontal((pl.col("end_ns") - origin - 1) // width, first)
    rows = rows.with_columns(bucket=pl.int_ranges(first, last + 1)).explode("bucket")
    low = origin + pl.col("bucket") * width
    rows = rows.with_columns(start_ns=pl.max_horizontal("start_ns", low), end_ns=pl.min_horizontal("end_ns", low + width))
    share = (pl.col("end_ns") - pl.col("start_ns")) / pl.col("whole_ns")
    return rows.with_columns(moved=pl.when(pl.col("whole_ns") > 0).then(pl.col("bytes") * share).otherwise("bytes"))


def _moved(pieces: pl.DataFrame) -> pl.DataFrame:
    """Return the bytes moved in each bucket by copies of all kinds; null where one of them does not say its own."""
    return pieces.group_by(*DEVICE, "bucket").agg(_known_sum("moved"), copied=pl.lit(value=True))


def _by_kind(pieces: pl.DataFrame, grid: pl.DataFrame) -> pl.DataFrame:
    """Return bytes and busy time of each kind of copy in each bucket."""
    keys = [*DEVICE, "bucket", "kind"]
    rows = pieces.group_by(keys).agg(_known_sum("moved"), copies=pl.len().cast(pl.Int64))
    rows = rows.join(intervals.total(pieces, keys), on=keys, how="left").join(grid, on=keys[:-1], how="left").sort(keys)
    return rows.with_columns(
        bytes=pl.col("moved").round(0).cast(pl.Int64),
        gbps=pl.col("moved") / pl.col("dur_ns"),
        busy_pct=100 * pl.col("total_ns").fill_null(0) / pl.col("dur_ns"),
    )


def _known_sum(name: str) -> pl.Expr:
    return pl.when(pl.col(name).null_count() == 0).then(pl.col(name).sum()).alias(name)


def _memory(work: Work, windows: pl.DataFrame, grid: pl.DataFrame) -> pl.DataFrame:
    """Return the most memory in each bucket: of the records in it, and of the last one before it."""
    figures = {"allocated_bytes": "total_allocated_bytes", "reserved_bytes": "total_reserved_bytes"}
    given_out, on_gpu = pl.col("total_allocated_bytes").is_not_null(), pl.col("memory_device_type").fill_null(1) != 0
    records = work.trace.events.filter(given_out, on_gpu, pl.col("ts_ns").is_not_null()).select(
        "part", pl.col("memory_device").cast(pl.Int32).alias("device"), at="ts_ns", **{k: pl.col(v) for k, v in figures.items()}
    )
    rows = records.collect().sort("at").join(windows, on=["part", "device"])
    bucket = (pl.col("at") - pl.col("window_start_ns")) // pl.col("width_ns")
    inside = rows.filter(pl.col("at") >= pl.col("window_start_ns"), bucket < pl.col("count"))
    peaks = inside.group_by(*DEVICE, bucket.alias("bucket")).agg(pl.col(*figures).max())
    before = grid.select(*DEVICE, "bucket", "start_ns").sort("start_ns").join_asof(
        rows.select(*DEVICE, "at", *figures), left_on="start_ns", right_on="at", by=list(DEVICE), check_sortedness=False
    )  # fmt: skip
    both = before.join(peaks, on=[*DEVICE, "bucket"], how="left", suffix="_inside")
    return both.select(*DEVICE, "bucket", *(pl.max_horizontal(name, f"{name}_inside").alias(name) for name in figures))


def _told(rows: pl.DataFrame, work: Work, columns: tuple[Column, ...]) -> pl.DataFrame:
    """Put rows in the form declared: microseconds since the first event, on the first rank's clock."""
    return told(rows.with_columns(start_ns=since_first("start_ns", work.trace)), work, columns)
