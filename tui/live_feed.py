"""Where the live screen's frames come from, and the thread that keeps them off the screen's own loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from kinetop.traces.live.link import Start
    from kinetop.traces.live.worker.case import Case


@dataclass(frozen=True)
class FeedOptions:
    """What to watch: a worker that `start` says how to start, or a recorded session."""

    start: Start | None = None
    """How to start the worker; None replays `session`."""
    session: Path | None = None
    case: Case | None = None
    """What is measured first; a worker needs one."""
    variants: tuple[str, ...] = ()
    """Names or patterns (`sdpa:*`); the default choice when empty."""
    pace: float = 1.0
    """Of a replay: times faster than it was recorded; 0 shows the end at once."""
    record: Path | None = None
    """Session file to record to from the beginning."""
    baseline: str | None = None
    """Variant that the others are compared with."""
    samples: int = 20
    """Samples of a variant in one round."""
    duty_pct: float = 5.0
    """Most of the wall time that may be spent profiled."""
    round_ms: float = 500.0
    price_per_hour: float | None = None
