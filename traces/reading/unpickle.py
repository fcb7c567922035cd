"""Pickles that can do nothing: lists, dicts, tuples, numbers and texts are made, and everything else is refused.

A pickle is a program, and Python's own reader runs it: it imports what the pickle names and calls it. This reader knows only the
instructions that fill containers; those that name, make or call anything are not there. What it takes of memory is in
proportion to the file (about 25 times its size at worst), whatever the file says.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from ..errors import NotATraceError, UnreadableError

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_BYTES = 1 << 29
"""A larger pickle is refused: as objects it takes about ten times its size."""
_BYTES_A_CONTAINER = 8
"""A list or dict of an honest pickle takes more of the file; an empty one takes one byte there and 64 in memory."""
_SPARE_CONTAINERS = 1000

_REFUSED = {
    b"c": "GLOBAL", b"\x93": "STACK_GLOBAL", b"R": "REDUCE", b"b": "BUILD", b"i": "INST", b"o": "OBJ", b"\x81": "NEWOBJ",
    b"\x92": "NEWOBJ_EX", b"\x82": "EXT1", b"\x83": "EXT2", b"\x84": "EXT4", b"P": "PERSID", b"Q": "BINPERSID",
}  # fmt: skip
"""Instructions that name, make or call something."""

_U32, _I32 = struct.Struct("<I").unpack_from, struct.Struct("<i").unpack_from
Stack = list[Any]


class _DamagedError(Exception):
    """The instructions make no sense."""


def unpickled(data: bytes, label: str) -> Any:
    r"""Return what a pickle holds, without running anything.

    Args:
        data: the pickle, of protocol 2 or later.
        label: the file's name for messages.

    Raises:
        NotATraceError: it holds something other than lists, dicts, tuples, numbers and texts.
        UnreadableError: it is too large, cut off or damaged.

    Example:
        >>> unpickled(b"\x80\x04}\x8c\x01a]K\x01as.", "a.pickle")
        {'a': [1]}
    """
    if len(data) > MAX_BYTES:
        raise UnreadableError(f"{label}: a pickle of {len(data):,} bytes; up to {MAX_BYTES:,} are read.")
    try:
        return _Reader(data).value(label)
    except (_DamagedError, IndexError, ValueError, TypeError, AttributeError, OverflowError, MemoryError, struct.error) as error:
        said = f"{error}" if isinstance(error, _DamagedError) else type(error).__name__
        raise UnreadableError(f"{label}: the pickle is cut off or damaged ({said}).") from error


class _Reader:
    """Follows the instructions of one pickle."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._stack: Stack = []
        self._marks: list[int] = []
        self._memo: list[Any] = []
        self._containers = len(data) // _BYTES_A_CONTAINER + _SPARE_CONTAINERS

    def value(self, label: str) -> Any:  # noqa: C901, PLR0912 - calls instead of branches take twice the time
        """Return what stands on the stack at the end; the instructions that a snapshot is made of go first, for speed."""
        data, stack, marks, memo = self._data, self._stack, self._marks, self._memo
        at, size, rare = 0, len(data), _RARE
        while True:
            code = data[at]
            at += 1
            if code == 0x68:  # BINGET
                stack.append(memo[data[at]])
                at += 1
            elif code == 0x6A:  # LONG_BINGET
                stack.append(memo[_U32(data, at)[0]])
                at += 4
            elif code == 0x94:  # MEMOIZE
                memo.append(stack[-1])
            elif code == 0x4B:  # BININT1
                stack.append(data[at])
                at += 1
            elif code == 0x28:  # MARK
                marks.append(len(stack))
            elif code == 0x7D and self._containers > 0:  # EMPTY_DICT
                self._containers -= 1
                stack.append({})
            elif code == 0x75:  # SETITEMS
                items = self._marked()
                _filled(stack[-1], dict).update(zip(items[::2], items[1::2], strict=True))
            elif code == 0x8C:  # SHORT_BINUNICODE
                end = at + 1 + data[at]
                stack.append(data[at + 1 : end].decode("utf-8", "replace"))
                at = end
            elif code == 0x4A:  # BININT
                stack.append(_I32(data, at)[0])
                at += 4
            elif code == 0x65:  # APPENDS
                items = self._marked()
                _filled(stack[-1], list).extend(items)
            elif code == 0x2E:  # STOP
                return stack.pop()
            elif code in rare:
                at = rare[code](self, at)
            else:
                _refuse(code, at - 1, label)
            if at > size:
                raise _DamagedError(f"it ends within instruction {at}")

    def _marked(self) -> Stack:
        """Take what was put on the stack since the last mark."""
        start = self._marks.pop()
        items = self._stack[start:]
        del self._stack[start:]
        return items

    def container(self, made: Any, at: int) -> int:
        """Put a new container on the stack, as long as there are not too many of them for the file."""
        self._containers -= 1
        if self._containers < 0:
            raise _DamagedError("it makes more containers than a file of its size can fill")
        self._stack.append(made)
        return at

    def push(self, value: Any, at: int) -> int:
        """Put a value on the stack."""
        self._stack.append(value)
        return at

    def put(self, place: int, at: int) -> int:
        """Remember the top of the stack; writers number what they remember from 0."""
        if place > len(self._memo):
            raise _DamagedError(f"it remembers value {place:,} after {len(self._memo):,} others")
        self._memo[place : place + 1] = [self._stack[-1]]
        return at

    def number(self, at: int, width: int) -> int:
        """Return an unsigned number of the file."""
        return int.from_bytes(self._data[at : at + width], "little")

    def slice(self, at: int, width: int) -> tuple[bytes, int]:
        """Return bytes whose length stands before them in the file, and where they end."""
        end = at + width + self.number(at, width)
        if end > len(self._data):
            raise _DamagedError(f"a text of it ends at byte {end:,}")
        return self._data[at + width : end], end

    def text(self, at: int, width: int) -> int:
        """Put a text on the stack."""
        found, end = self.slice(at, width)
        return self.push(found.decode("utf-8", "replace"), end)

    def raw(self, at: int, width: int) -> int:
        """Put bytes on the stack."""
        return self.push(*self.slice(at, width))

    def long(self, at: int, width: int) -> int:
        """Put an integer of any length on the stack."""
        found, end = self.slice(at, width)
        return self.push(int.from_bytes(found, "little", signed=True), end)

    def real(self, at: int) -> int:
        """Put a floating point number on the stack."""
        return self.push(struct.unpack_from(">d", self._data, at)[0], at + 8)

    def tuple(self, count: int | None, at: int) -> int:
        """Make a tuple of the last values, or of those since the mark."""
        items = self._marked() if count is None else self._stack[len(self._stack) - count :]
        if count is not None:
            if len(items) < count:
                raise _DamagedError("a tuple lacks its members")
            del self._stack[len(self._stack) - count :]
        return self.container(tuple(items), at)

    def append(self, at: int) -> int:
        """Add one value to a list."""
        value = self._stack.pop()
        _filled(self._stack[-1], list).append(value)
        return at

    def setitem(self, at: int) -> int:
        """Add one value to a dict."""
        value, key = self._stack.pop(), self._stack.pop()
        _filled(self._stack[-1], dict)[key] = value
        return at


