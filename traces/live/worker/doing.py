"""What the worker says: frames from any thread, and twice a second that it lives and what it is at."""

from __future__ import annotations

import faulthandler
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from . import frames

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

BEAT_S = 0.5
STUCK_S = 600
"""After so long without a beat the worker ends: Python's lock is held, and no thread sees whether the host is gone."""


class Voice:
    """Writes frames, whole and one after the other, whichever thread speaks."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._number = 0

    def say(
        self, kind: str, *, columns: Mapping[str, tuple[str, Sequence[Any]]] | None = None, body: bytes = b"", **members: Any
    ) -> None:
        """Send a frame; ends the process when nobody reads any more.

        Args:
            kind: of the frame, see docs/worker.md.
            columns: values by name, each with its type.
            body: bytes in place of columns.
            members: of the header.
        """
        with self._lock:
            self._number += 1
            header = {"kind": kind, "t_ns": time.time_ns(), "seq": self._number, **members}
            left = memoryview(frames.pack(header, columns, body))
            try:
                while left:
                    left = left[os.write(self._descriptor, left) :]
            except OSError:
                os._exit(0)


class Doing:
    """What the main thread is at; the host blames a variant, or ends it when it takes too long, by what stands here."""

    def __init__(self, voice: Voice) -> None:
        self._voice = voice
        self._now: dict[str, Any] = {}
        self.rest()

    def at(self, what: str, variant: str | None = None, limit_s: float | None = None) -> None:
        """Say what begins now, before it begins.

        Args:
            what: in a word or two.
            variant: whose it is.
            limit_s: longest it may take.
        """
        self._set(what, variant, limit_s)
        self.beat()

    def rest(self) -> None:
        """Take note that nothing of a variant runs; the next beat says so."""
        self._set("waiting", None, None)

    def beat(self) -> None:
        """Say what it is at."""
        self._voice.say("beat", doing=self._now)

    def _set(self, what: str, variant: str | None, limit_s: float | None) -> None:
        self._now = {"what": what, "variant": variant, "since_ns": time.time_ns(), "limit_s": limit_s}


def keep_beating(doing: Doing, others: Callable[[], None]) -> None:
    """Beat until the process ends; in a thread of its own.

    Args:
        doing: what the main thread is at.
        others: called after each beat, for what else is said from time to time.
    """
    while True:
        faulthandler.dump_traceback_later(STUCK_S, exit=True)
        doing.beat()
        others()
        time.sleep(BEAT_S)
