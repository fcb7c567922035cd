"""The JSON document around the events: its members before and after the event array, read as they come."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from ..errors import NotATraceError, UnreadableError
from ..report import Notice
from .slices import SLICE_BYTES, Slice, boundary
from .source import describe

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*("?)|[{}\[\]]', re.DOTALL)
_SCALAR_END = re.compile(rb"[,}\]]")
_SPACE = re.compile(rb"[\s\x00]*")
_HEADER_BYTES = 32 << 20
"""Members of the document that are larger are left out, and that is said: a profiler's are a few kilobytes."""


class Document:
    """A trace document read from chunks of bytes; knows where it stands to the byte.

    Args:
        chunks: the uncompressed bytes in order.
        label: the file's name, for messages.
    """

    def __init__(self, chunks: Iterator[bytes], label: str) -> None:
        self._chunks = chunks
        self._data = bytearray()
        self._at = 0
        self._base = 0
        self._label = label
        self.header: dict[str, Any] = {}
        """Members of the document other than the events."""
        self.notices: list[Notice] = []
        self.arrays = 0
        """Event arrays begun so far."""
        self._bare = False
        self._ended = False

    @property
    def offset(self) -> int:
        """Byte offset of the next unread byte."""
        return self._base + self._at

    def begin(self) -> bool:
        """Read up to the first event; False when the document has no event array at all but is whole.

        Raises:
            UnreadableError: nothing in it, or cut off before the first event.
            NotATraceError: well-formed, but not a trace.
        """
        first = self._peek()
        if first == b"":
            raise UnreadableError(f"{self._label}: the file holds nothing but white space.")
        if first == b"[":
            self._at += 1
            self._bare = True
            self.arrays = 1
            return True
        if first != b"{":
            raise NotATraceError(f"{self._label}: not JSON at byte {self.offset:,}.")
        self._at += 1
        if self.members():
            return True
        if self._ended:
            raise NotATraceError(f"{self._label}: {describe(self.header)}.")
        raise UnreadableError(f"{self._label}: the file is cut off at byte {self.offset:,}, before its first event.")

    def slices(self, size: int = SLICE_BYTES) -> Iterator[Slice]:
        """Yield the bytes from here to the end of the input, cut between events; the last slice is `final`."""
        want = size
        while True:
            while len(self._data) - self._at < want and self._more():
                pass
            self._drop()
            if len(self._data) < want:
                yield Slice(bytes(self._data), self._base, final=True)
                self._skip(len(self._data))
                return
            cut = boundary(self._data)
            if cut is None:
                want *= 2  # one event larger than a slice
                continue
            want = size
            piece = Slice(bytes(memoryview(self._data)[: cut[0]]), self._base, bytes(self._data[cut[0] : cut[1]]))
            self._skip(cut[1])
            yield piece

    def array_ended(self, rest: bytes, offset: int) -> None:
        """Go on reading the document after the event array.

        Args:
            rest: the bytes that follow the array's closing bracket, as far as `slices` had given them out.
            offset: where they begin.
        """
        self._drop()
        self._data[:0] = rest
        self._base = offset
        if self._bare:
            self._ended = True

    def members(self) -> bool:
        """Read members of the document until an event array begins (True) or the document ends (False)."""
        while not self._ended:
            mark = self._peek()
            if mark == b",":
                self._at += 1
                continue
            if mark == b"}":
                self._at += 1
                self._ended = True
            if mark != b'"':
                break
            if self._member():
                return True
        return False

    def finish(self) -> None:
        """Look at what follows the document.

        Raises:
            UnreadableError: a second document follows: more than one process wrote the file.
        """
        mark = self._peek()
        if not self._ended and self._bare and mark == b"":
            # The format's own text lets a writer leave the bracket out.
            self.notices.append(
                Notice(
                    "unclosed-array", 1, "The closing bracket of the event array is missing; it was added.", self.offset, "info"
                )
            )
        elif not self._ended:
            where = f"at byte {self.offset:,}"
            text = (
                f"The file is cut off {where}; what came before was kept."
                if mark == b""
                else f"What follows the events cannot be read {where}."
            )
            self.notices.append(Notice("truncated", 1, text, self.offset))
        elif mark in (b"{", b"["):
            raise UnreadableError(
                f"{self._label}: a second JSON document starts at byte {self.offset:,}; more than one process wrote this file. "
                "Split it there, and have each rank write a file of its own."
            )
        elif mark != b"":
            self.notices.append(
                Notice(
                    "trailing-bytes",
                    1,
                    f"Text after the end of the document, from byte {self.offset:,}, was ignored.",
                    self.offset,
                    "info",
                )
            )

    def _member(self) -> bool:
        """Read one `"key": value`; True when it is the event array, and the next byte is its first."""
        key = self._value()
        if self._peek() != b":":
            self.notices.append(
                Notice("unreadable-member", 1, f"A member of the document at byte {self.offset:,} cannot be read.", self.offset)
            )
            return False
        self._at += 1
        if key == "traceEvents" and self._peek() == b"[":
            self._at += 1
            self.arrays += 1
            return True
        if key == "traceEvents":
            raise NotATraceError(f"{self._label}: traceEvents is not a list, at byte {self.offset:,}.")
        value = self._value()
        if value is not _LEFT_OUT:
            self.header[str(key)] = value
        return False

    def _value(self) -> Any:
        """Read one JSON value."""
        self._peek()
        start = self.offset
        text = self._take_value()
        if len(text) > _HEADER_BYTES:
            self.notices.append(
                Notice(
                    "large-member",
                    1,
                    f"A member of the document at byte {start:,} holds {len(text):,} bytes and was left out.",
                    start,
                    "info",
                )
            )
            return _LEFT_OUT
        try:
            return json.loads(text.decode("utf-8", "replace"), strict=False)
        except (ValueError, RecursionError):
            if self._peek() != b"":
                self.notices.append(
                    Notice(
                        "unreadable-member",
                        1,
                        f"A member of the document at byte {start:,} cannot be read and was left out.",
                        start,
                    )
                )
            return _LEFT_OUT

    def _take_value(self) -> bytes:
        """Consume one value and return its bytes, at most a little over the limit for members."""
        depth = 0
        kept = bytearray()
        while True:
            if depth == 0 and bytes(self._data[self._at : self._at + 1]) not in (b'"', b"{", b"["):
                return bytes(kept) + self._take_scalar()
            token = _TOKEN.search(self._data, self._at)
            if token is None or (token[0][:1] == b'"' and not token[1]):
                if self._more():
                    continue
                kept += self._data[self._at :]
                self._at = len(self._data)
                return bytes(kept)
            kept += self._data[self._at : token.end()]
            self._at = token.end()
            if len(kept) > 2 * _HEADER_BYTES:
                del kept[_HEADER_BYTES + 1 :]  # its value is not kept, only skipped
                self._drop()
            depth += 1 if token[0] in (b"{", b"[") else -1 if token[0] in (b"}", b"]") else 0
            if depth <= 0:
                return bytes(kept)

    def _take_scalar(self) -> bytes:
        while (end := _SCALAR_END.search(self._data, self._at)) is None and self._more():
            pass
        stop = len(self._data) if end is None else end.start()
        text = bytes(self._data[self._at : stop])
        self._at = stop
        return text

    def _peek(self) -> bytes:
        """Return the next byte that is not white space, b"" at the end of the input."""
        while True:
            space = _SPACE.match(self._data, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._data):
                return bytes(self._data[self._at : self._at + 1])
            if not self._more():
                return b""

    def _more(self) -> bool:
        chunk = next(self._chunks, None)
        if chunk is None:
            return False
        self._data += chunk
        return True

    def _drop(self) -> None:
        self._skip(0)

    def _skip(self, count: int) -> None:
        """Forget what has been read, and `count` bytes more."""
        gone = self._at + count
        del self._data[:gone]
        self._base += gone
        self._at = 0


_LEFT_OUT = object()
