"""One trace file to one Parquet file: slices decoded side by side, written in order, what is odd repaired in between."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import NotATraceError, UnreadableError
from ..report import ImportReport, Notice
from ..writer import Writer
from .decode import Decoder
from .document import Document
from .header import base_ns, rank_of
from .keys import Keys
from .repair import Findings, Walked, Walker
from .rewritten import import_parquet, is_parquet
from .slices import Slice, pieces
from .snapshot import import_snapshot, is_pickle
from .source import Source, describe, open_source
from .tally import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    import pyarrow as pa

PIECE_BYTES = 1 << 19
"""A slice that does not decode is cut into pieces of this size, so that one broken event costs half a megabyte of slow work."""

Decoded = list[tuple[Slice, "pa.Table | None"]]
"""A slice as pieces, each with its table, or None where the fast path refused it."""


@dataclass(frozen=True)
class Outcome:
    """What an import made."""

    header: dict[str, Any]
    report: ImportReport


def import_file(
    path: Path, out: Path, *, member: str | None, jobs: int, progress: Callable[[int, int, int], None], rank_hint: int = 0
) -> Outcome:
    """Read a trace, a Parquet trace that another program wrote, or a memory snapshot, and write it as a Parquet trace.

    Args:
        path: the file.
        out: the file to write; an incomplete one is taken away again.
        member: which member of a zip archive.
        jobs: slices decoded at a time.
        progress: called with bytes of the file read, bytes in all, events written.
        rank_hint: the rank, when the trace itself does not say it.

    Raises:
        UnreadableError: it cannot be read as a trace.
    """
    if member is None and is_parquet(path):
        return Outcome(*import_parquet(path, out, rank=rank_hint, progress=progress))
    if member is None and is_pickle(path):
        return Outcome(*import_snapshot(path, out, rank=rank_hint))
    source = open_source(path, member)
    label = str(path) if member is None else f"{path} ({member})"
    document = Document(source.chunks(), label)
    findings = Findings()
    with source.stream, Writer(out) as writer:
        run = _Run(source, document, writer, findings, jobs, progress)
        found = _begun(document, source, label)
        writer.source = label
        writer.base_ns, writer.rank = base_ns(document.header), rank_of(document.header, rank_hint)
        while found:
            run.array()
            found = document.members()
        if source.damage is not None:
            findings.drop("truncated", "unclosed-array")  # it follows from the stream's own end, which has its notice
        document.finish(cut_is_said=source.damage is not None or "truncated" in findings.counts)
        said = base_ns(document.header), rank_of(document.header, rank_hint)
        if said != (writer.base_ns, writer.rank):
            writer.replace(*said)
        notices = [*source.notices, *findings.notices(), *document.notices, *writer.notices()]
        if not writer.typed:
            _check_empty(writer.events, notices, source, label)
        report = ImportReport(writer.events, document.offset, notices)
        writer.finish(document.header, report)
    return Outcome(document.header, report)


def _begun(document: Document, source: Source, label: str) -> bool:
    """Read up to the first event; what is wrong with the file's compression explains what is wrong with the text in it."""
    try:
        return document.begin()
    except UnreadableError as error:
        if source.damage is None:
            raise
        raise UnreadableError(f"{label}: {source.damage}, before its first event.") from error


def _check_empty(events: int, notices: list[Notice], source: Source, label: str) -> None:
    """Tell an empty trace from a file of which nothing could be read.

    Raises:
        UnreadableError: it is cut off or broken so early that no event is left.
        NotATraceError: it is a list of something else.
    """
    if events:
        raise NotATraceError(f"{label}: {describe([])}: none of its {events:,} elements has a type (ph).")
    first = {notice.code: notice for notice in reversed(notices)}
    if source.damage is not None:
        raise UnreadableError(f"{label}: {source.damage}, before the end of its first event.")
    if cut := first.get("truncated") or first.get("unclosed-array"):
        raise UnreadableError(f"{label}: the file is cut off after byte {cut.offset:,}, before the end of its first event.")
    if broken := first.get("unreadable-event") or first.get("garbage"):
        raise UnreadableError(f"{label}: no event of it can be read; the first one, at byte {broken.offset:,}, is broken.")
    if other := first.get("not-an-event"):
        raise NotATraceError(f"{label}: {describe([])}: none of its {other.count:,} elements is an event.")


