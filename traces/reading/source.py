"""A path to uncompressed bytes: what the file is, told by its first bytes and never by its suffix."""

from __future__ import annotations

import bz2
import codecs
import lzma
import re
import zipfile
import zlib
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain
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
    (b"\x5d\x00\x00", "xz"),  # LZMA alone, which the same library reads
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),
    (b"PAR1", "parquet"),
)

_ZSTD_SKIPPABLE = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18")
"""How a zstd frame begins that holds no data; parallel writers put one before each block."""

_FOREIGN: tuple[tuple[bytes, str], ...] = (
    (b"KTP1", "the journal of a live session that was not closed; kinetop replay shows it"),
    (b"SQLite format 3", "an SQLite database (an Nsight Systems export?); kinetop reads PyTorch profiler traces"),
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself; run `git lfs pull`"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive; unpack it first"),
    (b"Rar!", "a RAR archive; unpack it first"),
    (b"\x04\x22\x4d\x18", "an LZ4 file; unpack it first"),
    (b"\x1f\x9d", "a file of the old compress program; unpack it first"),
    (b"\x7fELF", "a program"),
    (b"%PDF", "a PDF"),
    (b"\x89PNG", "a picture"),
    (b"\x80\x02", "a Python pickle (a memory snapshot?), not a trace"),
    (b"\x80\x03", "a Python pickle (a memory snapshot?), not a trace"),
    (b"\x80\x04", "a Python pickle (a memory snapshot?), not a trace"),
    (b"\x80\x05", "a Python pickle (a memory snapshot?), not a trace"),
    (b"<", "a web page or XML, not a trace"),
)

_BOMS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_NO_BOM = (
    (re.compile(rb"[^\x00]\x00\x00\x00"), "utf-32-le"),
    (re.compile(rb"\x00\x00\x00[^\x00]\x00"), "utf-32-be"),
    (re.compile(rb"[^\x00]\x00[^\x00]\x00"), "utf-16-le"),
    (re.compile(rb"\x00[^\x00]\x00[^\x00]"), "utf-16-be"),
)
"""Where the zero bytes lie among the first ones of a text that begins with two ASCII characters, as JSON does."""
_DOCUMENT = re.compile(rb'\s*(?:\{\s*"|\[\s*\{)')
"""How a trace begins."""
_INVALID_BYTE = "kinetop.invalid_byte"
codecs.register_error(_INVALID_BYTE, lambda error: ("\udcff", error.end))  # type: ignore[attr-defined]
MAX_LAYERS = 3
"""Compressions inside one another that are undone: a server may compress what is compressed."""
_DAMAGED_MEMBER = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError)
"""What reading a member of an archive raises where its data is damaged."""
_STEP_BYTES = 1024
"""Compressed bytes given to a decompressor at a time: what it had not handed out when it meets damage is lost."""
_TRAILER_BYTES = 64
"""At the end of a file the steps are single bytes, so that a wrong checksum loses nothing."""


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
    if _ZSTD_SKIPPABLE.match(head):
        return "zstd"
    if encoding(head):
        return "json"
    text = _unmarked(head).lstrip(b" \t\r\n\x00")
    return "json" if text[:1] in (b"{", b"[") or not text else "other"


def encoding(head: bytes) -> str | None:
    """Return the encoding that a text begins in, None when it is UTF-8.

    >>> encoding('{"a"'.encode("utf-16")), encoding('{"a"'.encode("utf-16-be")), encoding(b'{"a"')
    ('utf-16', 'utf-16-be', None)
    """
    marked = next((name for bom, name in _BOMS if head.startswith(bom)), None)
    return marked or next((name for pattern, name in _NO_BOM if pattern.match(head)), None)


def _unmarked(head: bytes) -> bytes:
    """Take byte order marks away; a tool that adds one does not look whether there is one."""
    while head.startswith(codecs.BOM_UTF8):
        head = head.removeprefix(codecs.BOM_UTF8)
    return head


