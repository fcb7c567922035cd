"""How far a benchmark is, on standard error."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from .talk import ProgressLine

if TYPE_CHECKING:
    from kinetop.traces.live.worker.frames import Frame

_BAD = frozenset({"FAILED", "UNAVAILABLE"})
_ENDS = frozenset({"lost", "hung", "timeout", "restarted"})
_BESIDE = frozenset({"beat", "telemetry", "log"})
"""Frames of other threads, which come between any two."""


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
        self._told: set[str] = set()
        self._held: tuple[str, str] | None = None
        """A variant and what befell it: the state that this put it in comes next, and says the same."""

    def __enter__(self) -> BenchProgress:
        self._line.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._let_go()
        self._line.__exit__(*error)

    def __call__(self, frame: Frame) -> None:
        """Take in a frame."""
        self._answered |= frame.kind == "hello"
        if frame.kind not in _BESIDE:
            self._tell(frame.kind, frame.header)
        elif frame.kind == "beat" and isinstance(doing := frame.header.get("doing"), dict):
            self._what = " ".join(str(doing.get(key) or "") for key in ("variant", "what")).strip()
        self._line.show(self._text)

    def _tell(self, kind: str, header: dict[str, Any]) -> None:
        variant, why = str(header.get("variant") or ""), str(header.get("why") or "")
        state = str(header.get("state") or "") if kind == "state" else ""
        if state == "FAILED" and self._held is not None and self._held[0] == variant:
            self._held = None
        self._let_go()
        if kind == "done":
            self._done += 1
        elif state in _BAD:
            self._stay(f"{variant}: {state}: {why or 'it did not say why'}")
        elif kind == "error":
            self._hold(variant, ": ".join(filter(None, (variant, str(header.get("message") or "")))))
        elif kind == "link" and self._answered and header.get("event") in _ENDS:
            self._hold(variant, f"worker {header['event']}: {why}".strip(": "))

    def _hold(self, variant: str, text: str) -> None:
        """Keep what befell a variant until the next frame; what befell no variant is said at once."""
        if variant:
            self._held = variant, text
        else:
            self._stay(text)

    def _let_go(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            self._stay(held[1])

    def _stay(self, text: str) -> None:
        """Say something once: a variant that cannot run here says so for every case."""
        if text not in self._told:
            self._told.add(text)
            self._line.say(text)

    def _text(self) -> str:
        at = f"case {min(self._done + 1, self._cases)} of {self._cases}  " if self._cases > 1 else ""
        return f"{at}{self._what}  {time.monotonic() - self._began_s:.0f} s"
