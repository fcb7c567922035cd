"""The process that imports: reads requests from its arguments, writes its progress to standard output as JSON lines.

A process of its own, so that the one with the screen never stalls (a JSON parser in a thread freezes it 13 s, measured), can
end it at any moment, and gets its memory back. It ends by itself when nobody reads its progress any more.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

PROGRESS_S = 0.1
"""Least time between two lines of progress."""
BEAT_S = 0.25
"""Most time between two lines."""


_saying = threading.Lock()


class _Progress:
    """Sums the progress of several files and says it now and then, also while nothing moves: the parent cancels between lines."""

    def __init__(self, total_bytes: int) -> None:
        self._total_bytes = total_bytes
        self._files: dict[str, tuple[int, int]] = {}
        self._said = 0.0
        self._name = ""
        self._lock = threading.Lock()

    def note(self, name: str, done_bytes: int, events: int) -> None:
        with self._lock:
            self._files[name] = (done_bytes, events)
            now = time.monotonic()
            if now - self._said < PROGRESS_S:
                return
            self._said = now
            self._name = name
            say(self._state())

    def beat(self) -> None:
        """Say where things stand, over and over, until nobody listens; for a thread of its own."""
        while True:
            time.sleep(BEAT_S)
            with self._lock:
                state = self._state()
            try:
                say(state)
            except OSError:
                return  # the thread that imports meets it too, and cleans up

    def _state(self) -> dict[str, Any]:
        done, rows = map(sum, zip(*self._files.values(), strict=True)) if self._files else (0, 0)
        return {"bytes": done, "total_bytes": self._total_bytes, "events": rows, "file": self._name}


def say(message: dict[str, Any]) -> None:
    """Write one line to the parent; end when it is gone."""
    with _saying:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def _one(request: dict[str, Any], jobs: int, progress: _Progress) -> dict[str, Any]:
    from ..errors import NotATraceError, TraceError
    from .pipeline import import_file

    path = Path(request["path"])
    try:
        import_file(
            path,
            Path(request["out"]),
            member=request["member"],
            jobs=jobs,
            progress=lambda done, _, events: progress.note(path.name, done, events),
            rank_hint=request["rank_hint"],
        )
    except TraceError as error:
        return {"error": "other" if isinstance(error, NotATraceError) else "unreadable", "message": str(error)}
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        return {"error": "disk", "message": f"{error.filename or request['out']}: {error.strerror or error}"}
    return {"done": request["out"]}


def _load() -> None:
    """Load the libraries, all at once and without NumPy, which Arrow loads where there is one and nothing here uses."""
    sys.modules["numpy"] = None  # type: ignore[assignment] # what is None cannot be imported
    gc.disable()  # what modules make stays; with NumPy left out too, the start takes 0.61 s of CPU for 0.88 s
    import pyarrow as pa

    from . import pipeline  # noqa: F401

    gc.freeze()
    gc.enable()
    pa.set_cpu_count(1)  # the slices are what runs side by side


def main() -> int:
    """Import what the arguments ask for."""
    order = json.loads(sys.argv[1])
    jobs, requests = order["jobs"], order["requests"]
    progress = _Progress(sum(Path(request["path"]).stat().st_size for request in requests))
    threading.Thread(target=progress.beat, daemon=True).start()
    _load()
    beside = min(jobs, len(requests))
    try:
        with ThreadPoolExecutor(beside) as pool:
            for place, result in enumerate(pool.map(lambda request: _one(request, max(1, jobs // beside), progress), requests)):
                say({"place": place, **result})
    except BrokenPipeError:
        # Nobody listens: what was written so far has already been taken away. Closing stdout again would complain.
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - it stays for good
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
