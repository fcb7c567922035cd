"""The seal of a Parquet trace: a check sum in its footer, by which damage is told from a file that someone else rewrote.

Parquet has no check sum of its own that Polars looks at: a flipped bit in a page gives other numbers, or ends the process.
"""

from __future__ import annotations

import os
import re
import zlib
from typing import IO, TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

BLANK = "00000000-000000000000"
"""What stands in place of the seal until the file is whole: CRC-32 and size in bytes, as hexadecimal digits."""

State = Literal["whole", "damaged", "unsealed"]
"""`unsealed`: written by another program, which may have copied the seal of the trace it read."""

# How the footer holds our metadata; its own text has no control characters, and what a trace says comes before or inside it.
_PLACE = re.compile(rb'\x07kinetop\x18[\x80-\xff]*[\x00-\x7f]\{"seal": "([0-9a-f]{8}-[0-9a-f]{12})"')
_BLOCK_BYTES = 1 << 20
_END_BYTES = 8


def seal(path: Path) -> None:
    """Put the seal on a Parquet trace that has been written; its metadata begins with `{"seal": "<BLANK>"`.

    Raises:
        ValueError: there is no place for it.
    """
    with path.open("r+b") as file:
        found = _found(file)
        if found is None:
            raise ValueError(f"{path}: its metadata have no place for the seal")
        at, _ = found
        said = _computed(file, at)
        file.seek(at)
        file.write(said.encode())


def state(path: Path) -> State:
    """Say whether a Parquet file is as it was sealed.

    Args:
        path: a Parquet file.
    """
    with path.open("rb") as file:
        found = _found(file)
        if found is None:
            return "unsealed"
        at, said = found
        computed = _computed(file, at)
    if said == computed:
        return "whole"
    return "damaged" if said[9:] == computed[9:] else "unsealed"


def _found(file: IO[bytes]) -> tuple[int, str] | None:
    """Return where the seal stands, and what it says."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _END_BYTES))
    start = max(0, size - _END_BYTES - int.from_bytes(file.read(4), "little"))
    file.seek(start)
    places = list(_PLACE.finditer(file.read()))
    return (start + places[-1].start(1), places[-1][1].decode()) if places else None


def _computed(file: IO[bytes], at: int) -> str:
    """Return the seal that the file should have."""
    total = 0
    left = at
    file.seek(0)
    while left and (block := file.read(min(left, _BLOCK_BYTES))):
        total = zlib.crc32(block, total)
        left -= len(block)
    total = zlib.crc32(BLANK.encode(), total)
    file.seek(at + len(BLANK))
    while block := file.read(_BLOCK_BYTES):
        total = zlib.crc32(block, total)
    return f"{total:08x}-{file.tell():012x}"
