"""Interval algebra against a sweep that looks at every single nanosecond."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinetop.analysis import intervals

KEYS = ["device", "stream"]
row = st.tuples(st.sampled_from([0, 1]), st.sampled_from([None, 7, 20]), st.integers(-5, 20), st.integers(-1, 9))
rows = st.lists(row, max_size=14)


def frame(values: list[tuple[int, int | None, int, int]]) -> pl.DataFrame:
    schema = {"device": pl.Int32, "stream": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64}
    return pl.DataFrame([(d, s, a, a + n) for d, s, a, n in values], schema=schema, orient="row")


def points(made: pl.DataFrame, keys: list[str] = KEYS) -> dict[tuple, set[int]]:
    """Group -> the nanoseconds covered."""
    found: dict[tuple, set[int]] = {}
    for r in made.iter_rows(named=True):
        covered = set(range(r["start_ns"], r["end_ns"]))
        if covered:
            found.setdefault(tuple(r[k] for k in keys), set()).update(covered)
    return found


def disjoint_and_ordered(made: pl.DataFrame) -> bool:
    """No two pieces of a group touch, and all have a length."""
    last: dict[tuple, int] = {}
    for r in made.iter_rows(named=True):
        key = tuple(r[k] for k in KEYS)
        if r["end_ns"] <= r["start_ns"] or r["start_ns"] <= last.get(key, -99):
            return False
        last[key] = r["end_ns"]
    return True


@given(rows)
@settings(max_examples=200, deadline=None)
def test_union_covers_the_same_time_once(a: list) -> None:
    made = intervals.union(frame(a), KEYS)
    assert points(made) == points(frame(a))
    assert disjoint_and_ordered(made)
    assert made.columns == [*KEYS, "start_ns", "end_ns"]
    length = {tuple(r[:2]): r[2] for r in intervals.total(frame(a), KEYS).rows()}
    assert length == {k: len(v) for k, v in points(frame(a)).items()}


@given(rows, rows)
@settings(max_examples=200, deadline=None)
def test_intersect_and_subtract(a: list, b: list) -> None:
    left, right = points(frame(a)), points(frame(b))
    both, only = intervals.intersect(frame(a), frame(b), KEYS), intervals.subtract(frame(a), frame(b), KEYS)
    assert points(both) == {k: v & right[k] for k, v in left.items() if v & right.get(k, set())}
    assert points(only) == {k: v - right.get(k, set()) for k, v in left.items() if v - right.get(k, set())}
    assert disjoint_and_ordered(both)
    assert disjoint_and_ordered(only)


@given(rows, rows)
@settings(max_examples=200, deadline=None)
def test_sweep_counts_what_covers_each_nanosecond(a: list, b: list) -> None:
    counted: dict[tuple, tuple[int, int]] = {}
    for side, values in enumerate((a, b)):
        for r in frame(values).iter_rows():
            for t in range(r[2], r[3]):
                pair = counted.setdefault((*r[:2], t), (0, 0))
                counted[*r[:2], t] = (pair[0] + (side == 0), pair[1] + (side == 1))
    made = {
        (d, s, t): (na, nb)
        for d, s, start, end, na, nb in intervals.sweep({"a": frame(a), "b": frame(b)}, KEYS).iter_rows()
        for t in range(start, end)
    }
    assert made == counted


@given(rows, rows)
@settings(max_examples=200, deadline=None)
def test_covered_is_measured_for_each_interval(a: list, b: list) -> None:
    left, right = (frame([r for r in side if r[1] is not None and r[3] >= 0]) for side in (a, b))
    cover = points(right)
    wanted = [len(set(range(r[2], r[3])) & cover.get(r[:2], set())) for r in left.iter_rows()]
    assert intervals.covered(left, right, KEYS).to_list() == wanted
    alone = points(right.select("start_ns", "end_ns"), []).get((), set())
    assert intervals.covered(left, right).to_list() == [len(set(range(r[2], r[3])) & alone) for r in left.iter_rows()]


@given(rows, st.integers(1, 7))
@settings(max_examples=100, deadline=None)
def test_buckets_split_exactly(a: list, width: int) -> None:
    pieces = intervals.union(frame(a), KEYS)
    made = {tuple(r[:3]): r[3] for r in intervals.buckets(pieces, KEYS, pl.lit(-5), pl.lit(width)).rows()}
    expected: dict[tuple, int] = {}
    for key, covered in points(frame(a)).items():
        for t in covered:
            at = (*key, (t + 5) // width)
            expected[at] = expected.get(at, 0) + 1
    assert made == expected


@given(rows)
@settings(max_examples=50, deadline=None)
def test_without_keys_all_rows_are_one_group(a: list) -> None:
    plain = frame(a).select("start_ns", "end_ns")
    assert points(intervals.union(plain), []) == points(plain, [])
    assert intervals.total(plain).item() == len(points(plain, []).get((), set()))


@given(rows, st.integers(-6, 10), st.integers(0, 12))
@settings(max_examples=100, deadline=None)
def test_clip_keeps_only_time_inside(a: list, low: int, length: int) -> None:
    made = intervals.clip(frame([r for r in a if r[3] >= 0]), pl.lit(low), pl.lit(low + length))
    inside = {k: v & set(range(low, low + length)) for k, v in points(frame(a)).items()}
    assert points(made) == {k: v for k, v in inside.items() if v}
    assert made.filter((pl.col("start_ns") < low) | (pl.col("end_ns") > low + length)).is_empty()


def test_a_name_of_a_set_may_not_hide_a_column() -> None:
    f = frame([(0, 7, 0, 5)])
    with pytest.raises(pl.exceptions.DuplicateError):
        intervals.sweep({"device": f}, KEYS)


@given(rows, rows, rows, rows)
@settings(max_examples=200, deadline=None)
def test_exclusive_gives_each_moment_to_the_first_set_that_covers_it(a: list, b: list, c: list, d: list) -> None:
    asked, keys = frame([(r[0], 7, r[2], max(0, r[3])) for r in a]), ["device"]
    sets = {name: frame(values) for name, values in (("x", b), ("y", c), ("z", d))}
    made = intervals.exclusive(asked, sets, keys)
    covers = {name: points(one, keys) for name, one in sets.items()}
    expected = []
    for one in asked.iter_rows(named=True):
        left, row = set(range(one["start_ns"], one["end_ns"])), []
        for name in sets:
            taken = left & covers[name].get((one["device"],), set())
            row.append(len(taken))
            left -= taken
        expected.append(tuple(row))
    assert made.columns == list(sets)
    assert made.rows() == expected
