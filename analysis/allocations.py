"""What the allocators of a trace did: every event with the totals around it, every allocation with its end and its owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from kinetop.traces import schema
from kinetop.traces.nesting import innermost
from kinetop.traces.pairs import ranges

if TYPE_CHECKING:
    from kinetop.traces.trace import TraceSet

LANE = ("part", "process", "place")
"""What tells allocators apart: each process has one for each place."""

EVENT_COLUMNS: dict[str, str] = {
    "n": "u32, number of the event in order of time",
    "part": "i32",
    "event_id": "u64",
    "rank": "i32, of the trace; in a file that merges several processes, of the process",
    "process": "text (categorical)",
    "thread": "text (categorical)",
    "place": "text (categorical), where the memory is: cuda:0, hip:1, cpu, ...",
    "device": "i32?, index of the GPU; null for the CPU",
    "at_ns": "i64",
    "bytes": "i64, negative where memory was freed",
    "addr": "u64?",
    "allocated_bytes": "i64?, in use after the event; null where the allocator does not count",
    "reserved_bytes": "i64?, held from the driver after the event; null for the CPU",
    "frame": "text?, where in the source it was allocated, in memory snapshots",
}
"""Columns of the event frame, in order of time."""

_DEVICE_TYPES = {0: "cpu", 1: "cuda", 6: "hip", 9: "xla", 12: "xpu", 13: "mps", 15: "hpu", 19: "mtia", 20: "privateuse1"}
"""PyTorch's numbers of device types."""
_ALLOCATING = (
    "aten::empty",
    "aten::empty_strided",
    "aten::empty_like",
    "aten::new_empty",
    "aten::new_empty_strided",
    "aten::resize_",
    "aten::empty.memory_format",
)
"""Operators that only allocate: the one that called them says more."""
_MODULE = "nn.Module: "


def events(trace: TraceSet) -> pl.DataFrame:
    """Return the allocator events of a set, in order of time.

    Args:
        trace: the opened set.

    Returns:
        A frame with `EVENT_COLUMNS`.

    Example:
        >>> import kinetop
        >>> found = events(kinetop.open("tests/data/hazards/71_memory_instants.json", cache=False))
        >>> found.select("place", "bytes", "allocated_bytes").rows()[0]
        ('cuda:0', 1048576, 1048576)
    """
    rows = recorded(trace, "[memory]")
    # A total of 0 right after an allocation is no total.
    counts = ((pl.col("total_allocated_bytes") != 0).any() | (pl.col("bytes") <= 0).all()).over(LANE)
    made = rows.with_columns(
        allocated_bytes=pl.when(counts).then("total_allocated_bytes"),
        reserved_bytes=pl.when(pl.col("place") != "cpu").then("total_reserved_bytes"),
    )
    return _with_ranks(made.sort("at_ns", "part", "event_id"), trace).with_row_index("n").select(*EVENT_COLUMNS)


def recorded(trace: TraceSet, name: str) -> pl.DataFrame:
    """Return the instants of a name with their place: `EVENT_COLUMNS` without n and totals, total_*_bytes and args.

    Args:
        trace: the opened set.
        name: `[memory]`, `[OutOfMemory]`; of snapshots `[live]` and `[block]`.
    """
    rows = (
        trace.events.filter(
            pl.col("name") == name, pl.col("ph").is_in(["i", "I"]), pl.col("memory_bytes").is_not_null(),
            pl.col("ts_ns").is_not_null(),
        )
        .select(
            "part", "event_id", "rank", "process", "thread", "addr", "args", "total_allocated_bytes", "total_reserved_bytes",
            "memory_device", "memory_device_type", "call_stack", at_ns="ts_ns", bytes="memory_bytes",
        )
        .collect()
    )  # fmt: skip
    where = ["memory_device_type", "memory_device"]
    rows = rows.join(_places(rows.select(where).unique()), on=where, how="left", nulls_equal=True, maintain_order="left")
    frame = pl.col("call_stack").str.split(";").list.first().str.strip_chars()
    known = rows["call_stack"].null_count() < rows.height
    return rows.with_columns((frame if known else pl.col("call_stack")).alias("frame")).drop(*where, "call_stack")


def _places(found: pl.DataFrame) -> pl.DataFrame:
    """Add place and device to the kinds and numbers of devices."""
    kind = pl.col("memory_device_type").replace_strict(_DEVICE_TYPES, default=None, return_dtype=pl.String)
    named = pl.coalesce(kind, pl.format("type{}", "memory_device_type"), pl.lit("unknown"))
    index = pl.when(named != "cpu", pl.col("memory_device") >= 0).then("memory_device")
    return found.with_columns(
        place=pl.coalesce(pl.format("{}:{}", named, index), named).cast(pl.Categorical), device=index.cast(pl.Int32, strict=False)
    )


