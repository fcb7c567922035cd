"""A sweep while the live screen runs: one case after the other through the same worker, and what that has shown so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from kinetop.analysis.sweep import Axis, Choice
    from kinetop.traces.live.worker.case import Case

EFFORT: dict[str, Any] = {"samples": 20, "min_time_ms": 50, "windows": 1}
"""What is measured of each variant on each case: enough to choose by; `kinetop bench --sweep` takes more."""


@dataclass(frozen=True)
class SweepNow:
    """How far a sweep has come, and what it shows."""

    axis: Axis
    cases: tuple[Case, ...]
    variants: tuple[str, ...]
    done: int = 0
    running: bool = False
    cancelled: bool = False
    table: pl.DataFrame | None = None
    """Trials of the cases, as `trials.table` makes it."""
    choice: Choice | None = None
    problem: str = ""


@dataclass
class Sweep:
    """The cases of a sweep and how far it has come; the worker measures them in turn."""

    axis: Axis
    cases: Sequence[Case]
    variants: tuple[str, ...]
    effort: dict[str, Any] = field(default_factory=lambda: dict(EFFORT))
    at: int = -1
    """Place of the case that is measured; as many as there are cases when all are done."""
    cancelled: bool = False

    @property
    def running(self) -> bool:
        """Whether a case is being measured."""
        return 0 <= self.at < len(self.cases) and not self.cancelled

    def next(self) -> Case | None:
        """Go on to the next case; None when there is none."""
        if self.cancelled:
            return None
        self.at += 1
        return self.cases[self.at] if self.at < len(self.cases) else None
