"""The members met so far in a trace: what is asked of the JSON reader, and what it is renamed to."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .columns import ARGS, HEAD_ID, HEAD_TEXT, HEAD_TIME, NULL_MARK
from .tally import Refused

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_EXTRA = 64
"""Unknown members that get a column while decoding; a trace with more names than that goes event by event."""
MAX_NULLABLE = 8
"""Members that may be null; each costs a pass over the bytes of every slice."""
MAX_LENGTH = 200
"""Longest name that is asked for."""

_HEAD = frozenset({*HEAD_TEXT, *HEAD_ID, *HEAD_TIME, "args"})


@dataclass(frozen=True, slots=True)
class Asked:
    """What one attempt at a slice asks for."""

    args: tuple[str, ...] = ()
    """Members of `args` that have a column."""
    extra_args: tuple[str, ...] = ()
    """Members of `args` that have none."""
    extra_head: tuple[str, ...] = ()
    """Other members of events that have none."""
    loose: frozenset[str] = frozenset()
    """Members of `args` that are not always of their column's kind ("7" for 7), or beyond 2^53: read as JSON text."""
    quoted_times: bool = False
    """Whether times are written as text, as some exporters do."""
    nullable: tuple[str, ...] = ()
    """Members of `args` that are null here and there: the reader does not tell that from absent, so that the null gets a name."""

    def renames(self) -> dict[str, str]:
        """Return new names for members that differ from an earlier one in case only: a DuckDB struct cannot hold both."""
        seen: Counter[str] = Counter()
        made = {}
        for key in (*self.args, *self.extra_args):
            seen[key.lower()] += 1
            if seen[key.lower()] > 1:
                made[key] = f"{key}~{seen[key.lower()]}"
        return made


class Keys:
    """What has been met so far, shared by the decoders of a trace."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.learning = threading.Lock()
        """Held while a decoder looks at what is new, so that the others wait for what it finds."""
        self._seen: set[bytes] = set()
        self.now = Asked()
        """What to ask for from here on."""

    def news(self, names: Iterable[bytes]) -> bool:
        """Whether some of these names were not asked about before."""
        with self._lock:
            before = len(self._seen)
            self._seen.update(names)
            return len(self._seen) > before

    def add(self, head: Iterable[str], args: Iterable[str]) -> None:
        """Take in the members of a slice.

        Args:
            head: members of its events.
            args: members of their `args`.

        Raises:
            Refused: there are too many unknown names, or odd ones.
        """
        with self._lock:
            now = self.now
            known_args = {*now.args, *now.extra_args, *(key + NULL_MARK for key in now.nullable)}
            new_args = [key for key in args if key not in known_args]
            new_head = [key for key in head if key not in _HEAD and key not in now.extra_head]
            if any(len(key) > MAX_LENGTH or not key.isprintable() or key.endswith(NULL_MARK) for key in (*new_args, *new_head)):
                raise Refused("a member with an odd name")
            known = tuple(key for key in new_args if key in ARGS)
            unknown = tuple(key for key in new_args if key not in ARGS)
            made = replace(
                now, args=now.args + known, extra_args=now.extra_args + unknown, extra_head=now.extra_head + tuple(new_head)
            )
            if len(made.extra_args) + len(made.extra_head) > MAX_EXTRA:
                raise Refused("too many unknown members")
            self.now = made

    def allow_null(self, keys: Iterable[str]) -> None:
        """Note members that are null here and there."""
        with self._lock:
            new = [key for key in keys if key not in self.now.nullable]
            if len(self.now.nullable) + len(new) <= MAX_NULLABLE and all(key.isprintable() for key in new):
                self.now = replace(self.now, nullable=self.now.nullable + tuple(new))

    def loosen(self, keys: Iterable[str], *, quoted_times: bool) -> None:
        """Note members that are of mixed kinds, and that times are quoted."""
        with self._lock:
            self.now = replace(self.now, loose=self.now.loose | set(keys), quoted_times=self.now.quoted_times or quoted_times)
