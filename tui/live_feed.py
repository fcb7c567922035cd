"""Where the live screen's frames come from, and the thread that keeps them off the screen's own loop."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from .libraries import load_early
from .live_now import Board, Now, Wish
from .live_tape import reason
from .messages import Captured, LiveChanged

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from textual.message import Message

    from kinetop.traces.live.link import Link, Start
    from kinetop.traces.live.worker.case import Case
    from kinetop.traces.live.worker.frames import Frame

    from .live_sweep import Sweep

BETWEEN_S = 0.25
"""Shortest time between two pictures of what stands."""
MOST_WAITING = 20_000
"""Frames that wait for a picture; then what sends them waits."""
LONGEST_SLEEP_S = 3.0
"""A replay does not wait longer than this for its next frame, whatever happened meanwhile then."""


@dataclass(frozen=True)
class FeedOptions:
    """What to watch: a worker that `start` says how to start, or a recorded session."""

    start: Start | None = None
    """How to start the worker; None replays `session`."""
    session: Path | None = None
    case: Case | None = None
    """What is measured first; a worker needs one."""
    variants: str = "eager,sdpa:*"
    """Names and patterns, with commas."""
    pace: float = 1.0
    """Of a replay: times faster than it was recorded; 0 shows the end at once."""
    record: Path | None = None
    """Session file to record to from the beginning."""
    baseline: str = ""
    """Variant that the others are compared with."""
    samples: int = 20
    """Samples of a variant in one round."""
    duty_pct: float = 5.0
    """Most of the wall time that may be spent profiled."""
    round_ms: float = 500.0
    price_per_hour: float | None = None


class Feed:
    """Reads frames and tells what they show, in a thread of its own, at most four times a second.

    Frames are never dropped: those that come while a picture is made wait for the next one; only pictures are left out.

    Args:
        options: what to watch.
        link: the worker's link, where it is there already.
    """

    def __init__(self, options: FeedOptions, link: Link | None = None) -> None:
        self.options = options
        self.wish = Wish(options.case, baseline=options.baseline, price_per_hour=options.price_per_hour)
        self.now = Now(self.wish)
        """The newest picture."""
        self.sweep: Sweep | None = None
        self.refused = ""
        """Why a variant that was asked for is not measured."""
        self._listeners: list[Callable[[Message], Any]] = []
        self._board = Board()
        self._waiting: deque[Frame] = deque()
        self._orders: deque[Callable[[], None]] = deque()
        """What the thread that makes pictures does first."""
        self._ended = ""
        self._shown: Any = None
        """State of which the newest picture was made."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._link = link

    # What the screens call

    @property
    def replays(self) -> bool:
        """Whether a session is shown, which takes no orders."""
        return self.options.start is None

    def listen(self, post: Callable[[Message], Any]) -> None:
        """Send what happens to another screen's `post_message` too."""
        self._listeners.append(post)

    def unlisten(self, post: Callable[[Message], Any]) -> None:
        """Send a screen nothing any more."""
        self._listeners = [other for other in self._listeners if other != post]

    def start(self) -> None:
        """Begin to read; once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="kinetop-feed", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the worker and the thread; a session file that was open is whole afterwards. May be called again."""
        if self._thread is not None and self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended by itself
                self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    def choose(self, **changes: Any) -> None:
        """Change what is shown: a member of `Wish`."""
        self.wish = replace(self.wish, **changes)
        self._nudge()

    def measure(self, *, case: Case | None = None, variants: Sequence[str] | None = None) -> None:
        """Measure another case or other variants from now on."""
        self.wish = replace(
            self.wish, case=case or self.wish.case, variants=self.wish.variants if variants is None else tuple(variants)
        )
        self._begin()
        self._nudge()

    def pause(self, paused: bool) -> None:  # noqa: FBT001
        """Stop measuring, or go on."""
        self.choose(paused=paused)
        self.send("pause" if paused else "resume")

    def send(self, do: str, **members: Any) -> None:
        """Give the worker an order; a replay has none."""
        if self._loop is not None and self._link is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(partial(self._link.send, do, **members))

    def record(self, path: Path | None) -> None:
        """Begin to record to a session file, or end that."""
        self._orders.append(lambda: self._board.record(path))
        self._nudge()

    def run_sweep(self, sweep: Sweep) -> None:
        """Measure the cases of a sweep with the same worker; live goes on after the last."""
        self.sweep = sweep
        if not self.replays and (case := sweep.next()):
            self._bench(sweep, case)
        self._nudge()

    def end_sweep(self) -> None:
        """Stop a sweep and go back to live; what it has shown stays."""
        if self.sweep is not None and self.sweep.running:
            self.sweep.cancelled = True
            self._begin()
        self._nudge()

    # The thread

    def _work(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop, self._wake, self._urgent = asyncio.Event(), asyncio.Event(), asyncio.Event()
        if self.options.record is not None:
            self.record(self.options.record)
        self._wake.set()
        reader = asyncio.create_task(self._read())
        await asyncio.to_thread(load_early)
        try:
            while not self._stop.is_set():
                await _either(self._stop, self._wake)
                self._wake.clear()
                await asyncio.to_thread(self._picture)
                await _either(self._stop, self._urgent, within_s=BETWEEN_S)  # what the user does is answered at once
                self._urgent.clear()
                if self._board.late:
                    self._wake.set()
        finally:
            reader.cancel()
            with suppress(asyncio.CancelledError):
                await reader
            if self._link is not None:
                await self._link.close()
            self.record(None)
            await asyncio.to_thread(self._take)

    async def _read(self) -> None:
        try:
            async for frame in self._frames():
                self._waiting.append(frame)
                self._hear(frame)
                self._wake.set()
                while len(self._waiting) >= MOST_WAITING:  # a long session that is read at once stops here, and can be left
                    await asyncio.sleep(BETWEEN_S / 10)
            self._ended = "the session ends here" if self.replays else "the worker has ended"
        except Exception as error:  # shown as the state of the worker; what was measured stays
            self._ended = reason(error)
        self._wake.set()

    async def _frames(self) -> AsyncIterator[Frame]:
        if self.options.start is None:
            async for frame in self._replayed():
                yield frame
            return
        if self._link is None:
            from kinetop.traces.live.link import Link

            self._link = Link(self.options.start)
        async for frame in self._link.frames():
            yield frame

    async def _replayed(self) -> AsyncIterator[Frame]:
        """Yield a session's frames at the pace asked for."""
        from kinetop.traces.live import session
        from kinetop.traces.live.members import time_ns

        pace, last_ns = self.options.pace, None
        for frame in session.frames(self.options.session or session.demo()):
            t_ns = time_ns(frame.header)
            if pace > 0 and last_ns is not None and t_ns is not None:
                await asyncio.sleep(min(LONGEST_SLEEP_S, max(0.0, (t_ns - last_ns) / 1e9)) / pace)
            while self.wish.paused:
                await asyncio.sleep(BETWEEN_S)
            last_ns = t_ns if t_ns is not None else last_ns
            yield frame

    def _hear(self, frame: Frame) -> None:
        """Answer a frame that asks for something to be done."""
        header = frame.header
        if frame.kind == "hello":
            self._meet(header)
        elif frame.kind == "captured" and not self.replays:  # a session may name any file of this machine
            self._tell(Captured(header, frame.body))
        elif frame.kind == "done" and self.sweep is not None and self.sweep.running:
            if case := self.sweep.next():
                self._bench(self.sweep, case)
            else:
                self._begin()

    def _meet(self, header: dict[str, Any]) -> None:
        """Begin once the worker has said which variants there are; a restarted one is told again by the link."""
        if self.replays or self.wish.variants:
            return
        from kinetop.traces.live.worker.catalog import select

        known, names = [str(each.get("name")) for each in header.get("variants", ()) if isinstance(each, dict)], []
        for asked in self.options.variants.split(","):
            try:
                names += select(asked, known)
            except ValueError as error:
                self.refused = str(error)
        self.wish = replace(self.wish, variants=tuple(dict.fromkeys(names)))
        self._begin()

    def _begin(self) -> None:
        if self.wish.case is not None and not self.replays:
            chosen = self.options
            self.send(
                "start",
                case=self.wish.case.to_dict(),
                variants=list(self.wish.variants),
                samples=chosen.samples,
                duty_pct=chosen.duty_pct,
                round_ms=chosen.round_ms,
            )

    def _bench(self, sweep: Sweep, case: Case) -> None:
        self.send("bench", case=case.to_dict(), variants=list(sweep.variants), **sweep.effort)

    def _nudge(self) -> None:
        """Have a picture made soon, for the user did something."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._urgent.set)
                self._loop.call_soon_threadsafe(self._wake.set)

    def _picture(self) -> None:
        """Take in what waits and tell what it shows."""
        try:
            self._take()
            sweep = self.sweep and (id(self.sweep), self.sweep.at, self.sweep.cancelled)
            state = (self._board.state, self.wish, self._ended, self.refused, sweep)
            if state == self._shown and not self._board.late:
                return
            self._shown = state
            self.now = self._made()
        except Exception as error:  # what was shown stays, with the reason
            self.now = replace(self.now, problems={**self.now.problems, "screen": reason(error)})
        self._tell(LiveChanged(self.now))

    def _take(self) -> None:
        """Take in what waits: first the frames, so that a session file that ends here has them."""
        self._board.add([self._waiting.popleft() for _ in range(len(self._waiting))])
        while self._orders:
            self._orders.popleft()()

    def _made(self) -> Now:
        now = self._board.now(self.wish, self._ended)
        problems = {**now.problems, **({"variants": self.refused} if self.refused else {})}
        swept = self._board.swept(self.sweep, self.wish) if self.sweep is not None else None
        return replace(now, problems=problems, sweep=swept)

    def _tell(self, message: Message) -> None:
        for post in self._listeners:
            post(message)


async def _either(*events: asyncio.Event, within_s: float | None = None) -> None:
    """Wait until one of the events is set, or the time is over."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
