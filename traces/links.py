"""Which host call launched each GPU activity, and which operator that call belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from .trace import TraceSet

LAUNCH_COLUMNS: dict[str, str] = {
    "part": "i32",
    "event_id": "u64 of the GPU activity",
    "launch_id": "u64? of the launch call; null when the trace holds no record of it",
    "api": "text?, name of the launch call",
    "thread": "text?, thread that launched",
    "launch_start_ns": "i64?",
    "launch_end_ns": "i64?",
    "delay_ns": "i64?, activity start - launch start, signed",
    "op_id": "u64? of the innermost operator that launched it",
    "op": "text?, its name",
}
"""Columns of the launch frame: one row per activity, same order as `TraceSet.activities`."""


def launches(traces: TraceSet) -> pl.DataFrame:
    """Return the launch call and operator of each GPU activity.

    Args:
        traces: the set.

    Returns:
        A frame with `LAUNCH_COLUMNS`, one row per row of `traces.activities`.
    """
    raise NotImplementedError
