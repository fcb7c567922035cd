"""What the app learns about opened traces in the background: the time to zoom over, the steps, the entry of the recent list."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from .recent import RecentTrace, RecentTraces

if TYPE_CHECKING:
    from kinetop.traces.trace import TraceSet

STEP = r"^ProfilerStep#(\d+)$"


def survey(traces: TraceSet) -> tuple[tuple[int, int], tuple[int, ...]]:
    """Return start and end of the GPU work in nanoseconds since the start of the trace, and the numbers of the profiler steps."""
    begin = traces.events.filter(pl.col("ph") == "X").select(pl.col("ts_ns").min()).collect().item()
    first, last = traces.activities["start_ns"].min(), traces.activities["end_ns"].max()
    names = traces.events.select(pl.col("name").unique()).collect().to_series().cast(pl.String)
    steps = names.str.extract(STEP).drop_nulls().str.to_integer(strict=False).drop_nulls().sort().to_list()
    if begin is None or not isinstance(first, int) or not isinstance(last, int):
        return (0, 0), tuple(steps)
    return (first - begin, last - begin), tuple(steps)


def remember(paths: Sequence[Path], traces: TraceSet) -> str | None:
    """Put opened traces first in the list of recent ones; return what went wrong, if anything."""
    recent = RecentTraces()
    full = tuple(str(path.resolve()) for path in paths)
    size = sum(trace.path.stat().st_size for trace in traces.traces if trace.path.is_file())
    events = sum(trace.report.events for trace in traces.traces)
    recent.add(RecentTrace(full, size, time.time(), events, len({trace.rank for trace in traces.traces})))
    return recent.problem()
