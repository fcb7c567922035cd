"""The JSON document around the events: its members before and after the event array, read as they come."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..errors import NotATraceError, UnreadableError
from ..report import Notice
from .mend import clean_surrogates, mend
from .slices import SLICE_BYTES, Slice, boundary
from .source import describe, foreign

if TYPE_CHECKING:
    from collections.abc import Iterator

# Possessive, because a group that may be given back costs memory for each character of a long text.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+("?)|[{}\[\]]', re.DOTALL)
_SCALAR_END = re.compile(rb"[,}\]]")
_CLOSER = {b"{": b"}", b"[": b"]"}
_SPACE = re.compile(rb"[\s\x00]*")
_HEADER_BYTES = 32 << 20
"""Members of the document that are larger are left out, and that is said: a profiler's are a few kilobytes."""


_MEND_BYTES = 1 << 20
"""Members longer than that are not mended."""
_KNOWN = re.compile(
    rb'"(?:traceEvents|schemaVersion|deviceProperties|distributedInfo|baseTimeNanoseconds|displayTimeUnit|traceName|trace_id'
    rb"|otherData|systemTraceEvents|stackFrames|samples|with_flops|record_shapes|with_stack|with_modules|profile_memory"
    rb'|cupti_version|cuda_runtime_version|cuda_driver_version|hip_runtime_version|hip_driver_version|roctracer_version)"\s*:'
)
"""Members that profilers write: where reading goes on after one that is broken."""
_SECOND = re.compile(rb'"traceEvents"\s*:')
_DOCUMENT = re.compile(rb'\{\s*(?:["}]|\Z)|\[\s*(?:[{\]]|\Z)')
_OVERLAP = 64
"""Longest match of the two above."""


