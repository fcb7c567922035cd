"""The traces that were opened lately, kept in a small JSON file of the user's state folder."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from platformdirs import user_state_path

FILE_NAME = "recent.json"
KEPT = 50


@dataclass(frozen=True, slots=True)
class RecentTrace:
    """One opened trace or rank set."""

    paths: tuple[str, ...]
    """Absolute paths as the user opened them; a folder is one path."""
    bytes: int
    """Size of the files on disk."""
    opened_s: float
    """When it was opened last, seconds since 1970."""
    events: int
    """Events in it."""
    ranks: int
    """Ranks in it."""

    @classmethod
    def from_dict(cls, data: Any) -> RecentTrace:
        """Rebuild an entry from its JSON value.

        Raises:
            TypeError: the value is not an entry.
            ValueError: a member holds something else than it should.
            KeyError: a member is missing.
        """
        paths = data["paths"]
        if not (isinstance(paths, list) and paths and all(isinstance(path, str) for path in paths)):
            raise ValueError("paths is a list of texts")
        return cls(tuple(paths), int(data["bytes"]), float(data["opened_s"]), int(data["events"]), int(data["ranks"]))


class RecentTraces:
    """The list on disk: newest first, at most `KEPT` entries.

    A list that cannot be read counts as empty, and one that cannot be written is given up: `problem` then says why, once.

    Args:
        folder: where the list lies; None means `KINETOP_STATE_DIR`, else the platform's state folder.
    """

    _said: ClassVar[set[str]] = set()

    def __init__(self, folder: Path | None = None) -> None:
        chosen = os.environ.get("KINETOP_STATE_DIR")
        self.path = (folder or (Path(chosen) if chosen else user_state_path("kinetop"))) / FILE_NAME
        self._problem: str | None = None

    def entries(self) -> list[RecentTrace]:
        """Return the entries, newest first; entries that make no sense are left out."""
        try:
            rows = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            self._meet(f"The list of recent traces cannot be read ({error}); it starts anew.")
            return []
        entries = []
        for row in rows if isinstance(rows, list) else ():
            try:
                entries.append(RecentTrace.from_dict(row))
            except (TypeError, ValueError, KeyError) as error:
                self._meet(f"An entry of the list of recent traces was left out ({type(error).__name__}: {error}).")
        return sorted(entries, key=lambda entry: -entry.opened_s)[:KEPT]

    def add(self, entry: RecentTrace) -> None:
        """Put an entry first, in place of an older one with the same paths."""
        self._write([entry, *(other for other in self.entries() if other.paths != entry.paths)])

    def remove(self, paths: tuple[str, ...]) -> None:
        """Take the entry with these paths off the list."""
        self._write([entry for entry in self.entries() if entry.paths != paths])

    def problem(self) -> str | None:
        """Return what went wrong, unless this process was told the same before."""
        if self._problem is None or self._problem in self._said:
            return None
        self._said.add(self._problem)
        return self._problem

    def _meet(self, sentence: str) -> None:
        self._problem = self._problem or sentence

    def _write(self, entries: list[RecentTrace]) -> None:
        # Written beside and renamed, so that two kinetops or a full disk never leave half a list.
        temporary = None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=self.path.parent, suffix=".part", delete=False) as file:
                temporary = Path(file.name)
                json.dump([asdict(entry) for entry in entries[:KEPT]], file, indent=1)
            temporary.replace(self.path)
        except OSError as error:
            if temporary is not None:
                temporary.unlink(missing_ok=True)
            self._meet(f"The list of recent traces cannot be kept in {self.path.parent}: {error.strerror or error}.")
