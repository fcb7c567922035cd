"""GPU work of a trace set, cleaned: what counts as an activity, on which device, from when to when."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from . import schema
from .report import Notice

if TYPE_CHECKING:
    from .trace import TraceSet

ACTIVITY_COLUMNS: dict[str, str] = {
    "part": "i32, position of the trace in its set",
    "event_id": "u64, row of the event table",
    "rank": "i32",
    "device": "i32, args.device, else the pid",
    "stream": "i64, args.stream, else the tid",
    "kind": "text: kernel, memcpy or memset",
    "name": "text",
    "process": "text, pid as written",
    "start_ns": "i64",
    "end_ns": "i64, start + duration after repair",
    "dur_ns": "i64, never negative; an overrunning end is clipped",
    "raw_dur_ns": "i64, as written",
    "correlation": "i64?",
    "external_id": "i64?",
    "collective": "text?, args' Collective name",
    "bytes": "i64?, of copies and memsets",
    "graph_id": "i64?",
    "grid": "text?, JSON",
    "block": "text?, JSON",
    "occupancy_pct": "f64?",
    "registers_per_thread": "i64?",
    "shared_memory_bytes": "i64?",
    "in_elements": "i64?",
    "dtype": "text?",
    "group_size": "i64?",
    "process_group": "text?",
    "seq": "i64?",
    "fault": "text?: negative-duration, overrun, or null",
}
"""Columns of the activity frame; rows are sorted by part, device, start_ns, event_id. Duplicates and impossible times are not in it."""


def activities(traces: TraceSet) -> tuple[pl.DataFrame, tuple[Notice, ...]]:
    """Return the GPU activities of a set and what had to be repaired about them.

    Args:
        traces: the set.

    Returns:
        A frame with `ACTIVITY_COLUMNS` and the notices.
    """
    frame = (
        traces.events.filter(pl.col("cat").cast(pl.String).is_in(list(schema.GPU_KINDS)), pl.col("ph").cast(pl.String) == "X")
        .select(
            "part", "event_id", "rank",
            device=pl.coalesce("device", pl.col("process").cast(pl.String).str.to_integer(strict=False)).fill_null(0).cast(pl.Int32),
            stream=pl.coalesce("stream", pl.col("thread").cast(pl.String).str.extract(r"(\d+)$").str.to_integer(strict=False)),
            kind=pl.col("cat").cast(pl.String).replace_strict(schema.GPU_KINDS),
            name=pl.col("name").cast(pl.String),
            process=pl.col("process").cast(pl.String),
            start_ns="ts_ns",
            end_ns=pl.col("ts_ns") + pl.col("dur_ns").clip(0),
            dur_ns=pl.col("dur_ns").clip(0),
            raw_dur_ns="dur_ns",
            correlation="correlation", external_id=pl.coalesce("external_id", "external_id_legacy"),
            collective="collective", bytes="bytes", graph_id="graph_id", grid="grid", block="block", occupancy_pct="occupancy_pct",
            registers_per_thread="registers_per_thread", shared_memory_bytes="shared_memory_bytes", in_elements="in_elements",
            dtype="dtype", group_size="group_size", process_group="process_group", seq="seq",
            fault=pl.lit(None, pl.String),
        )
        .sort("part", "device", "start_ns", "event_id")
        .collect()
    )
    return frame, ()
