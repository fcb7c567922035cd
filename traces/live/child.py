"""A process of ours with pipes on the event loop, whose whole group can be ended and nobody else's."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CHUNK_BYTES = 1 << 16


class Child:
    """One running process, leader of a session of its own so that the terminal's ctrl+c does not reach it.

    It is not reaped before its group is gone: until then its id, and so the group's, can be nobody else's.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._loop = asyncio.get_running_loop()
        self._transports: list[asyncio.BaseTransport] = []
        self.ended = asyncio.Event()
        """Set when the process has ended, whatever is left of its group."""
        threading.Thread(target=self._watch, name=f"kinetop worker {process.pid}", daemon=True).start()

    @classmethod
    async def start(cls, command: Sequence[str], environment: Mapping[str, str]) -> Child:
        """Start a process.

        Args:
            command: the program and its arguments; no shell reads them.
            environment: all its variables.

        Raises:
            OSError: there is no such program, or it may not be run.
        """
        pipe = subprocess.PIPE
        process = await asyncio.to_thread(
            subprocess.Popen,
            command,
            env=dict(environment),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            bufsize=0,
            start_new_session=True,
        )
        child = cls(process)
        child._input, _ = await child._loop.connect_write_pipe(asyncio.BaseProtocol, process.stdin)
        child.output = await child._reader(process.stdout)
        child.errors = await child._reader(process.stderr)
        return child

    output: asyncio.StreamReader
    errors: asyncio.StreamReader
    _input: asyncio.WriteTransport

    async def _reader(self, pipe: object) -> asyncio.StreamReader:
        reader = asyncio.StreamReader(limit=CHUNK_BYTES)
        transport, _ = await self._loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        self._transports.append(transport)
        return reader

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def write(self, data: bytes) -> None:
        """Send bytes to its standard input; never waits, and says nothing when it has ended."""
        if not self._input.is_closing():
            self._input.write(data)

    def signal(self, number: int) -> None:
        """Send a signal to it and all it started, unless it has been reaped."""
        if self._process.returncode is None:
            try:
                os.killpg(self._process.pid, number)
            except (ProcessLookupError, PermissionError):  # the group has no member left but the zombie (macOS says EPERM)
                return

    async def end(self, patience_s: float) -> None:
        """Close its input, then ask, then force it to end; returns when nothing of its group is left.

        Args:
            patience_s: how long it is waited for at each of the two milder stages; 0 forces at once.
        """
        if not self._input.is_closing():
            self._input.abort()  # whatever it has not read it need not read
        if patience_s and not await self._ends_within(patience_s):
            self.signal(signal.SIGTERM)
            await self._ends_within(patience_s)
        self.signal(signal.SIGKILL)
        await self.ended.wait()
        self._process.wait()

    def forget(self) -> None:
        """Close what is left of its pipes, read to their end or not."""
        for transport in self._transports:
            transport.close()

    async def _ends_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self.ended.wait(), seconds)
        except TimeoutError:
            return False
        return True

    @property
    def why(self) -> str:
        """How it ended, for a person; empty while it runs."""
        code = self._process.returncode
        if code is None:
            return ""
        if code < 0:
            hint = ", which the system does when memory runs out" if code == -signal.SIGKILL else ""
            return f"it was ended by {signal.Signals(-code).name}{hint}"
        return f"it ended with exit code {code}"

    def _watch(self) -> None:
        """Wait for the end without reaping; in a thread, as no portable call of the loop leaves the process unreaped."""
        if hasattr(os, "waitid"):
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        else:  # macOS before Python 3.13: then what it started is left to see by itself that it is gone
            self._process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self.ended.set)
