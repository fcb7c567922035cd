"""What the app learns about opened traces in the background: time to zoom over, steps; and their entry of the recent list."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kinetop.analysis.steps import steps
from kinetop.analysis.work import since_first

from .recent import RecentTrace, RecentTraces

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kinetop.traces.trace import TraceSet


def survey(traces: TraceSet) -> tuple[tuple[int, int], tuple[int, ...]]:
    """Return start and end of the GPU work in nanoseconds since the start of the trace, and the numbers of the steps.

    Args:
        traces: the opened set.
    """
    times = traces.activities.select(since_first(name, traces) for name in ("start_ns", "end_ns"))
    first, last = times["start_ns"].min(), times["end_ns"].max()
    numbers = tuple(sorted(steps(traces)["step"].unique().to_list()))
    if not isinstance(first, int) or not isinstance(last, int):
        return (0, 0), numbers
    return (max(0, first), last), numbers


def remember(paths: Sequence[Path], traces: TraceSet) -> str | None:
    """Put opened traces first in the list of recent ones.

    Args:
        paths: what the user opened.
        traces: what came of it.

    Returns:
        What went wrong with the list, if anything.
    """
    recent = RecentTraces()
    files = [trace.path for trace in traces.traces]
    size = sum(path.stat().st_size for path in files if path.is_file())
    events = sum(trace.report.events for trace in traces.traces)
    full = tuple(str(path.absolute()) for path in paths)
    recent.add(RecentTrace(full, size, time.time(), events, len({trace.rank for trace in traces.traces})))
    return recent.problem()
