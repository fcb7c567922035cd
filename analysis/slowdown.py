"""Whether one set of times is slower than another, or whether noise may explain it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from . import stats
from .trials import ENOUGH

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

THRESHOLD_PCT = 5.0
ALPHA = 0.05
"""Largest p-value, corrected for the number of cases, at which the second opinion agrees."""
NOISE_MADS = 3
"""A difference must exceed this many of the baseline's median deviations."""
MOST_DISTURBED_PCT = 25
"""Where more samples are known to be disturbed, the others are not trusted either."""


@dataclass(frozen=True)
class Timing:
    """How the times of a case compare."""

    outcome: Literal["FASTER", "SAME", "SLOWER", "UNDECIDED"]
    why: str = ""
    """Why it is undecided."""
    old_us: float | None = None
    new_us: float | None = None
    """Medians."""
    ratio: float | None = None
    """New median over old median; above 1 is slower."""
    low: float | None = None
    high: float | None = None
    """Bootstrap 95 % interval of the ratio."""
    noise_us: float | None = None
    """What a difference must exceed."""
    p: float | None = None
    """Mann-Whitney, corrected for the number of cases."""


@dataclass(frozen=True)
class Times:
    """The samples of one trial."""

    us: pl.Series
    """All of them, microseconds, in the order taken."""
    disturbed: frozenset[int] = frozenset()
    """Positions of those that were throttled or contended."""
    mhz: float | None = None
    """Clock of the device."""

    @classmethod
    def of(cls, trial: Mapping[str, Any]) -> Times:
        """Return the times of a trial of a bench document."""
        us = pl.Series(trial["samples_ns"], dtype=pl.Int64) / 1000
        clock = (trial.get("timing") or {}).get("clock_mhz")
        return cls(us, frozenset([*trial["throttled"], *trial["contended"]]), clock)

    @cached_property
    def kept(self) -> pl.Series:
        """The samples that nothing is known to have disturbed."""
        return self.us.gather([at for at in range(len(self.us)) if at not in self.disturbed])

    @property
    def why_not(self) -> str:
        """Why they are not enough to tell; nothing where they are."""
        if len(self.kept) < ENOUGH:
            return f"only {len(self.kept)} undisturbed samples"
        share_pct = 100 * (1 - len(self.kept) / len(self.us))
        return f"{share_pct:.0f} % of the samples were disturbed" if share_pct > MOST_DISTURBED_PCT else ""


def time_verdict(
    new: Times,
    old: Times,
    *,
    threshold_pct: float = THRESHOLD_PCT,
    p: float | None = None,
    history_us: Sequence[float] = (),
    seed: int = 0,
) -> Timing:
    """Compare two sets of times, by their undisturbed samples.

    SLOWER needs all of: the bootstrap interval of the ratio of medians lies wholly above 1 + threshold; the medians differ by
    more than the noise (`noise_us`); the fastest tenth is slower too (else calls only took a slow way more often); Mann-Whitney
    agrees; the clock was the same. FASTER is the same the other way. SAME: the interval lies wholly within the threshold. All
    else is UNDECIDED, with why; so is all where few samples are undisturbed, since marks come once a second and miss some.

    Args:
        new: of the run to judge.
        old: of the baseline.
        threshold_pct: change of the median that matters.
        p: p-value of Mann-Whitney, corrected for the number of cases; that of this case alone when None.
        history_us: medians of the baseline's runs, where there are several.
        seed: of the resamples.

    Example:
        >>> old = pl.Series([100.0, 101.0, 99.0, 100.0] * 8)
        >>> time_verdict(Times(old * 1.2), Times(old)).outcome, time_verdict(Times(old), Times(old)).outcome
        ('SLOWER', 'SAME')
    """
    for which, times in (("this run", new), ("the baseline", old)):
        if times.why_not:
            return Timing("UNDECIDED", f"{times.why_not} in {which}")
    now, before = stats.median(new.kept), stats.median(old.kept)
    low, high = stats.ratio_interval(new.kept, old.kept, seed=seed)
    p = stats.mann_whitney(new.kept, old.kept) if p is None else p
    found = Timing("UNDECIDED", "", before, now, now / before, low, high, noise_us(new, old, history_us), p)
    up = 1 + threshold_pct / 100
    if 1 / up <= low and high <= up:
        return replace(found, outcome="SAME")
    if low <= up and high >= 1 / up:
        return replace(found, why=f"the interval {low:.3f} to {high:.3f} spans the threshold")
    if doubt := _doubt(found, new, old, up):
        return replace(found, why=f"{'slower' if low > up else 'faster'} by {abs(now / before - 1):.1%}, but {doubt}")
    return replace(found, outcome="SLOWER" if low > up else "FASTER")


def noise_us(new: Times, old: Times, history_us: Sequence[float] = ()) -> float:
    """Return what a difference of medians must exceed, in microseconds.

    The largest of: `NOISE_MADS` of the baseline's median deviations, how far the medians of the quarters of both runs lie apart,
    and how far the medians of earlier runs do. Disturbed samples count here: they show how uneasy the machine was.

    Args:
        new: of the run to judge.
        old: of the baseline.
        history_us: medians of the baseline's runs, where there are several.
    """
    drifts = [max(stats.drift(times.kept), stats.drift(times.us)) for times in (new, old)]
    spread = max(history_us) - min(history_us) if history_us else 0.0
    return max(NOISE_MADS * stats.mad(old.kept), NOISE_MADS * stats.mad(old.us), sum(drifts), spread)


def _doubt(found: Timing, new: Times, old: Times, up: float) -> str:
    """Return what speaks against a difference that the interval shows; nothing where all agrees."""
    now, before, noise, p = found.new_us or 0.0, found.old_us or 0.0, found.noise_us or 0.0, found.p or 0.0
    tenths = stats.percentile(new.kept, 10) / stats.percentile(old.kept, 10)
    if abs(now - before) <= noise:
        return f"that is {abs(now - before):,.1f} µs and the noise is {noise:,.1f} µs"
    if tenths <= up if now > before else tenths >= 1 / up:
        return "the fastest tenth of the calls is not"
    if p > ALPHA:
        return f"Mann-Whitney does not agree (p {p:.3f})"
    if new.mhz and old.mhz and max(new.mhz, old.mhz) / min(new.mhz, old.mhz) > up:
        return f"the clock was {new.mhz:,.0f} MHz, in the baseline {old.mhz:,.0f} MHz"
    return ""
