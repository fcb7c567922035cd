"""Recording what is watched: a session file may begin at any moment and still holds all that its frames refer to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .format import clean

if TYPE_CHECKING:
    from pathlib import Path

    from kinetop.traces.live.session import Writer
    from kinetop.traces.live.worker.frames import Frame

STANDING = frozenset({"hello", "state", "prepared"})
"""Frames that hold until another of their kind: a session that begins later starts with the newest of each."""


class Tape:
    """Writes frames to a session file while one is open, and remembers what a file that begins now would lack."""

    def __init__(self) -> None:
        self.path: Path | None = None
        """Session file that is being written."""
        self._writer: Writer | None = None
        self._standing: dict[tuple[str, ...], Frame] = {}
        self._names: dict[str, str] = {}
        """Names of events told since the worker started, by the number that later frames use."""
        self._names_written = True

    def start(self, path: Path) -> None:
        """Begin a session file with what stands.

        Raises:
            OSError: it cannot be written.
        """
        from kinetop.traces.live.session import Writer

        self._writer = Writer(path)
        self.path = path
        for frame in self._standing.values():
            self._writer.add(frame)
        self._names_written = False

    def stop(self) -> None:
        """End the session file, if there is one."""
        writer, self._writer, self.path = self._writer, None, None
        if writer is not None:
            writer.close()

    def add(self, frame: Frame) -> None:
        """Take a frame in."""
        header = frame.header
        if frame.kind in STANDING:
            if frame.kind == "hello":  # another worker counts its names anew
                self._standing.clear()
                self._names = {}
                self._names_written = True
            self._standing[frame.kind, str(header.get("variant")), str(header.get("case"))] = frame
        if frame.kind == "window":
            self._names |= names if isinstance(names := header.get("names"), dict) else {}
        if self._writer is not None:
            self._writer.add(self._whole(frame))

    def _whole(self, frame: Frame) -> Frame:
        """Return a frame with every name it refers to."""
        if frame.kind != "window" or self._names_written:
            return frame
        self._names_written = True
        return replace(frame, header={**frame.header, "names": dict(self._names)})


def reason(error: BaseException) -> str:
    """Return an error in one line."""
    text = clean(str(error), 300)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
