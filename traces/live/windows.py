"""Profiled windows as rows of the event table."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl

    from .recording import Window

EVENT_COLUMNS = (
    *("ph", "cat", "name", "process", "thread", "ts_ns", "dur_ns", "device", "stream", "correlation", "external_id"),
    *("bytes", "memory_bytes", "input_dims", "args"),
)
"""Columns of the event table that a window fills."""


def frame(window: Window) -> pl.DataFrame:
    """Return a window's events with `EVENT_COLUMNS`, in the order given."""
    raise NotImplementedError


def events(windows: Iterable[Window]) -> pl.DataFrame:
    """Return the events of windows: `EVENT_COLUMNS`, and variant, case, window (number) and step (null outside of steps)."""
    raise NotImplementedError