def foreign(head: bytes) -> str:
    """Say in a few words what these bytes are, when they are not a trace."""
    for magic, text in _FOREIGN:
        if head.lstrip(b" \t\r\n").startswith(magic) or head.startswith(magic):
            return text
    if head[257:262] == b"ustar":
        return "a tar archive; unpack it first"
    printable = sum(byte >= 32 or byte in b"\t\r\n" for byte in head[:512])
    return "plain text, not a JSON object or array" if printable >= 0.95 * len(head[:512]) else "binary data of an unknown kind"


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
    damage: str | None = None
    """What is wrong with the compressed stream, and where, when it broke off."""

    def chunks(self) -> Iterator[bytes]:
        """Yield the uncompressed bytes; a byte order mark is taken away and UTF-16 turned into UTF-8."""
        blocks, first = self._begun(self._layer(self._raw(), self.format))
        for _ in range(MAX_LAYERS - 1):
            if (inner := detect(first)) not in ("gzip", "zstd", "bzip2", "xz"):
                break
            blocks, first = self._begun(self._layer(chain([first], blocks), inner))
        name = encoding(first)
        if name is None:
            yield _unmarked(first)
            yield from blocks
            return
        self.notices.append(Notice("utf-16", 1, f"The file is {name.upper()} text; it was read as such.", 0, "info"))
        # What cannot be decoded becomes bytes that are not UTF-8 either, so that it is counted with all other such text.
        decoder = codecs.getincrementaldecoder(name)(errors=_INVALID_BYTE)
        for block in chain([first], blocks):
            yield decoder.decode(block).encode("utf-8", "surrogateescape")
        yield decoder.decode(b"", final=True).encode("utf-8", "surrogateescape")

    @staticmethod
    def _begun(blocks: Iterator[bytes]) -> tuple[Iterator[bytes], bytes]:
        """Take enough off the front to tell what it is."""
        first = b""
        while len(first) < 16 and (more := next(blocks, b"")):
            first += more
        return blocks, first

    def _raw(self) -> Iterator[bytes]:
        done = 0
        try:
            size = READ_BYTES if self.format != "json" else PLAIN_BYTES
            while block := self.stream.read(size):
                done += len(block)
                # Inside an archive the position is not known; the share of the member that came out stands for it.
                self.read_bytes = done if self.member is None else self.total_bytes * done // max(self.member_bytes, done)
                yield block
        except _DAMAGED_MEMBER as error:
            self._cut("zip", f"the archive is damaged ({error})")

    def _layer(self, blocks: Iterator[bytes], name: Format) -> Iterator[bytes]:
        """Undo one compression; what is not compressed passes through."""
        return self._inflated(blocks, name) if name in ("gzip", "zstd", "bzip2", "xz") else blocks

    def _inflated(self, blocks: Iterator[bytes], name: Format) -> Iterator[bytes]:
        """Decompress member after member; keep what comes before damage and say where it is."""
        make = inflater(name)
        current, begun, position = make(), False, 0
        for block in blocks:
            made: list[bytes] = []
            at = 0
            while at < len(block):
                if not begun and position + at:
                    rest = block[at:].lstrip(b"\x00")  # zero padding after a member, as tape and block devices leave it
                    at = len(block) - len(rest)
                    if not rest:
                        break
                    if not _begins(name, rest):
                        yield b"".join(made)
                        yield from self._after(name, chain([rest], blocks), position + at)
                        return
                step = block[at : at + self._step(len(block) - at)]
                out = self._decompressed(current, step, name, position + at)
                if out is None:
                    yield b"".join(made)
                    return
                made.append(out)
                at += len(step)
                begun = True
                if current.eof:
                    at -= len(current.unused_data)
                    current, begun = make(), False
            position += len(block)
            if any(made):
                yield b"".join(made)
        if begun:
            self._cut(name, "the stream ends early", position)

    def _decompressed(self, current: Inflater, data: bytes, name: Format, position: int) -> bytes | None:
        """Decompress a little; None where the data is damaged, which is noted."""
        try:
            return current.decompress(data)
        except Exception as error:
            if not _is_damage(error):
                raise
            self._cut(name, f"the data is damaged ({str(error) or type(error).__name__})", position)
            return None

    def _step(self, left: int) -> int:
        """Return how many of the block's last `left` bytes to decompress at once."""
        if self.read_bytes < self.total_bytes:
            return _STEP_BYTES
        return min(_STEP_BYTES, left - _TRAILER_BYTES) if left > _TRAILER_BYTES else 1

    def _after(self, name: Format, blocks: Iterator[bytes], position: int) -> Iterator[bytes]:
        """Hand on a document that was appended without compression, which is for the reader to refuse; note all else."""
        first = next(blocks)
        if _DOCUMENT.match(first):
            yield from chain([first], blocks)
            return
        text = f"What follows the {name} stream, from compressed byte {position:,}, is not {name} and was ignored."
        self.notices.append(Notice("trailing-bytes", 1, text, None, "info"))

    def _cut(self, what: str, why: str, position: int | None = None) -> None:
        at = self.read_bytes if position is None else position
        self.damage = f"{why} at compressed byte {at:,}"
        self.notices.append(
            Notice(f"damaged-{what}", 1, f"{self.path.name}: {self.damage}; what could be read before it is partial.", at)
        )


