"""The journal of a session that is being recorded: the frames as a worker sends them, one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..report import Notice
from .members import UnusableError
from .worker.frames import CODES, MAX_BODY_BYTES, MAX_HEADER_BYTES, Frame, FrameError, Reader, pack

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_BLOCK_BYTES = 1 << 20
_TYPES = {code: name for name, code in CODES.items()}


def packed(frame: Frame) -> bytes:
    """Return a frame's bytes as a worker would send them.

    Raises:
        UnusableError: it cannot be sent.
    """
    columns = {name: (_TYPES.get(values.typecode, ""), values) for name, values in frame.columns.items()}
    header = frame.header
    if header.get("columns") and not columns:
        header = {key: value for key, value in header.items() if key != "columns"}
    try:
        data = pack(header, columns, frame.body)
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UnusableError(f"a frame that cannot be sent ({type(error).__name__})") from error
    header_bytes, body_bytes = sizes(data)
    if header_bytes > MAX_HEADER_BYTES or body_bytes > MAX_BODY_BYTES:
        raise UnusableError("a frame that is too long")
    return data


def sizes(data: bytes) -> tuple[int, int]:
    """Return the bytes of a packed frame's header and body."""
    return int.from_bytes(data[4:8], "little"), int.from_bytes(data[8:12], "little")


def frames(path: Path, notices: list[Notice]) -> Iterator[Frame]:
    """Yield the frames of a journal up to where it breaks off or is damaged.

    Args:
        path: the journal.
        notices: gets what there was to note.
    """
    reader, size = Reader(), path.stat().st_size
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                yield from reader.feed(block)
    except FrameError as error:
        said = f"The journal is damaged ({error}); what follows is left out."
        notices.append(Notice("damaged-journal", 1, said))
        return
    if reader.waiting:
        said = f"The journal ends in the middle of a frame; its last {reader.waiting:,} of {size:,} bytes are left out."
        notices.append(Notice("truncated-journal", 1, said, size - reader.waiting))