def _with_ranks(rows: pl.DataFrame, trace: TraceSet) -> pl.DataFrame:
    """Give the processes of files that merge several ranks the rank of the work they launched."""
    gpu = trace.activities.select("part", "event_id", gpu_rank="rank")
    merged = gpu.group_by("part").agg(pl.col("gpu_rank").n_unique()).filter(pl.col("gpu_rank") > 1)["part"]
    if rows.is_empty() or merged.is_empty():
        return rows
    launched = trace.launches.select("part", "event_id", pl.col("process").cast(pl.Categorical)).join(
        gpu, on=["part", "event_id"]
    )
    ranks = launched.filter(pl.col("part").is_in(merged.implode())).group_by("part", "process").agg(pl.col("gpu_rank").min())
    found = rows.join(ranks, on=["part", "process"], how="left", maintain_order="left")
    return found.with_columns(rank=pl.coalesce("gpu_rank", "rank")).drop("gpu_rank")


def allocations(trace: TraceSet, found: pl.DataFrame) -> pl.DataFrame:
    """Return each allocation with its end and its owner.

    Memory is freed by the next event of its allocator with the same address and size. The owner is the innermost operator
    around the allocation on its thread, those aside that only allocate where another one is around them, and the innermost
    nn.Module.

    Args:
        trace: the set.
        found: its events, see `events`.

    Returns:
        `EVENT_COLUMNS`, freed_n (u32?), freed_ns (i64?), op and module (text?).

    Example:
        >>> import kinetop
        >>> trace = kinetop.open("tests/data/hazards/71_memory_instants.json", cache=False)
        >>> allocations(trace, events(trace)).select("bytes", "freed_n", "op").rows()
        [(1048576, 3, 'aten::linear'), (2097152, None, 'aten::linear'), (4096, None, 'aten::linear')]
    """
    key = [*LANE, "addr", "size"]
    rows = found.filter(pl.col("bytes") != 0).with_columns(size=pl.col("bytes").abs())
    for name in reversed(key):  # in order of n as they are; one stable pass for each is faster than one by all
        if rows[name].null_count() or rows[name].n_unique() > 1:
            rows = rows.sort(name, maintain_order=True)
    same = pl.all_horizontal(pl.col(name) == pl.col(name).shift(-1) for name in key).fill_null(value=False)
    freed = same & (pl.col("bytes").shift(-1) < 0)
    rows = rows.with_columns(
        freed_n=pl.when(freed).then(pl.col("n").shift(-1)), freed_ns=pl.when(freed).then(pl.col("at_ns").shift(-1))
    )
    return _with_owner(rows.filter(pl.col("bytes") > 0).sort("n").drop("size"), trace)


def _with_owner(rows: pl.DataFrame, trace: TraceSet) -> pl.DataFrame:
    if rows.is_empty():
        return rows.with_columns(op=pl.lit(None, pl.String), module=pl.lit(None, pl.String))
    moments = rows.select("part", "process", "thread", "at_ns")
    ops = ranges(trace, schema.OP_CATS, "process", "thread", "name")
    working = ops.filter(~pl.col("name").is_in(_ALLOCATING))
    inner = innermost(moments, working)
    own = pl.DataFrame({"row": inner, "event_id": working["event_id"].gather(inner), "op": working["name"].gather(inner)})
    if inner.has_nulls():
        other = innermost(moments, ops)
        own = own.with_columns(
            pl.coalesce("event_id", ops["event_id"].gather(other)),
            pl.coalesce(pl.col("op").cast(pl.String), ops["name"].gather(other).cast(pl.String)),
        )
    return rows.with_columns(own["op"].cast(pl.String), _modules(trace, moments, own["event_id"]).alias("module"))


def _modules(trace: TraceSet, moments: pl.DataFrame, op_id: pl.Series) -> pl.Series:
    """Return the innermost nn.Module around each moment; before 2022 the profiler wrote it beside each operator."""
    frames = ranges(trace, ["python_function"], "process", "thread", "name")
    names = frames["name"].unique().cast(pl.String)
    names = names.filter(names.str.starts_with(_MODULE).fill_null(value=False))
    if not names.is_empty():
        modules = frames.filter(pl.col("name").is_in(names.implode()))
        return modules["name"].gather(innermost(moments, modules)).cast(pl.String).str.strip_prefix(_MODULE)
    texts = trace.events.filter(pl.col("module_hierarchy") != "").select("part", "event_id", "module_hierarchy").collect()
    keyed = moments.select("part").with_columns(op_id.alias("event_id"))
    return keyed.join(texts, on=["part", "event_id"], how="left", maintain_order="left")["module_hierarchy"]
