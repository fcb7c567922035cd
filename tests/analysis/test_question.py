"""Rows take the form that their table declares."""

from __future__ import annotations

import polars as pl
import pytest

from kinetop.analysis.question import Column, as_declared

TIMES = (Column("start_us", "us", ""), Column("dur_us", "us", ""))


def test_times_come_from_nanoseconds_unless_they_are_there() -> None:
    rows = pl.DataFrame({"start_ns": [9_999], "start_us": [1.23456], "dur_ns": [1_234_567]})
    assert as_declared(rows, TIMES).rows() == [(1.235, 1234.567)]


def test_an_unknown_time_stays_unknown() -> None:
    rows = pl.DataFrame({"start_ns": [None, 0], "dur_ns": [1, None]}, schema={"start_ns": pl.Int64, "dur_ns": pl.Int64})
    assert as_declared(rows, TIMES).rows() == [(None, 0.001), (0.0, None)]


def test_columns_come_in_the_order_declared_and_rounded_by_unit() -> None:
    columns = (
        Column("bus_gbps", "GB/s", ""),
        Column("share_pct", "pct", ""),
        Column("mean", "number", ""),
        Column("count", "count", ""),
        Column("name", "text", ""),
    )
    rows = pl.DataFrame(
        {"name": ["a"], "count": [7], "mean": [1 / 3], "share_pct": [200 / 3], "bus_gbps": [2e-6 / 3], "more": [1]}
    )
    made = as_declared(rows, columns)
    assert made.columns == [column.name for column in columns]
    assert made.row(0) == (0.000001, 66.667, 1 / 3, 7, "a")


def test_a_declared_column_must_be_there() -> None:
    with pytest.raises(pl.exceptions.ColumnNotFoundError):
        as_declared(pl.DataFrame({"start_us": [1.0]}), TIMES)
