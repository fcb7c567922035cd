"""Innermost ranges against the definition, for nested and crossing ranges of several threads."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from kinetop.traces.nesting import innermost, laid_out

KINDS = {"part": pl.Int32, "process": pl.String, "thread": pl.String}
moments = st.lists(st.tuples(st.sampled_from("abc"), st.integers(-1, 40)), max_size=20)
spans = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 30), st.integers(0, 15)), max_size=30)


@given(moments, spans)
def test_against_the_definition(points: list[tuple[str, int]], ranges: list[tuple[str, int, int]]) -> None:
    rows = [(0, "p", thread, start, start + dur) for thread, start, dur in ranges]
    frame = pl.DataFrame(rows, schema={**KINDS, "start_ns": pl.Int64, "end_ns": pl.Int64}, orient="row")
    at = pl.DataFrame([(0, "p", *point) for point in points], schema={**KINDS, "at_ns": pl.Int64}, orient="row")
    wanted = []
    for thread, time in points:
        around = [
            (start, -end, row) for row, (_, _, lane, start, end) in enumerate(rows) if lane == thread and start <= time < end
        ]
        wanted.append(max(around)[2] if around else None)
    assert innermost(at, frame).to_list() == wanted


def test_moments_without_time_and_threads_without_text() -> None:
    frame = pl.DataFrame({"part": 0, "process": [None], "thread": [None], "start_ns": [0], "end_ns": [9]}, schema_overrides=KINDS)
    at = pl.DataFrame({"part": 0, "process": [None, None], "thread": [None, None], "at_ns": [None, 5]}, schema_overrides=KINDS)
    assert innermost(at, frame).to_list() == [None, 0]


def test_a_long_row_of_siblings_in_one_parent() -> None:
    count = 50_000
    thread = {"part": 0, "process": "p", "thread": "t"}
    frame = pl.DataFrame({**thread, "start_ns": [0, *range(1, 2 * count, 2)], "end_ns": [3 * count, *range(2, 2 * count + 1, 2)]})
    at = pl.DataFrame({**thread, "at_ns": [1, 2, 2 * count - 1, 2 * count]})
    assert innermost(at, frame).to_list() == [1, 0, count, 0]


def test_stamps_at_both_ends_of_64_bits() -> None:
    far = 2**63 - 1
    thread = {"part": 0, "process": "1", "thread": "1"}
    frame = pl.DataFrame({**thread, "start_ns": [-far, 0, far - 5], "end_ns": [far, 10, far]})
    moments = pl.DataFrame({**thread, "at_ns": [-far, 5, 20, far - 3, far]})
    assert innermost(moments, frame).to_list() == [0, 1, 0, 2, None]


def test_threads_are_in_order_of_their_first_range() -> None:
    names = ["main", "autograd", "pin memory", "0", "10", "9"]
    rows = pl.DataFrame(
        {"part": 0, "process": "1", "thread": name, "start_ns": 10 * at, "end_ns": 10 * at + 5} for at, name in enumerate(names)
    )
    assert laid_out(rows)["row"].to_list() == list(range(len(names)))
    assert laid_out(rows)["lane"].to_list() == list(range(len(names)))
