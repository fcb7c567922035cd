"""A path to uncompressed bytes: what the file is, told by its first bytes and never by its suffix."""

from __future__ import annotations

import bz2
import codecs
import lzma
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, Protocol

from ..errors import NotATraceError, UnreadableError
from ..report import Notice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Format = Literal["json", "gzip", "zstd", "bzip2", "xz", "zip", "parquet", "empty", "other"]
"""What the first bytes say."""

READ_BYTES = 1 << 16
"""Bytes read at a time. gzip expands at most 1032 times, so that a hostile file makes 66 MB a block, not gigabytes."""
PLAIN_BYTES = 1 << 22
"""Bytes read at a time where nothing is compressed."""

_MAGIC: tuple[tuple[bytes, Format], ...] = (
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),
    (b"PAR1", "parquet"),
)

_FOREIGN: tuple[tuple[bytes, str], ...] = (
    (b"SQLite format 3", "an SQLite database (an Nsight Systems export?); kinetop reads PyTorch profiler traces"),
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself; run `git lfs pull`"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive; unpack it first"),
    (b"Rar!", "a RAR archive; unpack it first"),
    (b"\x7fELF", "a program"),
    (b"%PDF", "a PDF"),
    (b"\x89PNG", "a picture"),
    (b"\x80\x02", "a Python pickle (a memory snapshot?), not a trace"),
    (b"\x80\x03", "a Python pickle (a memory snapshot?), not a trace"),
    (b"\x80\x04", "a Python pickle (a memory snapshot?), not a trace"),
    (b"\x80\x05", "a Python pickle (a memory snapshot?), not a trace"),
    (b"<", "a web page or XML, not a trace"),
)

_UTF16 = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class Inflater(Protocol):
    """What zlib's, bz2's, lzma's and zstandard's decompressors have in common."""

    @property
    def eof(self) -> bool:
        """Whether the member or frame has ended."""

    @property
    def unused_data(self) -> bytes:
        """What was given after its end."""

    def decompress(self, data: bytes, /) -> bytes:
        """Return what these bytes decompress to."""


def detect(head: bytes) -> Format:
    r"""Return the format that these first bytes belong to.

    >>> detect(b"\x1f\x8b\x08"), detect(b'  {"traceEvents": ['), detect(b"")
    ('gzip', 'json', 'empty')
    """
    for magic, name in _MAGIC:
        if head.startswith(magic):
            return name
    if not head:
        return "empty"
    if any(head.startswith(bom) for bom, _ in _UTF16):
        return "json"
    text = head.removeprefix(codecs.BOM_UTF8).lstrip(b" \t\r\n\x00")
    return "json" if text[:1] in (b"{", b"[") or not text else "other"


def foreign(head: bytes) -> str:
    """Say in a few words what these bytes are, when they are not a trace."""
    for magic, text in _FOREIGN:
        if head.lstrip(b" \t\r\n").startswith(magic) or head.startswith(magic):
            return text
    if head[257:262] == b"ustar":
        return "a tar archive; unpack it first"
    printable = sum(byte >= 32 or byte in b"\t\r\n" for byte in head[:512])
    return "plain text, not JSON" if printable >= 0.95 * len(head[:512]) else "binary data of an unknown kind"


def inflater(name: Format) -> Callable[[], Inflater]:
    """Return a maker of decompressors for one member or frame of a format."""
    if name == "gzip":
        try:
            from isal import isal_zlib  # 3x zlib on the traces measured

            return lambda: isal_zlib.decompressobj(wbits=31)
        except ImportError:
            return lambda: zlib.decompressobj(wbits=31)
    if name == "zstd":
        import zstandard

        return lambda: zstandard.ZstdDecompressor(max_window_size=2**27).decompressobj()
    return bz2.BZ2Decompressor if name == "bzip2" else lzma.LZMADecompressor


