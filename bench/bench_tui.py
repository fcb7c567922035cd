"""The terminal view through a pty: time to the first frame, time from a key to its redraw, and bytes written for it.

The table and the pane below it, which follows when the cursor rests, are told apart by the lines that are written to.
Beside the time that a clock shows stands the CPU time of the process (all its threads): it says what a busy machine hides.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import tempfile
import termios
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from measure import ROOT, environment, keep

QUIET_S = 0.4
OPENING_QUIET_S = 1.5
"""A view that is opened has its screen first and its answer later."""
LINES, CELLS = 40, 140
TABLE_LINES = range(2, 31)
"""Lines of the screen on which nothing but a view's table is, with and without a filter line."""
_PLACE = re.compile(rb"\x1b\[(\d+);\d+H")
_TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")
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


@dataclass(frozen=True)
class Wrote:
    """A piece of what the program writes."""

    at_s: float
    """perf_counter."""
    cpu_ms: float
    """CPU time of the process up to it."""
    text: bytes

    @property
    def on_table(self) -> bool:
        """Whether it changes lines of the table."""
        return any(int(line) in TABLE_LINES for line in _PLACE.findall(self.text))


@dataclass(frozen=True)
class Press:
    """What a key led to: up to the table's last change, and up to the last change of all."""

    table_ms: float
    table_cpu_ms: float
    all_ms: float
    table_bytes: int
    all_bytes: int


class Terminal:
    """kinetop in a pty of 140 by 40."""

    def __init__(self, trace: Path, cache: Path) -> None:
        self.seen = b""
        self.begin = time.perf_counter()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            env = {
                **environment(),
                "KINETOP_CACHE_DIR": str(cache),
                "PYTHONPATH": "src",
                "TERM": "xterm-256color",
                "COLORTERM": "truecolor",
            }
            os.execve(sys.executable, [sys.executable, "-m", "kinetop", str(trace)], env)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, CELLS, 0, 0))

    def read_until_quiet(self, wait_s: float, quiet_s: float = QUIET_S) -> list[Wrote]:
        """Return what is written until nothing more comes for a while."""
        wrote: list[Wrote] = []
        patience = wait_s
        while select.select([self.fd], [], [], patience)[0]:
            try:
                more = os.read(self.fd, 65_536)
            except OSError:
                break  # the program ended
            wrote.append(Wrote(time.perf_counter(), self.cpu_ms(), more))
            patience = quiet_s
        return wrote

    def cpu_ms(self) -> float:
        """CPU time of the process so far, user and system."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * _TICK_MS

    def press(self, key: bytes, quiet_s: float) -> Press:
        """Press a key and read what it makes the program write, until nothing more comes for so long."""
        begin, cpu_ms = time.perf_counter(), self.cpu_ms()
        os.write(self.fd, key)
        wrote = self.read_until_quiet(2.0, quiet_s)
        self.seen = b"".join(one.text for one in wrote) or self.seen
        table = [one for one in wrote if one.on_table]
        first = table[-1] if table else wrote[-1] if wrote else None
        return Press(
            table_ms=(first.at_s - begin) * 1000 if first else 0.0,
            table_cpu_ms=first.cpu_ms - cpu_ms if first else 0.0,
            all_ms=(wrote[-1].at_s - begin) * 1000 if wrote else 0.0,
            table_bytes=sum(len(one.text) for one in wrote if first and one.at_s <= first.at_s),
            all_bytes=sum(len(one.text) for one in wrote),
        )

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
    first = Terminal(file.path, folder / "cache")  # compiles the modules, as installing kinetop does
    first.read_until_quiet(30.0, quiet_s=4.0)
    first.close()
    terminal = Terminal(file.path, folder / "cache")
    wrote = terminal.read_until_quiet(30.0, quiet_s=4.0)
    marks = {"first bytes on the screen": wrote[0], "first table": first_table(wrote), "overview complete": wrote[-1]}
    rows: list[dict[str, Any]] = [
        {"what": what, "ms": round((one.at_s - terminal.begin) * 1000, 1), "cpu_ms": one.cpu_ms} for what, one in marks.items()
    ]
    rows.append(
        {"what": "written in 2 s of doing nothing", "bytes": sum(len(one.text) for one in terminal.read_until_quiet(2.0))}
    )
    for what, key, times in PRESSES:
        quiet_s = OPENING_QUIET_S if "view" in what else QUIET_S
        presses = [terminal.press(key, quiet_s) for _ in range(times)]
        if not any(press.all_bytes for press in presses):
            raise SystemExit(f"{what}: nothing was drawn; on the screen before:\n{terminal.seen[-3_000:]!r}")
        told = {name: round(median(getattr(press, name) for press in presses), 1) for name in Press.__dataclass_fields__}
        rows.append({"what": what, **told, "worst_table_ms": round(max(press.table_ms for press in presses), 1)})
    terminal.close()
    rows = [{"events": file.figures.events, **row} for row in rows]
    for row in rows:
        print(row)
    return rows


def first_table(wrote: list[Wrote]) -> Wrote:
    """Return the piece that brings the first row with a cursor."""
    return next((one for one in wrote if "▌".encode() in one.text), wrote[-1])


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
