"""Two captures of one rank are told apart in every table that has a row for each; of one alone nothing is said."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import kinetop
from kinetop.analysis.captures import WINDOW
from kinetop.analysis.question import all_questions

if TYPE_CHECKING:
    from pathlib import Path

OPTIONS: dict[str, dict[str, Any]] = {"summary": {"compat": "hta"}, "steps": {"compare": "10:11"}}
"""What asks for the tables that do not come by themselves."""
ELSEWHERE = {"segments"}
"""Tables of memory snapshots."""
POOLED = {"findings"}
"""Tables whose rows stand for several devices, of which they name one."""


@pytest.mark.parametrize("name", all_questions())
def test_each_capture_has_its_rows(name: str, telling: dict[str, kinetop.TraceSet]) -> None:
    question = all_questions()[name]
    wanted = {table.name for table in question.tables if WINDOW in table.columns} - ELSEWHERE
    seen = set()
    for which, one in telling.items():
        options = {} if name == "steps" and which != "69_step_gap_and_overlap.json" else OPTIONS.get(name, {})
        both = kinetop.TraceSet((*one.traces, replace(one.traces[0], window=1)))
        alone, told = question.ask(one, **options).tables, question.ask(both, **options).tables
        for table in wanted & {table for table, rows in alone.items() if not rows.is_empty()}:
            seen.add(table)
            assert "window" not in alone[table].columns
            captures = told[table].partition_by("window", include_key=False, as_dict=True)
            assert sorted(captures) == [(1,), (2,)], (which, table)
            assert all(rows.equals(alone[table]) for rows in captures.values()), (which, table)
    assert seen == wanted


@pytest.mark.parametrize("name", all_questions())
def test_a_row_of_a_rank_says_of_which_capture(name: str) -> None:
    for table in all_questions()[name].tables:
        assert table.name in POOLED or WINDOW in table.columns or "rank" not in {column.name for column in table.columns}


def test_captures_without_gpu_work_are_told_apart(hazards: Path) -> None:
    one = kinetop.open(hazards / "75_cpu_only.json", cache=False)
    both = kinetop.TraceSet((*one.traces, replace(one.traces[0], window=1)))
    assert kinetop.critical_path(both)["window"].to_list() == [1, 2]


def test_a_graph_keeps_its_number_in_every_capture(telling: dict[str, kinetop.TraceSet]) -> None:
    one = telling["52_graph_replay_shared_correlation.json"]
    both = kinetop.TraceSet((*one.traces, replace(one.traces[0], window=1)))
    assert kinetop.graphs(both).select("graph", "replays", "window").rows() == [(1, 2, 1), (1, 2, 2)]


def test_two_steps_are_compared_within_a_capture(telling: dict[str, kinetop.TraceSet]) -> None:
    one = telling["69_step_gap_and_overlap.json"]
    both = kinetop.TraceSet((*one.traces, replace(one.traces[0], window=1)))
    compared = kinetop.steps.ask(both, compare="10:11").tables["compare"]
    assert compared.filter(pl.col("part_of_step") == "wall").select("change_us", "window").rows() == [(5.0, 1), (5.0, 2)]
