"""The app in a real terminal: tmux, small and large, 16 colours and none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE_S = 120

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Terminal:
    """A tmux server of its own with one window."""

    def __init__(self, socket: Path, width: int, height: int, command: str, environment: dict[str, str]) -> None:
        self._socket = str(socket)
        self.colourless = "NO_COLOR" in environment
        set_up = [f"{name}={value}" for name, value in environment.items()]
        size = ("-x", str(width), "-y", str(height))
        self.tmux("-f", "/dev/null", "new-session", "-d", *size, "env", *set_up, "sh", "-c", command)

    def tmux(self, *arguments: str) -> str:
        return subprocess.run(["tmux", "-S", self._socket, *arguments], capture_output=True, text=True, check=True).stdout

    def screen(self, *, escapes: bool = False) -> str:
        return self.tmux("capture-pane", "-p", *(["-e"] if escapes else []))

    def shows(self, text: str) -> str:
        """Wait until the screen holds a text."""
        end = time.monotonic() + PATIENCE_S
        while text not in (screen := self.screen()):
            if time.monotonic() > end:
                raise AssertionError(f"{text!r} did not appear in\n{screen}")
            time.sleep(0.1)
        return screen

    def press(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)


@pytest.fixture(params=[(80, 24, "xterm", {}), (140, 40, "xterm", {}), (80, 24, "xterm", {"NO_COLOR": "1"})], ids=str)
def terminal(request: pytest.FixtureRequest, tmp_path: Path, hazards: Path) -> Iterator[Terminal]:
    width, height, kind, more = request.param
    environment = {
        "TERM": kind,
        "HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT / "src"),
        "KINETOP_CACHE_DIR": os.environ["KINETOP_CACHE_DIR"],
        "KINETOP_STATE_DIR": str(tmp_path / "state"),
        **more,
    }
    command = f"{sys.executable} -m kinetop '{hazards / '01_baseline_clean.json'}'; echo ended with $?; sleep {PATIENCE_S}"
    made = Terminal(tmp_path / "tmux", width, height, command, environment)
    yield made
    made.tmux("kill-server")


def test_every_view_filter_and_quit(terminal: Terminal) -> None:
    overview = terminal.shows("exposed comm 11.5 %")
    assert "compute 65.4 %" in overview
    terminal.press("2")
    terminal.shows("launched")
    terminal.press("/")
    terminal.press("n", "c", "c", "l")
    terminal.shows("1 of 6")
    terminal.press("Enter")
    terminal.shows("e export")  # the keys are the view's again
    terminal.press("3")
    terminal.shows("gaps")
    terminal.press("4")
    terminal.shows("all-reduce")
    colours = set(re.findall(r"\x1b\[([0-9;]+)m", terminal.screen(escapes=True)))
    assert not {code for code in colours if code.startswith(("38;", "48;"))}, "colours that a 16-colour terminal lacks"
    if terminal.colourless:
        assert not {code for code in colours if re.search(r"(?:^|;)(?:3[0-7]|4[0-7]|9[0-7])(?:;|$)", code)}
    terminal.press("q")
    terminal.shows("ended with 0")
