"""What a recording shows that costs time or is wrong, with the evidence and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from kinetop.traces.live.recording import Recording

Level = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know about a variant."""

    code: str
    """Stable name of the rule."""
    variant: str
    case: str
    title: str
    """What is the matter, in a sentence."""
    evidence: str
    """What was seen, with numbers."""
    fix: str
    """What to do about it."""
    level: Level = "warning"


def find(recording: Recording) -> list[Finding]:
    """Return every finding of a recording, errors first."""
    raise NotImplementedError
