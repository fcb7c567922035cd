"""Gaps: their parts sum to them, planted causes are found, and their total is the idle time of `summary`."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import kinetop
from kinetop.analysis.gaps import CAUSES, gaps
from kinetop.analysis.work import scoped
from kinetop.traces.trace import TraceSet

if TYPE_CHECKING:
    from pathlib import Path

Made = Callable[..., TraceSet]
US = 1_000


def gpu(start: int, end: int, correlation: int | None = None, **more: Any) -> dict[str, Any]:
    """A kernel from `start` to `end`, in microseconds."""
    row = {"ph": "X", "cat": "kernel", "name": f"k{start}", "process": "0", "thread": "7", "device": 0, "stream": 7}
    return {**row, "ts_ns": start * US, "dur_ns": (end - start) * US, "correlation": correlation, **more}


def host(start: int, end: int, name: str = "cudaLaunchKernel", correlation: int | None = None, **more: Any) -> dict[str, Any]:
    row = {"ph": "X", "cat": "cuda_runtime", "name": name, "process": "42", "thread": "42"}
    return {**row, "ts_ns": start * US, "dur_ns": (end - start) * US, "correlation": correlation, **more}


def parts(row: dict[str, Any]) -> dict[str, float]:
    """The parts of a gap that are not zero."""
    return {name: row[f"{name}_us"] for name in CAUSES if row[f"{name}_us"]}


def only_gap(trace: TraceSet, **options: Any) -> dict[str, Any]:
    (row,) = kinetop.idle(trace, **options).iter_rows(named=True)
    return row


def test_host_late_then_launch_latency(made: Made) -> None:
    row = only_gap(made([gpu(100, 110, 1), gpu(150, 160, 2), host(90, 95, correlation=1), host(135, 143, correlation=2)]))
    assert parts(row) == {"host_late": 33.0, "launch_latency": 7.0}
    assert (row["cause"], row["start_us"], row["dur_us"]) == ("host late", 20.0, 40.0)
    assert (row["previous"], row["next"], row["thread"]) == ("k100", "k150", "42")


def test_launched_before_the_gap_began(made: Made) -> None:
    row = only_gap(made([gpu(100, 110, 1), gpu(150, 160, 2), host(90, 95, correlation=1), host(96, 110, correlation=2)]))
    assert (parts(row), row["cause"]) == ({"dependency": 40.0}, "dependency")


def test_a_call_that_returns_after_the_start_takes_the_whole_gap(made: Made) -> None:
    row = only_gap(made([gpu(100, 110, 1), gpu(150, 160, 2), host(90, 95, correlation=1), host(120, 155, correlation=2)]))
    assert parts(row) == {"host_late": 40.0}


def test_a_synchronising_call_is_named_and_taken_out(made: Made) -> None:
    rows = [gpu(100, 110, 1), gpu(150, 160, 2), host(90, 95, correlation=1), host(138, 143, correlation=2)]
    waits = [host(97, 130, "cudaDeviceSynchronize"), host(131, 133, "cudaEventSynchronize"), host(98, 120, "cuCtxSynchronize")]
    elsewhere = [host(100, 140, "cudaStreamSynchronize", thread="43"), host(97, 137, "cudaStreamWaitEvent")]
    row = only_gap(made([*rows, *waits, *elsewhere]))
    assert parts(row) == {"after_sync": 11.0, "sync": 22.0, "launch_latency": 7.0}
    assert (row["sync_name"], row["cause"]) == ("cudaDeviceSynchronize", "sync")


def test_a_replay_is_one_launch(made: Made) -> None:
    rows = [gpu(100, 110, 5), gpu(114, 120, 5), gpu(150, 160, 6), gpu(161, 170, 6)]
    trace = made([*rows, host(90, 95, "cudaGraphLaunch", 5), host(125, 130, "cudaGraphLaunch", 6)])
    found = kinetop.idle(trace).sort("start_us")
    assert [parts(row) for row in found.iter_rows(named=True)] == [
        {"graph": 4.0},
        {"host_late": 10.0, "launch_latency": 20.0},
        {"graph": 1.0},
    ]


def test_no_launch_record(made: Made) -> None:
    row = only_gap(made([gpu(100, 110, 1), gpu(150, 160, 2), host(90, 95, correlation=1)]))
    assert (parts(row), row["cause"], row["thread"]) == ({"no_record": 40.0}, "no record", "42")


def test_what_the_thread_did(made: Made) -> None:
    rows = [gpu(100, 110, 1), gpu(150, 160, 2), host(90, 95, correlation=1), host(140, 144, correlation=2)]
    ranges = [
        (80, 170, "step", "user_annotation"),
        (80, 170, "forward", "cpu_op"),
        (120, 130, "aten::item", "cpu_op"),
        (125, 129, "loader.py: next", "python_function"),
        (100, 160, "not here", "gpu_user_annotation"),
    ]
    row = only_gap(made([*rows, *(host(start, end, name, cat=cat) for start, end, name, cat in ranges)]))
    assert (row["op"], row["frame"], row["annotation"]) == ("aten::item", "loader.py: next", "step")


def test_other_streams_and_devices(made: Made) -> None:
    rows = [gpu(100, 110), gpu(150, 160), gpu(105, 140, stream=8), gpu(100, 120, device=1), gpu(130, 140, device=1)]
    result = kinetop.idle.ask(made(rows))
    assert result.main.select("device", "dur_us").rows() == [(0, 10.0), (1, 10.0)]
    streams = result.tables["streams"].filter(pl.col("device") == 0)
    assert streams.select("stream", "gaps", "total_us", "busy_us").rows() == [(7, 1, 40.0, 20.0), (8, 0, 0.0, 35.0)]


def test_edges_of_the_window(made: Made) -> None:
    trace = made([host(0, 10, correlation=1), gpu(50, 60, 1), host(80, 90, "cudaFree")])
    found = kinetop.idle(trace, window="trace").sort("start_us")
    assert [parts(row) for row in found.iter_rows(named=True)] == [
        {"host_late": 10.0, "launch_latency": 40.0},
        {"no_record": 30.0},
    ]
    assert found["next"].to_list() == ["k50", None]
    assert kinetop.idle(trace).is_empty()


def test_a_filter_keeps_the_gaps_before_what_it_names(made: Made) -> None:
    trace = made([gpu(100, 110), gpu(120, 130, name="wanted"), gpu(150, 160)])
    assert kinetop.idle(trace, where="wanted")["dur_us"].to_list() == [10.0]


def test_short_gaps_can_be_left_out(made: Made) -> None:
    result = kinetop.idle.ask(made([gpu(100, 110), gpu(111, 120), gpu(150, 160)]), min_us=1.5)
    assert result.main["dur_us"].to_list() == [30.0]
    assert result.tables["causes"]["total_us"].to_list() == [30.0]
    assert result.tables["streams"]["gaps"].to_list() == [1]


def test_causes_sum_the_parts(made: Made) -> None:
    rows = [gpu(100, 110, 1), gpu(150, 160, 2), gpu(170, 180, 9), host(90, 95, correlation=1), host(135, 143, correlation=2)]
    causes = kinetop.idle.ask(made(rows)).tables["causes"]
    assert causes.select("cause", "total_us", "idle_pct", "gaps", "longest_us").rows() == [
        ("host late", 33.0, 66.0, 1, 33.0),
        ("no record", 10.0, 20.0, 1, 10.0),
        ("launch latency", 7.0, 14.0, 1, 7.0),
    ]


def test_windows_of_one_rank_are_told_apart(made: Made) -> None:
    trace = made([gpu(100, 110), gpu(120, 130)], [gpu(500, 510), gpu(530, 540)])
    one, two = trace.traces
    again = TraceSet((one, type(two)(two.path, two.parquet, 0, {}, two.report, window=1)))
    # The event table holds the rank that the file gave; the set's rank is what counts.
    assert kinetop.idle(again).select("rank", "window", "dur_us").rows() == [(0, 2, 20.0), (0, 1, 10.0)]
    assert "window" not in kinetop.idle(trace).columns


def test_no_gpu_work(made: Made) -> None:
    for rows in ([], [host(0, 10)], [gpu(100, 110)]):
        result = kinetop.idle.ask(made(rows))
        assert result.main.is_empty()
        assert result.tables["causes"].is_empty()


def random_rows(seed: int) -> list[dict[str, Any]]:
    """Kernels on streams of two devices, launches and synchronising calls, at random."""
    chance = random.Random(seed)
    rows = []
    for number in range(chance.randint(1, 60)):
        start = chance.randint(0, 500)
        where = {"stream": chance.randint(7, 9), "device": chance.randint(0, 1)}
        rows.append(gpu(start, start + chance.randint(0, 12), number // chance.choice([1, 1, 3]), **where))
        if chance.random() < 0.8:
            launch = start - chance.randint(-5, 60)
            rows.append(host(launch, launch + chance.randint(0, 9), correlation=number, thread=chance.choice(["42", "43"])))
        if chance.random() < 0.3:
            wait = chance.randint(0, 500)
            rows.append(host(wait, wait + chance.randint(0, 40), "cudaDeviceSynchronize", thread=chance.choice(["42", "43"])))
    return rows


@pytest.mark.parametrize("seed", range(25))
def test_parts_sum_to_the_gaps_and_the_gaps_to_the_idle_time(made: Made, seed: int) -> None:
    rows = random_rows(seed)
    trace = made(rows)
    found = gaps(scoped(trace))
    names = [f"{name}_ns" for name in CAUSES]
    assert found.select(pl.sum_horizontal(names)).to_series().equals(found["dur_ns"].alias(names[0]))
    assert found.select(pl.min_horizontal(names) >= 0).to_series().all()
    assert (found["dur_ns"] > 0).all()
    summary = kinetop.summary(trace)
    idle = kinetop.idle(trace).group_by("device").agg(pl.col("dur_us").sum().round(3))
    assert dict(idle.iter_rows()) == {row["device"]: row["idle_us"] for row in summary.iter_rows(named=True) if row["idle_us"]}
    sync = [(row["ts_ns"], row["ts_ns"] + row["dur_ns"], row["thread"]) for row in rows if "Synchronize" in row["name"]]
    for row in found.iter_rows(named=True):
        end = row["start_ns"] + row["host_late_ns"] + row["sync_ns"] + row["after_sync_ns"]
        inside = set()
        for start, until, thread in sync:
            if thread == row["thread"]:
                inside |= set(range(max(start, row["start_ns"]) // US, min(until, end) // US))
        assert row["sync_ns"] == len(inside) * US


def test_real_traces_agree_with_summary(shared: Path) -> None:
    for name in ("h100_qwen", "diff_test", "b200_vllm_eager", "dlrm_8rank", "v100_ddp_rank1", "mtia_inference"):
        path = shared / "traces" / (name if name.endswith("rank") else f"{name}.json.gz")
        trace = kinetop.open(path)
        found = gaps(scoped(trace))
        assert (
            found.select(pl.sum_horizontal(f"{cause}_ns" for cause in CAUSES))
            .to_series()
            .equals(found["dur_ns"].alias("host_late_ns"))
        )
        total = found.group_by("rank").agg(pl.col("dur_ns").sum() / 1000)
        summary = kinetop.summary(trace).group_by("rank").agg(pl.col("idle_us").sum())
        both = total.join(summary, on="rank")
        assert both.height == summary.height, name
        assert (both["dur_ns"] - both["idle_us"]).abs().max() < 0.002, name