class _LostError(Exception):
    """A member of the document that cannot be told from what follows it."""


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
        self._stopped = False
        self._open = False
        self._lost: int | None = None

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
            raise NotATraceError(f"{self._label}: this is {foreign(bytes(self._data[:1024]))}.")
        self._at += 1
        if self.members():
            return True
        if self._ended:
            raise NotATraceError(f"{self._label}: {describe(self.header)}.")
        if self._lost is None or self._open:
            raise UnreadableError(f"{self._label}: the file is cut off at byte {self.offset:,}, before its first event.")
        raise UnreadableError(f"{self._label}: what begins at byte {self._lost:,} is not JSON, and no events follow it.")

    def slices(self, size: int = SLICE_BYTES) -> Iterator[Slice]:
        """Yield the bytes from here to the end of the input, cut between events; the last slice is `final`.

        Where two slices' worth holds no place to cut, it is cut anywhere: one huge event, or something other than events.
        """
        want = size
        self._stopped = False
        while not self._stopped:
            while len(self._data) - self._at < want and self._more():
                pass
            self._drop()
            if len(self._data) < want:
                yield Slice(bytes(self._data), self._base, final=True)
                self._skip(len(self._data))
                return
            cut = boundary(self._data, want)
            if cut is None and want == size:
                want = 2 * size
                continue
            want = size
            cut = cut or (len(self._data), len(self._data))
            piece = Slice(bytes(memoryview(self._data)[: cut[0]]), self._base, bytes(self._data[cut[0] : cut[1]]))
            self._skip(cut[1])
            yield piece

    def stop(self) -> None:
        """Let `slices` read no further: the event array has ended in what it gave out."""
        self._stopped = True

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
            start = self.offset
            if mark == b",":
                self._at += 1
            elif mark == b"}":
                self._at += 1
                self._ended = True
            elif mark == b"" or (self.arrays and mark in (b"{", b"[")):
                break
            else:
                try:
                    if self._member():
                        return True
                except _LostError:
                    self._lost = start
                    if not self._found_again(start):
                        break
                    self._lost_member(start)
                    if self.arrays and _SECOND.match(self._data, self._at):
                        raise self._second(self.offset) from None
        return False

    def _found_again(self, start: int) -> bool:
        """Go on to the next member that is known, after one that has lost its end; False when there is none."""
        self._at = max(start - self._base + 1, 0)
        while (known := _KNOWN.search(self._data, self._at)) is None:
            self._at = max(self._at, len(self._data) - _OVERLAP)
            self._drop()
            if not self._more():
                self._at = len(self._data)
                return False
        self._at = known.start()
        return True

    def finish(self, *, cut_is_said: bool = False) -> None:
        """Look at what follows the document.

        Args:
            cut_is_said: it is already known, and noted, that the input ends early.

        Raises:
            UnreadableError: a second document follows: more than one process wrote the file.
        """
        mark = self._peek()
        while self._ended and mark == b",":
            self._at += 1
            mark = self._peek()
        start = self.offset
        if mark in (b"{", b"[") and self._is_document():
            raise self._second(start)
        if not self._ended and mark == b"" and cut_is_said and self._lost is None:
            return
        if not self._ended and self._bare and mark == b"":
            # The format's own text lets a writer leave the bracket out.
            self._note("unclosed-array", "The closing bracket of the event array is missing; it was added.", start, "info")
        elif not self._ended and self._lost is not None and not self._open:
            self._lost_member(self._lost)
        elif not self._ended and mark == b"":
            self._note("truncated", f"The file is cut off at byte {start:,}; what came before was kept.", start)
        elif mark != b"":
            self._rest()
            text = f"Text after the end of the events, from byte {start:,}, was ignored."
            self._note("trailing-bytes", text, start, "info")

    def _is_document(self) -> bool:
        """Whether JSON stands here, and not a line of a log such as `[rank0]: done`."""
        while len(self._data) - self._at < _OVERLAP and self._more():
            pass
        return _DOCUMENT.match(self._data, self._at) is not None

    def _second(self, offset: int) -> UnreadableError:
        return UnreadableError(
            f"{self._label}: a second JSON document starts at byte {offset:,}; more than one process wrote this file. "
            "Split it there, and have each rank write a file of its own."
        )

    def _rest(self) -> None:
        """Read what is left, which is no JSON; more events in it are not passed over."""
        while True:
            if found := _SECOND.search(self._data, self._at):
                before = self._data.rfind(b"{", self._at, found.start())
                raise self._second(self._base + (before if before >= 0 else found.start()))
            self._at = max(self._at, len(self._data) - _OVERLAP)
            self._drop()
            if not self._more():
                self._at = len(self._data)
                return

    def _lost_member(self, offset: int) -> None:
        self._note("unreadable-member", f"A member of the document at byte {offset:,} cannot be read and was left out.", offset)

    def _note(self, code: str, text: str, offset: int, level: str = "warning") -> None:
        self.notices.append(Notice(code, 1, text, offset, level))

    def _member(self) -> bool:
        """Read one `"key": value`; True when it is the event array, and the next byte is its first."""
        if self._peek() != b'"':
            raise _LostError
        key = self._value()
        if (mark := self._peek()) != b":":
            self._open = mark == b""
            raise _LostError
        self._at += 1
        if key == "traceEvents" and self._peek() == b"[":
            self._at += 1
            self.arrays += 1
            return True
        if key == "traceEvents":
            raise NotATraceError(f"{self._label}: traceEvents is not a list, at byte {self.offset:,}.")
        value = self._value()
        if self._peek() not in (b",", b"}", b'"', b""):
            raise _LostError
        if value is not _LEFT_OUT:
            if key in self.header:
                self._note("duplicate-member", f"The document has the member {key} twice; the last one counts.", self.offset)
            self.header[str(key)] = value
        return False

    def _value(self) -> Any:
        """Read one JSON value."""
        self._peek()
        start = self.offset
        text = self._take_value()
        if self._open:
            raise _LostError
        if len(text) > _HEADER_BYTES:
            said = f"A member of the document at byte {start:,} holds over {len(text) >> 20} MB and was left out."
            self._note("large-member", said, start, "info")
            return _LEFT_OUT
        try:
            readable = text.decode("utf-8", "replace")
            value, codes = mend(readable, thorough=len(text) < _MEND_BYTES)
        except (ValueError, RecursionError):
            self._lost_member(start)
            return _LEFT_OUT
        if codes and codes != ["control-character"]:
            said = f"A member of the document at byte {start:,} was not valid JSON ({', '.join(codes)}) and was mended."
            self._note("mended-member", said, start)
        clean = clean_surrogates(value)
        if clean != value or (not text.isascii() and readable.encode() != text):
            said = f"A member of the document at byte {start:,} is not valid Unicode; it is shown with the replacement character."
            self._note("invalid-unicode", said, start)
        return clean

    def _take_value(self) -> bytes:
        """Consume one value and return its bytes, at most a little over the limit for members."""
        closers: list[bytes] = []
        kept = bytearray()
        while True:
            if not closers and bytes(self._data[self._at : self._at + 1]) not in (b'"', b"{", b"["):
                self._open = False
                return bytes(kept) + self._take_scalar()
            token = self._token()
            end = len(self._data) if token is None else token.end()
            mark = b"" if token is None else token[0][:1]  # read now: a match looks at the bytes, which go below
            kept += self._data[self._at : end]
            self._at = end
            if len(kept) > 2 * _HEADER_BYTES:
                del kept[_HEADER_BYTES + 1 :]  # its value is not kept, only skipped
                self._drop()
            if token is None:
                self._open = True
                return bytes(kept)
            if mark in _CLOSER:
                closers.append(_CLOSER[mark])
            elif mark in (b"}", b"]") and mark != closers.pop():
                self._open = False
                raise _LostError
            if not closers:
                self._open = False
                return bytes(kept)

    def _token(self) -> re.Match[bytes] | None:
        """Return the next bracket or whole string; None when the input ends before it."""
        want = 0
        while True:
            token = _TOKEN.search(self._data, self._at)
            if token is not None and (token[0][:1] != b'"' or token[1]):
                return token
            # Twice as much each time, so that a long string is not read again for every chunk of it.
            want = max(2 * want, len(self._data) - self._at + 1)
            before = len(self._data)
            while len(self._data) - self._at < want and self._more():
                pass
            if len(self._data) == before or want > 4 * _HEADER_BYTES:
                return None

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
            self._drop()
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
