"""Paths as a person meets them: what lies in a folder, what a typed or dropped text names, how it goes on."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

Kind = Literal["folder", "trace", "parquet", "other", "unreadable"]
"""What a path holds."""

KIND_TEXT: dict[Kind, str] = {
    "folder": "folder",
    "trace": "trace",
    "parquet": "Parquet trace",
    "other": "other",
    "unreadable": "not readable",
}
"""How a kind is written in a list."""

OPENABLE: frozenset[Kind] = frozenset({"trace", "parquet"})
"""Kinds of files that can be opened."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder in a listing."""

    path: Path
    kind: Kind | None
    """None for a file that was not looked into yet."""
    bytes: int | None
    """Size on disk; None for a folder."""
    modified_s: float
    """Seconds since 1970."""


def listing(folder: Path) -> list[Entry]:
    """Return what lies in a folder, without looking into any file: folders first, then files, by name.

    Args:
        folder: the folder.

    Raises:
        OSError: the folder cannot be read.
    """
    entries = []
    with os.scandir(folder) as found:
        for item in found:
            if item.name.startswith("."):
                continue
            try:
                stat = item.stat()
                is_folder = item.is_dir()
            except OSError:  # a dangling link, or a file that went away meanwhile
                entries.append(Entry(Path(item.path), "unreadable", None, 0.0))
                continue
            entries.append(
                Entry(Path(item.path), "folder" if is_folder else None, None if is_folder else stat.st_size, stat.st_mtime)
            )
    return sorted(entries, key=lambda entry: (entry.kind != "folder", natural(entry.path.name)))


def natural(name: str) -> list[tuple[int, int, str]]:
    """Return a sort key that puts rank_2 before rank_10.

    Args:
        name: a file name.
    """
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part.casefold()) for part in re.split(r"(\d+)", name) if part]


def kind_of(path: Path) -> Kind:
    """Say what a file holds from its first 64 kB, through any compression, whatever its suffix.

    Args:
        path: a file; a pipe or a device is "other" and is not opened.
    """
    from kinetop.traces.reading.source import sniff  # late: the first frame is drawn before it

    if not path.is_file():
        return "other"
    return sniff(path) if os.access(path, os.R_OK) else "unreadable"


def named_paths(text: str) -> list[Path]:
    """Return the paths that a typed, pasted or dropped text names.

    Quotes, backslashes before blanks, `~`, `$VARS` and `file://` addresses are understood; a path with blanks that exists as it
    stands needs no quotes.

    Args:
        text: what the user entered; several paths are divided by blanks.

    Raises:
        ValueError: a quote is not closed.
    """
    text = text.strip()
    if not text:
        return []
    whole = expanded(text)
    if whole.exists():
        return [whole]
    return [expanded(word) for word in shlex.split(text)]


def expanded(text: str) -> Path:
    """Return the path of a text with `~`, `$VARS` and `file://` resolved.

    Args:
        text: one path, without quotes.
    """
    if text.startswith("file://"):
        text = unquote(urlsplit(text).path)
    return Path(os.path.expandvars(text)).expanduser()


def completions(text: str) -> list[str]:
    """Return the ways in which a path that is being typed can go on, `~` and `$VARS` kept as typed.

    Args:
        text: the beginning of a path.
    """
    typed_folder, slash, beginning = text.rpartition("/")
    folder = expanded(typed_folder + slash) if slash else Path()
    found = []
    for entry in _quietly(folder):
        name = entry.name
        if name.startswith(beginning) and (beginning.startswith(".") or not name.startswith(".")):
            found.append(f"{typed_folder}{slash}{name}{'/' if entry.is_dir() else ''}")
    return sorted(found, key=natural)


def _quietly(folder: Path) -> Iterator[Path]:
    try:
        yield from folder.iterdir()
    except OSError:  # half-typed folder names are the normal case here
        return
