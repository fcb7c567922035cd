"""Files to opened traces: from the cache where they were imported before, else through a process of their own."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import weakref
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from .. import cache
from ..errors import NotATraceError, TraceError, UnreadableError
from ..ranks import as_set
from ..report import ImportReport, Notice
from ..seal import state
from ..store import read_metadata
from ..trace import Progress, Trace, TraceSet
from .header import rank_of
from .inputs import Input, inputs

MAX_JOBS = 16
"""More decoders than that wait for the one that reads; each takes about 150 MB."""


_KEEP_MEMORY = {
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
"""Lets the import process use again what a slice gave back; given to the system and taken again it costs an eighth more time."""


class _DiskError(UnreadableError):
    """The imported trace could not be written."""


_ERRORS: dict[str, type[TraceError]] = {"other": NotATraceError, "unreadable": UnreadableError, "disk": _DiskError}


def default_jobs() -> int:
    """Return the cores that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(MAX_JOBS, cores))


class _Scratch:
    """A temporary folder that goes when the last trace that lies in it does, or with the process."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="kinetop-"))
        self._end = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)


@dataclass
class _Place:
    """Where imported traces go: the cache, or a temporary folder that goes when the traces do."""

    kept: bool
    folder: Path
    holder: _Scratch | None = None
    notices: list[Notice] = field(default_factory=list)
    pipes: dict[str, str] = field(default_factory=dict)
    """What the user named for each file that a pipe became."""

    @classmethod
    def choose(cls, *, cached: bool) -> _Place:
        if cached and cache.is_usable():
            return cls(True, cache.folder())
        place = cls(True, cache.folder())
        place.leave(f"The cache folder {cache.folder()} cannot be written" if cached else "")
        return place

    def leave(self, why: str) -> None:
        """Go on without the cache, and say why where there is a reason to."""
        self.holder = _Scratch()
        self.kept, self.folder = False, self.holder.folder
        if why:
            self.notices.append(Notice("no-cache", 1, f"{why}; nothing is kept for next time.", level="info"))

    def out(self, item: Input, number: int) -> Path:
        return cache.entry(item.path, item.member) if self.kept else self.folder / f"{number}.parquet"


def open_set(paths: list[Path], *, jobs: int | None = None, cache: bool = True, progress: Progress | None = None) -> TraceSet:
    """Open traces as one set; see `kinetop.traces.trace.open_traces`.

    Raises:
        UnreadableError: a file cannot be read as a trace.
        CancelledError: `progress` raised it; nothing is left behind.
    """
    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs is 1 or more, not {jobs}")
    place = _Place.choose(cached=cache)
    found = inputs([_spooled(path, place) for path in paths])
    named = {path.resolve() for path in paths}
    ours = {item for item in found if item.is_parquet and _is_kept(item.path)}  # read where they lie
    outs = {item: item.path if item in ours else place.out(item, number) for number, item in enumerate(found)}
    lacking = [item for item in found if item not in ours and not _is_kept(outs[item])]
    failed = _import(lacking, outs, jobs or default_jobs(), progress, place)
    full = [item for item, error in failed.items() if isinstance(error, _DiskError)]
    if place.kept and full:
        place.leave(f"The cache folder {place.folder} is full or cannot be written")
        outs |= {item: place.out(item, number) for number, item in enumerate(full)}
        failed = {item: error for item, error in failed.items() if item not in full}
        failed |= _import(full, outs, jobs or default_jobs(), progress, place)
    # Whoever names an archive or a folder has not named what is in it.
    lost = [error for item, error in failed.items() if item.member is None and item.path.resolve() in named]
    if lost or len(failed) == len(found):
        raise (lost or list(failed.values()))[0]
    for item, error in failed.items():
        place.notices.append(Notice("unreadable-file", 1, f"{item.label} was left out: {error}"))
    kept = [item for item in found if item not in failed]
    return as_set([_trace(item, outs[item], place) for item in kept], [item.rank_hint for item in kept], place.notices)


def _is_kept(out: Path) -> bool:
    """Whether a Parquet trace is there as kinetop wrote it; an entry of the cache that a disk fault broke is made anew."""
    try:
        return state(out) == "whole" and bool(read_metadata(out))
    except (TraceError, OSError):
        return False


def _spooled(path: Path, place: _Place) -> Path:
    """Standard input and pipes become a file: what kind it is shows only when it can be read again from its start."""
    path = path if str(path) == "-" else path.expanduser()
    if str(path) != "-" and not _is_pipe(path):
        return path
    if place.kept:
        place.leave("")
    # A pipe keeps its name: it may speak of the rank.
    out = Path(tempfile.mkdtemp(dir=place.folder)) / ("stdin" if str(path) == "-" else path.name)
    place.pipes[str(out)] = "standard input" if str(path) == "-" else str(path)
    try:
        with out.open("wb") as file, nullcontext(sys.stdin.buffer) if str(path) == "-" else path.open("rb") as pipe:
            shutil.copyfileobj(pipe, file, 1 << 20)
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror or error}.") from error
    return out


def _is_pipe(path: Path) -> bool:
    """Whether a path is a pipe, as a shell's `<(zcat trace.gz)` makes one.

    Raises:
        UnreadableError: it is a device, of which there may be no end.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False  # opening it says what is wrong
    if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and str(path) != os.devnull):
        raise UnreadableError(f"{path}: this is a device, not a file.")
    return stat.S_ISFIFO(mode)