@dataclass
class Source:
    """An input opened for reading: its uncompressed bytes in order, and how far the reading has come."""

    path: Path
    format: Format
    total_bytes: int
    """Size of the file as it lies on disk."""
    stream: IO[bytes]
    member: str | None = None
    """The member of a zip archive that is read."""
    member_bytes: int = 0
    """Size of that member when unpacked."""
    read_bytes: int = 0
    """Bytes of the file read so far (compressed ones, for a compressed file)."""
    notices: list[Notice] = field(default_factory=list)
    _position: int = 0

    def chunks(self) -> Iterator[bytes]:
        """Yield the uncompressed bytes; a byte order mark is taken away and UTF-16 turned into UTF-8."""
        blocks = self._blocks()
        first = next(blocks, b"")
        while len(first) < 4 and (more := next(blocks, b"")):
            first += more
        encoding = next((name for bom, name in _UTF16 if first.startswith(bom)), None)
        if encoding is None:
            yield first.removeprefix(codecs.BOM_UTF8)
            yield from blocks
            return
        self.notices.append(Notice("utf-16", 1, f"The file is {encoding.upper()} text; it was read as such.", 0, "info"))
        decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
        yield decoder.decode(first).encode("utf-8", "replace")
        for block in blocks:
            yield decoder.decode(block).encode("utf-8", "replace")
        yield decoder.decode(b"", final=True).encode("utf-8", "replace")

    def _raw(self) -> Iterator[bytes]:
        done = 0
        size = READ_BYTES if self.format != "json" else PLAIN_BYTES
        while block := self.stream.read(size):
            done += len(block)
            self._position = done
            # Inside an archive the position is not known; the share of the member that came out stands for it.
            self.read_bytes = done if self.member is None else self.total_bytes * done // max(self.member_bytes, done)
            yield block

    def _blocks(self) -> Iterator[bytes]:
        if self.format in ("gzip", "zstd", "bzip2", "xz"):
            yield from self._inflated(inflater(self.format))
        else:
            try:
                yield from self._raw()
            except (zipfile.BadZipFile, zlib.error, EOFError) as error:
                self._cut("zip", f"the archive is damaged ({error})")

    def _inflated(self, make: Callable[[], Inflater]) -> Iterator[bytes]:
        """Decompress member after member; keep what comes before damage and say where it is."""
        current = make()
        begun = False
        for block in self._raw():
            data = block
            while data:
                try:
                    out = current.decompress(data)
                except Exception as error:
                    if not _is_damage(error):
                        raise
                    self._cut(
                        self.format, f"the data is damaged ({str(error) or type(error).__name__})", self._position - len(data)
                    )
                    return
                if out:
                    yield out
                begun = not current.eof
                data = current.unused_data if current.eof else b""
                if current.eof:
                    current = make()
                    if data and not data.startswith(_magic_of(self.format)):
                        self._trailing(data)
                        return
        if begun:
            self._cut(self.format, "the stream ends early", self._position)

    def _trailing(self, data: bytes) -> None:
        """Say that something follows the compressed data, unless it is the padding of tapes and block devices."""
        if data.strip(b"\x00"):
            text = f"Bytes after the end of the {self.format} stream were ignored."
            self.notices.append(Notice("trailing-bytes", len(data), text, level="info"))

    def _cut(self, what: str, why: str, position: int | None = None) -> None:
        at = self.read_bytes if position is None else position
        self.notices.append(
            Notice(
                f"damaged-{what}",
                1,
                f"{self.path.name}: {why} at compressed byte {at:,}; what could be read before it is partial.",
                at,
            )
        )


def _magic_of(name: Format) -> bytes:
    return next(magic for magic, other in _MAGIC if other == name)


def _is_damage(error: Exception) -> bool:
    """Whether a decompressor's exception speaks of the data."""
    return isinstance(error, (zlib.error, OSError, EOFError, lzma.LZMAError, ValueError)) or type(error).__name__ in (
        "error",
        "IsalError",
        "ZstdError",
    )