class _Run:
    """The work on one file: decoders, the order of what they return, and the repair of what they refuse."""

    def __init__(
        self,
        source: Source,
        document: Document,
        writer: Writer,
        findings: Findings,
        jobs: int,
        progress: Callable[[int, int, int], None],
    ) -> None:
        self._source = source
        self._document = document
        self._writer = writer
        self._walker = Walker(findings)
        self._jobs = jobs
        self._progress = progress
        self._keys = Keys()
        self._local = threading.local()
        self._decoders: list[Decoder] = []

    def array(self) -> None:
        """Read one event array and leave the document just after it."""
        carry: Slice | None = None
        walked_bytes = 0
        decoded = self._decoded(self._document.slices())
        for pieces_of_slice in decoded:
            for place, (piece, table) in enumerate(pieces_of_slice):
                if table is not None and carry is None:
                    self._writer.write(table)
                    continue
                whole = piece if carry is None else Slice(carry.data + piece.data, carry.offset, piece.gap, piece.final)
                if not piece.final and len(whole.data) < 2 * walked_bytes:
                    # One huge event: it is looked at again when twice as much of it is there, not for each piece of it.
                    carry = Slice(whole.data + whole.gap, whole.offset)
                    continue
                walked = self._walker.walk(whole)
                self._writer.write(walked.table)
                carry = walked.carry
                walked_bytes = len(carry.data) if carry else 0
                if walked.end is not None:
                    self._ended(walked, piece, pieces_of_slice[place + 1 :], decoded)
                    return
            self._progress(self._source.read_bytes, self._source.total_bytes, self._writer.events)

    def _ended(self, walked: Walked, piece: Slice, after: Decoded, decoded: Iterator[Decoded]) -> None:
        """Hand what lies behind the end of the array back to the document."""
        self._document.stop()
        rest = [walked.rest, piece.gap]
        for later in (after, *decoded):
            rest += [part for other, _ in later for part in (other.data, other.gap)]
        assert walked.end is not None  # noqa: S101 - the caller looked
        self._document.array_ended(b"".join(rest), walked.end)

    def _decoded(self, slices: Iterable[Slice]) -> Iterator[Decoded]:
        """Decode slices, `jobs` at a time, and return them in order; with one job nothing runs beside anything."""
        try:
            if self._jobs == 1:
                yield from map(self._decode, slices)
                return
            with ThreadPoolExecutor(self._jobs, thread_name_prefix="decode") as pool:
                waiting: deque[Future[Decoded]] = deque()
                for piece in slices:
                    waiting.append(pool.submit(self._decode, piece))
                    # One slice more than there are jobs: the next is ready when a decoder is, and memory stays bounded.
                    if len(waiting) > self._jobs:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
        finally:
            for decoder in self._decoders:
                decoder.close()
            self._decoders.clear()
            self._local = threading.local()

    def _decode(self, whole: Slice) -> Decoded:
        if not whole.final:
            table = self._try(whole)
            if table is not None:
                return [(whole, table)]
        parts = list(pieces(whole, PIECE_BYTES))
        # The last piece of the trace holds the end of the array, which only the walk can tell.
        return [(part, None if part.final else self._try(part)) for part in parts]

    def _try(self, piece: Slice) -> pa.Table | None:
        decoder: Decoder | None = getattr(self._local, "decoder", None)
        if decoder is None:
            decoder = self._local.decoder = Decoder(self._keys)
            self._decoders.append(decoder)
        try:
            return decoder.decode(piece.data)
        except Refused:
            return None
