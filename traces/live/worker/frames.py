"""Frames: what the worker says, a JSON header and columns of numbers, on a pipe that nothing else may break."""

from __future__ import annotations

import json
import struct
import sys
import zlib
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MAGIC = b"KTP1"
_HEAD = struct.Struct("<4sII")
MAX_HEADER_BYTES = 16 << 20
MAX_BODY_BYTES = 1 << 30
CODES = {"u8": "B", "i32": "i", "u32": "I", "i64": "q", "u64": "Q", "f64": "d"}
"""Types of a column, with the letter that `array` has for them."""


class FrameError(ValueError):
    """The bytes are no frame: the stream cannot be read any further."""


@dataclass(frozen=True)
class Frame:
    """One message of the worker."""

    header: dict[str, Any]
    columns: dict[str, array[Any]] = field(default_factory=dict)
    """By name; all of one length."""
    body: bytes = b""
    """What follows the header where it is no columns (a trace file)."""

    @property
    def kind(self) -> str:
        """What it is about."""
        return str(self.header.get("kind", ""))


def pack(header: Mapping[str, Any], columns: Mapping[str, tuple[str, Sequence[Any]]] | None = None, body: bytes = b"") -> bytes:
    """Return a frame's bytes.

    Args:
        header: its members.
        columns: values by name, each with its type (`CODES`).
        body: bytes to send in place of columns.
    """
    said = dict(header)
    if columns:
        said["columns"] = [[name, kind, len(values)] for name, (kind, values) in columns.items()]
        body = zlib.compress(b"".join(_bytes(kind, values) for kind, values in columns.values()), 1)
    text = json.dumps(said, separators=(",", ":")).encode()
    return _HEAD.pack(MAGIC, len(text), len(body)) + text + body


def _bytes(kind: str, values: Sequence[Any]) -> bytes:
    made = array(CODES[kind], values)
    if sys.byteorder == "big":
        made.byteswap()
    return made.tobytes()


class Reader:
    """Cuts a stream of bytes into frames, however the bytes arrive."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take in bytes and yield the frames that are complete.

        Raises:
            FrameError: this is no stream of frames, or it claims absurd sizes.
        """
        self._data += data
        while len(self._data) >= _HEAD.size:
            magic, header_bytes, body_bytes = _HEAD.unpack_from(self._data)
            if magic != MAGIC or header_bytes > MAX_HEADER_BYTES or body_bytes > MAX_BODY_BYTES:
                raise FrameError(f"no frame begins with {bytes(self._data[:16])!r}")
            end = _HEAD.size + header_bytes + body_bytes
            if len(self._data) < end:
                return
            text = bytes(self._data[_HEAD.size : _HEAD.size + header_bytes])
            body = bytes(self._data[_HEAD.size + header_bytes : end])
            del self._data[:end]
            yield _frame(text, body)

    @property
    def waiting(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return len(self._data)


def _frame(text: bytes, body: bytes) -> Frame:
    try:
        header = json.loads(text)
        if not isinstance(header, dict):
            raise FrameError("a frame's header is no object")
        if "columns" not in header:
            return Frame(header, body=body)
        return Frame(header, _columns(header["columns"], body))
    except (ValueError, KeyError, TypeError, zlib.error, RecursionError) as error:
        raise FrameError(f"a frame cannot be read: {error}") from error


def _columns(listed: list[tuple[str, str, int]], body: bytes) -> dict[str, array[Any]]:
    want = sum(count * array(CODES[kind]).itemsize for _, kind, count in listed)
    if want > MAX_BODY_BYTES:
        raise FrameError(f"a frame claims {want:,} bytes of columns")
    data = zlib.decompressobj().decompress(body, want + 1)
    if len(data) != want:
        raise FrameError("a frame's columns are not as long as it says")
    made, at = {}, 0
    for name, kind, count in listed:
        values = array(CODES[kind])
        values.frombytes(data[at : at + count * values.itemsize])
        if sys.byteorder == "big":
            values.byteswap()
        at += count * values.itemsize
        made[name] = values
    return made