def _begins(name: Format, data: bytes) -> bool:
    """Whether another member or frame of a format begins here, as far as the bytes at hand tell."""
    magics = [magic for magic, other in _MAGIC if other == name]
    return any(data.startswith(magic) or magic.startswith(data) for magic in magics) or (
        name == "zstd" and bool(_ZSTD_SKIPPABLE.match(data))
    )


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
    size = 0
    head = _head(stream)
    if detect(head) == "zip" and member is not None:
        stream.close()
        stream, size, head = _member_stream(path, member)
    kind = detect(head)
    if kind in ("empty", "other"):
        stream.close()
    if kind == "empty":
        raise UnreadableError(f"{path}: the file is empty (0 bytes); was the profiler killed before it wrote the trace?")
    if kind == "other":
        raise NotATraceError(f"{path}: this is {foreign(head)}.")
    return Source(path, kind, total, stream, member, size)


def _head(stream: IO[bytes]) -> bytes:
    head = stream.read(1024)
    stream.seek(0)
    return head


def _member_stream(path: Path, member: str) -> tuple[IO[bytes], int, bytes]:
    """Return the member's bytes, how many there are, and the first of them."""
    try:
        archive = zipfile.ZipFile(path)
        stream = archive.open(member)
        return stream, archive.getinfo(member).file_size, _head(stream)
    except (*_DAMAGED_MEMBER, KeyError, RuntimeError, NotImplementedError, OSError) as error:
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
    name, count = Counter(info.filename for info in kept).most_common(1)[0]
    if count > 1:
        raise UnreadableError(f"{path}: the zip archive holds {count} files of one name, {name}; unpack it and rename them.")
    return [info.filename for info in sorted(kept, key=lambda info: -info.file_size)]


def _is_clutter(name: str) -> bool:
    """Resource forks and hidden files that archivers add."""
    return any(part == "__MACOSX" or (part.startswith(".") and part != "..") for part in Path(name).parts)


def _head_of(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Format:
    """Return what a member is by its first bytes; a damaged one may be a trace, and reading it says what is wrong."""
    try:
        with archive.open(info) as stream:
            return detect(stream.read(1024))
    except _DAMAGED_MEMBER:
        return "json"


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
    if isinstance(value, dict) and "ph" in value:
        return "it holds events one after another, not a list of them (JSON lines?); put them between [ and ], with commas"
    if isinstance(value, dict):
        names = ", ".join(list(value)[:5]) or "nothing"
        return f"no traceEvents in it (its members: {names}); this is not a profiler trace"
    return "this JSON is not a profiler trace"
