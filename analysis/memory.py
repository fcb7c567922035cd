"""How much memory was in use and held, when it was most, what held it then, and how much was allocated only to be freed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from .allocations import LANE, allocations, events, recorded
from .captures import RANK, WINDOW, told
from .fragmentation import SEGMENT_COLUMNS, segments
from .memory_owners import OWNER, churn, holders, largest_live, live_at_peak, order
from .question import Column, Parameter, Table, question
from .shares import per, percent
from .steps import step_at, steps
from .work import Work, host_windows, since_first

if TYPE_CHECKING:
    from kinetop.traces.trace import TraceSet

_PLACE = Column("place", "text", "where the memory is: cuda:0, hip:1, cpu", priority=0)
_OWNERS = (
    Column(
        "op", "text", "innermost operator around the allocation; those that only allocate give way to their caller", priority=0
    ),
    Column("module", "text", "innermost nn.Module around it, where the trace has them", priority=1),
    Column("frame", "text", "in memory snapshots: the Python frame that allocated", priority=1),
)
_CHURN = (
    Column("allocations", "count", "allocations in scope", priority=1),
    Column("churn_bytes", "bytes", "sum of what they allocated", "churn", priority=1),
    Column("short_lived", "count", "of them, freed again within `short_us`", "short", priority=3),
    Column("short_lived_pct", "pct", "share of them", "short %", priority=1),
)

DEVICE_COLUMNS = (
    RANK,
    _PLACE,
    Column("process", "text", "process as written; each has its own allocator", priority=3),
    Column("start_bytes", "bytes", "in use before the first event; null where the allocator does not count", "start", priority=1),
    Column("peak_bytes", "bytes", "most in use; null where the allocator does not count", "peak", priority=0),
    Column("peak_us", "us", "when, since the first event", "peak at", priority=1),
    Column("peak_step", "id", "step in which it was", priority=3),
    Column("peak_op", "text", "operator whose allocation reached it", priority=1),
    Column("peak_module", "text", "nn.Module around that", priority=3),
    Column("end_bytes", "bytes", "in use after the last event", "end", priority=0),
    Column("peak_above_start_bytes", "bytes", "most that the events add to what was there before, at least 0", "above start", 2),
    Column("net_bytes", "bytes", "sum of all events: allocated less freed", "net", priority=2),
    Column("unexplained_bytes", "bytes", "end - start - net: 0 where the recording is whole", "unexplained", priority=3),
    Column("jumps", "count", "events whose total does not follow from the one before", priority=3),
    Column("peak_reserved_bytes", "bytes", "most held from the driver", "peak reserved", priority=0),
    Column("peak_reserved_us", "us", "when, since the first event", "reserved at", priority=3),
    Column("end_reserved_bytes", "bytes", "held after the last event", "end reserved", priority=2),
    Column("unused_at_peak_bytes", "bytes", "held and not in use when most was in use", "unused at peak", priority=2),
    Column("capacity_bytes", "bytes", "memory of the device, as the trace says", "capacity", priority=3),
    Column("peak_reserved_pct", "pct", "peak reserved / capacity", "of device", priority=1),
    *_CHURN,
    Column("frees", "count", "frees in scope", priority=3),
    Column("churn_gbps", "GB/s", "churn / time from the first to the last event", "churn GB/s", priority=2),
    Column("churn_per_step_bytes", "bytes", "allocated within steps / steps; null without steps", "churn/step", priority=2),
    Column("out_of_memory", "count", "allocations that failed", "OOM", priority=2),
    WINDOW,
)
"""Columns of the main table."""

HOLDER_COLUMNS = (
    RANK,
    _PLACE,
    *_OWNERS,
    Column(
        "source", "text", "recorded, or not recorded: in use before the first event; negative where frees are missing", priority=2
    ),
    Column("bytes", "bytes", "live at the peak; the rows of an allocator sum to its peak", priority=0),
    Column("allocations", "count", "live allocations", priority=1),
    Column("pct", "pct", "share of the peak", priority=1, free=True),
    WINDOW,
)
"""Columns of the table of what held the peak."""

LIVE_COLUMNS = (
    RANK,
    _PLACE,
    Column("bytes", "bytes", "size", priority=0),
    *_OWNERS,
    Column("address", "text", "address", priority=3),
    Column(
        "allocated_us", "us", "when it was allocated, since the first event; null before the recording", "allocated", priority=1
    ),
    Column("freed_us", "us", "when it was freed; null where it was not", "freed", priority=1),
    Column("lifetime_us", "us", "how long it lived", "life", priority=2),
    Column("thread", "text", "thread that allocated", priority=3),
    WINDOW,
)
"""Columns of the table of the largest allocations."""

OP_COLUMNS = (
    RANK,
    _PLACE,
    *_OWNERS,
    *_CHURN,
    Column("lifetime_median_us", "us", "median life of those that were freed", "life", priority=2),
    Column("kept_bytes", "bytes", "not freed by the end of the recording", "kept", priority=1),
    WINDOW,
)
"""Columns of the table of who allocates."""

CURVE_COLUMNS = (
    RANK,
    _PLACE,
    Column("start_us", "us", "start of the bucket, since the first event", "start", priority=0),
    Column("end_us", "us", "its end", "end", priority=2),
    Column("allocated_bytes", "bytes", "in use at its end; null where the allocator does not count", "in use", priority=0),
    Column("peak_bytes", "bytes", "most in use within it", "peak", priority=1),
    Column("above_start_bytes", "bytes", "sum of the events up to its end", "above start", priority=2),
    Column("reserved_bytes", "bytes", "held from the driver at its end", "reserved", priority=1),
    Column("allocations", "count", "allocations within it", priority=3),
    Column("frees", "count", "frees within it", priority=3),
    WINDOW,
)
"""Columns of the curve."""

_NONE = "the trace has no allocator events in scope: profile with profile_memory=True, or open a torch.cuda memory snapshot"


@question(
    name="memory",
    title="Memory",
    about="How much memory was in use, what held the peak, and how much was allocated only to be freed.",
    parameters=(
        Parameter("buckets", 60, "points of the curve of each allocator"),
        Parameter("short_us", 1000.0, "an allocation that lives shorter counts as short-lived"),
        Parameter("largest", 20, "largest allocations to list for each allocator"),
    ),
    tables=(
        Table("devices", DEVICE_COLUMNS, sort="peak_bytes", about="Each allocator over the scope.", none=_NONE),
        Table("holders", HOLDER_COLUMNS, about="What was live at the peak, by owner.", none=_NONE),
        Table("live", LIVE_COLUMNS, about="The largest allocations that were live at the peak.", none=_NONE),
        Table("ops", OP_COLUMNS, about="Who allocates, and for how long.", none=_NONE),
        Table("segments", SEGMENT_COLUMNS, about="How the memory held is used.", none="the input is no memory snapshot"),
        Table("curve", CURVE_COLUMNS, about="Memory over time; it ends where the events end.", none=_NONE),
    ),
    order=10,
    common=("window", "step", "rank", "device", "top"),
)
def memory(work: Work, *, buckets: int, short_us: float, largest: int) -> dict[str, pl.DataFrame]:
    """Return memory over time and its owners, from the allocator events of a trace or a memory snapshot.

    Example:
        >>> import kinetop
        >>> trace = kinetop.open("tests/data/hazards/71_memory_instants.json", cache=False)
        >>> kinetop.memory(trace).select("place", "start_bytes", "peak_bytes", "end_bytes").rows()[0]
        ('cuda:0', 0, 3145728, 2097152)
    """
    trace, short_ns = work.trace, round(1000 * short_us)
    every = _chosen(events(trace), work).with_columns(pl.col("n").cast(pl.Int64))
    found = _levelled(_in_scope(every, work))
    owned = allocations(trace, every)
    lanes = _lanes(found)
    before = _chosen(recorded(trace, "[live]"), work).select(pl.exclude("args", "total_allocated_bytes", "total_reserved_bytes"))
    live = live_at_peak(pl.concat([owned, before.with_columns(at_ns=pl.lit(None, pl.Int64))], how="diagonal_relaxed"), lanes)
    own = owned.join(found.select("n"), on="n", how="semi")
    keys = [*LANE, "rank", "place"]
    told = _with_owner(_with_churn(lanes, own, work, short_ns), owned)
    tables = {
        "devices": _with_limits(told, trace, work).sort(
            "peak_bytes", "churn_bytes", "rank", descending=[True, True, False], nulls_last=True
        ),
        "holders": holders(live, lanes),
        "live": largest_live(live, lanes, max(0, largest)),
        "ops": churn(own, short_ns, [*dict.fromkeys(keys), *OWNER]).sort(
            *order(), "churn_bytes", *OWNER, descending=[False, False, False, False, True, False, False, False], nulls_last=True
        ),
        "curve": _curve(found, lanes, max(1, buckets)),
        "segments": segments(_chosen(recorded(trace, "[block]"), work)),
    }
    return {table.name: _shown(tables[table.name], work, table.columns) for table in memory.tables}


def _chosen(rows: pl.DataFrame, work: Work) -> pl.DataFrame:
    """Keep the rank and the device asked for."""
    for name in ("rank", "device"):
        value = getattr(work.scope, name)
        if value is not None:
            rows = rows.filter(pl.col(name) == value)
    return rows


def _in_scope(rows: pl.DataFrame, work: Work) -> pl.DataFrame:
    windows = host_windows(work)
    if windows is None:
        return rows
    cut = rows.join(windows.select("part", "start_ns", "end_ns"), on="part", how="inner", maintain_order="left")
    return cut.filter(pl.col("at_ns").is_between("start_ns", "end_ns", closed="left")).drop("start_ns", "end_ns")


def _levelled(found: pl.DataFrame) -> pl.DataFrame:
    """Add the sum of the events so far, the level that peaks are of, and whether the total follows from the one before."""
    total = pl.col("allocated_bytes")
    rows = found.with_columns(
        above_start_bytes=pl.col("bytes").cum_sum().over(LANE),
        jumps=(total - total.shift(1).over(LANE) != pl.col("bytes")).fill_null(value=False),
        counted=total.is_not_null().any().over(LANE),
    )
    return rows.with_columns(level=pl.when("counted").then(total).otherwise("above_start_bytes"))


def _lanes(found: pl.DataFrame) -> pl.DataFrame:
    """One row for each allocator: where it starts and ends, and its peak."""
    level, size = pl.col("level"), pl.col("bytes")
    base = (level - pl.col("above_start_bytes")).drop_nulls()
    made = found.group_by(LANE, maintain_order=True).agg(
        pl.col("rank", "device", "counted").first(),
        first_n=pl.col("n").first(),
        first_ns=pl.col("at_ns").first(),
        last_ns=pl.col("at_ns").last(),
        start_level=base.first(),
        top_level=level.max(),
        top_n=pl.col("n").get(level.arg_max()),
        top_ns=pl.col("at_ns").get(level.arg_max()),
        unused_at_peak_bytes=(pl.col("reserved_bytes") - pl.col("allocated_bytes")).get(level.arg_max()),
        end_level=base.last() + pl.col("above_start_bytes").last(),
        peak_above_start_bytes=pl.col("above_start_bytes").max().clip(0),
        net_bytes=size.sum(),
        frees=(size < 0).sum().cast(pl.Int64),
        jumps=pl.when(pl.col("counted").first()).then(pl.col("jumps").sum().cast(pl.Int64)),
        peak_reserved_bytes=pl.col("reserved_bytes").max(),
        peak_reserved_ns=pl.when(pl.col("reserved_bytes").is_not_null().any()).then(
            pl.col("at_ns").get(pl.col("reserved_bytes").fill_null(-1).arg_max())
        ),
        end_reserved_bytes=pl.col("reserved_bytes").last(),
    )
    falls = pl.col("start_level") >= pl.col("top_level")
    return made.with_columns(
        peak_n=pl.when(falls).then(pl.col("first_n") - 1).otherwise("top_n"),
        peak_ns=pl.when(falls).then("first_ns").otherwise("top_ns"),
        start_bytes=pl.when("counted").then("start_level"),
        peak_bytes=pl.when("counted").then(pl.max_horizontal("start_level", "top_level")),
        end_bytes=pl.when("counted").then("end_level"),
        unused_at_peak_bytes=pl.when(~falls).then("unused_at_peak_bytes"),
        unexplained_bytes=pl.when("counted").then(pl.col("end_level") - pl.col("start_level") - pl.col("net_bytes")),
    )


def _with_churn(lanes: pl.DataFrame, own: pl.DataFrame, work: Work, short_ns: int) -> pl.DataFrame:
    rows = lanes.join(churn(own, short_ns, LANE), on=list(LANE), how="left", maintain_order="left")
    rows = rows.with_columns(pl.col("allocations", "churn_bytes", "short_lived").fill_null(0))
    span = pl.col("last_ns") - pl.col("first_ns")
    rows = rows.with_columns(churn_gbps=per(pl.col("churn_bytes"), span))
    marked = steps(work.trace).select("part", "step", "start_ns", "end_ns")
    windows = host_windows(work)
    if windows is not None:
        inside = marked.join(windows, on="part", suffix="_window")
        marked = inside.filter(pl.col("start_ns") >= pl.col("start_ns_window"), pl.col("end_ns") <= pl.col("end_ns_window"))
    counts = marked.group_by("part").agg(steps=pl.len())
    in_steps = _with_step(own, marked).drop_nulls("step").group_by(LANE).agg(in_steps=pl.col("bytes").sum())
    rows = rows.join(in_steps, on=list(LANE), how="left", maintain_order="left").join(counts, on="part", how="left")
    rows = rows.with_columns(
        churn_per_step_bytes=pl.when(pl.col("steps") > 0).then(pl.col("in_steps").fill_null(0) // pl.col("steps"))
    )
    return _with_step(rows.with_columns(at_ns="peak_ns"), marked).rename({"step": "peak_step"}).drop("at_ns")


def _with_step(rows: pl.DataFrame, marked: pl.DataFrame) -> pl.DataFrame:
    """Add the step that contains `at_ns`."""
    return rows.with_columns(step_at(rows.select("part", "at_ns"), marked))


def _with_owner(rows: pl.DataFrame, owned: pl.DataFrame) -> pl.DataFrame:
    """Add the operator and module whose allocation reached the peak."""
    named = owned.select(peak_n="n", peak_op=pl.coalesce("op", "frame"), peak_module="module")
    return rows.join(named, on="peak_n", how="left", maintain_order="left")


def _with_limits(rows: pl.DataFrame, trace: TraceSet, work: Work) -> pl.DataFrame:
    """Add what the device has, and how often it was not enough."""
    sizes = [
        (part, index, size)
        for part, one in enumerate(trace.traces)
        for index, about in one.devices.items()
        if isinstance(size := about.get("totalGlobalMem"), int) and 0 < size < 2**63 and abs(index) < 2**31
    ]
    kinds: dict[str, Any] = {"part": pl.Int32, "device": pl.Int32, "capacity_bytes": pl.Int64}
    known = pl.DataFrame(sizes, schema=kinds, orient="row")
    failed = _in_scope(_chosen(recorded(trace, "[OutOfMemory]"), work), work)
    counts = failed.group_by(LANE).agg(out_of_memory=pl.len().cast(pl.Int64))
    rows = rows.join(known, on=["part", "device"], how="left", maintain_order="left")
    rows = rows.join(counts, on=list(LANE), how="left", maintain_order="left").with_columns(pl.col("out_of_memory").fill_null(0))
    return rows.with_columns(peak_reserved_pct=percent(pl.col("peak_reserved_bytes"), pl.col("capacity_bytes")))


def _curve(found: pl.DataFrame, lanes: pl.DataFrame, count: int) -> pl.DataFrame:
    """Return the state of each allocator at the end of equal stretches from its first to its last event."""
    spans = lanes.select(*LANE, "rank", "first_ns", "last_ns", "start_bytes", "counted")
    width = pl.max_horizontal((pl.col("last_ns") - pl.col("first_ns") + count - 1) // count, pl.lit(1))
    spans = spans.with_columns(width=width, last=((pl.col("last_ns") - pl.col("first_ns")) // width).clip(0, count - 1))
    placed = found.join(spans.select(*LANE, "first_ns", "width", "last"), on=list(LANE), maintain_order="left")
    at = ((pl.col("at_ns") - pl.col("first_ns")) // pl.col("width")).clip(0, pl.col("last"))
    made = placed.group_by(*LANE, bucket=at).agg(
        pl.col("allocated_bytes", "above_start_bytes", "reserved_bytes").last(),
        peak=pl.col("allocated_bytes").max(),
        allocations=(pl.col("bytes") > 0).sum().cast(pl.Int64),
        frees=(pl.col("bytes") < 0).sum().cast(pl.Int64),
    )
    grid = spans.with_columns(bucket=pl.int_ranges(0, pl.col("last") + 1)).explode("bucket")
    rows = grid.join(made, on=[*LANE, "bucket"], how="left").sort(*order(), "bucket")
    held = pl.col("allocated_bytes", "above_start_bytes", "reserved_bytes").forward_fill().over(LANE)
    rows = rows.with_columns(held, pl.col("allocations", "frees").fill_null(0))
    before = pl.coalesce(pl.col("allocated_bytes").shift(1).over(LANE), "start_bytes")
    begin = pl.col("first_ns") + pl.col("bucket") * pl.col("width")
    return rows.with_columns(
        start_ns=begin,
        end_ns=pl.min_horizontal(begin + pl.col("width"), "last_ns"),
        peak_bytes=pl.when("counted").then(pl.max_horizontal(before, "peak")),
    )


_MOMENTS = {"peak_ns", "peak_reserved_ns", "allocated_ns", "freed_ns", "start_ns", "end_ns"}


def _shown(rows: pl.DataFrame, work: Work, columns: tuple[Column, ...]) -> pl.DataFrame:
    """Put rows in the form declared, moments since the first event on the first rank's clock."""
    moments = (since_first(name, work.trace) for name in rows.columns if name in _MOMENTS)
    return told(rows.with_columns(pl.col(pl.Categorical).cast(pl.String), *moments), work, columns)
