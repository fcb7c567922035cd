"""One worker kept alive: started, watched, restarted without the variant that ended it, and ended for good."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import WorkerError
from . import bootstrap, interpreter
from .child import CHUNK_BYTES, Child
from .orders import Orders
from .worker.frames import MAGIC, Frame, FrameError, Reader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

_WAITING_FRAMES = 512
"""Frames kept for a consumer that is slow; then the worker waits."""
_TICK_S = 0.2
_PREAMBLE_BYTES = 1 << 16
"""What a login shell may print before the first frame."""
_LOG_LINE, _LOG_LINES_S = 2000, 200
_LIVED_S = 60.0
"""A worker that lived so long was no failed restart."""


@dataclass(frozen=True)
class Start:
    """How to start a worker."""

    python: str | None = None
    """Its interpreter; found (see `interpreter.find`) when None, `python3` on a host."""
    host: str | None = None
    """`user@box` or an alias of the ssh configuration; None for this machine."""
    plugins: tuple[str, ...] = ()
    """Modules that declare more variants."""
    target: str | None = None
    """The user's own callable: `pkg.mod:fn` or `path/file.py:fn`."""
    setup: str | None = None
    """What makes its arguments, in the same form."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables set for it."""
    seed: int = 0


@dataclass(frozen=True)
class Timeouts:
    """How long a worker is waited for, in seconds."""

    start_s: float = 120.0
    """Until it has imported torch and answered."""
    silence_s: float = 15.0
    """Between two signs of life; it gives one each 0.5 s, also while it computes."""
    variant_s: float | None = None
    """For one thing of one variant (compiling it, one round of it); what the variant declares when None."""
    stop_s: float = 1.5
    """After `quit`, and again after SIGTERM."""
    restarts: int = 4
    """Of workers that die in a row with no variant to blame."""
    backoff_s: float = 0.2
    """Before a restart; doubled each time in a row."""


@dataclass(frozen=True)
class _End:
    """Why a worker is no more."""

    event: str
    why: str


class Link:
    """A worker, its frames, and what happens to it.

    Everything the worker says and all that befalls it comes out of `frames`; nothing here raises for what a worker does.
    """

    def __init__(self, start: Start, *, timeouts: Timeouts = Timeouts()) -> None:  # noqa: B008: frozen
        self._start = start
        self._timeouts = timeouts
        hello = {"plugins": list(start.plugins), "target": start.target, "setup": start.setup, "seed": start.seed}
        self._orders = Orders({"do": "hello", **hello})
        self._queue: asyncio.Queue[Frame | None] = asyncio.Queue(_WAITING_FRAMES)
        self._supervisor: asyncio.Task[None] | None = None
        self._child: Child | None = None
        self._answered = False
        self._ever_answered = False
        self._closing = False
        self._attempt = 0
        self._silent_s = 0.0
        self._doing: dict[str, Any] = {}
        self._last_words: deque[str] = deque(maxlen=20)
        self._said = ""
        self._captures: dict[str, str] = {}
        """Where a trace that comes over the wire is to be written, by variant."""

    async def frames(self) -> AsyncIterator[Frame]:
        """Start the worker and yield what is said until it is closed or given up.

        Yields:
            The worker's frames, and the link's own: `link` and `log`.
        """
        if self._supervisor is None:
            self._supervisor = asyncio.create_task(self._supervise(), name="kinetop link")
        while (frame := await self._queue.get()) is not None:
            yield frame

    def send(self, do: str, **members: Any) -> None:
        """Give the worker a command; one given while there is no worker waits for the next.

        Args:
            do: the command, see docs/worker.md.
            members: its members; a `case` may be a Case.
        """
        order = {"do": do, **members}
        if self._start.host and do == "capture":
            self._captures[str(members["variant"])] = str(members["path"])
            order["send_traces"] = True
        ...

    async def close(self) -> None:
        """End the worker: ask, then insist, then force; returns when no process is left."""
        ...
