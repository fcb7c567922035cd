"""Where a trace computes attention, how fast, and what a fused kernel would save."""

from __future__ import annotations

import polars as pl

from . import intervals
from .attention_calls import MATERIALIZING, PROBLEM, attention_calls
from .peaks import device_limits
from .question import Column, Parameter, Table, as_declared, question
from .replay import COMMAND_COLUMNS, commands
from .shares import per, percent
from .steps import with_step
from .work import DEVICE, Work

FUSED_COMPUTE = 0.4
"""Share of the peak FLOP rate that a fused kernel is taken to reach where what one would save is estimated."""
FUSED_BANDWIDTH = 0.7
"""Share of the peak bandwidth, likewise."""

FUSED_LEAST_US = 5.0
"""Time that a fused kernel is taken to need at least."""

_HELPERS = r"(?i)combine|reduce|merge|dot_do_o|convert_dq|preprocess|postprocess"
"""Kernels that prepare or finish the work of another attention kernel: no calls of their own."""
_BACKWARD = r"(?i)bwd|backward|fmha_cutlassB|_grad|dkdv|dk_dv"
_DECODE = r"(?i)decode|decoding|paged_attention|unified_attention_3d|generation|\bmla_dec|\bpa_"
_PREFILL = r"(?i)prefill|context|extend"

ATTENTION_COLUMNS = (
    Column("implementation", "text", "backend or library; eager where products and softmax are calls of their own", priority=0),
    Column("direction", "text", "forward or backward", priority=1),
    Column(
        "phase", "text", "of forward calls: decode (one query a sequence), prefill (several); null where not told", priority=2
    ),
    Column("batch", "count", "sequences", "B", priority=1),
    Column("q_heads", "count", "query heads", "Hq", priority=1),
    Column("kv_heads", "count", "key and value heads", "Hkv", priority=2),
    Column("q_len", "count", "queries of a sequence; null where sequences differ or the trace does not say", "Sq", priority=1),
    Column("kv_len", "count", "keys of a sequence", "Sk", priority=1),
    Column("qk_dim", "count", "dimension of queries and keys", "D", priority=1),
    Column("v_dim", "count", "dimension of values", "Dv", priority=3),
    Column("tokens", "count", "queries of all sequences of a call, where these stand behind each other", priority=3),
    Column("dtype", "text", "element type of the queries", priority=1),
    Column("causal", "flag", "a query sees the keys up to its own place; null where a mask may hide anything", priority=1),
    Column("window", "count", "keys that a query sees; null where all", priority=3),
    Column(
        "calls", "count", "attention calls; of kernels without operator, those that do not only prepare or finish", priority=0
    ),
    Column("kernels", "count", "GPU activities that they launched, communication aside", priority=2),
    Column("device_us", "us", "sum of the durations of these activities", "total", priority=0),
    Column("mean_us", "us", "device time of a call", "mean", priority=1),
    Column("share_pct", "pct", "device time / busy time of the devices in scope", "share", priority=0, free=True),
    Column("per_step_us", "us", "device time in steps / number of steps that hold any of it; null without steps", priority=2),
    Column("host_us", "us", "time that the calls took on the host; null where no operator tells", "host", priority=3),
    Column("useful_gflop", "ratio", "GFLOP of a call that the mask leaves", "useful GFLOP", priority=2, decimals=9),
    Column(
        "executed_gflop", "ratio", "GFLOP of a call that the implementation computes", "executed GFLOP", priority=3, decimals=9
    ),
    Column("bytes", "bytes", "least bytes that a call must move: query, key, value and output once", priority=3),
    Column("useful_tflops", "ratio", "useful FLOPs over the device time, TFLOP/s", "useful TF/s", priority=1),
    Column("executed_tflops", "ratio", "executed FLOPs over the device time, TFLOP/s", "executed TF/s", priority=2),
    Column("gb_s", "GB/s", "least bytes over the device time", "traffic", priority=1),
    Column(
        "compute_pct", "pct", "useful rate / peak rate of the device for the element type", "of FLOP peak", priority=1, free=True
    ),
    Column("bandwidth_pct", "pct", "traffic / peak memory bandwidth of the device", "of bandwidth", priority=1, free=True),
    Column(
        "could_save_us",
        "us",
        f"estimate, for eager and math only: device time less that of a fused kernel at {FUSED_COMPUTE:.0%} of the peak rate or "
        f"{FUSED_BANDWIDTH:.0%} of the peak bandwidth, whichever takes longer, and {FUSED_LEAST_US:g} us a call at least",
        "could save",
        priority=1,
    ),
    Column("kernel", "text", "the activity with the most time", priority=2),
    Column("device_name", "text", "the kind of device, as the driver names it", "GPU", priority=3),
)
"""Columns of the attention table."""

