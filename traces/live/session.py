"""Sessions: what a worker said, kept as one Parquet trace from which the same frames can be read again.

While a session is recorded its frames go to a journal beside it, as the worker sent them. Closing it turns the journal into a
trace that every analysis opens; a journal that was left behind by a crash can be read and turned into one later.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ..errors import NotATraceError, TraceError, UnreadableError
from ..report import ImportReport, Notice
from . import journal
from .members import UnusableError, environment, mapping, texts, time_ns, words
from .privacy import without_secrets
from .worker.frames import MAGIC

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from .worker.frames import Frame

VERSION = 1
"""Version of sessions; written into each."""
HEADER_KEY = "kinetop_session"
"""Member of the trace's header that tells a session from other traces."""
GROUP_BYTES = 8 << 20
"""Bytes, about, that are turned into one row group: a session takes no more memory than that, however long it is."""


class Writer:
    """Records a session; use it as a context manager, or `close` it.

    Args:
        path: the Parquet trace to make; until then the frames are in `PATH.journal`.

    Raises:
        TraceError: the journal cannot be made, or one is there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = journal_of(path)
        self.left_out = 0
        """Frames that could not be written down."""
        self._bytes = 0
        self._closed = False
        try:
            self._file = self.journal.open("xb", buffering=0)
        except FileExistsError as error:
            said = "is being recorded or was not closed; kinetop replay shows it. Move it away to record here again"
            raise TraceError(f"{self.journal}: a session that {said}.") from error
        except OSError as error:
            raise TraceError(f"{path}: no session can be recorded there ({error.strerror}).") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def add(self, frame: Frame) -> None:
        """Append a frame; it is in the journal when this returns.

        Raises:
            TraceError: the disk is full; the frames before this one stay.
        """
        try:
            data = memoryview(journal.packed(without_secrets(frame)))
        except UnusableError:
            self.left_out += 1
            return
        left = data
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            self._file.truncate(self._bytes)
            self._file.seek(self._bytes)
            raise TraceError(f"{self.journal}: cannot be written ({error.strerror}).") from error
        self._bytes += len(data)

    def close(self) -> None:
        """Make the Parquet trace and take the journal away.

        Raises:
            TraceError: the trace cannot be written; the journal stays.
        """
        if self._closed:
            return
        self._closed = True
        self._file.close()
        finish(self.journal, self.path, left_out=self.left_out)


def journal_of(path: Path) -> Path:
    """Return where the frames of a session are until it is closed.

    >>> journal_of(Path("run.parquet")).name
    'run.parquet.journal'
    """
    return path.with_name(path.name + ".journal")


def finish(kept: Path, out: Path, *, left_out: int = 0) -> None:
    """Make a session of a journal, and take the journal away.

    Args:
        kept: the journal of a session that is not being recorded any more.
        out: the Parquet trace to make; it gets its name when it is whole.
        left_out: frames that are missing in it, to be noted.

    Raises:
        UnreadableError: the journal cannot be read at all.
        TraceError: the trace cannot be written; the journal stays.
    """
    import pyarrow as pa

    from ..writer import Writer as TraceWriter
    from .rows import Rows

    notices = _counted("unsendable-frame", left_out, "could not be written down")
    rows, summary = Rows(), _Summary()
    try:
        with TraceWriter(out) as file:
            for frame in frames(kept, notices):
                rows.add(frame)
                summary.add(frame)
                if rows.weight > GROUP_BYTES:
                    file.write(rows.table())
            file.write(rows.table())
            notices += _counted("unusable-window", rows.unusable, "could not be turned into events")
            file.finish(summary.header(), ImportReport(file.events, kept.stat().st_size, notices))
    except (OSError, pa.ArrowException) as error:
        why = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise TraceError(f"{out}: the session cannot be written ({why}); it stays in {kept}.") from error
    kept.unlink()


def _counted(code: str, count: int, what: str) -> list[Notice]:
    return [Notice(code, count, f"{count:,} frame{'s' if count > 1 else ''} of the session {what}.")] if count else []


class _Summary:
    """What a session's header says of it."""

    def __init__(self) -> None:
        self._environment: dict[str, Any] = {}
        self._variants: dict[str, None] = {}
        self._frames = 0
        self._began_ns = self._ended_ns = 0

    def add(self, frame: Frame) -> None:
        self._frames += 1
        if (t_ns := time_ns(frame.header)) is not None:
            self._began_ns, self._ended_ns = self._began_ns or t_ns, t_ns
        if frame.kind == "hello":
            self._environment = environment(frame.header)
        elif frame.kind in ("prepared", "samples"):
            self._variants |= dict.fromkeys(texts([frame.header.get("variant")]))

    def header(self) -> dict[str, Any]:
        """The trace's header; a GPU is named as the profiler names it, so that analyses know its peaks."""
        about = {"version": VERSION, "frames": self._frames, "began_ns": self._began_ns, "ended_ns": self._ended_ns}
        said: dict[str, Any] = {HEADER_KEY: {**about, "environment": self._environment, "variants": list(self._variants)}}
        name = self._environment.get("device_name")
        kind, _, number = words(self._environment.get("device")).partition(":")
        if kind == "cuda" and isinstance(name, str):
            said["deviceProperties"] = [{"id": int(number) if number.isdecimal() else 0, "name": name}]
        return said


def frames(path: Path, notices: list[Notice] | None = None) -> Iterator[Frame]:
    """Yield the frames of a session, or of the journal of one that was not closed.

    A journal ends where it is damaged or breaks off; that is noted.

    Args:
        path: a Parquet trace that `Writer` made, or its journal.
        notices: gets what there was to note.

    Raises:
        NotATraceError: it is no session, or one of a newer kinetop.
        UnreadableError: it is damaged.
    """
    if _magic(path) == MAGIC:
        return journal.frames(path, [] if notices is None else notices)
    about = _about(path)
    if about is None:
        raise NotATraceError(f"{path}: this is no recorded session.")
    if about.get("version") != VERSION:
        raise NotATraceError(f"{path}: a session of another version ({about.get('version')}); this kinetop reads {VERSION}.")
    return _from_parquet(path)


def is_session(path: Path) -> bool:
    """Whether a file is a session, or the journal of one."""
    try:
        return _magic(path) == MAGIC or _about(path) is not None
    except (TraceError, OSError):
        return False


def demo() -> Path:
    """Return the session that comes with kinetop."""
    return Path(__file__).with_name("demo.parquet")


def _magic(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            head = file.read(len(MAGIC))
            # A journal that was just begun is empty.
            return MAGIC if not head and path.suffix == ".journal" else head
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read ({error.strerror}).") from error


def _about(path: Path) -> dict[str, Any] | None:
    """What a Parquet trace says of the session that it is."""
    if _magic(path) != b"PAR1":
        return None
    from ..store import read_metadata

    about = mapping(mapping(read_metadata(path), "header"), HEADER_KEY)
    return about or None


def _from_parquet(path: Path) -> Iterator[Frame]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from .rows import frames_of

    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=4096, columns=["cat", "args"]):
                yield from frames_of(batch)
    except (pa.ArrowException, OSError) as error:
        raise UnreadableError(f"{path}: the session is damaged ({str(error).splitlines()[0]}).") from error
    except UnreadableError as error:
        raise UnreadableError(f"{path}: the session is damaged: {error}.") from error