def _filled(value: Any, kind: type[Any]) -> Any:
    if type(value) is not kind:
        raise _DamagedError(f"it fills a {type(value).__name__} like a {kind.__name__}")
    return value


def _refuse(code: int, at: int, label: str) -> None:
    """Say why an instruction is not followed."""
    name = _REFUSED.get(bytes([code]))
    if name is None:
        raise _DamagedError(f"byte {at:,} is no instruction of a memory snapshot: {code:#04x}")
    raise NotATraceError(
        f"{label}: this pickle would make or call something ({name} at byte {at:,}), which a memory snapshot never does; "
        "nothing of it was run."
    )


_RARE: dict[int, Callable[[_Reader, int], int]] = {
    0x80: lambda _, at: at + 1,  # PROTO
    0x95: lambda _, at: at + 8,  # FRAME
    0x7D: lambda reader, at: reader.container({}, at),  # EMPTY_DICT
    0x5D: lambda reader, at: reader.container([], at),  # EMPTY_LIST
    0x29: lambda reader, at: reader.push((), at),  # EMPTY_TUPLE
    0x4D: lambda reader, at: reader.push(reader.number(at, 2), at + 2),  # BININT2
    0x8A: lambda reader, at: reader.long(at, 1),  # LONG1
    0x8B: lambda reader, at: reader.long(at, 4),  # LONG4
    0x47: lambda reader, at: reader.real(at),  # BINFLOAT
    0x4E: lambda reader, at: reader.push(None, at),  # NONE
    0x88: lambda reader, at: reader.push(True, at),  # NEWTRUE
    0x89: lambda reader, at: reader.push(False, at),  # NEWFALSE
    0x58: lambda reader, at: reader.text(at, 4),  # BINUNICODE
    0x8D: lambda reader, at: reader.text(at, 8),  # BINUNICODE8
    0x43: lambda reader, at: reader.raw(at, 1),  # SHORT_BINBYTES
    0x42: lambda reader, at: reader.raw(at, 4),  # BINBYTES
    0x8E: lambda reader, at: reader.raw(at, 8),  # BINBYTES8
    0x61: lambda reader, at: reader.append(at),  # APPEND
    0x73: lambda reader, at: reader.setitem(at),  # SETITEM
    0x71: lambda reader, at: reader.put(reader.number(at, 1), at + 1),  # BINPUT
    0x72: lambda reader, at: reader.put(reader.number(at, 4), at + 4),  # LONG_BINPUT
    0x85: lambda reader, at: reader.tuple(1, at),  # TUPLE1
    0x86: lambda reader, at: reader.tuple(2, at),  # TUPLE2
    0x87: lambda reader, at: reader.tuple(3, at),  # TUPLE3
    0x74: lambda reader, at: reader.tuple(None, at),  # TUPLE
}
"""What the less frequent instructions do: from the reader and the place behind the instruction to the place of the next."""