_ROW = ("implementation", "direction", "phase", *PROBLEM[2:], "model", "device_name")
"""What tells rows apart."""


@question(
    name="attention",
    title="Attention",
    about="Where attention is computed, of which shapes, how fast, and what a fused kernel would save.",
    parameters=(Parameter("replay", False, "add the `kinetop bench` commands that measure the shapes found; nothing is run"),),
    tables=(
        Table(
            "attention",
            ATTENTION_COLUMNS,
            sort="device_us",
            about="One row for each implementation, direction and problem.",
            none="no attention operator, no attention kernel and no softmax between two batched products is in the trace",
        ),
        Table(
            "replay",
            COMMAND_COLUMNS,
            about="With --replay only: commands that measure the problems found.",
            none="no problem is told by the trace in full (record_shapes=True tells them)",
        ),
    ),
    order=8,
)
def attention(work: Work, *, replay: bool) -> dict[str, pl.DataFrame]:
    """Return a row for each implementation and problem.

    Example:
        >>> import kinetop
        >>> trace = kinetop.open("tests/data/hazards/75_cpu_only.json", cache=False)
        >>> kinetop.attention(trace).height
        0
    """
    rows = _rated(_rows(work), work).sort("device_ns", "calls", *_ROW, descending=True, nulls_last=True)
    told = as_declared(rows, ATTENTION_COLUMNS)
    return {"attention": told, "replay": commands(told)} if replay else {"attention": told}


def _rows(work: Work) -> pl.DataFrame:
    """Return calls and times of each row, with the FLOPs and bytes of one call."""
    found = attention_calls(work.trace)
    activities = _activities(work, found.members)
    calls = found.calls.filter(pl.col("part").is_in(_parts(work)))
    if any((work.scope.where, work.scope.window, work.scope.step)) or work.scope.device is not None:
        calls = calls.filter(pl.col("call").is_in(activities["call"].drop_nulls().unique().implode()))
    return _grouped(_with_calls(activities, calls), work)


def _parts(work: Work) -> list[int]:
    """Return the parts in scope: those of the rank, where one is chosen."""
    rank = work.scope.rank
    own = set(work.gpu.filter(pl.col("rank") == rank)["part"].unique()) if rank is not None else set()
    return [part for part, one in enumerate(work.trace.traces) if rank is None or one.rank == rank or part in own]


def _activities(work: Work, members: pl.DataFrame) -> pl.DataFrame:
    """Return the attention work in scope: that of the calls, and attention kernels that belong to none."""
    kept = ["part", "rank", "device", "event_id", "start_ns", "name", "family", "implementation", "dur_ns"]
    own = work.gpu.filter(pl.col("class") != "comm").join(members, on=["part", "event_id"], how="inner").select(*kept, "call")
    alone = work.gpu.filter(pl.col("family") == "attention").join(members, on=["part", "event_id"], how="anti")
    alone = alone.select(*kept, call=pl.lit(None, pl.UInt32))
    joined = with_step(pl.concat([own, alone]), work.trace)
    names = joined["name"].unique().to_frame().with_columns(
        helper=pl.col("name").str.contains(_HELPERS),
        kernel_backward=pl.col("name").str.contains(_BACKWARD),
        kernel_phase=pl.when(pl.col("name").str.contains(_DECODE)).then(pl.lit("decode"))
        .when(pl.col("name").str.contains(_PREFILL)).then(pl.lit("prefill")),
    )  # fmt: skip
    return joined.join(names, on="name", how="left", maintain_order="left")