def open_source(path: Path, member: str | None = None) -> Source:
    """Open a file for reading as a trace.

    Args:
        path: the file.
        member: which member of a zip archive; see `members`.

    Raises:
        UnreadableError: it is missing, empty, a folder, or cannot be opened.
        NotATraceError: its first bytes belong to something else.
    """
    try:
        total = path.stat().st_size
        stream: IO[bytes] = path.open("rb")
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror or error}.") from error
    head = stream.read(1024)
    stream.seek(0)
    kind = detect(head)
    size = 0
    if kind == "zip" and member is not None:
        stream.close()
        stream, size = _member_stream(path, member)
        head = stream.read(1024)
        kind = detect(head)
        stream.seek(0)
    if kind == "empty":
        raise UnreadableError(f"{path}: the file is empty (0 bytes); was the profiler killed before it wrote the trace?")
    if kind == "other":
        raise NotATraceError(f"{path}: this is {foreign(head)}.")
    return Source(path, kind, total, stream, member, size)


def _member_stream(path: Path, member: str) -> tuple[IO[bytes], int]:
    try:
        archive = zipfile.ZipFile(path)
        return archive.open(member), archive.getinfo(member).file_size
    except (zipfile.BadZipFile, KeyError, RuntimeError, NotImplementedError, OSError) as error:
        raise UnreadableError(f"{path}: cannot read {member} from the archive ({error}).") from error


def members(path: Path) -> list[str]:
    """Return the members of a zip archive that may be traces, largest first.

    Raises:
        UnreadableError: the archive is damaged, or nothing in it can be a trace.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            infos = [info for info in archive.infolist() if not info.is_dir() and info.file_size]
            kept = [
                info
                for info in infos
                if not _is_clutter(info.filename) and _head_of(archive, info) in ("json", "gzip", "zstd", "bzip2", "xz")
            ]
    except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError) as error:
        raise UnreadableError(f"{path}: the zip archive cannot be read ({error}); unpack it first.") from error
    if not kept:
        raise NotATraceError(f"{path}: the zip archive holds no trace ({len(infos)} files looked at).")
    return [info.filename for info in sorted(kept, key=lambda info: -info.file_size)]


def _is_clutter(name: str) -> bool:
    """Resource forks and hidden files that archivers add."""
    return any(part == "__MACOSX" or part.startswith(".") for part in Path(name).parts)


def _head_of(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Format:
    with archive.open(info) as stream:
        return detect(stream.read(1024))


def sniff(path: Path) -> Literal["trace", "parquet", "other"]:
    """Tell a trace from other files by at most 64 kB of it.

    Args:
        path: a file.

    Returns:
        `trace` for JSON that begins like a Chrome trace (compressed or not) and archives with JSON in them, `parquet`, `other`.
    """
    try:
        with path.open("rb") as stream:
            head = stream.read(1024)
        kind = detect(head)
        if kind == "zip":
            return "trace" if members(path) else "other"
        if kind == "parquet":
            return "parquet"
        if kind in ("other", "empty"):
            return "other"
        source = open_source(path)
        with source.stream:
            text = next(source.chunks(), b"")[:65536]
    except (UnreadableError, OSError):
        return "other"
    return (
        "trace"
        if any(mark in text for mark in (b'"traceEvents"', b'"ph"', b'"deviceProperties"', b'"schemaVersion"'))
        else "other"
    )


def describe(value: Any) -> str:
    """Say in a few words what a well-formed JSON document is, when it is not a trace."""
    if isinstance(value, dict) and {"schema", "nodes"} <= value.keys():
        return "no traceEvents in it; this looks like a PyTorch execution trace (schema, nodes), not a profiler trace"
    if isinstance(value, dict) and {"segments", "device_traces"} & value.keys():
        return "no traceEvents in it; this looks like a memory snapshot, not a profiler trace"
    if isinstance(value, dict):
        names = ", ".join(list(value)[:5]) or "nothing"
        return f"no traceEvents in it (its members: {names}); this is not a profiler trace"
    return "this JSON is not a profiler trace"
