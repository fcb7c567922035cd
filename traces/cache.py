"""Imported traces kept for next time: one Parquet trace each, found by path, size, change time and importer version."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
import time
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from .errors import TraceError
from .store import read_metadata

IMPORTER_VERSION = 2
"""Raised when the same file would be imported differently; older entries are then no longer found."""

_TEMPORARY = re.compile(r"^\..*\.(\d+)-[0-9a-f]{8}\.part$")


def folder() -> Path:
    """Return the folder of imported traces: `KINETOP_CACHE_DIR`, else the platform's cache folder."""
    chosen = os.environ.get("KINETOP_CACHE_DIR")
    return (Path(chosen).expanduser() if chosen else user_cache_path("kinetop", appauthor=False)) / "traces"


def entry(path: Path, member: str | None = None) -> Path:
    """Return where the import of a file is or would be kept.

    Args:
        path: the trace, as it is now.
        member: a member of a zip archive.
    """
    about = path.stat()
    key = "\0".join(map(str, (path.resolve(), about.st_size, about.st_mtime_ns, member or "", IMPORTER_VERSION)))
    return folder() / f"{hashlib.sha256(key.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}.parquet"


def is_usable() -> bool:
    """Make the folder and say whether files can be put there; leftovers of imports that were killed are swept out."""
    place = folder()
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError:
        return False
    sweep(place)
    return True


def sweep(place: Path) -> None:
    """Take away half-written files whose process is gone."""
    for path in place.glob(".*.part"):
        found = _TEMPORARY.match(path.name)
        if found and not _is_alive(int(found[1])):
            path.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def entries() -> list[dict[str, Any]]:
    """Return the kept traces, the one used last first.

    Returns:
        For each: `path` of the entry, `source` it was made from (or None), `bytes`, `events`, `used` (seconds since 1970).
    """
    made = []
    for path in folder().glob("*.parquet"):
        try:
            about = path.stat()
            said = read_metadata(path)
        except (OSError, TraceError):
            continue  # another process took it away, or a disk fault broke it; `clear` takes it too
        events = said.get("report", {}).get("events")
        made.append(
            {"path": path, "source": said.get("source"), "bytes": about.st_size, "events": events, "used": about.st_mtime}
        )
    return sorted(made, key=lambda item: -item["used"])


def clear() -> tuple[int, int]:
    """Take all kept traces away.

    Returns:
        How many there were, and their bytes.
    """
    count = size = 0
    for path in [*folder().glob("*.parquet"), *folder().glob(".*.part")]:
        found = _TEMPORARY.match(path.name)
        if found and _is_alive(int(found[1])):
            continue  # an import that goes on
        about = path.lstat()
        if stat.S_ISREG(about.st_mode):
            path.unlink(missing_ok=True)
            count, size = count + 1, size + about.st_size
    return count, size


def touch(path: Path) -> None:
    """Note that an entry was used now; a folder that cannot be written is no reason to stop."""
    try:
        os.utime(path, (time.time(), time.time()))
    except OSError:
        return
