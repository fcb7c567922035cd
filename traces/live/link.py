"""One worker kept alive: started, watched, restarted without the variant that ended it, and ended for good."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import WorkerError
from . import bootstrap, interpreter
from .child import CHUNK_BYTES, Child
from .orders import Orders
from .vitals import End, Timeouts, Vitals
from .worker.frames import MAGIC, Frame, FrameError, Reader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

__all__ = ["Link", "Start", "Timeouts"]
_WAITING_FRAMES = 512
"""Frames kept for a consumer that is slow; then the worker waits."""
_TICK_S = 0.2
_DRAIN_S = 2.0
"""How long what a worker left in its pipes is waited for, once nothing of it runs."""
_LIVED_S = 60.0
"""A worker that lived so long was no failed restart."""
_PREAMBLE_BYTES = 1 << 16
"""Most that a login shell may print before the first frame."""
_LINE_CHARACTERS, _LINES_A_SECOND = 2000, 200


@dataclass(frozen=True)
class Start:
    """How to start a worker."""

    python: str | None = None
    """Its interpreter; found (see `interpreter.find`) when None, `python3` on a host."""
    host: str | None = None
    """`user@box` or an alias of the ssh configuration; None for this machine."""
    plugins: tuple[str, ...] = ()
    """Modules that declare more variants."""
    target: str | None = None
    """The user's own callable: `pkg.mod:fn` or `path/file.py:fn`."""
    setup: str | None = None
    """What makes its arguments, in the same form."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables set for it."""
    seed: int = 0


