"""The event table: one row per trace event, and which `args` members have a column of their own.

Names carry their unit (`ts_ns`, `bytes`); nested values (lists) stay JSON text. Everything that has no column is kept as
JSON text in `args` (members of the event's `args`) or `extra` (other members of the event), so that a trace can be
written back as it was read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["int", "uint", "float", "text", "json"]
"""How a value is stored: i64, u64, f64, text, or JSON text of a nested value."""

SCHEMA_VERSION = 1
"""Version of the event table; written into each Parquet trace."""


@dataclass(frozen=True, slots=True)
class Arg:
    """A member of `args` that has a column of its own."""

    key: str
    """The name in the trace, case as written."""
    column: str
    """The column's name in the event table."""
    kind: Kind
    """How its values are stored."""
    about: str
    """One line for the docs."""


HEAD_COLUMNS: tuple[tuple[str, Kind, str], ...] = (
    ("event_id", "uint", "position in the file, from 0; the order of the trace is kept here"),
    (
        "ph",
        "text",
        "event type of the Chrome trace format: X complete, B/E begin and end, i instant, C counter, s/f flow, M metadata",
    ),
    ("cat", "text", "category as written: kernel, gpu_memcpy, cpu_op, cuda_runtime, python_function, ac2g, ..."),
    ("name", "text", "name of the event"),
    ("process", "text", "pid as text"),
    ("thread", "text", "tid as text"),
    ("ts_ns", "int", "start in integer nanoseconds, baseTimeNanoseconds added"),
    ("dur_ns", "int", "duration in integer nanoseconds as written (may be negative in a broken trace)"),
    ("rank", "int", "rank of the process that wrote the file"),
    ("id", "text", "id of a flow or async event"),
    ("bp", "text", "binding point of a flow end"),
    ("scope", "text", "`s` of an instant event: g global, p process, t thread"),
)
"""Columns that come from the event itself, in table order, each with its kind and definition."""

ARGS: tuple[Arg, ...] = (
    Arg("device", "device", "int", "device index"),
    Arg("stream", "stream", "int", "stream the GPU work ran on"),
    Arg("correlation", "correlation", "int", "id that a launch call and its GPU work share"),
    Arg("External id", "external_id", "int", "id that an operator and its GPU work share"),
    Arg("external id", "external_id_legacy", "int", "the same as written before 2022"),
    Arg("context", "context", "int", "GPU context"),
    Arg("queued", "queued", "int", "time spent queued, as the driver reports it"),
    Arg("priority", "priority", "int", "stream priority"),
    Arg("channel", "channel", "int", "hardware channel"),
    Arg("cbid", "cbid", "int", "callback id of the runtime API"),
    Arg("kind", "kind", "text", "kind of a ROCm dispatch or copy"),
    Arg("grid", "grid", "json", "launch grid [x, y, z]"),
    Arg("block", "block", "json", "thread block [x, y, z]"),
    Arg("registers per thread", "registers_per_thread", "int", "registers per thread"),
    Arg("shared memory", "shared_memory_bytes", "int", "static and dynamic shared memory, bytes"),
    Arg("blocks per SM", "blocks_per_sm", "float", "thread blocks per SM"),
    Arg("warps per SM", "warps_per_sm", "float", "warps per SM"),
    Arg("est. achieved occupancy %", "occupancy_pct", "float", "estimated achieved occupancy, percent"),
    Arg("bytes", "bytes", "int", "bytes that a copy or memset moved"),
    Arg("memory bandwidth (GB/s)", "bandwidth_gbps", "float", "bandwidth of a copy, GB/s"),
    Arg("graph id", "graph_id", "int", "CUDA graph"),
    Arg("graph node id", "graph_node_id", "int", "node of the CUDA graph"),
    Arg("Ev Idx", "ev_idx", "int", "profiler's own event index"),
    Arg("Record function id", "record_function_id", "int", "id that links to the execution trace"),
    Arg("Sequence number", "sequence_number", "int", "autograd sequence number; forward and backward share it"),
    Arg("Fwd thread id", "fwd_thread_id", "int", "thread of the matching forward"),
    Arg("Input Dims", "input_dims", "json", "shapes of the inputs"),
    Arg("Input type", "input_types", "json", "dtypes of the inputs"),
    Arg("Input Strides", "input_strides", "json", "strides of the inputs"),
    Arg("Concrete Inputs", "concrete_inputs", "json", "values of the scalar inputs"),
    Arg("Call stack", "call_stack", "text", "Python call stack"),
    Arg("Module Hierarchy", "module_hierarchy", "text", "nn.Module path"),
    Arg("Python id", "python_id", "int", "id of a Python frame"),
    Arg("Python parent id", "python_parent_id", "int", "id of the calling frame"),
    Arg("Python module id", "python_module_id", "int", "which instance of the nn.Module"),
    Arg("Python thread", "python_thread", "int", "thread of the Python frame"),
    Arg("Collective name", "collective", "text", "collective operation"),
    Arg("In msg nelems", "in_elements", "int", "elements sent"),
    Arg("Out msg nelems", "out_elements", "int", "elements received"),
    Arg("dtype", "dtype", "text", "element type of a collective"),
    Arg("Group size", "group_size", "int", "ranks in the process group"),
    Arg("Process Group Name", "process_group", "text", "process group"),
    Arg("Process Group Description", "process_group_description", "text", "what the group is for"),
    Arg("Process Group Ranks", "process_group_ranks", "text", "ranks of the group as written"),
    Arg("Process Group ID", "process_group_id", "int", "number of the process group"),
    Arg("In split size", "in_split", "text", "split of an all-to-all's input"),
    Arg("Out split size", "out_split", "text", "split of an all-to-all's output"),
    Arg("Global rank start", "global_rank_start", "int", "first rank of the group"),
    Arg("Global rank stride", "global_rank_stride", "int", "stride between the group's ranks"),
    Arg("Rank", "collective_rank", "int", "rank that ran the collective"),
    Arg("Seq", "seq", "int", "sequence number of the collective in its group"),
    Arg("Comms Id", "comms_id", "uint", "communicator id"),
    Arg("Is asynchronized op", "is_async", "int", "1 when the collective is asynchronous"),
    Arg("Device Id", "memory_device", "int", "device of an allocator event; -1 is the CPU"),
    Arg("Device Type", "memory_device_type", "int", "device type of an allocator event: 0 CPU, 1 CUDA"),
    Arg("Addr", "addr", "uint", "address of an allocation"),
    Arg("Bytes", "memory_bytes", "int", "bytes allocated, negative when freed"),
    Arg("Total Allocated", "total_allocated_bytes", "int", "allocated after the event"),
    Arg("Total Reserved", "total_reserved_bytes", "int", "reserved after the event"),
    Arg("cuda_sync_kind", "sync_kind", "text", "kind of a cuda_sync row"),
    Arg("wait_on_stream", "wait_on_stream", "int", "stream that is waited for"),
    Arg("wait_on_cuda_event_record_corr_id", "wait_on_correlation", "int", "correlation of the event record waited for"),
    Arg("wait_on_cuda_event_id", "wait_on_event", "int", "CUDA event waited for"),
    Arg("kernel_backend", "kernel_backend", "text", "backend of a compiled kernel"),
    Arg("kernel_hash", "kernel_hash", "text", "hash of a compiled kernel"),
    Arg("kernel_file", "kernel_file", "text", "source file of a compiled kernel"),
    Arg("stream_id", "stream_id", "int", "stream on MTIA devices"),
    Arg("name", "label_name", "text", "name in a process_name or thread_name row"),
    Arg("labels", "labels", "text", "labels of a process"),
    Arg("sort_index", "sort_index", "int", "order of a process or thread in viewers"),
    Arg("Trace name", "trace_name", "text", "2021 layout: name of the trace"),
    Arg("Trace iteration", "trace_iteration", "int", "2021 layout: iteration"),
    Arg("Profiler Event Index", "profiler_event_index", "int", "2021 layout: event index"),
)
"""Every `args` member with a column of its own."""

