"""Step times: each moment of a step counted once, against the definition moment by moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kinetop
from kinetop.analysis.step_times import CATEGORIES
from kinetop.traces.errors import FilterError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PARTS = [f"{name}_us" for name in CATEGORIES]
GPU = {
    "kernel": {"cat": "kernel", "name": "gemm_kernel"},
    "memcpy": {"cat": "gpu_memcpy", "name": "Memcpy HtoD"},
    "memset": {"cat": "gpu_memset", "name": "Memset"},
    "communication": {"cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum"},
}
HOST = {
    "runtime": {"cat": "cuda_runtime", "name": "cudaLaunchKernel"},
    "data_loader": {"cat": "user_annotation", "name": "enumerate(DataLoader)#_Iter.__next__"},
    "cpu_op": {"cat": "cpu_op", "name": "aten::mm"},
}
kinds = st.sampled_from([*GPU, *HOST])
pieces = st.lists(st.tuples(kinds, st.integers(0, 90), st.integers(1, 30)), max_size=12)


def event(kind: str, start: int, dur: int, correlation: int) -> dict[str, Any]:
    at = {"ph": "X", "ts_ns": 1000 * start, "dur_ns": 1000 * dur, "correlation": correlation}
    if kind in GPU:
        return {**at, **GPU[kind], "process": "0", "thread": "7", "device": 0, "stream": correlation}
    return {**at, **HOST[kind], "process": "9", "thread": "1"}


def step(number: int, start: int, dur: int) -> dict[str, Any]:
    span = {"ph": "X", "cat": "user_annotation", "ts_ns": 1000 * start, "dur_ns": 1000 * dur}
    return {**span, "name": f"ProfilerStep#{number}", "process": "9", "thread": "1"}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(pieces)
def test_against_the_definition(made: Callable[..., Any], spans: list[tuple[str, int, int]]) -> None:
    work = event("kernel", 200, 1, 99)  # behind both steps, so that there is a device
    rows = [step(1, 0, 40), step(2, 50, 45), *(event(*span, number) for number, span in enumerate(spans, 1)), work]
    found = kinetop.steps(made(rows))
    for (begin, end), row in zip(((0, 40), (50, 95)), found.iter_rows(named=True), strict=True):
        wanted = dict.fromkeys(CATEGORIES, 0)
        for moment in range(begin, end):
            here = {kind for kind, start, dur in spans if start <= moment < start + dur}
            wanted[next((name for name in CATEGORIES if name in here), "other")] += 1
        assert {name: row[f"{name}_us"] for name in CATEGORIES} == wanted
        busy = [any(kind in GPU and start <= m < start + dur for kind, start, dur in spans) for m in range(begin, end)]
        assert row["busy_us"] == sum(busy)


@pytest.mark.parametrize("name", ["h100_qwen", "v100_ddp_rank1", "mi300_qwen", "cpu_only_rank34.pt.trace", "vllm_decode_graph"])
def test_parts_sum_to_the_wall(shared: Path, name: str) -> None:
    trace = kinetop.open(shared / "traces" / f"{name}.json.gz")
    found = kinetop.steps(trace)
    rest = found.select((pl.col("wall_us") - pl.sum_horizontal(PARTS)).abs().max().fill_null(0)).item()
    assert rest < 0.01
    assert found.filter((pl.min_horizontal(PARTS) < 0) | (pl.col("busy_us") > pl.col("wall_us"))).is_empty()


def test_what_stands_out(made: Callable[..., Any]) -> None:
    lengths = [90, 30, 31, 30, 29, 55, 30]
    starts = [sum(lengths[:n]) for n in range(len(lengths))]
    rows = [step(n, start, dur) for n, (start, dur) in enumerate(zip(starts, lengths, strict=True))]
    found = kinetop.steps(made(rows))
    assert found["device"].to_list() == [None] * 7
    notes = dict(found.drop_nulls("note").select("step", "note").rows())
    assert notes == {0: "first step, slow: 3.0x the median", 5: "slow: 1.83x the median"}
    assert found["partial"].to_list() == [False] * 6 + [True]


def test_two_steps_side_by_side(hazards: Path) -> None:
    trace = kinetop.open(hazards / "69_step_gap_and_overlap.json")
    from kinetop.analysis.question import all_questions

    tables = all_questions()["steps"].ask(trace, compare="10:11").tables
    changes = dict(tables["compare"].select("part_of_step", "change_us").rows())
    assert changes["wall"] == 5
    assert changes["kernel"] == 55
    assert sum(changes[name] for name in CATEGORIES) == changes["wall"]
    for text in ("10", "10:99"):
        with pytest.raises(FilterError):
            kinetop.steps(trace, compare=text)