class Link:
    """A worker, its frames, and what happens to it.

    All the worker says and all that befalls it comes out of `frames`; nothing here raises for what a worker does.
    """

    def __init__(self, start: Start, *, timeouts: Timeouts = Timeouts()) -> None:  # noqa: B008
        self._start = start
        self._timeouts = timeouts
        hello = {"plugins": list(start.plugins), "target": start.target, "setup": start.setup, "seed": start.seed}
        self._orders = Orders(hello)
        self._queue: asyncio.Queue[Frame | None] = asyncio.Queue(_WAITING_FRAMES)
        self._supervisor: asyncio.Task[None] | None = None
        self._child: Child | None = None
        self._vitals = Vitals()
        self._closing = asyncio.Event()
        self._wanted: dict[str, str] = {}
        """Where a trace that comes over the wire is to be written, by variant."""
        self._trace_dir: str | None = None

    async def frames(self) -> AsyncIterator[Frame]:
        """Start the worker and yield what is said until it is closed or given up.

        Yields:
            The worker's frames, and the link's own: `link` and `log`.
        """
        if self._supervisor is None and self._closing.is_set():
            return
        if self._supervisor is None:
            self._supervisor = asyncio.create_task(self._supervise(), name="kinetop link")
        while (frame := await self._queue.get()) is not None:
            yield frame
        if self._closing.is_set():
            yield self._own("link", event="stopped", why="", variant=None, attempt=0)
        await self._supervisor  # raises what went wrong here, and never what a worker did

    def send(self, do: str, **members: Any) -> None:
        """Give the worker a command; one given while there is no worker waits for the next.

        Args:
            do: the command, see docs/worker.md.
            members: its members; a `case` may be a Case.
        """
        if self._start.host and do == "capture":
            self._wanted[str(members["variant"])] = str(members["path"])
        if self._start.host and do == "bench":
            self._trace_dir = members.get("trace_dir")
        if self._start.host and do in {"capture", "bench"}:
            members["send_traces"] = True
        self._write(self._orders.give(do, members, at_once=self._vitals.answered))

    async def close(self) -> None:
        """End the worker: ask, then insist, then force; returns when no process is left."""
        self._closing.set()
        self._make_room()
        self._write('{"do":"quit"}\n')
        if self._supervisor is not None:
            await asyncio.wait({self._supervisor})

    async def __aenter__(self) -> Link:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _supervise(self) -> None:
        """Keep workers going until closed or given up; whatever happens, the frames have an end."""
        try:
            await self._workers()
        finally:
            if self._queue.full():
                self._queue.get_nowait()
            self._queue.put_nowait(None)

    async def _workers(self) -> None:
        """One worker after another."""
        attempt, ever_answered = 0, False
        while True:
            end = await self._one_worker("restarted" if ever_answered else "started", attempt)
            if self._closing.is_set():
                return
            vitals = self._vitals
            blamed = end.variant if vitals.answered else None
            await self._put(self._own("link", event=end.event, why=end.why, variant=blamed, attempt=attempt))
            if blamed:
                self._orders.blame(blamed, end.why)
                await self._put(self._own("state", variant=blamed, state="FAILED", why=end.why, case=self._orders.case))
            ever_answered = ever_answered or vitals.answered
            attempt = 0 if blamed or (vitals.answered and vitals.age_s > _LIVED_S) else attempt + 1
            if not ever_answered or attempt > self._timeouts.restarts:
                await self._put(self._own("link", event="stopped", why=end.why, variant=None, attempt=attempt))
                return
            await self._closing_within(self._timeouts.backoff_s * 2**attempt)

    async def _closing_within(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._closing.wait(), seconds)
        except TimeoutError:
            return

    async def _one_worker(self, event: str, attempt: int) -> End:
        """Start a worker and return why it is no more; nothing of it is left then."""
        self._vitals = vitals = Vitals()
        try:
            blob = await asyncio.to_thread(bootstrap.blob)
            child = await self._spawn()
        except (OSError, WorkerError) as error:
            return End("lost", str(error))
        self._child = child
        child.write(blob + self._orders.first().encode())
        reading = asyncio.create_task(self._read(child, self._own("link", event=event, why="", variant=None, attempt=attempt)))
        logging = asyncio.create_task(self._log(child))
        watching = asyncio.create_task(self._watch())
        others = [asyncio.create_task(event.wait()) for event in (self._closing, child.ended)]
        try:
            await asyncio.wait({reading, watching, *others}, return_when=asyncio.FIRST_COMPLETED)
            overdue = watching.result() if watching.done() else None
            if reading.done():  # a process that ends closes its pipes first
                await asyncio.wait(others, timeout=_TICK_S, return_when=asyncio.FIRST_COMPLETED)
            if overdue and self._start.host is None:
                child.signal(signal.SIGUSR1)  # the worker writes on standard error where each of its threads is
                await asyncio.sleep(_TICK_S)
        finally:
            for task in (watching, *others):
                task.cancel()
            await child.end(self._timeouts.stop_s if self._closing.is_set() else 0.0)
            self._child = None
            # its group is gone, so the pipes end, unless a process that left the group holds them
            await asyncio.wait({reading, logging}, timeout=_DRAIN_S)
            for task in (reading, logging):
                task.cancel()
            child.forget()
        broken = reading.result() if reading.done() and not reading.cancelled() else None
        return overdue or broken or End("lost", vitals.last_words(child.why), vitals.variant)

    async def _spawn(self) -> Child:
        start, python = self._start, self._start.python
        if python is None and start.host is None:
            python = await asyncio.to_thread(interpreter.find)
        command = bootstrap.command(python, start.host, start.environment)
        return await Child.start(command, os.environ if start.host else {**os.environ, **start.environment})

    async def _watch(self) -> End:
        """Return when the worker gives no sign of life, or takes too long for one thing."""
        while True:
            await asyncio.sleep(_TICK_S)
            if not self._queue.full():  # else it is the consumer that is slow
                self._vitals.tick(_TICK_S)
            if (end := self._vitals.overdue(self._timeouts)) is not None:
                return end

    async def _read(self, child: Child, answered: Frame) -> End | None:
        """Pass on the frames; returns at the end of the stream, or with what is wrong with it."""
        reader, before = Reader(), b""
        searching = True
        while data := await child.output.read(CHUNK_BYTES):
            self._vitals.heard()
            if searching:  # a login shell may have said something first
                before += data
                at = before.find(MAGIC)
                if at < 0 and len(before) <= _PREAMBLE_BYTES:
                    continue
                searching, data, before = False, before[max(at, 0) :], before[: max(at, 0)]
                await self._put_log(before)
            try:
                for frame in reader.feed(data):
                    await self._take(frame, answered)
            except FrameError as error:
                return End("lost", f"the stream of its frames broke: {error}", self._vitals.variant)
            await asyncio.sleep(0)  # read() does not wait while there is data: a flood would starve the screen
        if searching:
            await self._put_log(before)
        return None

    async def _take(self, frame: Frame, answered: Frame) -> None:
        """Note what concerns the link and pass the frame on."""
        kind, header, vitals = frame.kind, frame.header, self._vitals
        if kind == "beat":
            vitals.beat(header)
        elif kind == "error" and header.get("variant") is None:
            vitals.said = str(header.get("message", ""))
        elif kind == "done":
            self._orders.done()
        elif kind == "captured" and frame.body:
            frame = await self._keep(frame)
        await self._put(frame)
        if kind == "hello" and not vitals.answered:
            vitals.answered = True
            await self._put(answered)
            self._write(self._orders.again())

    async def _keep(self, frame: Frame) -> Frame:
        """Write a trace that came over the wire where it was asked for: no worker names a folder of this machine."""
        variant, name = str(frame.header.get("variant")), Path(str(frame.header.get("path"))).name
        wanted = self._wanted.pop(variant, None) or (str(Path(self._trace_dir) / name) if self._trace_dir and name else None)
        if wanted is None:
            return self._own(
                "error", variant=variant, type="WorkerError", message="it sent a trace that nobody asked for", detail=""
            )
        try:
            await asyncio.to_thread(Path(wanted).write_bytes, frame.body)
        except OSError as error:
            return self._own("error", variant=variant, type="OSError", message=f"{wanted} cannot be written: {error}", detail="")
        return Frame({**frame.header, "path": wanted, "trace_bytes": len(frame.body)})

    async def _log(self, child: Child) -> None:
        """Pass on the lines of its standard error, not more in a second than a person could read."""
        rest, begun, count = b"", time.monotonic(), 0
        while data := await child.errors.read(CHUNK_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > CHUNK_BYTES:
                lines, rest = [*lines, rest], b""
            if time.monotonic() - begun > 1:
                begun, count, left_out = time.monotonic(), 0, count - _LINES_A_SECOND
                if left_out > 0:
                    await self._put_log(b"(%d lines left out)" % left_out)
            await self._put_log(b"\n".join(lines[: max(0, _LINES_A_SECOND - count)]))
            count += len(lines)
            await asyncio.sleep(0)
        await self._put_log(rest)

    async def _put_log(self, data: bytes) -> None:
        for line in data.decode("utf-8", "replace").splitlines():
            if text := line.strip()[:_LINE_CHARACTERS]:
                self._vitals.last_lines.append(text)
                await self._put(self._own("log", line=text))

    @staticmethod
    def _own(kind: str, **members: Any) -> Frame:
        return Frame({"kind": kind, "t_ns": time.time_ns(), **members})

    def _write(self, text: str) -> None:
        if self._child is not None and text:
            self._child.write(text.encode())

    async def _put(self, frame: Frame | None) -> None:
        """Hand a frame on; waits while the consumer is slow, drops it once closing."""
        if not self._closing.is_set():
            await self._queue.put(frame)

    def _make_room(self) -> None:
        while not self._queue.empty():
            self._queue.get_nowait()
