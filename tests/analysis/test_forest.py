"""Call trees, against walks from row to row."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from kinetop.analysis.forest import among, ends_among, subtree_ends

ROWS = st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=40)
"""How many of the open rows close before each row begins, and whether it is marked."""


def _parents(rows: list[tuple[int, bool]]) -> list[int | None]:
    opened: list[int] = []
    made: list[int | None] = []
    for row, (closed, _) in enumerate(rows):
        opened = opened[: max(0, len(opened) - closed)]
        made.append(opened[-1] if opened else None)
        opened.append(row)
    return made


def _lies_in(row: int | None, outer: int, parents: list[int | None]) -> bool:
    while row is not None and row != outer:
        row = parents[row]
    return row is not None


@given(ROWS)
def test_a_subtree_ends_behind_the_last_row_that_lies_in_it(rows: list[tuple[int, bool]]) -> None:
    parents = _parents(rows)
    last = [max(row for row in range(len(rows)) if _lies_in(row, outer, parents)) for outer in range(len(rows))]
    assert subtree_ends(pl.Series(parents, dtype=pl.UInt32)).to_list() == [row + 1 for row in last]


@given(ROWS)
def test_the_tree_of_marked_rows_ends_where_its_own_parents_say(rows: list[tuple[int, bool]]) -> None:
    parent, marked = pl.Series(_parents(rows), dtype=pl.UInt32), pl.Series([mark for _, mark in rows])
    assert ends_among(marked, subtree_ends(parent)).to_list() == subtree_ends(among(marked, parent)[1]).to_list()
