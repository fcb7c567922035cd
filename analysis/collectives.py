"""How fast the collectives of a trace ran: bytes and bandwidths as nccl-tests defines them, and what of their time shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from . import intervals
from .captures import PLACE, WINDOW, told
from .question import Column, Table, as_declared, question
from .shares import per
from .work import DEVICE, Work, scoped, since_first

if TYPE_CHECKING:
    from kinetop.traces.trace import TraceSet

ELEMENT_BYTES: dict[str, int] = {
    **dict.fromkeys(("bool", "byte", "uint8", "char", "int8", "qint8", "quint8", "bits8", "bits1x8", "bits2x4", "bits4x2"), 1),
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"), 1),
    **dict.fromkeys(("float4_e2m1fn_x2", "quint4x2", "quint2x4"), 1),  # a stored element is a byte
    **dict.fromkeys(("half", "float16", "bfloat16", "short", "int16", "uint16", "bits16"), 2),
    **dict.fromkeys(("float", "float32", "int", "int32", "uint32", "qint32", "complexhalf", "complex32"), 4),
    **dict.fromkeys(("double", "float64", "long", "int64", "uint64", "complexfloat", "complex64"), 8),
    **dict.fromkeys(("complexdouble", "complex128"), 16),
}
"""Bytes of an element by PyTorch's names of its types, in lower case."""

