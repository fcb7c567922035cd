"""What the user named, to trace files: folders, archives, Parquet; and the rank that a file's name speaks of."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import NotATraceError, UnreadableError
from .source import detect, members, sniff

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_DEPTH = 4
"""Folders below the named one that are looked into."""
MAX_FILES = 10_000
"""Files looked at in a folder."""

_SUFFIXES = (".json", ".gz", ".zst", ".zip", ".bz2", ".xz", ".parquet", ".trace", ".pt")
_RANK = re.compile(r"(?:^|[^a-z])(?:rank|worker|dp|tp|gpu|node)[-_=. ]?(\d{1,5})(?!\d)", re.IGNORECASE)
_SHORT_RANK = re.compile(r"(?:^|[-_. ])r(\d{1,5})(?=[-_. ])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Input:
    """One trace to open."""

    path: Path
    member: str | None = None
    """Member of a zip archive."""
    is_parquet: bool = False
    rank_hint: int | None = None
    """Rank in the name, when there is one."""

    @property
    def label(self) -> str:
        """The name for people."""
        return self.path.name if self.member is None else f"{self.path.name}:{self.member}"


def rank_in_name(path: Path, member: str | None = None) -> int | None:
    """Return the rank that a name speaks of.

    >>> from pathlib import Path
    >>> [rank_in_name(Path(name)) for name in ("run/rank-10.Jan_01.json", "rank=3/part-0.parquet", "a.json")]
    [10, 3, None]
    """
    names = [member] if member else [path.name, path.parent.name if path.parent.name.startswith("rank=") else ""]
    for name in names:
        for pattern in (re.compile(r"rank[-_=. ]?(\d{1,5})(?!\d)", re.IGNORECASE), _RANK, _SHORT_RANK):
            if found := pattern.search(name):
                return int(found[1])
    return None


def inputs(paths: list[Path]) -> list[Input]:
    """Return the traces that these paths stand for, in natural order of their names.

    Args:
        paths: files and folders.

    Raises:
        UnreadableError: a path is missing, or a folder or archive holds no trace.
    """
    made: list[Input] = []
    for path in paths:
        found = list(_in_folder(path)) if os.path.isdir(path) else _in_file(path)  # noqa: PTH112 - a name too long is no error
        if not found:
            raise NotATraceError(f"{path}: no trace in this folder; traces are .json, .json.gz, .zst, .zip or .parquet files.")
        made += found
    unique = {(item.path.resolve(), item.member): item for item in made}
    return sorted(unique.values(), key=lambda item: natural(str(item.path) + (item.member or "")))


def natural(text: str) -> list[tuple[int, int, str]]:
    """Return a sort key under which 2 comes before 10."""
    return [
        (0, int(part), "") if part.isdecimal() and part.isascii() else (1, 0, part) for part in re.split(r"(\d+)", text) if part
    ]


def _in_file(path: Path) -> list[Input]:
    try:
        with path.open("rb") as stream:
            kind = detect(stream.read(1024))
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror or error}.") from error
    if kind == "zip":
        names = members(path)
        return [Input(path, name, rank_hint=rank_in_name(path, name)) for name in names]
    return [Input(path, is_parquet=kind == "parquet", rank_hint=rank_in_name(path))]


def _in_folder(folder: Path) -> Iterator[Input]:
    for path in _files(folder, MAX_DEPTH):
        if not path.name.lower().endswith(_SUFFIXES):
            continue
        kind = sniff(path)
        if kind == "parquet" or (kind == "trace" and not _is_zip(path)):
            yield Input(path, is_parquet=kind == "parquet", rank_hint=rank_in_name(path))
        elif kind == "trace":
            yield from _in_file(path)


def _is_zip(path: Path) -> bool:
    with path.open("rb") as stream:
        return detect(stream.read(8)) == "zip"


def _files(folder: Path, depth: int) -> Iterator[Path]:
    try:
        found = sorted(folder.iterdir(), key=lambda path: natural(path.name))[:MAX_FILES]
    except OSError as error:
        raise UnreadableError(f"{folder}: {error.strerror or error}.") from error
    for path in found:
        if path.name.startswith("."):
            continue
        if path.is_file():
            yield path
        elif depth > 1 and path.is_dir() and not path.is_symlink():
            yield from _files(path, depth - 1)
