"""What should have run against what did: a variant's patterns and the ops and kernels of its windows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from .seen import Seen

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinetop.traces.live.recording import Recording, Trial


@dataclass(frozen=True, slots=True)
class Check:
    """One pattern of a variant and what was seen of it."""

    pattern: str
    """Regular expression over names of ops and kernels."""
    kind: str
    """`expected`, or `unexpected` for what must not run."""
    names: tuple[str, ...]
    """Names that it fits, the most frequent first."""
    per_step: float
    """How often they ran in a step."""

    @property
    def ok(self) -> bool:
        """Whether what should run ran, or what must not did not."""
        return bool(self.names) == (self.kind == "expected")


def check(recording: Recording, trial: Trial) -> list[Check]:
    """Return a check for every pattern of a trial; empty where no window was taken yet.

    Args:
        recording: what was said so far.
        trial: one of its trials; its `prepared` frame holds the patterns.
    """
    if not trial.windows:
        return []
    return checked(Seen(recording.events(trial.variant, trial.case.text)), trial)


def checked(seen: Seen, trial: Trial) -> list[Check]:
    """Return a check for every pattern of a trial, from events that were read already."""
    names = seen.names
    return [_one(names, pattern, kind) for kind in ("expected", "unexpected") for pattern in _patterns(trial.prepared.get(kind))]


def _patterns(said: object) -> Iterable[str]:
    """Return what of a member can be searched for; a plug-in may say anything."""
    return [text for text in said if isinstance(text, str)] if isinstance(said, list) else []


def _one(names: pl.DataFrame, pattern: str, kind: str) -> Check:
    try:
        tried = re.compile(pattern)
    except re.error:  # not a pattern: then it is a name
        tried = re.compile(re.escape(pattern))
    # The worker's patterns are Python's, and distinct names are few.
    fits = names.filter(pl.Series([bool(tried.search(name)) for name in names["name"]], dtype=pl.Boolean))
    return Check(pattern, kind, tuple(fits["name"]), float(fits["per_step"].sum()))
