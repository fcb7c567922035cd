"""Whether one set of times is slower than another, or whether noise may explain it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from . import stats
from .trials import ENOUGH

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

THRESHOLD_PCT = 5.0
ALPHA = 0.05
"""Largest p-value, corrected for the number of cases, at which the second opinion agrees."""
NOISE_MADS = 3
"""A difference must exceed this many of the baseline's median deviations."""


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
class Around:
    """What else is known of two sets of times."""

    p: float | None = None
    """p-value of Mann-Whitney, corrected for the number of cases; that of this case alone when None."""
    history_us: Sequence[float] = ()
    """Medians of earlier runs of the baseline."""
    new_mhz: float | None = None
    old_mhz: float | None = None
    """Clocks of the device."""


def time_verdict(
    new_us: pl.Series,
    old_us: pl.Series,
    *,
    threshold_pct: float = THRESHOLD_PCT,
    around: Around = Around(),
    seed: int = 0,
) -> Timing:
    """Compare two sets of times.

    SLOWER needs all of: the bootstrap interval of the ratio of medians lies wholly above 1 + threshold; the medians differ by
    more than `NOISE_MADS` of the baseline's deviations, than the medians of the quarters of either run lie apart, and than the
    medians of earlier runs lie apart; the fastest tenth is slower too (else calls only took a slow way more often); Mann-Whitney
    agrees; the clock was the same. FASTER is the same the other way. SAME: the interval lies wholly within the threshold. All
    else is UNDECIDED, with why.

    Args:
        new_us: undisturbed samples of the run to judge, in the order taken.
        old_us: those of the baseline.
        threshold_pct: change of the median that matters.
        around: what else is known of them.
        seed: of the resamples.

    Example:
        >>> import polars as pl
        >>> old = pl.Series([100.0, 101.0, 99.0, 100.0] * 8)
        >>> time_verdict(old * 1.2, old).outcome, time_verdict(old, old).outcome
        ('SLOWER', 'SAME')
    """
    few = min(len(new_us), len(old_us))
    if few < ENOUGH:
        which = "this run" if len(new_us) == few else "the baseline"
        return Timing("UNDECIDED", f"only {few} undisturbed samples in {which}")
    new, old = stats.median(new_us), stats.median(old_us)
    low, high = stats.ratio_interval(new_us, old_us, seed=seed)
    spread = max(around.history_us) - min(around.history_us) if around.history_us else 0.0
    noise = max(NOISE_MADS * stats.mad(old_us), stats.drift(new_us) + stats.drift(old_us), spread)
    p = stats.mann_whitney(new_us, old_us) if around.p is None else around.p
    found = Timing("UNDECIDED", "", old, new, new / old, low, high, noise, p)
    up = 1 + threshold_pct / 100
    if 1 / up <= low and high <= up:
        return replace(found, outcome="SAME")
    if low <= up and high >= 1 / up:
        return replace(found, why=f"the interval {low:.3f} to {high:.3f} spans the threshold")
    slower = low > up
    tenths = stats.percentile(new_us, 10) / stats.percentile(old_us, 10)
    doubts = (
        (abs(new - old) <= noise, f"that is {abs(new - old):,.1f} µs and the noise is {noise:,.1f} µs"),
        (tenths <= up if slower else tenths >= 1 / up, "the fastest tenth of the calls is not"),
        (p > ALPHA, f"Mann-Whitney does not agree (p {p:.3f})"),
        (_other_clock(around, up), f"the clock was {around.new_mhz} MHz, in the baseline {around.old_mhz} MHz"),
    )
    if doubt := next((why for holds, why in doubts if holds), None):
        return replace(found, why=f"{'slower' if slower else 'faster'} by {abs(new / old - 1):.1%}, but {doubt}")
    return replace(found, outcome="SLOWER" if slower else "FASTER")


def _other_clock(around: Around, limit: float) -> bool:
    if not around.new_mhz or not around.old_mhz:
        return False
    return max(around.new_mhz, around.old_mhz) / min(around.new_mhz, around.old_mhz) > limit