def _with_calls(activities: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Give each activity its call's problem, and each call without work a row without time."""
    fused = pl.col("family") == "attention"
    heaviest = pl.col("implementation").filter(fused).sort_by(pl.col("dur_ns").filter(fused)).last()
    phase = pl.col("kernel_phase").filter(fused).drop_nulls().first()
    told = activities.drop_nulls("call").group_by("call").agg(kernel_implementation=heaviest, kernel_phase=phase)
    problems = calls.join(told, on="call", how="left").with_columns(
        implementation=pl.coalesce("implementation", "kernel_implementation", pl.lit("unknown")),
        own_phase=pl.when(pl.col("q_len") == 1).then(pl.lit("decode")).when(pl.col("q_len") > 1).then(pl.lit("prefill")),
    )
    problems = problems.with_columns(phase=pl.coalesce("own_phase", "kernel_phase")).drop("own_phase", "kernel_phase", "part")
    rows = activities.rename({"implementation": "by_name", "kernel_phase": "by_name_phase"}).join(
        problems.with_columns(known=True), on="call", how="full", coalesce=True
    )
    backward = pl.coalesce("backward", "kernel_backward")
    return rows.with_columns(
        implementation=pl.coalesce("implementation", "by_name", pl.lit("unknown")),
        direction=pl.when(backward).then(pl.lit("backward")).otherwise(pl.lit("forward")),
        phase=pl.when(~backward).then(pl.coalesce("phase", "by_name_phase")),
    )


def _grouped(rows: pl.DataFrame, work: Work) -> pl.DataFrame:
    """Sum up the activities of each row; a call's host time is counted with its first activity."""
    places, _ = device_limits(work.trace, work.all_gpu)
    first = pl.col("call").is_first_distinct() & pl.col("call").is_not_null()
    alone = pl.col("call").is_null() & ~pl.col("helper")
    timed = pl.col("dur_ns").is_not_null()
    in_step = pl.col("step").is_not_null()
    joined = rows.join(places, on=["part", "device"], how="left", maintain_order="left").with_columns(first=first)
    made = joined.group_by(_ROW).agg(
        calls=(pl.col("first") | alone.fill_null(value=False)).sum().cast(pl.Int64),
        kernels=timed.sum().cast(pl.Int64),
        device_ns=pl.when(timed.any()).then(pl.col("dur_ns").sum()),
        step_ns=pl.col("dur_ns").filter(in_step).sum(),
        steps=pl.struct("part", "step").filter(in_step).n_unique(),
        host_ns=pl.when(pl.col("first").any()).then(pl.col("host_ns").filter("first").sum()),
        kernel=pl.col("name").sort_by("dur_ns", nulls_last=False).last(),
        peak_gb_s=pl.col("peak_gb_s").first(),
    )
    busy_ns = int(intervals.total(work.all_gpu, DEVICE)["total_ns"].sum())
    return made.with_columns(
        mean_ns=per(pl.col("device_ns"), pl.col("calls")),
        share_pct=percent(pl.col("device_ns"), pl.lit(busy_ns)),
        per_step_ns=per(pl.col("step_ns"), pl.col("steps")),
    )


def _rated(rows: pl.DataFrame, work: Work) -> pl.DataFrame:
    """Add rates, shares of the peaks, and the estimate of what a fused kernel would save."""
    _, rates = device_limits(work.trace, work.all_gpu)
    rows = rows.join(rates, on=["model", "dtype"], how="left", maintain_order="left")
    seconds = pl.col("device_ns") / 1e9
    useful, executed, moved = (
        per(pl.col(name) * pl.col("calls") / scale, seconds)
        for name, scale in (("useful_flops", 1e12), ("executed_flops", 1e12), ("bytes", 1e9))
    )
    compute_us = pl.coalesce("useful_flops", "executed_flops") / (FUSED_COMPUTE * pl.col("peak_tflops") * 1e6)
    memory_us = pl.col("bytes") / (FUSED_BANDWIDTH * pl.col("peak_gb_s") * 1e3)
    fused_us = pl.when(compute_us.is_not_null() & memory_us.is_not_null()).then(
        pl.max_horizontal(compute_us, memory_us, pl.lit(FUSED_LEAST_US))
    )
    keeps = pl.col("implementation").is_in(MATERIALIZING)
    return rows.with_columns(
        useful_gflop=pl.col("useful_flops") / 1e9,
        executed_gflop=pl.col("executed_flops") / 1e9,
        useful_tflops=useful,
        executed_tflops=executed,
        gb_s=moved,
        compute_pct=percent(useful, pl.col("peak_tflops")),
        bandwidth_pct=percent(moved, pl.col("peak_gb_s")),
        could_save_us=pl.when(keeps).then((pl.col("device_ns") / 1000 - pl.col("calls") * fused_us).clip(lower_bound=0)),
    )
