"""Measure without a screen: a benchmark of some variants on some cases, as one call that waits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..errors import WorkerError
from .link import Link, Start
from .recording import Recording
from .vitals import Timeouts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from .worker.case import Case
    from .worker.frames import Frame


def measure(
    start: Start,
    cases: Sequence[Case],
    variants: Sequence[str],
    *,
    samples: int = 30,
    min_time_ms: float = 200,
    windows: int = 1,
    trace_dir: Path | None = None,
    probe: bool = False,
    progress: Callable[[Frame], None] | None = None,
    timeouts: Timeouts = Timeouts(),  # noqa: B008
) -> Recording:
    """Measure variants on cases in one worker, and return all that it said.

    Args:
        start: how to start the worker.
        cases: what to measure, one after the other.
        variants: names, or patterns such as `sdpa:*`.
        samples: least number of timed calls of each variant.
        min_time_ms: least time of these calls together, in milliseconds.
        windows: profiled windows of each variant, for attribution.
        trace_dir: folder that gets a Chrome trace of each variant; none when None.
        probe: also say of every variant there is why it cannot run the first case.
        progress: called with each frame as it comes.
        timeouts: how long the worker is waited for.

    Raises:
        WorkerError: no worker can be had; says what to install.
    """
    order = {"variants": list(variants), "samples": samples, "min_time_ms": min_time_ms, "windows": windows}
    order["trace_dir"] = None if trace_dir is None else str(trace_dir.resolve())
    link = Link(start, timeouts=timeouts)
    if probe and cases:
        link.send("probe", case=cases[0])
    return asyncio.run(_measure(link, cases, order, progress))


async def _measure(
    link: Link, cases: Sequence[Case], order: dict[str, object], progress: Callable[[Frame], None] | None
) -> Recording:
    recording, left = Recording(), list(cases)
    if not left:
        return recording
    link.send("bench", case=left.pop(0), **order)
    try:
        async for frame in link.frames():
            recording.add(frame)
            if progress is not None:
                progress(frame)
            if frame.kind == "link" and frame.header["event"] == "stopped":
                raise WorkerError(str(frame.header["why"]))
            if frame.kind == "done":
                if not left:
                    break
                link.send("bench", case=left.pop(0), **order)
    finally:
        await link.close()
    return recording