_KINDS: tuple[tuple[str, str], ...] = (
    ("barrier", "barrier"),
    ("allreduce", "all-reduce"),
    ("reducescatter", "reduce-scatter"),
    ("allgather", "all-gather"),
    ("alltoall", "all-to-all"),
    ("broadcast", "broadcast"),
    ("send|recv", "send-recv"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("reduce", "reduce"),
)
"""Kind by the name that the profiler wrote, underscores aside; the first that fits."""

_RESULT_IS_LARGER = ("all-gather", "gather")
_INPUT_IS_LARGER = ("reduce-scatter", "scatter")
_SHARED = ("all-gather", "reduce-scatter", "all-to-all", "gather", "scatter")
_WHOLE = ("broadcast", "reduce", "send-recv")

_WHAT = ("collective", "in_elements", "out_elements", "dtype", "group_size", "process_group", "seq")
"""What the profiler writes beside a collective's kernel."""

_KIND = Column("kind", "text", "kind of collective, by what the profiler wrote beside the kernel, else by the kernel's name")
_GROUP = (
    Column("process_group", "text", "process group", "group", priority=2),
    Column("group_size", "count", "ranks in the group; null where the trace does not say", "ranks", priority=1),
    Column("dtype", "text", "type of an element, as PyTorch names it", priority=2),
)
_BYTES = Column(
    "bytes",
    "bytes",
    "size as nccl-tests states it: the largest buffer of a rank, that is elements x their bytes, of all ranks for an all-gather, "
    "reduce-scatter, gather or scatter; null where unknown",
    priority=0,
)
_RATES = "; the time is that of the kernel, in which it may also wait for other ranks, so that links may be faster than this"
_ALGORITHM = "bytes / time, in GB/s of 10^9 bytes"
_BUS = (
    "algorithm bandwidth x 2(n-1)/n for an all-reduce, (n-1)/n for all-gather, reduce-scatter, all-to-all, gather and scatter, "
    "1 for broadcast, reduce, send and recv, with n ranks"
)

GROUP_COLUMNS = (
    *PLACE,
    _KIND,
    Column("collective", "text", "as the profiler wrote it; null where it wrote nothing", priority=3),
    *_GROUP,
    _BYTES,
    Column("count", "count", "calls", priority=0),
    Column("total_us", "us", "sum of their durations", priority=1),
    Column("mean_us", "us", "mean duration", priority=2),
    Column("median_us", "us", "median duration", "median", priority=1),
    Column("p95_us", "us", "95th percentile, interpolated", "p95", priority=3),
    Column("min_us", "us", "shortest", "min", priority=2),
    Column("max_us", "us", "longest", "max", priority=2),
    Column("exposed_us", "us", "of the total, time with no compute beside it on the device", "exposed", priority=0),
    Column("algorithm_gbps", "GB/s", f"bytes of all calls / sum of their durations, in GB/s of 10^9 bytes{_RATES}", "alg", 1),
    Column("bus_gbps", "GB/s", _BUS, "bus", priority=0),
    Column("best_bus_gbps", "GB/s", "bus bandwidth of the shortest call", "best bus", priority=2),
    WINDOW,
)
"""Columns of the main table."""

SIZE_COLUMNS = (
    _KIND,
    _GROUP[1],
    Column("from_bytes", "bytes", "size class: sizes of this power of two and more, below the next", "size from", priority=0),
    Column("count", "count", "calls, all devices in scope together", priority=1),
    Column("median_us", "us", "median duration", "median", priority=1),
    Column("total_us", "us", "sum of durations", priority=2),
    Column("algorithm_gbps", "GB/s", "bytes of all / sum of durations", "alg", priority=1),
    Column("bus_gbps", "GB/s", _BUS, "bus", priority=0),
    Column("best_bus_gbps", "GB/s", "highest bus bandwidth of a call", "best bus", priority=2),
)
"""Columns of the table of bandwidth by size."""

CALL_COLUMNS = (
    *PLACE,
    Column("start_us", "us", "start, since the first event", "start", priority=2),
    _KIND,
    Column("collective", "text", "as the profiler wrote it", priority=3),
    *_GROUP,
    Column("seq", "id", "number of the collective in its group, where the profiler wrote it", priority=3),
    Column("in_elements", "count", "elements that go in, of this rank", priority=3),
    Column("out_elements", "count", "elements that come out, of this rank", priority=3),
    _BYTES,
    Column("dur_us", "us", "duration of the kernel", priority=0),
    Column("exposed_us", "us", "of it, time with no compute beside it on the device", "exposed", priority=1),
    Column("algorithm_gbps", "GB/s", _ALGORITHM + _RATES, "alg", priority=1),
    Column("bus_gbps", "GB/s", _BUS, "bus", priority=0),
    Column("name", "text", "kernel", priority=2),
    WINDOW,
)
"""Columns of the table of single calls."""

_NONE = "no communication kernel in scope"


@question(
    name="collectives",
    title="Collectives",
    about="How large and how fast the collectives were, and how much of their time shows.",
    tables=(
        Table("groups", GROUP_COLUMNS, sort="total_us", about="Calls of one kind, group and size together.", none=_NONE),
        Table(
            "sizes",
            SIZE_COLUMNS,
            about="Size against bandwidth.",
            none="no collective in scope whose size is known",
        ),
        Table("calls", CALL_COLUMNS, about="Each call, in order of time.", none=_NONE),
    ),
    order=11,
)
def collectives(work: Work) -> dict[str, pl.DataFrame]:
    """Return the collectives in scope.

    Example:
        >>> import kinetop
        >>> trace = kinetop.open("tests/data/hazards/57_comm_kernel_names.json", cache=False)
        >>> kinetop.collectives(trace)["kind"].unique().sort().to_list()[:2]
        ['all-gather', 'all-reduce']
    """
    calls = _calls(work)
    return {"groups": _groups(calls, work), "sizes": _sizes(calls), "calls": _told(calls, work)}


def _calls(work: Work) -> pl.DataFrame:
    """Communication kernels in scope, whole where a window cuts them: half a duration would double a bandwidth."""
    whole = scoped(work.trace, rank=work.scope.rank, device=work.scope.device).all_gpu
    chosen = work.gpu.filter(pl.col("class") == "comm").select("part", "event_id")
    calls = whole.join(chosen, on=["part", "event_id"], how="semi", maintain_order="left")
    exposed = calls["dur_ns"] - intervals.covered(calls, whole.filter(pl.col("class") == "compute"), DEVICE)
    return _with_rates(_with_args(calls, work.trace).with_columns(exposed.alias("exposed_ns")))


def _with_args(calls: pl.DataFrame, trace: TraceSet) -> pl.DataFrame:
    """Add out_elements; take what a kernel does not say of its collective from the operator that launched it."""
    got = trace.events.filter(pl.col("out_elements").is_not_null()).select("part", "event_id", "out_elements").collect()
    calls = calls.join(got, on=["part", "event_id"], how="left", maintain_order="left")
    if calls["collective"].null_count() == 0:
        return calls
    said = pl.col("collective") != "wait"
    by_op = trace.events.filter(said).select("part", *_WHAT, op_id="event_id").collect()
    if by_op.is_empty():
        return calls
    ops = trace.launches.select("part", "event_id", "op_id").join(by_op, on=["part", "op_id"], how="inner")
    found = calls.join(ops, on=["part", "event_id"], how="left", maintain_order="left", suffix="_op")
    silent = pl.col("collective").is_null()
    taken = [pl.when(silent).then(f"{name}_op").otherwise(name).alias(name) for name in _WHAT]
    return found.with_columns(taken).select(calls.columns)


def _with_rates(calls: pl.DataFrame) -> pl.DataFrame:
    """Add kind, bytes and bandwidths (bytes/ns are GB/s)."""
    written = pl.col("collective").str.to_lowercase().str.replace_all("_", "")
    by_args = pl.coalesce(*(pl.when(written.str.contains(pattern)).then(pl.lit(kind)) for pattern, kind in _KINDS))
    made = calls.with_columns(kind=pl.coalesce(by_args, "family")).with_columns(bytes=_bytes())
    made = made.with_columns(algorithm=per(pl.col("bytes"), pl.col("dur_ns")), factor=_factor())
    return made.with_columns(bus=pl.col("algorithm") * pl.col("factor"))


def _bytes() -> pl.Expr:
    """Size of the largest buffer of a rank; where only the smaller one is stated, it is that times the ranks."""
    # As f64, so that an absurd number of a broken trace becomes null below and not a wrong size.
    sent, got, ranks = (
        pl.when(pl.col(name) > 0).then(pl.col(name).cast(pl.Float64)) for name in ("in_elements", "out_elements", "group_size")
    )
    kind = pl.col("kind")
    elements = (
        pl.when(kind.is_in(_RESULT_IS_LARGER))
        .then(pl.coalesce(got, sent * ranks))
        .when(kind.is_in(_INPUT_IS_LARGER))
        .then(pl.coalesce(sent, got * ranks))
        .when(kind.is_in(["all-reduce", "all-to-all", *_WHOLE]))
        .then(pl.coalesce(sent, got))
    )
    plain = pl.col("dtype").str.to_lowercase().str.replace(r"^(c10::|torch\.)", "")
    size = plain.replace_strict(ELEMENT_BYTES, default=None, return_dtype=pl.Float64)
    return (elements * size).cast(pl.Int64, strict=False)


def _factor() -> pl.Expr:
    """What an algorithm bandwidth is multiplied by to compare it with a link's; a group of one rank moves nothing."""
    ranks, kind = pl.col("group_size"), pl.col("kind")
    share = pl.when(ranks > 1).then((ranks - 1) / ranks)
    whole = pl.when(ranks.is_null() | (ranks > 1)).then(1.0)
    return (
        pl.when(kind == "all-reduce").then(2 * share).when(kind.is_in(_SHARED)).then(share).when(kind.is_in(_WHOLE)).then(whole)
    )


def _groups(calls: pl.DataFrame, work: Work) -> pl.DataFrame:
    keys = [*DEVICE, "kind", "collective", "process_group", "group_size", "dtype", "bytes"]
    us = pl.col("dur_ns") / 1000
    made = calls.group_by(keys).agg(
        count=pl.len().cast(pl.Int64),
        total_us=us.sum(),
        mean_us=us.mean(),
        median_us=us.median(),
        p95_us=us.quantile(0.95, "linear"),
        min_us=us.min(),
        max_us=us.max(),
        exposed_us=pl.col("exposed_ns").sum() / 1000,
        **_rates(),
    )
    order = ["total_us", "rank", "device", "kind", "bytes", "process_group", "part", "collective", "group_size", "dtype"]
    return told(made.sort(order, descending=[True, *[False] * (len(order) - 1)]), work, GROUP_COLUMNS)


def _rates() -> dict[str, pl.Expr]:
    """Bandwidths of calls together: all bytes over all time, so that a short call counts as little as it moves."""
    timed = pl.col("algorithm").is_not_null()
    algorithm = pl.col("bytes").filter(timed).sum() / pl.col("dur_ns").filter(timed).sum()
    known = pl.col("bus").is_not_null()
    moved = (pl.col("bytes") * pl.col("factor")).filter(known).sum() / pl.col("dur_ns").filter(known).sum()
    return {
        "algorithm_gbps": pl.when(timed.any()).then(algorithm),
        "bus_gbps": pl.when(known.any()).then(moved),
        "best_bus_gbps": pl.col("bus").max(),
    }


def _sizes(calls: pl.DataFrame) -> pl.DataFrame:
    exponent = 63 - pl.col("bytes").bitwise_leading_zeros().cast(pl.Int64)
    sized = calls.filter(pl.col("bytes") > 0).with_columns(from_bytes=pl.lit(2, pl.Int64).pow(exponent))
    us = pl.col("dur_ns") / 1000
    keys = ["kind", "group_size", "from_bytes"]
    made = sized.group_by(keys).agg(count=pl.len().cast(pl.Int64), median_us=us.median(), total_us=us.sum(), **_rates())
    return as_declared(made.sort(keys), SIZE_COLUMNS)


def _told(calls: pl.DataFrame, work: Work) -> pl.DataFrame:
    """Put the calls in the form declared, in order of time on the first rank's clock."""
    rates = {"algorithm_gbps": pl.col("algorithm"), "bus_gbps": pl.col("bus")}
    rows = calls.with_columns(**rates, start_ns=since_first("start_ns", work.trace))
    return told(rows.sort("start_ns", "rank", "device", "event_id"), work, CALL_COLUMNS)