TAIL_COLUMNS: tuple[tuple[str, Kind, str], ...] = (
    ("args", "json", "members of `args` that have no column, as JSON text; {} when `args` was there but empty"),
    ("extra", "json", "other members of the event that have no column, or whose column cannot hold the value as written"),
)
"""Columns that keep what is left."""

COLUMNS: dict[str, Kind] = {
    **{name: kind for name, kind, _ in HEAD_COLUMNS},
    **{arg.column: arg.kind for arg in ARGS},
    **{name: kind for name, kind, _ in TAIL_COLUMNS},
}
"""Name and kind of every column, in table order."""

DICTIONARY_COLUMNS: frozenset[str] = frozenset({"ph", "cat", "name", "process", "thread", "bp", "scope"})
"""Text columns stored with a dictionary and read as Polars Categorical."""

GPU_KINDS: dict[str, str] = {
    "kernel": "kernel",
    "Kernel": "kernel",
    "gpu_kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "Memcpy": "memcpy",
    "memcpy": "memcpy",
    "gpu_memset": "memset",
    "Memset": "memset",
    "memset": "memset",
    "mtia_ccp_events": "kernel",
}
"""Category -> kind of GPU activity, with the legacy and accelerator spellings. Nothing else is GPU work."""

LAUNCH_CATS: frozenset[str] = frozenset(
    {
        "cuda_runtime",
        "cuda_driver",
        "Runtime",
        "runtime",
        "hip_runtime",
        "xpu_runtime",
        "xpu_driver",
        "mtia_runtime",
        "privateuse1_runtime",
        "privateuse1_driver",
        "musa_runtime",
        "glow_runtime",
    }
)
"""Categories of host calls that launch or wait for GPU work."""

OP_CATS: frozenset[str] = frozenset({"cpu_op", "Operator"})
"""Categories of framework operators."""

SYNC_CATS: frozenset[str] = frozenset({"cuda_sync"})
"""Rows that mark waiting, not work."""

ANNOTATION_CATS: frozenset[str] = frozenset({"user_annotation", "gpu_user_annotation"})
"""Ranges that label time; they are never work."""
