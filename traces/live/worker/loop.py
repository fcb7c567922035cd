"""What the main thread does between commands: live rounds until told otherwise, or a benchmark to its end.

A job is a generator: it yields after each small piece of work how many seconds may pass before the next, and commands are looked
at then.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .stand import file_name, order_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .ready import Ready
    from .stand import Stand

ROUND_MS, ROUND_SAMPLES = 250.0, 50
"""A live round: how long it is at least, and most samples of a variant in it."""
BLOCKS, BLOCK_NS = 10, 2_000_000_000
"""A benchmark takes a variant's samples in so many blocks, others between them; a block lasts no longer than this."""
MEMORY_EVERY = 8
"""Every so many live windows of a variant allocations are recorded too."""
WINDOW_EVERY = 3
"""Once each variant had a window, one is taken in so many rounds: nobody reads faster, and each costs processors twice."""
FOCUS_EVERY = 4
"""One window in so many is not the chosen variant's."""


class Live:
    """Rounds without an end."""

    def __init__(self, stand: Stand, order: Mapping[str, Any]) -> None:
        self._stand = stand
        self._names = stand.choose(order)
        self._round_ns = float(order.get("round_ms") or ROUND_MS) * 1e6
        self._most = int(order.get("samples") or ROUND_SAMPLES)
        self._duty_pct = float(order.get("duty_pct") or 5.0)
        self._windows = 0
        self.focus: str | None = None
        """The variant whose windows are taken most often."""

    def pieces(self) -> Iterator[float]:
        """Make one more variant ready, measure those that are, again and again; ends when none is left."""
        stand, waiting, number = self._stand, list(self._names), 0
        while waiting or stand.ready:
            if waiting:
                stand.prepare(waiting.pop(0))
                yield 0.0
            began, number = time.perf_counter_ns(), number + 1
            for name in order_of(list(stand.ready), number, stand.seed):
                stand.sample(name, self._count(stand.ready[name]), number)
                yield 0.0
            if (profiled := self._window_of(number)) is not None:
                made = stand.ready[profiled]
                self._windows += 1
                stand.window(profiled, shapes=made.windows == 0, memory=made.windows % MEMORY_EVERY == 1)
            left_ns = 0.0 if waiting else self._round_ns - (time.perf_counter_ns() - began)
            yield max(0.0, left_ns) / 1e9

    def _count(self, made: Ready) -> int:
        share_ns = self._round_ns / max(1, len(self._stand.ready))
        return max(1, min(self._most, int(share_ns // max(1, made.call_ns))))

    def _window_of(self, number: int) -> str | None:
        """Return the variant of which a window may be taken in this round: one that had none, else mostly the chosen one."""
        able = {name: made for name, made in self._stand.ready.items() if not made.window_fails}
        if not able:
            return None
        name = min(able, key=lambda one: able[one].windows)
        if able[name].windows and number % WINDOW_EVERY:
            return None
        if self.focus in able and able[name].windows and self._windows % FOCUS_EVERY:
            name = self.focus
        return name if self._stand.windows.may(name, able[name].call_ns, self._duty_pct) else None


class Bench:
    """Each variant to the end, once."""

    focus: str | None = None

    def __init__(self, stand: Stand, order: Mapping[str, Any]) -> None:
        self._stand = stand
        self._names = stand.choose(order)
        self._samples = max(1, int(order.get("samples") or 30))
        self._least_ns = float(order.get("min_time_ms") or 0.0) * 1e6
        self._windows = int(order.get("windows") or 0)
        self._trace_dir: str | None = order.get("trace_dir")
        self._send = bool(order.get("send_traces"))

    def pieces(self) -> Iterator[float]:
        """Make all ready, sample them in turns, then profile them; ends with `done`."""
        stand, number = self._stand, 0
        for name in self._names:
            stand.prepare(name)
            yield 0.0
        while pending := [name for name, made in stand.ready.items() if self._wants(made)]:
            number += 1
            for name in order_of(pending, number, stand.seed):
                stand.sample(name, self._count(stand.ready[name]), number)
                yield 0.0
        for turn in range(self._windows):
            for name in order_of([name for name, made in stand.ready.items() if not made.window_fails], turn, stand.seed):
                stand.window(name, shapes=True, memory=True)
                yield 0.0
        for name in list(stand.ready) if self._trace_dir else []:
            path = Path(self._trace_dir or "") / file_name(stand.case, name)
            stand.capture(name, str(path), 3, send=self._send)
            yield 0.0
        stand.voice.say("done", what="bench")

    def _wants(self, made: Ready) -> bool:
        return made.samples < self._samples or made.spent_ns < self._least_ns

    def _count(self, made: Ready) -> int:
        call_ns = max(1, made.call_ns)
        block = max(self._samples / BLOCKS, self._least_ns / BLOCKS / call_ns)
        missing = max(self._samples - made.samples, (self._least_ns - made.spent_ns) / call_ns)
        return max(1, min(math.ceil(block), math.ceil(missing), BLOCK_NS // call_ns))


JOBS: dict[str, type[Live | Bench]] = {"start": Live, "bench": Bench}
"""Jobs by the command that begins them."""