def _trace(item: Input, parquet: Path, place: _Place) -> Trace:
    said = read_metadata(parquet)
    header = said.get("header") or {}
    report = ImportReport.from_dict(said["report"]) if "report" in said else ImportReport()
    if place.kept and parquet != item.path:
        cache.touch(parquet)
    hint = item.rank_hint if item.rank_hint is not None else said.get("rank", 0)
    return Trace(item.path, parquet, rank_of(header, hint), header, report, said.get("rank"), item.member, keep=place.holder)


def _import(
    items: list[Input], outs: dict[Input, Path], jobs: int, progress: Progress | None, place: _Place
) -> dict[Input, TraceError]:
    """Import files in a child process; return those that could not be read."""
    if not items:
        return {}
    requests = [
        {"path": str(item.path), "member": item.member, "out": str(outs[item]), "rank_hint": item.rank_hint or 0}
        for item in items
    ]
    failed: dict[Input, TraceError] = {}
    with tempfile.TemporaryFile() as talk, _child({"jobs": jobs, "requests": requests}, talk) as child:
        assert child.stdout is not None  # noqa: S101 - it is a pipe
        answered: set[int] = set()
        try:
            import pyarrow.parquet  # noqa: F401 - needed afterwards; loads while the child does its work

            for line in child.stdout:
                message = json.loads(line)
                if "place" not in message:
                    if progress is not None:
                        progress(message)
                    continue
                answered.add(message["place"])
                if "error" in message:
                    failed[items[message["place"]]] = _ERRORS[message["error"]](_said(message, place))
        except BaseException:
            child.kill()
            raise
        finally:
            child.wait()
            _tidy(child.pid, outs.values())
        for number, item in enumerate(items):
            if number not in answered:
                failed[item] = UnreadableError(_died(item, child.returncode, talk))
    return failed


def _said(message: dict[str, Any], place: _Place) -> str:
    if message["error"] != "disk":
        said = str(message["message"])
        for spooled, name in place.pipes.items():
            said = said.replace(spooled, name)
        return said
    where = "set KINETOP_CACHE_DIR to a folder with more room" if place.kept else "set TMPDIR to a folder with more room"
    return f"{message['message']} while importing; {where}."


def _died(item: Input, code: int, talk: IO[bytes]) -> str:
    """Say why an import ended without an answer; what it said last is the best there is."""
    talk.seek(0)
    last = talk.read().decode("utf-8", "replace").strip().splitlines()
    why = f"signal {-code}" if code < 0 else f"status {code}"
    hint = " (out of memory?)" if code == -9 else ""
    return f"{item.path}: the import process ended with {why}{hint}{': ' + last[-1] if last else ''}."


def _child(order: dict[str, Any], talk: IO[bytes]) -> subprocess.Popen[str]:
    """Start the import process with our own kinetop, away from the terminal's signals: only we end it."""
    import kinetop

    home = str(Path(kinetop.__file__).parent.parent)
    path = os.pathsep.join([home, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, **_KEEP_MEMORY, "PYTHONPATH": path, "POLARS_MAX_THREADS": str(order["jobs"])}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "kinetop.traces.reading.child", json.dumps(order)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=talk,
        text=True,
        env=environment,
        start_new_session=True,
    )


def _tidy(process: int, outs: Any) -> None:
    """Take away what a killed child had begun."""
    for folder in {out.parent for out in outs}:
        for path in folder.glob(f".*.{process}-*.part"):
            path.unlink(missing_ok=True)
