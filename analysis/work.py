"""What a question is asked about: a trace set narrowed by rank, device, window, step and filter."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from kinetop.traces.trace import TraceSet


@dataclass(frozen=True)
class Scope:
    """The user's choice; None means all."""

    where: str | None = None
    """Filter text, see `kinetop.analysis.filter`."""
    window: str | None = None
    """`gpu` (default: first to last GPU activity of each device), `trace`, or `START..END` with units, relative to the trace start."""
    step: str | None = None
    """`13`, `12-14` or `last`: profiler steps."""
    rank: int | None = None
    device: int | None = None


@dataclass(frozen=True)
class Work:
    """The GPU activities in scope and the windows they are measured against."""

    trace: TraceSet
    scope: Scope
    gpu: pl.DataFrame
    """Activities in scope, classified: `ACTIVITY_COLUMNS` plus `class`, `family`, `rule`. Cut to the window (start_ns, end_ns, dur_ns); sorted by part, device, start_ns."""
    windows: pl.DataFrame
    """One row per part and device: part, rank, device, window_start_ns, window_end_ns."""
    all_gpu: pl.DataFrame = field(repr=False)
    """The same before `where` was applied: idle time is a property of the device, not of the filter."""

    @cached_property
    def launches(self) -> pl.DataFrame:
        """`TraceSet.launches` of the activities in scope (`LAUNCH_COLUMNS`)."""
        return self.trace.launches.join(self.gpu.select("part", "event_id"), on=["part", "event_id"], how="semi")


def scoped(
    trace: TraceSet,
    *,
    where: str | None = None,
    window: str | None = None,
    step: str | None = None,
    rank: int | None = None,
    device: int | None = None,
) -> Work:
    """Narrow a trace set to what the user asked about.

    Args:
        trace: the opened set.
        where: filter text.
        window: `gpu`, `trace`, or `START..END` with units.
        step: profiler steps.
        rank: keep one rank.
        device: keep one device.

    Raises:
        FilterError: a text cannot be understood, or names a step, rank or device that the trace does not hold.
    """
    raise NotImplementedError
