"""What holds for every table of every question: the form declared, nothing absurd in it, and the same rows when asked twice."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import kinetop
from kinetop.analysis.question import DECIMALS, Column, all_questions
from kinetop.traces.errors import TraceError
from kinetop.traces.synthetic import Plan, write

if TYPE_CHECKING:
    from collections.abc import Iterator

HAZARDS = Path(__file__).parents[1] / "data" / "hazards"
KINDS: dict[str, tuple[type[pl.DataType], ...]] = {
    "us": (pl.Float64,),
    "pct": (pl.Float64,),
    "ratio": (pl.Float64,),
    "GB/s": (pl.Float64,),
    "number": (pl.Float64, pl.Int64),
    "ns": (pl.Int64,),
    "count": (pl.Int64,),
    "bytes": (pl.Int64,),
    "id": (pl.Int64, pl.Int32, pl.UInt64),
    "text": (pl.String,),
    "flag": (pl.Boolean,),
}
"""What the values of a unit are kept in."""


def hazards() -> list[Any]:
    return [pytest.param(path, id=path.stem) for path in sorted(HAZARDS.glob("[0-9]*"))]


def answers(trace: kinetop.TraceSet) -> Iterator[tuple[str, tuple[Column, ...], pl.DataFrame]]:
    """Yield each table of each question with its declaration."""
    for name, question in all_questions().items():
        found = question.ask(trace).tables
        for table in question.tables:
            if table.name in found:
                yield f"{name} {table.name}", table.columns, found[table.name]


def faults(column: Column, values: pl.Series) -> Iterator[str]:
    """Yield what is wrong with the values of a column."""
    if values.dtype not in KINDS[column.unit]:
        yield f"{values.dtype} for {column.unit}"
    known = values.drop_nulls()
    if known.dtype.is_float():
        decimals = DECIMALS.get(column.unit) if column.decimals is None else column.decimals
        if not known.is_finite().all():
            yield "not finite"
        elif decimals is not None and not known.round(decimals).equals(known):
            yield f"more than {decimals} decimals"
    if known.is_empty() or column.free or column.unit not in {"us", "pct", "ns", "count", "GB/s"}:
        return
    if known.min() < 0 or (column.unit == "pct" and known.max() > 100 + 1e-9):
        yield f"{known.min()} to {known.max()} {column.unit}"


@pytest.mark.parametrize("path", hazards())
def test_every_column_is_as_declared(path: Path) -> None:
    try:
        trace = kinetop.open(path)
    except TraceError as error:
        pytest.skip(f"not a trace: {error}")
    found = []
    for where, columns, rows in answers(trace):
        assert rows.columns == [column.name for column in columns if column.name in rows.columns], where
        missing = {column.name for column in columns} - {*rows.columns}
        assert missing <= {"window"}, where
        found += [
            f"{where} {column.name}: {fault}"
            for column in columns
            if column.name in rows.columns
            for fault in faults(column, rows[column.name])
        ]
    assert not found


ASK = """
import hashlib, sys
import kinetop
from kinetop.analysis.question import all_questions
trace = kinetop.open(sys.argv[1:])
for name, question in all_questions().items():
    for table, rows in question.ask(trace).tables.items():
        print(name, table, rows.height, hashlib.sha256(rows.write_json().encode()).hexdigest())
"""
"""Prints a digest of each table: its rows, in their order."""


def test_rows_come_in_the_same_order_when_asked_twice(tmp_path: Path) -> None:
    """Also with one thread, of which groups come in another order than of many."""
    written = write(Plan(ranks=2, causes=("sync", "lost-flash")), tmp_path)
    paths = [str(one.path) for one in written]
    said = {}
    for run, threads in (("first", {}), ("second", {}), ("one thread", {"POLARS_MAX_THREADS": "1"})):
        command = [sys.executable, "-c", ASK, *paths]
        done = subprocess.run(command, env={**os.environ, **threads}, capture_output=True, text=True, check=True)
        said[run] = done.stdout.splitlines()
    assert len(said["first"]) > len(all_questions())
    assert said["first"] == said["second"] == said["one thread"]


MOMENTS = {"start_us", "end_us", "peak_us", "peak_reserved_us", "allocated_us", "freed_us", "longest_start_us"}
"""Times that count from the first event."""
SKEW_US = 50.0


def test_which_times_are_moments() -> None:
    for question in all_questions().values():
        for table in question.tables:
            for column in table.columns:
                assert column.name in MOMENTS or "since the first event" not in column.about, (question.name, column.name)


@pytest.mark.parametrize("name", all_questions())
def test_moments_are_on_the_first_ranks_clock(name: str, telling: dict[str, kinetop.TraceSet]) -> None:
    """The same trace twice, once with a clock that runs ahead: all that it says happened that much earlier, and comes first."""
    question = all_questions()[name]
    wanted = {table.name for table in question.tables if MOMENTS & {column.name for column in table.columns}} - {"segments"}
    seen = set()
    for which, one in telling.items():
        ahead = replace(one.traces[0], rank=1, clock_offset_ns=int(SKEW_US * 1000))
        alone, both = question.ask(one).tables, question.ask(kinetop.TraceSet((*one.traces, ahead))).tables
        for table in wanted & {table for table, rows in alone.items() if not rows.is_empty()}:
            moments = [column for column in both[table].columns if column in MOMENTS]
            late, early = (
                both[table].filter(pl.col("rank") == rank).select(pl.exclude("rank")).sort(pl.all()) for rank in (0, 1)
            )
            shifted = early.with_columns((pl.col(moments) + SKEW_US).round(3))
            assert late.select(moments).equals(shifted.select(moments)), (which, table)
            assert early.select(moments).equals(alone[table].select(early.columns).sort(pl.all()).select(moments)), (which, table)
            seen.add(table)
    assert seen == wanted


def test_a_filter_by_start_is_about_the_start_shown(telling: dict[str, kinetop.TraceSet]) -> None:
    one = telling["01_baseline_clean.json"]
    ahead = replace(one.traces[0], rank=1, clock_offset_ns=int(SKEW_US * 1000))
    both = kinetop.TraceSet((*one.traces, ahead))
    shown = kinetop.series.ask(both, buckets=1).main.select("rank", "start_us").rows()
    first = dict(shown)
    assert first[0] - first[1] == SKEW_US
    found = kinetop.summary(both, where=f"start < {first[0]}us")
    assert found.filter(pl.col("rank") == 0)["kernels"].item() == 0
    assert found.filter(pl.col("rank") == 1)["kernels"].item() > 0
