"""Whether a worker lives, judged from what it says and how long it has not."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import Any

_LINES = 128
"""Lines of its standard error that are kept: a dump of a crash has up to 100 frames."""
_FRAME = re.compile(r'File ".*", line \d+ in .*')


@dataclass(frozen=True)
class Timeouts:
    """How long a worker is waited for, in seconds."""

    start_s: float = 120.0
    """Until it has imported torch and answered."""
    silence_s: float = 30.0
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
class End:
    """Why a worker is no more."""

    event: str
    """`lost`, `hung` or `timeout`."""
    why: str
    variant: str | None = None
    """The variant that it was at then; it may go on for a moment."""


class Vitals:
    """Signs of life of one worker.

    Ticks are counted, not the clock: a machine that slept, or a reader that lets frames wait, is no fault of the worker's.
    """

    def __init__(self) -> None:
        self.answered = False
        """Whether its `hello` has come."""
        self.age_s = 0.0
        self.said = ""
        """Its last error that is no variant's."""
        self.last_lines: deque[str] = deque(maxlen=_LINES)
        """Of its standard error."""
        self._silent_s = 0.0
        self._doing: dict[str, Any] = {}
        self._doing_s = 0.0

    def heard(self) -> None:
        """Take note that something came from it."""
        self._silent_s = 0.0

    def beat(self, header: dict[str, Any]) -> None:
        """Take note of what it does, and since when by its own clock."""
        doing = header.get("doing")
        self._doing = doing if isinstance(doing, dict) else {}
        now_ns, since_ns = header.get("t_ns"), self._doing.get("since_ns")
        self._doing_s = 0.0
        if isinstance(now_ns, int) and isinstance(since_ns, int):
            self._doing_s = max(0.0, (now_ns - since_ns) / 1e9)

    def tick(self, passed_s: float) -> None:
        """Let time pass."""
        self.age_s += passed_s
        self._silent_s += passed_s
        self._doing_s += passed_s

    def overdue(self, timeouts: Timeouts) -> End | None:
        """Return why it must be given up, or None while it is well."""
        if not self.answered:
            return End("hung", f"no answer in {timeouts.start_s:g} s") if self.age_s > timeouts.start_s else None
        if self._silent_s > timeouts.silence_s:
            return End(
                "hung", f"no sign of life for {timeouts.silence_s:g} s" + (f" ({self.at})" if self.at else ""), self.variant
            )
        most_s = self._doing.get("limit_s")
        if timeouts.variant_s is not None and self.variant:
            most_s = timeouts.variant_s
        if isinstance(most_s, (int, float)) and self._doing_s > most_s:
            return End("timeout", f"{self.at} took more than {most_s:g} s", self.variant)
        return None

    @property
    def variant(self) -> str | None:
        """The variant it is at, if it is at one."""
        variant = self._doing.get("variant")
        return variant if isinstance(variant, str) else None

    @property
    def at(self) -> str:
        """What it is at, in words."""
        words = (self._doing.get("what"), self._doing.get("variant"))
        return " ".join(str(word) for word in words if word)

    def last_words(self, how: str) -> str:
        """Return why it ended: its own words before it answered, else how, and where it crashed or its last line."""
        if self.said and not self.answered:
            return self.said
        last = self._crashed_at() or (self.last_lines[-1] if self.last_lines else "")
        return f"{how}: {last}" if last else how

    def _crashed_at(self) -> str:
        """The innermost frame of the thread that crashed, from the dump that Python makes then."""
        lines = list(self.last_lines)
        ends = (at for at in range(len(lines) - 1, 0, -1) if lines[at - 1].startswith("Current thread"))
        at = next(ends, None)
        return lines[at] if at is not None and _FRAME.fullmatch(lines[at]) else ""
