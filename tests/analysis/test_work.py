"""Narrowing a trace by rank, device, step, window and filter: what stays, and what is said when nothing fits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl
import pytest

import kinetop
from kinetop.analysis.steps import steps, with_step
from kinetop.analysis.work import origin_ns, scoped
from kinetop.traces.errors import FilterError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def clean(hazards: Path) -> kinetop.TraceSet:
    return kinetop.open(hazards / "01_baseline_clean.json")


def test_default_is_everything_against_the_gpu_span(clean: kinetop.TraceSet) -> None:
    work = scoped(clean)
    assert work.gpu["event_id"].to_list() == clean.activities["event_id"].to_list()
    assert {"class", "family", "implementation", "rule"} <= set(work.gpu.columns)
    start, end = work.windows.select("window_start_ns", "window_end_ns").row(0)
    assert (start - origin_ns(clean), end - start) == (90_000, 130_000)
    assert work.launches.height == work.gpu.height


def test_trace_window_reaches_from_the_first_to_the_last_event(clean: kinetop.TraceSet) -> None:
    parts = kinetop.summary.ask(clean, window="trace").tables["breakdown"].row(0, named=True)
    assert (parts["window_us"], parts["idle_us"]) == (400.0, 290.0)


@pytest.mark.parametrize(
    ("window", "kernels", "busy_us", "window_us"),
    [
        ("100..160", 3, 60.0, 60.0),
        ("0.1ms..160us", 3, 60.0, 60.0),
        ("100000ns..0.00016s", 3, 60.0, 60.0),
        ("..140us", 2, 50.0, 140.0),
        ("165..", 3, 35.0, 55.0),
        ("0..50", 0, 0.0, 50.0),
    ],
)
def test_explicit_window_cuts_activities(
    clean: kinetop.TraceSet, window: str, kernels: int, busy_us: float, window_us: float
) -> None:
    answer = kinetop.summary.ask(clean, window=window)
    made, parts = answer.main.row(0, named=True), answer.tables["breakdown"].row(0, named=True)
    assert (made["kernels"], made["busy_us"], parts["window_us"]) == (kernels, busy_us, window_us)
    assert parts["compute_pct"] + parts["exposed_comm_pct"] + parts["exposed_memory_pct"] + parts["idle_pct"] == pytest.approx(
        100
    )


@pytest.mark.parametrize(
    "window", ["", "5", "..", "a..b", "5..1", "1..2..3", "-5..3", "1h..2h", "9999999999999999999s..", "5..5"]
)
def test_a_window_that_cannot_be_is_said(clean: kinetop.TraceSet, window: str) -> None:
    with pytest.raises(FilterError, match=r"\.$"):
        scoped(clean, window=window)


@pytest.mark.parametrize("options", [{"rank": 7}, {"device": 7}, {"step": "99"}, {"step": "x"}, {"step": "3-1"}, {"step": ""}])
def test_what_the_trace_does_not_hold_is_said(clean: kinetop.TraceSet, options: dict) -> None:
    with pytest.raises(FilterError, match=r"\.$"):
        scoped(clean, **options)


def test_no_steps_to_choose_from(hazards: Path) -> None:
    with pytest.raises(FilterError, match="marks no steps"):
        scoped(kinetop.open(hazards / "68_no_profiler_step.json"), step="1")


def test_rank_and_device(hazards: Path) -> None:
    two = kinetop.open(hazards / "60_two_gpus_one_process.json")
    assert scoped(two, device=1).windows["device"].to_list() == [1]
    three = kinetop.open(hazards / "81_rank_from_file_name")
    assert kinetop.summary(three, rank=10)["rank"].to_list() == [10]
    with pytest.raises(FilterError, match="ranks 0, 2, 10"):
        scoped(three, rank=5)


def test_filter_narrows_the_work_and_not_the_window(clean: kinetop.TraceSet) -> None:
    work = scoped(clean, where="class = 'comm' and dur > 20us")
    assert work.gpu["family"].to_list() == ["all-reduce"]
    assert work.all_gpu.height == 6
    assert work.windows.equals(scoped(clean).windows)
    assert scoped(clean, where="step = 1").gpu.height == 6
    assert 0 < scoped(clean, where="op is not null and delay > 0us").gpu.height <= 6


def test_steps_are_by_launch_else_by_time(tmp_path: Path) -> None:
    def event(name: str, cat: str, ts: int, dur: int, tid: int = 1, **args: int) -> dict:
        return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}

    rows = [
        event("ProfilerStep#4", "user_annotation", 0, 100),
        event("ProfilerStep#5", "user_annotation", 100, 100),
        event("cudaLaunchKernel", "cuda_runtime", 90, 5, correlation=1),
        event("late", "kernel", 150, 10, tid=7, device=0, stream=7, correlation=1),
        event("orphan", "kernel", 170, 10, tid=7, device=0, stream=7, correlation=2),
        event("cudaLaunchKernel", "cuda_runtime", 250, 5, correlation=3),
        event("after", "kernel", 260, 10, tid=7, device=0, stream=7, correlation=3),
    ]
    path = tmp_path / "steps.json"
    path.write_text(json.dumps({"traceEvents": rows}))
    trace = kinetop.open(path)
    made = with_step(trace.activities, trace)
    assert dict(made.select("name", "step").iter_rows()) == {"late": 4, "orphan": 5, "after": None}
    assert scoped(trace, step="last").gpu["name"].to_list() == ["orphan"]
    assert scoped(trace, step="4-5").gpu.height == 2


@pytest.mark.parametrize(
    ("names", "numbers"),
    [
        (["step[DECODE bs=32]", "step[EXTEND bs=1]"], [1, 2]),
        (["execute_context_1(8)_generation_0(0)", "execute_32_context_0(sq0)_generation_32"], [1, 2]),
        (["ProfilerStep#12", "step[DECODE bs=1]"], [12]),
        (["my_step", "forward"], []),
    ],
)
def test_step_annotations_of_serving_engines(tmp_path: Path, names: list[str], numbers: list[int]) -> None:
    rows = [
        {"ph": "X", "cat": "user_annotation", "name": n, "pid": 1, "tid": 1, "ts": 10 * i, "dur": 5} for i, n in enumerate(names)
    ]
    path = tmp_path / "engine.json"
    path.write_text(json.dumps({"traceEvents": rows}))
    assert steps(kinetop.open(path))["step"].to_list() == numbers


def test_steps_of_a_real_trace_hold_all_of_its_launched_work(shared: Path) -> None:
    trace = kinetop.open(shared / "traces" / "sampled_2rank" / "rank-0.json.gz")
    found = steps(trace)["step"].to_list()
    assert found == [551, 552]
    each = [scoped(trace, step=str(number)).gpu.height for number in found]
    assert sum(each) == with_step(trace.activities, trace)["step"].count() > 0
    assert scoped(trace, step="551-552").gpu.height == sum(each)
    assert pl.concat([scoped(trace, step=str(n)).gpu for n in found])["event_id"].is_unique().all()
