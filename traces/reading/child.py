"""The process that imports: reads requests from its arguments, writes its progress to standard output as JSON lines.

A process of its own, so that the one with the screen never stalls (a JSON parser in a thread freezes it 13 s, measured), can
end it at any moment, and gets its memory back. It ends by itself when nobody reads its progress any more.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

PROGRESS_S = 0.1
"""Least time between two lines of progress."""


class _Progress:
    """Sums the progress of several files and says it now and then."""

    def __init__(self, total_bytes: int) -> None:
        self._total_bytes = total_bytes
        self._files: dict[str, tuple[int, int]] = {}
        self._said = 0.0
        self._lock = threading.Lock()

    def note(self, name: str, done_bytes: int, events: int) -> None:
        with self._lock:
            self._files[name] = (done_bytes, events)
            now = time.monotonic()
            if now - self._said < PROGRESS_S:
                return
            self._said = now
            done, rows = (sum(column) for column in zip(*self._files.values(), strict=True))
            say({"bytes": done, "total_bytes": self._total_bytes, "events": rows, "file": name})


def say(message: dict[str, Any]) -> None:
    """Write one line to the parent; end when it is gone."""
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


def main() -> int:
    """Import what the arguments ask for."""
    import pyarrow as pa

    order = json.loads(sys.argv[1])
    jobs, requests = order["jobs"], order["requests"]
    pa.set_cpu_count(1)  # the slices are what runs side by side
    progress = _Progress(sum(Path(request["path"]).stat().st_size for request in requests))
    beside = min(jobs, len(requests))
    try:
        with ThreadPoolExecutor(beside) as pool:
            for place, result in enumerate(pool.map(lambda request: _one(request, max(1, jobs // beside), progress), requests)):
                say({"place": place, **result})
    except BrokenPipeError:
        # Nobody listens: what was written so far has already been taken away. Closing stdout again would complain.
        sys.stdout = None
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
