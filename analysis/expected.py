"""What should have run against what did: a variant's patterns and the ops and kernels of its windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    """Return a check for every pattern of a trial; empty where no window was taken yet."""
    raise NotImplementedError
