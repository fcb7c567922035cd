"""How close each operator comes to what the device can do: FLOPs and bytes over the time of the kernels that it launched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from kinetop.traces import schema

from .attention_calls import attention_calls
from .attention_shapes import operator
from .names import matching
from .op_costs import FORMULAS, MATRIX_KINDS, SIGNATURE, costs
from .peaks import device_limits
from .question import Column, Parameter, Table, as_declared, question
from .shares import per, percent

if TYPE_CHECKING:
    from kinetop.traces.trace import TraceSet

    from .work import Work

GROUPS = ("shape", "name", "family")
NO_OPERATOR = "(no operator)"
"""Stands for the operator of kernels that none is known of."""
_TF32 = r"(?i)tf32|s1688gemm|s1688fprop|s1688dgrad|s1688wgrad"
"""Kernels that compute fp32 products with TF32, as far as their name says so."""

ROOFLINE_COLUMNS = (
    Column("op", "text", "the operator that launched the kernels; the family with group_by family", priority=0),
    Column("shape", "text", "sizes of its tensors; null in wider groups and where the trace does not say", priority=0),
    Column("kind", "text", "gemm, conv, attention, ...: how its cost is counted; else the kernels' family", priority=1),
    Column("dtype", "text", "element type of the first operand; tf32 where kernels' names say so", priority=1),
    Column("calls", "count", "calls of the operator; kernels, where there is no operator", priority=1),
    Column("device_us", "us", "sum of the durations of the kernels it launched", "total", priority=0),
    Column("share_pct", "pct", "device time / that of all kernels in scope", "share", priority=1),
    Column("known_pct", "pct", "share of the device time whose FLOPs and bytes are known", "known", priority=3),
    Column("gflop", "ratio", "GFLOP of all calls, where known", "GFLOP", priority=2, decimals=9),
    Column("bytes", "bytes", "bytes of all calls: each input read once, each output written once", priority=2),
    Column("intensity", "ratio", "FLOPs per byte", "FLOP/B", priority=1),
    Column("tflops", "ratio", "FLOPs over the device time of the calls whose FLOPs are known, TFLOP/s", "TF/s", priority=0),
    Column("gb_s", "GB/s", "bytes over the device time of the calls whose bytes are known", "traffic", priority=1),
    Column("compute_pct", "pct", "FLOP rate / peak rate (fp32's for work without matrix units)", "of FLOP peak", free=True),
    Column("bandwidth_pct", "pct", "traffic / peak memory bandwidth; above 100 where caches serve", "of bandwidth", free=True),
    Column("bound", "text", "which limit is nearer, compute or memory; unknown where FLOPs, bytes or the peaks are", priority=0),
    Column(
        "above_roof_us",
        "us",
        "device time less that at the nearer limit: what could be saved at most with the same FLOPs and bytes",
        "above roof",
        priority=1,
    ),
    Column("device_name", "text", "the kind of device, as the driver names it", "GPU", priority=3),
    Column("peak_tflops", "ratio", "peak rate of the device for this work, TFLOP/s", "peak TF/s", priority=3),
    Column("peak_gb_s", "GB/s", "peak memory bandwidth of the device", "peak traffic", priority=3),
)  # fmt: skip
"""Columns of the roofline table."""


@question(
    name="roofline",
    title="Roofline",
    about="How close each operator comes to the limits of the device, and what bounds it.",
    parameters=(Parameter("group_by", "shape", "what one row stands for: op and shape, op, or kind", choices=GROUPS),),
    tables=(
        Table(
            "roofline",
            ROOFLINE_COLUMNS,
            sort="device_us",
            about="Kernels only, communication aside; copies have no roof here.",
            none="the trace holds no kernels other than communication",
        ),
    ),
    order=9,
)
def roofline(work: Work, *, group_by: str) -> dict[str, pl.DataFrame]:
    """Return a row for each operator and shape.

    Example:
        >>> import kinetop
        >>> trace = kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False)
        >>> kinetop.roofline(trace).select("op", "calls", "device_us", "bound").rows()[0]
        ('aten::linear', 1, 85.0, 'unknown')
    """
    rows = _limited(_by_shape(work), work)
    merged = rows if group_by == "shape" else _merged(rows, group_by)
    return {"roofline": _told(merged)}


def _by_shape(work: Work) -> pl.DataFrame:
    """Return device time, calls, FLOPs and bytes by operator, shape, type and kind of device."""
    kernels = work.gpu.filter((pl.col("kind") == "kernel") & (pl.col("class") != "comm"))
    places, _ = device_limits(work.trace, work.all_gpu)
    rows = kernels.select("part", "device", "event_id", "dur_ns", "family", tf32=matching(kernels["name"], _TF32))
    rows = rows.join(
        work.trace.launches.select("part", "event_id", "op_id", "op"), on=["part", "event_id"], how="left", maintain_order="left"
    )
    found = attention_calls(work.trace)
    rows = rows.join(found.members, on=["part", "event_id"], how="left", maintain_order="left")
    rows = rows.join(places.select("part", "device", "model"), on=["part", "device"], how="left", maintain_order="left")
    attention = found.calls.select(
        "call", attention=pl.format("attention ({})", pl.coalesce("implementation", pl.lit("unknown")))
        + pl.when("backward").then(pl.lit(", backward")).otherwise(pl.lit("")),
        shape="shape", dtype="dtype", flops="executed_flops", bytes="bytes", kind=pl.lit("attention"),
    )  # fmt: skip
    apart = pl.col("call").is_null()
    parts = [
        _summed(rows.filter(~apart).drop("op").join(attention, on="call", how="left").rename({"attention": "op"}), "call"),
        _summed(_costed(rows.filter(apart & pl.col("op_id").is_not_null()), work.trace), "op_id"),
        _summed(_unlinked(rows.filter(apart & pl.col("op_id").is_null())), "event_id"),
    ]
    return pl.concat(parts)


def _costed(rows: pl.DataFrame, trace: TraceSet) -> pl.DataFrame:
    """Give the kernels of operators the cost of their operator's call."""
    known = [name for name in rows["op"].unique().drop_nulls() if name in FORMULAS or operator(name)]
    texts = (
        trace.events.filter(
            pl.col("cat").is_in([*schema.OP_CATS]), pl.col("name").is_in(known), pl.col("input_dims").is_not_null()
        )
        .select("part", "event_id", *SIGNATURE)
        .collect()
    )
    distinct = texts.group_by(SIGNATURE).agg("part", "event_id").with_columns(pl.col("name").cast(pl.String))
    signed = costs(distinct).select("part", "shape", "dtype", "flops", "bytes", "kind", op_id="event_id").explode("part", "op_id")
    return rows.join(signed, on=["part", "op_id"], how="left", maintain_order="left")


