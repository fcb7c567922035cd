"""What a recording shows that costs time or is wrong, with the evidence and what to do about it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

from .live_rules import RULES, Evidence, Subject
from .seen import Seen

if TYPE_CHECKING:
    from kinetop.traces.live.names import Window
    from kinetop.traces.live.recording import Recording, Trial

Level = Literal["error", "warning", "info"]
_LEVELS = ("error", "warning", "info")
_TEXTS = Path(__file__).parent / "rules" / "live.toml"


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


def find(recording: Recording, variant: str | None = None, case: str | None = None) -> list[Finding]:
    """Return every finding of a recording, errors first.

    Args:
        recording: what was said so far.
        variant: only about this one.
        case: only about the case with this text.
    """
    trials = [trial for (name, text), trial in recording.trials.items() if variant in (None, name) and case in (None, text)]
    found = [finding for trial in trials for finding in _of_trial(recording, trial)]
    return sorted(found, key=lambda finding: _LEVELS.index(finding.level))


def _of_trial(recording: Recording, trial: Trial) -> list[Finding]:
    subject = Subject(trial, seen(recording, trial), tuple(recording.log))
    found = ((code, rule(subject)) for code, rule in RULES.items())
    return [_finding(code, evidence, trial) for code, evidence in found if evidence is not None]


_kept: WeakKeyDictionary[Window, tuple[int, Seen]] = WeakKeyDictionary()
"""By the newest window how many there were, and what they show: a live screen asks often, and windows come every few seconds."""


def seen(recording: Recording, trial: Trial) -> Seen | None:
    """Return what the windows of a trial show, read once; None where there are none.

    Args:
        recording: what was said so far.
        trial: one of its trials.
    """
    if not trial.windows:
        return None
    *older, newest = trial.windows
    count, found = _kept.get(newest, (0, None))
    if found is None or count != len(trial.windows):
        found = Seen(recording.events(trial.variant, trial.case.text))
        _kept[newest] = len(trial.windows), found
        for window in older:
            _kept.pop(window, None)
    return found


@cache
def _texts() -> dict[str, dict[str, Any]]:
    return tomllib.loads(_TEXTS.read_text(encoding="utf-8"))


def _finding(code: str, evidence: Evidence, trial: Trial) -> Finding:
    text = _texts()[code]
    title, fix = (text[key].format(**evidence.words) for key in ("title", "fix"))
    return Finding(code, trial.variant, trial.case.text, title, evidence.text, fix, text["level"])
