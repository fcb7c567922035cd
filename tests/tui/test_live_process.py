"""`kinetop live` as a person runs it: a terminal, a worker with torch, and no process left after q."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 120
torch_here = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


class Terminal:
    """A command in a terminal of its own."""

    def __init__(self, tmp_path: Path, *arguments: str, **environment: str) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        whole = {
            **os.environ, "PYTHONPATH": str(ROOT / "src"), "TERM": "xterm-256color", "OMP_NUM_THREADS": "1",
            "KINETOP_STATE_DIR": str(tmp_path), "KINETOP_MARK": str(tmp_path), **environment,
        }  # fmt: skip
        command = [sys.executable, "-m", "kinetop", *arguments]
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=whole, cwd=tmp_path, start_new_session=True
        )
        os.close(slave)
        self.mark = f"KINETOP_MARK={tmp_path}".encode()
        self.said = ""

    def read(self, seconds: float) -> str:
        end = time.monotonic() + seconds
        new = ""
        while (left := end - time.monotonic()) > 0:
            if not select.select([self.master], [], [], left)[0]:
                break
            try:
                new += os.read(self.master, 1 << 16).decode(errors="replace")
            except OSError:
                break
        self.said += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", new)
        return new

    def shows(self, *texts: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while not all(text in self.said for text in texts):
            assert time.monotonic() < end, f"{texts} did not appear in {self.said[-2000:]}"
            assert self.process.poll() is None, self.said[-2000:]
            self.read(0.2)

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def close(self) -> None:
        """Take the terminal away as a window that is closed does: a hangup, no terminal any more, another hangup."""
        self.process.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        os.close(self.master)
        self.master = os.open(os.devnull, os.O_RDONLY)
        self.process.send_signal(signal.SIGHUP)

    def left(self) -> list[int]:
        """Return every process that has inherited this terminal's environment."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdecimal() and self.mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:  # it ended meanwhile, or is another user's
                continue
        return found


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[list[Terminal]]:
    made: list[Terminal] = []
    yield made
    for terminal in made:
        for process in terminal.left():
            os.kill(process, signal.SIGKILL)
        terminal.process.wait(10)
        os.close(terminal.master)


pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")


@pytest.mark.slow
@torch_here
@pytest.mark.parametrize("ending", ["q", "hangup", "closed", "kill"])
def test_live_measures_and_leaves_no_process(tmp_path: Path, terminals: list[Terminal], ending: str) -> None:
    if ending in {"hangup", "closed"} and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        pytest.skip("the signal is ignored here, as under nohup, and kinetop leaves it so")
    terminal = Terminal(tmp_path, "live", "--variants", "eager,sdpa:math", "--shape", "1,2,64,16")
    terminals.append(terminal)
    terminal.shows("eager", "sdpa:math", "aten::")
    assert len(terminal.left()) >= 2
    if ending == "q":
        terminal.press("q")
    elif ending == "hangup":
        terminal.process.send_signal(signal.SIGHUP)
    elif ending == "closed":
        terminal.close()
    else:
        terminal.process.kill()
    end = time.monotonic() + 20
    while terminal.left() and time.monotonic() < end:
        terminal.read(0.1)
        terminal.process.poll()
    assert terminal.left() == []
    if ending == "closed":
        assert terminal.process.wait(5) == 128 + signal.SIGHUP
    if ending == "q":
        assert terminal.process.wait(5) == 0


def test_the_demo_replays_and_no_colour_is_sent(tmp_path: Path, terminals: list[Terminal]) -> None:
    terminal = Terminal(tmp_path, "replay", "--demo", "--pace", "0", "--ascii", NO_COLOR="1", TERM="xterm")
    terminals.append(terminal)
    terminal.shows("the session ends here", "sdpa:flash", "parts")
    assert terminal.said.isascii()
    end = time.monotonic() + PATIENCE_S
    while terminal.read(4):
        assert time.monotonic() < end, "nothing is written while nothing changes"
    terminal.press("q")
    assert terminal.process.wait(20) == 0


def test_the_first_frame_loads_neither_polars_nor_torch() -> None:
    code = (
        "import asyncio, sys\n"
        "from kinetop.tui.live_app import LiveApp\n"
        "from kinetop.tui.live_feed import Feed, FeedOptions\n"
        "import kinetop.tui.screens.live\n"
        "print(*sorted({'polars', 'pyarrow', 'duckdb', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == ""
