"""Launch calls and operators of GPU work: whatever the API's name, once per activity, never across ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import kinetop
from kinetop.traces.links import LAUNCH_COLUMNS
from kinetop.traces.trace import TraceSet

if TYPE_CHECKING:
    from pathlib import Path

Made = Callable[..., TraceSet]


def gpu(start: int, correlation: int | None, dur: int = 10, **more: Any) -> dict[str, Any]:
    row = {"ph": "X", "cat": "kernel", "name": "k", "process": "0", "thread": "7", "device": 0, "stream": 7}
    return {**row, "ts_ns": start, "dur_ns": dur, "correlation": correlation, **more}


def call(start: int, correlation: int | None, name: str = "cudaLaunchKernel", dur: int = 4, **more: Any) -> dict[str, Any]:
    row = {"ph": "X", "cat": "cuda_runtime", "name": name, "process": "42", "thread": "42", "ts_ns": start, "dur_ns": dur}
    return {**row, "correlation": correlation, **more}


def op(start: int, dur: int, name: str, **more: Any) -> dict[str, Any]:
    row = {"ph": "X", "cat": "cpu_op", "name": name, "process": "42", "thread": "42", "ts_ns": start, "dur_ns": dur}
    return {**row, **more}


def test_one_row_per_activity_in_its_order(made: Made) -> None:
    trace = made([gpu(30, 2), gpu(10, 1), gpu(50, None), gpu(70, 9), call(1, 1), call(5, 2)])
    links = trace.launches
    assert links.columns == list(LAUNCH_COLUMNS)
    assert links["event_id"].equals(trace.activities["event_id"])
    assert links["delay_ns"].to_list() == [9, 25, None, None]
    assert links["launch_id"].to_list() == [4, 5, None, None]


@pytest.mark.parametrize(
    ("cat", "name"),
    [
        ("cuda_driver", "cuLaunchKernelEx"),
        ("hip_runtime", "hipExtModuleLaunchKernel"),
        ("xpu_runtime", "urEnqueueUSMMemcpy"),
        ("Runtime", "cudaMemsetAsync"),
        ("privateuse1_runtime", "some call not yet invented"),
    ],
)
def test_any_call_with_the_id_is_a_launch(made: Made, cat: str, name: str) -> None:
    assert made([gpu(10, 1), call(1, 1, name, cat=cat)]).launches["api"].to_list() == [name]


def test_a_graph_launch_has_many_activities(made: Made) -> None:
    rows = [gpu(at, 5 + at // 100) for at in (10, 30, 50, 110, 130, 150)]
    trace = made([*rows, call(1, 5, "cudaGraphLaunch"), call(100, 6, "cudaGraphLaunch")])
    assert trace.launches["launch_id"].to_list() == [6, 6, 6, 7, 7, 7]


def test_of_several_calls_the_one_that_launches(made: Made) -> None:
    calls = [call(1, 1, "cudaEventRecord"), call(3, 1, "cudaStreamSynchronize"), call(5, 1, "cuLaunchKernel", cat="cuda_driver")]
    links = made([gpu(20, 1), *calls, call(4, 1, "cudaLaunchKernel")]).launches
    assert links.select("api", "delay_ns").rows() == [("cudaLaunchKernel", 16)]
    assert made([gpu(20, 1), call(9, 1, "b"), call(8, 1, "a")]).launches["api"].to_list() == ["a"]


def test_ids_do_not_link_across_traces(made: Made) -> None:
    links = made([gpu(20, 1), call(1, 1)], [gpu(30, 1), call(4, 1)]).launches
    assert links.select("part", "delay_ns").rows() == [(0, 19), (1, 26)]


def test_the_operator_is_the_innermost_around_the_call(made: Made) -> None:
    ops = [op(0, 100, "outer"), op(10, 20, "inner"), op(12, 5, "done"), op(0, 100, "elsewhere", thread="43")]
    trace = made([gpu(200, 1), gpu(220, 2), gpu(240, 3), call(20, 1), call(40, 2), call(150, 3), *ops])
    assert trace.launches["op"].to_list() == ["inner", "outer", None]


def test_crossing_operators(made: Made) -> None:
    trace = made([gpu(200, 1), gpu(220, 2), call(15, 1), call(25, 2), op(0, 20, "first"), op(10, 20, "second")])
    assert trace.launches["op"].to_list() == ["second", "second"]


def test_an_external_id_names_the_operator_where_nothing_is_around_the_call(made: Made) -> None:
    ops = [op(0, 5, "mine", external_id=7), op(0, 5, "old", external_id_legacy=8)]
    trace = made(
        [gpu(200, 1, external_id=7), gpu(220, None, external_id_legacy=8), gpu(240, None, external_id=99), call(50, 1), *ops]
    )
    assert trace.launches["op"].to_list() == ["mine", "old", None]


def test_external_ids_that_contradict_the_nesting_are_not_used(made: Made) -> None:
    ops = [op(0, 30, "right", external_id=1), op(40, 5, "wrong", external_id=7)]
    trace = made([gpu(200, 1, external_id=7), gpu(220, None, external_id=7), call(10, 1), *ops])
    assert trace.launches["op"].to_list() == ["right", None]


def test_starts_before_the_launch_are_counted_and_kept(made: Made) -> None:
    trace = made([gpu(2_000, 1), gpu(9_000, 2), call(4_000, 1), call(5_000, 2)])
    assert trace.launches["delay_ns"].to_list() == [-2_000, 4_000]
    (notice,) = trace.warnings
    assert (notice.code, notice.count) == ("starts-before-launch", 1)
    assert notice.message == "1 of 2 kernels starts before its launch (worst 2 us); both stay linked"
    many = made([gpu(at, at) for at in (10, 20, 30)] + [call(12, 10), call(22, 20), call(25, 30)])
    assert many.warnings[0].message == "2 of 3 kernels start before their launch (worst 0.002 us); all stay linked"


def test_a_begin_and_end_pair_launches_too(made: Made) -> None:
    begin = call(1, 1) | {"ph": "B", "dur_ns": None}
    trace = made([gpu(20, 1), begin, {"ph": "E", "process": "42", "thread": "42", "ts_ns": 9}])
    assert trace.launches.select("launch_start_ns", "launch_end_ns").rows() == [(1, 9)]


def test_real_traces_link_what_their_source_says(shared: Path) -> None:
    folder = shared / "traces"
    for name, linked, rows in [("h100_qwen.json.gz", 1198, 1707), ("a100_vit_cudagraph.json.gz", 765, 765)]:
        links = kinetop.open(folder / name).launches
        assert (links["launch_id"].count(), links.height) == (linked, rows), name
    # Correlation ids of the profiler are unique, so a join by hand gives the same.
    trace = kinetop.open(folder / "v100_ddp_rank1.json.gz")
    calls = trace.events.filter(pl.col("cat").cast(pl.String) == "cuda_runtime").select("correlation", call="event_id").collect()
    by_hand = trace.activities.join(calls, on="correlation", how="left", maintain_order="left")
    assert by_hand["call"].equals(trace.launches["launch_id"].alias("call"))


@pytest.mark.parametrize("none", [0, -1, None])
def test_an_id_that_says_none_links_nothing(made: Made, none: int | None) -> None:
    trace = made([gpu(10, none), gpu(30, none), call(1, none), call(2, none, "cudaDeviceSynchronize")])
    assert trace.launches["launch_id"].to_list() == [None, None]
    assert "no-correlation" in {one.code for one in trace.warnings}
