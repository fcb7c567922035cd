"""What a command says beside its data: notices, errors and a progress line, all on standard error."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinetop.traces.errors import FilterError

_STEP_S = 0.1


def on_terminal() -> bool:
    """Whether there is a terminal that can show screens, with somebody at it."""
    return sys.stdout.isatty() and sys.stdin.isatty() and os.environ.get("TERM") != "dumb"


def say(text: str) -> None:
    """Say something to the person, with nothing in it that a terminal acts on."""
    from .format import clean

    sys.stderr.write("\n".join(clean(line, 4_000) for line in text.split("\n")) + "\n")
    sys.stderr.flush()


def say_filter(error: FilterError, text: str | None) -> None:
    """Say what is wrong with a filter, and show the place in it."""
    say(f"kinetop: {error}")
    if text is None or error.position is None:
        return
    from rich.cells import cell_len

    from .format import clean

    begin = max(0, error.position - 60)
    say(f"  {clean(text[begin : error.position + 40])}\n  {' ' * cell_len(clean(text[begin : error.position]))}^")


def is_plain(stream: Any) -> bool:
    """Return whether a stream gets no escape sequences: not a terminal, a dumb one, or NO_COLOR is set."""
    return not stream.isatty() or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


class ProgressLine:
    """One line on standard error that tells how far something is; silent where that is no terminal.

    Use it as a context manager; it takes the line away when it ends.
    """

    def __init__(self) -> None:
        self._started_s = time.monotonic()
        self._shown_s = 0.0
        self._on = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._dirty = False

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        self._clear()

    def __call__(self, state: dict[str, Any]) -> None:
        """Show a state: `bytes`, `total_bytes`, `events`, `file`."""
        self.show(lambda: progress_text(state, time.monotonic() - self._started_s))

    def show(self, text: Callable[[], str]) -> None:
        """Show a text in the line's place, made only when the last one has stood long enough."""
        now_s = time.monotonic()
        if not self._on or now_s - self._shown_s < _STEP_S:
            return
        self._shown_s = now_s
        self._dirty = True
        width = shutil.get_terminal_size().columns - 1
        from .format import clean

        sys.stderr.write(f"\r{clean(text(), width)}\x1b[K")
        sys.stderr.flush()

    def say(self, text: str) -> None:
        """Say something that stays, above the line."""
        self._clear()
        say(text)

    def _clear(self) -> None:
        if self._dirty:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        self._dirty, self._shown_s = False, 0.0


def progress_text(state: dict[str, Any], elapsed_s: float) -> str:
    """Return how far an import is, in a line.

    Args:
        state: `bytes`, `total_bytes` (0 or absent where it is not known), `events`, `file`.
        elapsed_s: seconds since it began.

    Example:
        >>> progress_text({"bytes": 2**20, "total_bytes": 2**22, "events": 5000, "file": "a.json"}, 2.0)
        '25 %  1.0 MiB of 4.0 MiB  5,000 events  0.5 MB/s  6 s left  a.json'
    """
    from .format import plural, size

    done, total, events = state.get("bytes") or 0, state.get("total_bytes") or 0, state.get("events") or 0
    rate = done / elapsed_s if elapsed_s > 0 else 0.0
    parts = [f"{100 * done / total:.0f} %", f"{size(done)} of {size(total)}"] if total else [size(done)]
    parts += [plural(events, "event"), f"{rate / 1e6:,.1f} MB/s"]
    if total and rate and done < total:
        parts.append(f"{(total - done) / rate:,.0f} s left")
    return "  ".join([*parts, str(state.get("file") or "")]).rstrip()
