"""When a trace takes place, where its stamps contradict each other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl
import pytest

import kinetop
from kinetop.traces.pairs import ranges

if TYPE_CHECKING:
    from pathlib import Path

FAR_US = 9e15
"""Two stamps this far on both sides of zero are further apart than 64 bits of nanoseconds."""


@pytest.mark.parametrize("starts_us", [[-FAR_US, FAR_US], [-FAR_US, 0, FAR_US], [-FAR_US, 100, 200]])
def test_stamps_that_lie_centuries_apart_make_no_span(tmp_path: Path, starts_us: list[float]) -> None:
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "dur": 5, "args": {"device": 0, "stream": 7}}
    path = tmp_path / "far.json"
    path.write_text(json.dumps({"traceEvents": [{**kernel, "ts": start} for start in starts_us]}))
    trace = kinetop.open(path, cache=False)
    first_ns, end_ns = trace.extent.select("first_ns", "end_ns").row(0)
    assert 0 <= end_ns - first_ns < 10**9
    [(kernels, span_us, busy_us)] = kinetop.summary(trace).select("kernels", "span_us", "busy_us").rows()
    assert 0 < busy_us <= span_us < 1e6
    assert kernels < len(starts_us)
    assert "impossible-timestamp" in {notice.code for notice in trace.warnings}


ENDLESS_US = [9.2e15, 3e11, 2e10]
"""Lengths of one host range among many: at the end of 64 bits, of days, of hours."""


@pytest.mark.parametrize("dur_us", ENDLESS_US)
@pytest.mark.parametrize("category", ["cpu_op", "user_annotation", "cuda_runtime", None])
def test_a_host_range_of_impossible_length_counts_as_zero_length(tmp_path: Path, dur_us: float, category: str | None) -> None:
    sound = [{"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": at, "dur": 8} for at in range(100, 200, 10)]
    odd = {"ph": "X", "name": "endless", "pid": 1, "tid": 1, "ts": 105, "dur": dur_us} | ({"cat": category} if category else {})
    path = tmp_path / "long.json"
    path.write_text(json.dumps({"traceEvents": [*sound, odd]}))
    trace = kinetop.open(path, cache=False)
    assert trace.extent.select("first_ns", "end_ns").row(0) == (100_000, 198_000)
    assert [(n.count, n.message) for n in trace.warnings if n.code == "impossible-duration"] == [
        (1, "1 host range lasts impossibly long, many times as long as the trace; it counts as zero length")
    ]
    if category:
        found = ranges(trace, [category], "name").filter(pl.col("name").cast(pl.String) == "endless")
        assert found.select(pl.col("end_ns") - pl.col("start_ns")).item() == 0


def test_a_begin_that_ends_impossibly_late_counts_as_zero_length(tmp_path: Path) -> None:
    mark = {"cat": "cpu_op", "name": "op", "pid": 1, "tid": 1}
    marks = [{**mark, "ph": phase, "ts": at + 5 * (phase == "E")} for at in range(100, 200, 10) for phase in "BE"]
    path = tmp_path / "late.json"
    path.write_text(json.dumps({"traceEvents": [*marks[:-1], {**marks[-1], "ts": 9e15}]}))
    trace = kinetop.open(path, cache=False)
    lengths = ranges(trace, ["cpu_op"]).select(pl.col("end_ns") - pl.col("start_ns")).to_series()
    assert lengths.to_list() == [5000] * 9 + [0]
    assert "impossible-duration" in {notice.code for notice in trace.warnings}


@pytest.mark.parametrize(("count", "dur_us"), [(1, 3_000e6), (6, 2e10)])
def test_a_length_is_believed_that_is_below_an_hour_or_not_alone(tmp_path: Path, count: int, dur_us: float) -> None:
    rows = [
        {"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": at, "dur": dur_us if at < count else 1}
        for at in range(10)
    ]
    path = tmp_path / "long.json"
    path.write_text(json.dumps({"traceEvents": rows}))
    trace = kinetop.open(path, cache=False)
    assert trace.extent.select(pl.col("end_ns") - pl.col("first_ns")).item() >= dur_us * 1000
    assert "impossible-duration" not in {notice.code for notice in trace.warnings}
