"""How far a benchmark is, on standard error."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from .talk import ProgressLine

if TYPE_CHECKING:
    from kinetop.traces.live.worker.frames import Frame

_BAD = frozenset({"FAILED", "UNAVAILABLE"})


class BenchProgress:
    """Takes the frames of a benchmark: a line that changes where there is a terminal, and what went wrong as lines that stay.

    Args:
        cases: how many are measured.
    """

    def __init__(self, cases: int) -> None:
        self._cases = cases
        self._done = 0
        self._began_s = time.monotonic()
        self._what = "starting"
        self._line = ProgressLine()
        self._answered = False
        self._told: set[tuple[str, ...]] = set()

    def __enter__(self) -> BenchProgress:
        self._line.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._line.__exit__(*error)

    def __call__(self, frame: Frame) -> None:
        """Take in a frame."""
        header = frame.header
        self._answered |= frame.kind == "hello"
        if frame.kind == "done":
            self._done += 1
        elif frame.kind == "beat" and isinstance(doing := header.get("doing"), dict):
            self._what = " ".join(str(doing.get(key) or "") for key in ("variant", "what")).strip()
        elif frame.kind == "state" and header.get("state") in _BAD:
            self._stay(str(header["variant"]), f"{header['state']}: {header.get('why') or 'it did not say why'}")
        elif frame.kind == "error":
            self._stay(*(str(header[key]) for key in ("variant", "message") if header.get(key)))
        elif self._answered and frame.kind == "link" and header.get("event") in {"lost", "hung", "timeout", "restarted"}:
            self._stay(f"worker {header['event']}", str(header.get("why") or ""))
        self._line.show(self._text)

    def _stay(self, *words: Any) -> None:
        """Say something once: a variant that cannot run here says so for every case."""
        if words not in self._told:
            self._told.add(words)
            self._line.say(": ".join(word for word in words if word))

    def _text(self) -> str:
        at = f"case {min(self._done + 1, self._cases)} of {self._cases}  " if self._cases > 1 else ""
        return f"{at}{self._what}  {time.monotonic() - self._began_s:.0f} s"