def _unlinked(rows: pl.DataFrame) -> pl.DataFrame:
    """Give kernels without operator the columns of the others."""
    text, number = pl.lit(None, pl.String), pl.lit(None, pl.Int64)
    return rows.with_columns(shape=text, dtype=text, flops=number, bytes=number, kind="family")


def _summed(rows: pl.DataFrame, call: str) -> pl.DataFrame:
    """Sum up kernels by operator and shape; a call's FLOPs count once, with its first kernel."""
    first = pl.struct("part", call).is_first_distinct()
    rows = rows.with_columns(
        first=first,
        op=pl.col("op").fill_null(NO_OPERATOR),
        half=pl.col("tf32") & (pl.col("dtype") == "fp32"),
    )
    return (
        rows.group_by("op", "shape", "kind", "dtype", "model", "flops", "bytes")
        .agg(
            calls=pl.col("first").sum().cast(pl.Int64),
            device_ns=pl.col("dur_ns").sum(),
            tf32_ns=pl.col("dur_ns").filter(pl.col("half").fill_null(value=False)).sum(),
            family=pl.col("family").sort_by("dur_ns").last(),
        )
        .with_columns(kind=pl.coalesce("kind", "family"))
        .drop("family")
    )


def _limited(rows: pl.DataFrame, work: Work) -> pl.DataFrame:
    """Add the limits of the device, which of them is nearer, and the time above it."""
    places, rates = device_limits(work.trace, work.all_gpu)
    models = places.unique("model").select("model", "device_name", "peak_gb_s")
    rows = rows.with_columns(
        dtype=pl.when(2 * pl.col("tf32_ns") > pl.col("device_ns")).then(pl.lit("tf32")).otherwise("dtype"),
        flops=pl.col("flops").cast(pl.Float64) * pl.col("calls"),
        bytes=pl.col("bytes").cast(pl.Float64) * pl.col("calls"),
    )
    matrix = pl.col("kind").is_in([*MATRIX_KINDS])
    fast = pl.when(matrix).then("dtype").when(pl.col("dtype") == "fp64").then(pl.lit("fp64")).otherwise(pl.lit("fp32"))
    rows = rows.join(models, on="model", how="left", maintain_order="left").with_columns(fast=fast)
    rows = rows.join(rates.rename({"dtype": "fast"}), on=["model", "fast"], how="left", maintain_order="left")
    compute_ns = pl.col("flops") / (pl.col("peak_tflops") * 1e3)
    memory_ns = pl.col("bytes") / pl.col("peak_gb_s")
    told = compute_ns.is_not_null() & memory_ns.is_not_null()
    known, unknown = pl.col("flops").is_not_null() & pl.col("bytes").is_not_null(), pl.lit("unknown")
    return rows.with_columns(
        bound=pl.when(~told).then(unknown).when(compute_ns > memory_ns).then(pl.lit("compute")).otherwise(pl.lit("memory")),
        above_ns=pl.when(told).then((pl.col("device_ns") - pl.max_horizontal(compute_ns, memory_ns)).clip(lower_bound=0)),
        known_ns=pl.when(known).then("device_ns").otherwise(0),
        flops_ns=pl.when(pl.col("flops").is_not_null()).then("device_ns").otherwise(0),
        bytes_ns=pl.when(pl.col("bytes").is_not_null()).then("device_ns").otherwise(0),
    )  # fmt: skip


