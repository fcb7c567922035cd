"""Commands from the host, read in a thread so that their end is seen while the main thread computes."""

from __future__ import annotations

import json
import os
import queue
import threading
import time
from typing import Any, BinaryIO

GRACE_S = 0.7
"""What the main thread gets to end by itself after `quit`; whatever it computes, the process ends then."""


class Inbox:
    """The commands that came and were not taken yet."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._waiting: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="commands", daemon=True).start()

    def take(self, wait_s: float | None = 0.0) -> dict[str, Any] | None:
        """Return the next command, or None when there is none in time.

        Args:
            wait_s: how long to wait for one; None waits until there is one.
        """
        try:
            return self._waiting.get(timeout=wait_s) if wait_s != 0 else self._waiting.get_nowait()
        except queue.Empty:
            return None

    def _read(self) -> None:
        for line in self._stream:
            command = _command(line)
            self._waiting.put(command)
            if command["do"] == "quit":
                break
        else:
            self._waiting.put({"do": "quit"})
        time.sleep(GRACE_S)
        os._exit(0)


def _command(line: bytes) -> dict[str, Any]:
    """Read a command; what is none becomes one that says so."""
    try:
        command = json.loads(line)
        if isinstance(command, dict) and isinstance(command.get("do"), str):
            return command
    except (ValueError, RecursionError):
        pass
    return {"do": "unreadable", "line": line[:200].decode("utf-8", "replace")}
