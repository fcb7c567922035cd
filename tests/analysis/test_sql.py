"""SQL over a trace: the tables are there, and nothing but reading them is possible."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import kinetop
from kinetop.analysis.sql import query, tables
from kinetop.traces.errors import FilterError

if TYPE_CHECKING:
    from pathlib import Path

    from kinetop.traces.trace import TraceSet


@pytest.fixture
def trace(hazards: Path) -> TraceSet:
    return kinetop.open(hazards / "01_baseline_clean.json")


def test_events_are_all_there(trace: TraceSet) -> None:
    assert query(trace, "select count(*) as n, min(rank) as rank, max(part) as part from events").rows() == [(28, 0, 0)]
    assert query(trace, "select name from events where cat = 'cpu_op'").rows() == [("aten::linear",)]


def test_ranks_lie_in_one_table(hazards: Path) -> None:
    two = kinetop.open(hazards / "85_clock_skew")
    rows = query(two, "select rank, part, count(*) > 0 as some from events group by all order by rank").rows()
    assert rows == [(0, 0, True), (1, 1, True)]


def test_gpu_work_is_classified(trace: TraceSet) -> None:
    sql = "select class, count(*) as n, sum(dur_ns) as dur_ns from gpu group by class order by class"
    assert query(trace, sql).rows() == [("comm", 1, 40_000), ("compute", 4, 85_000), ("memory", 1, 10_000)]
    assert query(trace, sql.replace("gpu", "activities")).equals(query(trace, sql))


def test_every_named_table_answers(trace: TraceSet) -> None:
    answered = set()
    for name in tables():
        try:
            assert query(trace, f"select * from {name} limit 1").width > 0, name
            answered.add(name)
        except FilterError as error:
            assert "is made only with an option of `kinetop " in str(error), name
    assert answered >= {"events", "activities", "launches", "devices", "kernels", "gaps", "steps", "ops", "findings"}


def test_a_table_that_an_option_makes_is_named(trace: TraceSet) -> None:
    with pytest.raises(FilterError, match="option of `kinetop summary`"):
        query(trace, "select * from hta")


def test_a_question_s_table_is_the_question_s_answer(trace: TraceSet) -> None:
    assert query(trace, "select * from devices").equals(kinetop.summary(trace))


def test_python_variables_are_no_tables(trace: TraceSet) -> None:
    secret = kinetop.summary(trace)
    with pytest.raises(FilterError, match="secret"):
        query(trace, "select * from secret")
    assert secret.height == 1


@pytest.mark.parametrize(
    "sql",
    [
        "select * from read_csv('{file}')",
        "select * from '{file}'",
        "select * from read_text('{file}')",
        "select * from read_parquet('{file}')",
        "select * from glob('/*')",
        "copy (select 1) to '{file}'",
        "copy events to '{file}'",
        "export database '{file}'",
        "attach '{file}'",
        "install httpfs",
        "load '{file}'",
        "set enable_external_access = true",
        "pragma enable_profiling",
        "create table t (a int)",
        "select 1; select 2",
        "select 1; copy (select 1) to '{file}'",
        "",
        "-- nothing",
        "selct 1",
        "select nme from gpu",
        "select * from nowhere",
        "select cast('x' as integer)",
        "select 1 as a, 2 as a",
        "select interval 1 month as a",
        "select '\udcff'",
    ],
)
def test_refuses(trace: TraceSet, tmp_path: Path, sql: str) -> None:
    file = tmp_path / "secret.csv"
    file.write_text("a,b\n1,2\n")
    with pytest.raises(FilterError):
        query(trace, sql.format(file=file))
    assert file.read_text() == "a,b\n1,2\n"
    assert list(tmp_path.iterdir()) == [file]


def test_says_where(trace: TraceSet) -> None:
    with pytest.raises(FilterError) as caught:
        query(trace, "select 1 frm gpu gpu")
    assert caught.value.position == len("select 1 frm ")
