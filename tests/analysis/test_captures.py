"""Two captures of one rank are told apart in every table that has a row for each; of one alone nothing is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import kinetop
from kinetop.analysis.captures import WINDOW
from kinetop.analysis.question import all_questions

BASELINE = Path(__file__).parents[1] / "data" / "hazards" / "01_baseline_clean.json"


@pytest.mark.parametrize("name", ["summary", "idle", "launches", "series"])
def test_each_capture_has_its_rows(name: str) -> None:
    one = kinetop.open(BASELINE, cache=False)
    both = kinetop.TraceSet((*one.traces, replace(one.traces[0], window=1)))
    question = all_questions()[name]
    alone, told = question.ask(one).tables, question.ask(both).tables
    with_rows = [table.name for table in question.tables if WINDOW in table.columns and not alone[table.name].is_empty()]
    assert with_rows
    for table in with_rows:
        assert "window" not in alone[table].columns
        captures = told[table].partition_by("window", include_key=False, as_dict=True)
        assert sorted(captures) == [(1,), (2,)]
        assert all(rows.drop_nulls("rank").equals(alone[table]) for rows in captures.values())
