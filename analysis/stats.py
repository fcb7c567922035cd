"""Statistics of noisy times: medians, spread, intervals by resampling, and whether two sets of samples differ."""

from __future__ import annotations

from itertools import pairwise
from math import ceil, erfc, sqrt
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Sequence

RESAMPLES = 2_000
_MOST_DRAWN = 2_000_000
"""Values drawn at most for one interval; many samples need fewer resamples."""
_FEWEST_RESAMPLES = 200
_PARTS = 4


def percentile(values: pl.Series, share_pct: float) -> float:
    """Return a percentile, interpolated between neighbours; NaN for no values.

    Args:
        values: numbers.
        share_pct: percent of the values below it, 0 to 100.

    Example:
        >>> percentile(pl.Series([4, 1, 3, 2]), 50)
        2.5
    """
    found = values.quantile(share_pct / 100, "linear")
    return float("nan") if found is None else float(found)


def median(values: pl.Series) -> float:
    """Return the median; NaN for no values.

    Example:
        >>> median(pl.Series([5, 1, 3]))
        3.0
    """
    return percentile(values, 50)


def mad(values: pl.Series) -> float:
    """Return the median distance from the median (not scaled to a standard deviation); NaN for no values.

    Example:
        >>> mad(pl.Series([1, 2, 3, 4, 100]))
        1.0
    """
    return median((values.cast(pl.Float64) - median(values)).abs())


def drift(values: pl.Series) -> float:
    """Return how far the medians of four successive parts lie apart: what the machine did while nothing else changed.

    Args:
        values: numbers in the order they were taken; fewer than eight have no parts worth a median.

    Example:
        >>> drift(pl.Series([1, 1, 1, 1, 1, 1, 3, 3]))
        2.0
    """
    count = len(values)
    if count < 2 * _PARTS:
        return 0.0
    edges = [count * part // _PARTS for part in range(_PARTS + 1)]
    medians = [median(values.slice(begin, end - begin)) for begin, end in pairwise(edges)]
    return max(medians) - min(medians)


def resampled_medians(values: pl.Series, *, seed: int, resamples: int = RESAMPLES, block: int | None = None) -> pl.Series:
    """Return medians of samples drawn from the values with replacement.

    Args:
        values: numbers in the order they were taken, at least one.
        seed: equal seeds draw equally.
        resamples: how many; fewer where the values are many.
        block: neighbours drawn together, since what slows one call often slows the next; the cube root of their number when None.

    Raises:
        ValueError: there are no values.
    """
    count = len(values)
    if not count:
        raise ValueError("no samples to draw from")
    width = min(count, max(1, round(count ** (1 / 3)) if block is None else block))
    starts = ceil(count / width)
    resamples = min(resamples, max(_FEWEST_RESAMPLES, _MOST_DRAWN // count))
    begin = pl.int_range(count, eager=True).sample(resamples * starts, with_replacement=True, seed=seed)
    place = pl.int_range(resamples * starts * width, eager=True)
    drawn = values.cast(pl.Float64).gather((begin.gather(place // width) + place % width) % count)
    return drawn.reshape((resamples, starts * width)).arr.median()


def bootstrap_interval(
    values: pl.Series,
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
    confidence_pct: float = 95,
    block: int | None = None,
) -> tuple[float, float]:
    """Return the interval that holds the median in `confidence_pct` of resamples.

    Args:
        values: numbers in the order they were taken; without any the ends are NaN.
        seed: equal seeds give equal intervals.
        resamples: how many samples are drawn.
        confidence_pct: percent of them inside.
        block: neighbours drawn together; see `resampled_medians`.

    Example:
        >>> bootstrap_interval(pl.Series([7.0] * 30))
        (7.0, 7.0)
    """
    if values.is_empty():
        return float("nan"), float("nan")
    return _inside(resampled_medians(values, seed=seed, resamples=resamples, block=block), confidence_pct)


def ratio_interval(new: pl.Series, old: pl.Series, *, seed: int = 0, confidence_pct: float = 95) -> tuple[float, float]:
    """Return the bootstrap interval of median(new) / median(old).

    Args:
        new: samples, at least one, in the order they were taken.
        old: samples, at least one, of another run.
        seed: equal seeds give equal intervals.
        confidence_pct: percent of the resamples inside.

    Raises:
        ValueError: one of them is empty.

    Example:
        >>> ratio_interval(pl.Series([3.0] * 9), pl.Series([2.0] * 9))
        (1.5, 1.5)
    """
    above, below = resampled_medians(new, seed=seed), resampled_medians(old, seed=seed + 1)
    count = min(len(above), len(below))
    return _inside(above.head(count) / below.head(count), confidence_pct)


def _inside(drawn: pl.Series, confidence_pct: float) -> tuple[float, float]:
    tail_pct = (100 - confidence_pct) / 2
    return percentile(drawn, tail_pct), percentile(drawn, 100 - tail_pct)


def mann_whitney(first: pl.Series, second: pl.Series) -> float:
    """Return the two-sided p-value that two sets of samples come from one distribution (normal approximation, ties corrected).

    Args:
        first: samples.
        second: samples.

    Example:
        >>> round(mann_whitney(pl.Series([1, 2, 3, 4, 5]), pl.Series([6, 7, 8, 9, 10])), 4)
        0.0122
    """
    few, many, both = len(first), len(second), len(first) + len(second)
    if not few or not many:
        return 1.0
    pooled = pl.concat([first.cast(pl.Float64), second.cast(pl.Float64)])
    ranks = pooled.rank("average")
    u = float(ranks.head(few).sum()) - few * (few + 1) / 2
    ties = pooled.value_counts().to_series(1).cast(pl.Float64)
    tied = float((ties**3 - ties).sum()) / (both * (both - 1))
    variance = few * many / 12 * (both + 1 - tied)
    if variance <= 0:
        return 1.0
    distance = max(0.0, abs(u - few * many / 2) - 0.5)
    return erfc(distance / sqrt(variance) / sqrt(2))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for how many were looked at (Holm's step-down), in the order given.

    Args:
        p_values: one for each case.

    Example:
        >>> holm([0.25, 0.0625, 0.125])
        [0.25, 0.1875, 0.25]
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected, largest = [0.0] * len(p_values), 0.0
    for place, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[index]))
        corrected[index] = largest
    return corrected
