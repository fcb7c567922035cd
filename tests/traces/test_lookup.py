"""Rows are found by number, whether the numbers lie close together or far apart."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetop.traces.lookup import rows_of


@pytest.mark.parametrize("spread", [1, 1_000_003])
@given(known=st.lists(st.integers(-50, 50), unique=True), asked=st.lists(st.one_of(st.none(), st.integers(-60, 60))))
def test_each_number_is_found_where_it_stands(spread: int, known: list[int], asked: list[int | None]) -> None:
    at = {number * spread: row for row, number in enumerate(known)}
    wanted = [None if number is None else number * spread for number in asked]
    found = rows_of(pl.Series(wanted, dtype=pl.Int64), pl.Series([*at], dtype=pl.Int64))
    assert found.to_list() == [None if number is None else at.get(number) for number in wanted]


@pytest.mark.parametrize("known", [[2**64 - 1, 2**64 - 3], [0, 2**64 - 1], [5, 4]])
def test_ids_without_sign_are_found(known: list[int]) -> None:
    asked = [0, 4, 2**63, 2**64 - 3, 2**64 - 1]
    found = rows_of(pl.Series(asked, dtype=pl.UInt64), pl.Series(known, dtype=pl.UInt64))
    assert found.to_list() == [known.index(number) if number in known else None for number in asked]


def test_numbers_from_one_end_to_the_other_are_found() -> None:
    known = [-(2**63), 2**63 - 1, 0]
    assert rows_of(pl.Series([0, 1, -(2**63)]), pl.Series(known)).to_list() == [2, None, 0]
