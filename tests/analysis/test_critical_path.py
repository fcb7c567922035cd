"""The critical path: its stretches tile the step, chains by hand, a walk done one hop at a time, and every trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kinetop
from kinetop.analysis.binding import hops
from kinetop.analysis.critical_path import critical_path
from kinetop.analysis.work import scoped

if TYPE_CHECKING:
    from collections.abc import Callable

HOST = {"ph": "X", "process": "1", "thread": "1"}
GPU = {"ph": "X", "cat": "kernel", "process": "0", "device": 0}


def call(name: str, start: int, end: int, correlation: int | None = None) -> dict[str, Any]:
    return {**HOST, "cat": "cuda_runtime", "name": name, "ts_ns": start, "dur_ns": end - start, "correlation": correlation}


def kernel(name: str, start: int, end: int, correlation: int, stream: int = 7) -> dict[str, Any]:
    lane = {"stream": stream, "thread": str(stream)}
    return {**GPU, **lane, "name": name, "ts_ns": start, "dur_ns": end - start, "correlation": correlation}


def step(number: int, start: int, end: int) -> dict[str, Any]:
    return {**HOST, "cat": "user_annotation", "name": f"ProfilerStep#{number}", "ts_ns": start, "dur_ns": end - start}


def path(trace: kinetop.TraceSet, **options: Any) -> list[tuple[str, float]]:
    return critical_path.ask(trace, **options).tables["path"].select("kind", "dur_us").rows()


def test_a_chain_by_hand(made: Callable[..., kinetop.TraceSet]) -> None:
    rows = [
        step(1, 0, 200_000),
        call("cudaLaunchKernel", 10_000, 12_000, 1),
        call("cudaLaunchKernel", 12_000, 14_000, 2),
        kernel("a", 20_000, 60_000, 1),
        kernel("ncclDevKernel_AllReduce", 61_000, 100_000, 2),
        call("cudaDeviceSynchronize", 15_000, 104_000),
        call("cudaLaunchKernel", 150_000, 152_000, 3),
        kernel("b", 157_000, 230_000, 3),
    ]
    assert path(made(rows)) == [
        ("host", 10.0),
        ("launch_delay", 10.0),
        ("compute", 40.0),
        ("kernel_gap", 1.0),
        ("comm", 39.0),
        ("sync_return", 4.0),
        ("host", 46.0),
        ("launch_delay", 7.0),
        ("compute", 73.0),
    ]


def test_work_of_another_stream_that_was_waited_for_is_on_the_path(made: Callable[..., kinetop.TraceSet]) -> None:
    sync = {"ph": "X", "cat": "cuda_sync", "name": "Stream Wait Event", "process": "0", "thread": "9", "dur_ns": 1, "device": 0}
    rows = [
        step(1, 0, 30_000),
        call("cudaLaunchKernel", 1_000, 2_000, 1),
        call("cudaEventRecord", 3_000, 4_000, 2),
        call("cudaStreamWaitEvent", 5_000, 6_000, 3),
        call("cudaLaunchKernel", 7_000, 8_000, 4),
        kernel("a", 10_000, 50_000, 1),
        kernel("b", 52_000, 60_000, 4, stream=9),
        {**sync, "ts_ns": 5_500, "stream": 9, "correlation": 3, "wait_on_stream": 7, "wait_on_correlation": 2},
    ]
    kinds = [("host", 1.0), ("launch_delay", 9.0), ("compute", 40.0), ("stream_wait", 2.0), ("compute", 8.0)]
    assert path(made(rows)) == kinds
    assert path(made(rows[:-1])) == kinds  # no events in the trace: what ended just before stands for them
    late = {**rows[-2], "ts_ns": 62_000}
    assert path(made([*rows[:-2], late])) == [("host", 7.0), ("launch_delay", 55.0), ("compute", 8.0)]


WORK = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 30), st.integers(0, 20), st.integers(7, 8), st.booleans()),
    min_size=1,
    max_size=12,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(WORK)
def test_stretches_tile_the_window_and_the_orbit_is_the_chain(made: Callable[..., kinetop.TraceSet], work: list[Any]) -> None:
    rows, at_ns = [step(1, 0, 300_000)], 0
    for number, (pause, delay, length, stream, waits) in enumerate(work, 1):
        at_ns += pause * 1000
        rows.append(call("cudaLaunchKernel", at_ns, at_ns + 500, number))
        begin = at_ns + delay * 1000
        rows.append(kernel(f"k{number}", begin, begin + length * 1000, number, stream))
        if waits:
            rows.append(call("cudaStreamSynchronize", at_ns + 600, begin + length * 1000 + 900))
            at_ns = begin + length * 1000 + 1000
    trace = made(rows)
    told = critical_path.ask(trace).tables
    starts, lengths = told["path"]["start_us"], told["path"]["dur_us"]
    assert starts[0] == 0
    assert (starts + lengths).round(3).to_list()[:-1] == starts.to_list()[1:]
    assert told["breakdown"]["time_us"].sum() == pytest.approx(lengths.sum())
    assert told["breakdown"]["share_pct"].sum() == pytest.approx(100, abs=0.01)
    known = hops(trace, scoped(trace).all_gpu)
    before = known.work["before"].to_list()
    for head in range(known.work.height):
        chain, row = [], head
        while row is not None:
            chain.append(row)
            row = before[row]
        assert known.orbit(head, -1).to_list() == chain[::-1]


def test_every_trace_answers_and_sums_to_its_window(every_trace: kinetop.TraceSet) -> None:
    told = critical_path.ask(every_trace).tables
    if len({one.rank for one in every_trace.traces}) < len(every_trace.traces):
        assert told["breakdown"]["share_pct"].sum() == pytest.approx(100 * len(every_trace.traces), abs=0.05)
        return
    for (rank, number), stretches in told["path"].group_by("rank", "step"):
        mine = told["breakdown"].filter(pl.col("rank") == rank, pl.col("step").eq_missing(number))
        assert mine["share_pct"].sum() == pytest.approx(100, abs=0.02)
        assert mine["time_us"].sum() == pytest.approx(stretches["dur_us"].sum(), rel=1e-9, abs=0.05)
    if told["path"].is_empty():
        assert every_trace.extent["first_ns"].null_count() == every_trace.extent.height or (
            every_trace.extent.select((pl.col("end_ns") <= pl.col("first_ns")).all()).item()
        )


def test_a_step_can_be_named(hazards: Any) -> None:
    trace = kinetop.open(hazards / "69_step_gap_and_overlap.json")
    assert critical_path.ask(trace, step="10-11").main["step"].unique().sort().to_list() == [10, 11]
