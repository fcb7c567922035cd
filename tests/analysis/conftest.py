"""The real traces, each imported once for all tests of this folder, and windows of attention taken on this CPU."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

import kinetop

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kinetop.traces.live.recording import Recording
    from kinetop.traces.live.worker.case import Case


@pytest.fixture(scope="session")
def real(shared: Path) -> Callable[[str], kinetop.TraceSet]:
    """Open a real trace by its name below `traces/`; skips where the folder is absent."""

    @cache
    def opened(name: str) -> kinetop.TraceSet:
        return kinetop.open(shared / "traces" / name)

    return opened


@pytest.fixture
def windowed() -> Callable[..., Recording]:
    """Profile calls on this CPU with the worker's own profiler; what it would have sent becomes a recording."""
    pytest.importorskip("torch", reason="torch is not installed")
    from kinetop.traces.live.recording import Recording
    from kinetop.traces.live.worker import frames, profile

    def take(
        case: Case, calls: dict[str, Callable[[], Any]], prepared: dict[str, Any] | None = None, *, steps: int = 3
    ) -> Recording:
        made, taker = Recording(), profile.Windows(case)
        for variant, call in calls.items():
            call()
            about = {"variant": variant, "case": case.to_dict()}
            made.add(frames.Frame({"kind": "prepared", **about, **(prepared or {})}))
            header, columns = taker.take(variant, call, steps)
            names = dict(enumerate(profile._process.names.all))  # a worker sends a name once, and here a process is many workers
            for frame in frames.Reader().feed(frames.pack({**header, **about, "names": names}, columns)):
                made.add(frame)
        assert not made.ignored
        return made

    return take
