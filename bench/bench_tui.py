"""The terminal view through a pty: time to the first frame, time from a key to its redraw, and bytes written for it."""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path
from typing import Any

from measure import ROOT, keep

QUIET_S = 0.25
PRESSES = (
    ("open the kernels view", b"2", 1),
    ("kernels: open the filter", b"/", 1),
    ("kernels: filter, type g", b"g", 1),
    ("kernels: filter, type e", b"e", 1),
    ("kernels: filter, type m", b"m", 1),
    ("kernels: clear the filter", b"\x1b", 1),
    ("open the idle view", b"3", 1),
    ("idle: cursor down", b"\x1b[B", 40),
    ("idle: page down", b"\x1b[6~", 10),
    ("idle: sort", b"s", 1),
)
"""What is pressed, in this order, and how often."""


class Terminal:
    """kinetop in a pty of 140 by 40."""

    def __init__(self, trace: Path, cache: Path) -> None:
        self.seen = b""
        self.begin = time.perf_counter()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            env = {
                **os.environ,
                "KINETOP_CACHE_DIR": str(cache),
                "PYTHONPATH": "src",
                "TERM": "xterm-256color",
                "COLORTERM": "truecolor",
            }
            os.execve(sys.executable, [sys.executable, "-m", "kinetop", str(trace)], env)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))

    def read_until_quiet(self, wait_s: float, quiet_s: float = QUIET_S) -> tuple[float, float, bytes]:
        """Return when the first and the last bytes came (perf_counter; nan when none), and the bytes."""
        first = last = float("nan")
        text, patience = b"", wait_s
        while select.select([self.fd], [], [], patience)[0]:
            try:
                more = os.read(self.fd, 65_536)
            except OSError:
                break  # the program ended
            last = time.perf_counter()
            first = first if text else last
            text, patience = text + more, quiet_s
        return first, last, text

    def press(self, key: bytes) -> tuple[float, int]:
        """Press a key; returns the milliseconds until its redraw was complete and the bytes written."""
        begin = time.perf_counter()
        os.write(self.fd, key)
        _, last, text = self.read_until_quiet(2.0)
        self.seen = text or self.seen
        return (last - begin) * 1000, len(text)

    def close(self) -> None:
        """End the program."""
        os.kill(self.pid, signal.SIGTERM)
        os.close(self.fd)
        os.waitpid(self.pid, 0)


def measure(events: int, folder: Path) -> list[dict[str, Any]]:
    """Open a trace of this size from the cache and press keys in its kernel table."""
    import kinetop
    from kinetop.traces.synthetic import Plan, write

    os.environ["KINETOP_CACHE_DIR"] = str(folder / "cache")
    file = write(Plan(ranks=1, events=events), folder)[0]
    kinetop.open(file.path)
    terminal = Terminal(file.path, folder / "cache")
    first, last, _ = terminal.read_until_quiet(30.0, quiet_s=1.5)
    rows = [
        {"what": "first bytes on the screen", "ms": round((first - terminal.begin) * 1000, 1)},
        {"what": "overview complete", "ms": round((last - terminal.begin) * 1000, 1)},
    ]
    idle = len(terminal.read_until_quiet(2.0)[2])
    rows.append({"what": "written in 2 s of doing nothing", "bytes": idle})
    for what, key, times in PRESSES:
        presses = sorted(terminal.press(key) for _ in range(times))
        sizes = sorted(size for _, size in presses)
        if not sizes[0]:
            raise SystemExit(f"{what}: nothing was drawn; on the screen before:\n{terminal.seen[-3_000:]!r}")
        row = {
            "what": what,
            "ms": round(presses[times // 2][0], 1),
            "worst_ms": round(presses[-1][0], 1),
            "bytes": sizes[times // 2],
        }
        rows.append(row)
    terminal.close()
    rows = [{"events": file.figures.events, **row} for row in rows]
    for row in rows:
        print(row)
    return rows


def main() -> None:
    """Measure and keep the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, nargs="+", default=[1_000_000, 2_000_000])
    args = parser.parse_args()
    sys.path.insert(0, str(ROOT / "src"))
    rows = []
    for events in args.events:
        with tempfile.TemporaryDirectory() as folder:
            rows += measure(events, Path(folder))
    keep("tui", rows)


if __name__ == "__main__":
    main()
