"""Statistics against closed values and brute force."""

from __future__ import annotations

import random
import statistics
from itertools import combinations
from math import comb, isnan

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetop.analysis import stats

FINITE = st.floats(-1e6, 1e6, allow_nan=False, width=32)


@given(st.lists(FINITE, min_size=1, max_size=60))
def test_median_and_mad_are_those_of_the_standard_library(values: list[float]) -> None:
    middle = statistics.median(values)
    assert stats.median(pl.Series(values, dtype=pl.Float64)) == pytest.approx(middle, abs=1e-6)
    assert stats.mad(pl.Series(values, dtype=pl.Float64)) == pytest.approx(
        statistics.median(abs(value - middle) for value in values), abs=1e-6
    )


@given(st.lists(FINITE, min_size=2, max_size=60), st.integers(0, 100))
def test_percentiles_interpolate(values: list[float], share_pct: int) -> None:
    place = (len(values) - 1) * share_pct / 100
    ordered = sorted(values)
    low = ordered[int(place)]
    high = ordered[min(int(place) + 1, len(values) - 1)]
    want = low + (high - low) * (place - int(place))
    assert stats.percentile(pl.Series(values, dtype=pl.Float64), share_pct) == pytest.approx(want, abs=1e-3)


def test_no_samples_have_no_figures() -> None:
    none = pl.Series([], dtype=pl.Float64)
    assert isnan(stats.median(none))
    assert isnan(stats.mad(none))
    assert all(map(isnan, stats.bootstrap_interval(none)))
    assert stats.mann_whitney(none, pl.Series([1.0])) == 1.0
    with pytest.raises(ValueError, match="no samples"):
        stats.resampled_medians(none, seed=0)


def test_resampled_medians_follow_their_exact_distribution() -> None:
    """The median of an odd resample is at most the j-th value when at least half of the draws are: a binomial sum."""
    count, resamples = 11, 20_000
    drawn = stats.resampled_medians(pl.Series(range(count)), seed=3, resamples=resamples, block=1)
    need = count // 2 + 1
    for value in range(count):
        share = (value + 1) / count
        exact = sum(comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(need, count + 1))
        assert (drawn <= value).sum() / resamples == pytest.approx(exact, abs=0.015)


def test_equal_seeds_draw_equally() -> None:
    rng = random.Random(1)
    values = pl.Series([rng.gauss(100, 5) for _ in range(40)])
    assert stats.bootstrap_interval(values, seed=4) == stats.bootstrap_interval(values, seed=4)
    assert not stats.resampled_medians(values, seed=4).equals(stats.resampled_medians(values, seed=5))


def test_intervals_hold_the_true_median_about_as_often_as_they_say() -> None:
    rng, held = random.Random(7), 0
    for _ in range(200):
        low, high = stats.bootstrap_interval(pl.Series([rng.gauss(100, 5) for _ in range(40)]), resamples=400)
        held += low <= 100 <= high
    assert 0.86 <= held / 200 <= 1.0


def test_neighbours_that_move_together_widen_the_interval() -> None:
    steps = [value for value in (1.0, 2.0, 1.0, 2.0, 3.0) for _ in range(20)]
    alone = stats.bootstrap_interval(pl.Series(steps), block=1)
    together = stats.bootstrap_interval(pl.Series(steps), block=20)
    assert together[1] - together[0] > alone[1] - alone[0]


def test_drift_is_seen_in_the_order_not_in_the_values() -> None:
    values = [100 + index * 0.5 for index in range(100)]
    assert stats.drift(pl.Series(values)) == pytest.approx(37.5)
    random.Random(2).shuffle(values)
    assert stats.drift(pl.Series(values)) < 20
    assert stats.drift(pl.Series([1, 9, 1, 9])) == 0


@pytest.mark.parametrize("seed", range(6))
def test_mann_whitney_comes_close_to_every_permutation(seed: int) -> None:
    rng = random.Random(seed)
    first = [rng.randint(0, 12) for _ in range(7)]
    second = [rng.randint(0, 12) + seed for _ in range(7)]
    both = first + second

    def distance(chosen: tuple[int, ...]) -> float:
        others = [both[place] for place in range(14) if place not in chosen]
        wins = sum((both[a] > b) + 0.5 * (both[a] == b) for a in chosen for b in others)
        return abs(wins - 24.5)

    seen = distance(tuple(range(7)))
    splits = list(combinations(range(14), 7))
    exact = sum(distance(split) >= seen - 1e-9 for split in splits) / len(splits)
    assert stats.mann_whitney(pl.Series(first), pl.Series(second)) == pytest.approx(exact, abs=0.04)


def test_mann_whitney_of_equal_samples_is_one() -> None:
    assert stats.mann_whitney(pl.Series([5.0] * 20), pl.Series([5.0] * 20)) == 1.0


def test_holm_steps_down_and_never_below_an_earlier_one() -> None:
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert stats.holm([0.9, 0.8]) == [1.0, 1.0]
    assert stats.holm([]) == []
