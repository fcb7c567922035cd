"""What the tests of the terminal share: a screen as text, snapshots of it, a terminal that is the same everywhere."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from textual.app import App
    from textual.pilot import Pilot

    from kinetop.traces.live.worker.frames import Frame

SNAPSHOTS = Path(__file__).parent / "snapshots"


@pytest.fixture(autouse=True)
def _terminal(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test depends on the terminal it runs in, or touches the user's list of recent traces."""
    monkeypatch.setenv("KINETOP_STATE_DIR", str(tmp_path_factory.mktemp("state")))
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "COLORTERM", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)


def _screen_text(app: App[Any]) -> str:
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)


@pytest.fixture
def screen_text() -> Callable[[App[Any]], str]:
    """Return the lines of the screen."""
    return _screen_text


@pytest.fixture
def settled() -> Callable[[Pilot[Any]], Awaitable[str]]:
    """Wait until no worker runs and no message waits, then return the screen."""

    async def wait(pilot: Pilot[Any]) -> str:
        for _ in range(6):  # an answer may ask for more: table, devices, findings
            await pilot.app.workers.wait_for_complete()
            await pilot.pause()
        return _screen_text(pilot.app)

    return wait


@pytest.fixture
def snapshot() -> Callable[[str, str], None]:
    """Compare a screen with the text kept under a name; a missing one is written and fails once, so that it is looked at."""

    def check(name: str, text: str) -> None:
        path = SNAPSHOTS / f"{name}.txt"
        if not path.exists():
            path.write_text(text + "\n", encoding="utf-8")
            pytest.fail(f"{path.name} was written; look at it, then run the test again")
        assert text + "\n" == path.read_text(encoding="utf-8")

    return check


class LinkOfTests:
    """Stands for the worker: gives the frames it is told to, and notes what it is told."""

    def __init__(
        self, frames: Iterable[Frame] = (), answer: Callable[[str, dict[str, Any]], Iterable[Frame]] | None = None
    ) -> None:
        self.orders: list[tuple[str, dict[str, Any]]] = []
        self.closed = False
        self._queue: asyncio.Queue[Frame | Exception | None] = asyncio.Queue()
        self._answer = answer or (lambda do, members: ())
        self._first = list(frames)

    async def frames(self) -> AsyncIterator[Frame]:
        for frame in self._first:
            yield frame
        while (frame := await self._queue.get()) is not None:
            if isinstance(frame, Exception):
                raise frame
            yield frame

    def send(self, do: str, **members: Any) -> None:
        self.orders.append((do, members))
        for frame in self._answer(do, members):
            self.say(frame)

    def say(self, frame: Frame | Exception | None) -> None:
        """Say something more; call it where the feed's loop runs, or before."""
        self._queue.put_nowait(frame)

    async def close(self) -> None:
        self.closed = True
        self.say(None)

    def told(self, do: str) -> list[dict[str, Any]]:
        return [members for name, members in self.orders if name == do]


@pytest.fixture
def link() -> type[LinkOfTests]:
    """Return the stand-in for the worker's link."""
    return LinkOfTests
