"""What the tests of the terminal share: a screen as text, snapshots of it, a terminal that is the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from textual.app import App
    from textual.pilot import Pilot

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
        for _ in range(4):
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