def _merged(rows: pl.DataFrame, group_by: str) -> pl.DataFrame:
    """Put the shapes of an operator, or all of a kind, together; what bounds most of the known time bounds the row."""
    keys = ["op", "kind", "dtype", "device_name"] if group_by == "name" else ["kind", "device_name"]
    some = [
        pl.when(pl.col(name).is_not_null().any()).then(pl.col(name).sum()).alias(name) for name in ("flops", "bytes", "above_ns")
    ]
    one = [pl.when(pl.col(n).n_unique() == 1).then(pl.col(n).first()).alias(n) for n in ("dtype", "peak_tflops") if n not in keys]
    times = pl.col("calls", "device_ns", "known_ns", "flops_ns", "bytes_ns").sum()
    bound = pl.col("bound").filter(pl.col("bound") != "unknown").sort_by(pl.col("device_ns").filter(pl.col("bound") != "unknown"))
    by_time = [pl.col("device_ns").filter(pl.col("bound") == name).sum().alias(name) for name in ("compute", "memory")]
    made = rows.group_by(keys).agg(*some, *one, times, pl.col("peak_gb_s").first(), *by_time, any_bound=bound.last())
    bound = pl.when(pl.col("any_bound").is_null()).then(pl.lit("unknown"))
    bound = bound.when(pl.col("compute") > pl.col("memory")).then(pl.lit("compute")).otherwise(pl.lit("memory"))
    made = made.with_columns(bound=bound, shape=pl.lit(None, pl.String))
    return made if group_by == "name" else made.with_columns(op="kind")


def _told(rows: pl.DataFrame) -> pl.DataFrame:
    """Put the rows in the form declared, the most device time first."""
    own = pl.col("device_ns")
    tflops, gb_s = per(pl.col("flops") / 1e3, pl.col("flops_ns")), per(pl.col("bytes"), pl.col("bytes_ns"))
    made = rows.with_columns(
        share_pct=percent(own, own.sum()),
        known_pct=percent(pl.col("known_ns"), own),
        gflop=pl.col("flops") / 1e9,
        bytes=pl.col("bytes").cast(pl.Int64, strict=False),  # sizes that a broken trace states may be beyond any count
        intensity=per(pl.col("flops"), pl.col("bytes")),
        tflops=tflops,
        gb_s=gb_s,
        compute_pct=percent(tflops, pl.col("peak_tflops")),
        bandwidth_pct=percent(gb_s, pl.col("peak_gb_s")),
        above_roof_ns=pl.col("above_ns"),
    )
    order = ["device_ns", "op", "shape", "dtype", "bytes"]
    return as_declared(made.sort(order, descending=[True, *[False] * 4], nulls_last=True), ROOFLINE_COLUMNS)
