"""Sessions: what a worker said, kept as one Parquet trace, from which the same frames can be read again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from .worker.frames import Frame


class Writer:
    """Records a session; use it as a context manager, or `close` it.

    Frames go to a journal beside the session (`PATH.journal`) as they come, so that a crash loses nothing.

    Args:
        path: the Parquet trace to make.
    """

    def __init__(self, path: Path) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def add(self, frame: Frame) -> None:
        """Append a frame."""
        raise NotImplementedError

    def close(self) -> None:
        """Make the Parquet trace and take the journal away."""
        raise NotImplementedError


def frames(path: Path) -> Iterator[Frame]:
    """Yield the frames of a session or of the journal of one that was not closed."""
    raise NotImplementedError


def is_session(path: Path) -> bool:
    """Whether a file is a session, or the journal of one."""
    raise NotImplementedError


def demo() -> Path:
    """Return the session that comes with kinetop."""
    return Path(__file__).with_name("demo.parquet")
