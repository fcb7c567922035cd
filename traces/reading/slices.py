"""Where one event ends and the next begins: cutting the event array into pieces that decode on their own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SLICE_BYTES = 16 << 20
"""Decoded at a time. 8 to 32 MB cost the same per byte; smaller ones bound the memory, larger ones the row groups."""

# The end of one event, a comma, and the start of the next. Inside a string or a nested list this can be wrong; such a
# piece does not parse, and the importer then joins it with its neighbour. The key keeps wrong cuts rare.
_BETWEEN = re.compile(rb'\}\s*,\s*(?=\{\s*"(?:ph|name|cat|pid|tid|ts|dur|args|id|bp|s)"\s*:)')
_WINDOWS = (1 << 16, 1 << 20)


@dataclass(frozen=True, slots=True)
class Slice:
    """Whole events, as bytes, without the comma before and after."""

    data: bytes
    offset: int
    """Byte offset of `data` in the uncompressed trace."""
    gap: bytes = b""
    """The comma and white space that follow it."""
    final: bool = False
    """Whether the trace ends with it: the end of the event array and what follows are in it too."""


def boundary(data: bytes | bytearray, stop: int | None = None) -> tuple[int, int] | None:
    r"""Return the last place to cut before `stop`: the end of an event and the start of the next one; None without one.

    >>> boundary(b'{"ph":"X"},\n{"ph":"i"},{"ph":')
    (22, 23)
    """
    end = len(data) if stop is None else min(stop, len(data))
    for window in (*_WINDOWS, end):
        found = list(_BETWEEN.finditer(data, max(0, end - window), end))
        if found:
            return found[-1].start() + 1, found[-1].end()
        if window >= end:
            break
    return None


def sample(data: bytes, windows: int = 16, size: int = 1 << 13) -> bytes:
    r"""Return whole events from places spread over a slice, separated by commas.

    >>> sample(b'{"ph":"X"},{"ph":"i"},{"ph":"s"},{"ph":"f"},{"ph":"M"}', windows=2, size=25)
    b'{"ph":"X"},{"ph":"f"}'
    """
    found = []
    for start in range(0, len(data), max(size, len(data) // windows)):
        cuts = list(_BETWEEN.finditer(data, start, start + size))
        first = 0 if start == 0 else cuts.pop(0).end() if cuts else None
        if first is not None and cuts:
            found.append(data[first : cuts[-1].start() + 1])
    return b",".join(found)


def pieces(whole: Slice, size: int) -> Iterator[Slice]:
    """Cut a slice further, into pieces of about `size` bytes; the last one keeps `final`."""
    data, start = whole.data, 0
    while len(data) - start > size:
        cut = boundary(data[start : start + size])
        if cut is None:
            following = _BETWEEN.search(data, start + size)
            if following is None:
                break
            cut = following.start() + 1 - start, following.end() - start
        yield Slice(data[start : start + cut[0]], whole.offset + start, data[start + cut[0] : start + cut[1]])
        start += cut[1]
    yield Slice(data[start:], whole.offset + start, whole.gap, whole.final)
