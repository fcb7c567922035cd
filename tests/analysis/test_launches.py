"""Launches: against brute force moment by moment, HTA's own figures where they are right, and planted verdicts."""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import kinetop
from kinetop.analysis.graphs import graphs
from kinetop.analysis.idle import MOST, idle
from kinetop.analysis.launches import launches
from kinetop.analysis.queues import FULL, STREAM, depths
from kinetop.analysis.series import series
from kinetop.analysis.series_tracks import counter_tracks
from kinetop.analysis.steps import with_step
from kinetop.analysis.work import scoped
from kinetop.traces.trace import TraceSet

if TYPE_CHECKING:
    from pathlib import Path

Made = Callable[..., TraceSet]
US = 1_000


def kernel(start: int, dur: int, correlation: int, stream: int = 7, **more: Any) -> dict[str, Any]:
    row = {"ph": "X", "cat": "kernel", "name": "k", "process": "0", "thread": "7", "device": 0, "stream": stream}
    return {**row, "ts_ns": start * US, "dur_ns": dur * US, "correlation": correlation, **more}


def call(start: int, dur: int, correlation: int | None, name: str = "cudaLaunchKernel", **more: Any) -> dict[str, Any]:
    row = {"ph": "X", "cat": "cuda_runtime", "name": name, "process": "42", "thread": "42"}
    return {**row, "ts_ns": start * US, "dur_ns": dur * US, "correlation": correlation, **more}


def random_rows(seed: int) -> list[dict[str, Any]]:
    chance = random.Random(seed)
    rows = [kernel(0, 1, 900), kernel(199, 1, 901)]
    for number in range(chance.randint(1, 25)):
        launch = chance.randint(0, 180)
        rows.append(call(launch, chance.randint(1, 6), number))
        for _ in range(chance.choice([1, 1, 1, 3])):  # now and then one launch of several activities, on any stream
            start = min(launch + chance.randint(-3, 40), 190)
            row = kernel(max(start, 0), chance.randint(0, 9), number, stream=chance.choice([7, 8]))
            rows += [row] if row not in rows else []  # an exact duplicate would be left out
    return rows


@pytest.mark.parametrize("seed", range(20))
def test_depths_against_counting_each_moment(made: Made, seed: int) -> None:
    rows = random_rows(seed)
    called = {row["correlation"]: row["ts_ns"] // US for row in rows if row["cat"] == "cuda_runtime"}
    pending: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for row in rows:
        if row["cat"] == "kernel" and row["correlation"] in called:
            begun = row["ts_ns"] // US
            pending.setdefault((row["stream"], row["correlation"]), []).append((begun, begun + row["dur_ns"] // US))
    result = launches.ask(made(rows))
    for row in result.tables["streams"].iter_rows(named=True):
        own = [
            (called[number], min(b for b, _ in work), max(e for _, e in work))
            for (stream, number), work in pending.items()
            if stream == row["stream"]
        ]
        waiting = [sum(at <= moment < begun for at, begun, _ in own) for moment in range(200)]
        unfinished = [sum(at <= moment < done for at, _, done in own) for moment in range(200)]
        if not own:
            continue
        assert row["queue_mean"] == pytest.approx(statistics.mean(waiting), abs=1e-3)
        assert row["unfinished_mean"] == pytest.approx(statistics.mean(unfinished), abs=1e-3)
        assert (row["queue_max"], row["unfinished_max"]) == (max(waiting), max(unfinished))
        assert row["empty_pct"] == pytest.approx(100 * waiting.count(0) / 200, abs=1e-3)
    delays = sorted(
        row["ts_ns"] / US - called[row["correlation"]] for row in rows if row["correlation"] in called and row["cat"] == "kernel"
    )
    (device,) = result.main.iter_rows(named=True)
    assert device["delay_median_us"] == statistics.median(delays)
    assert (device["delay_min_us"], device["delay_max_us"]) == (delays[0], delays[-1])
    assert device["negative"] == sum(delay < 0 for delay in delays)
    assert device["linked_pct"] == pytest.approx(100 * len(delays) / sum(row["cat"] == "kernel" for row in rows), abs=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_stretches_fill_the_window(made: Made, seed: int) -> None:
    found = depths(scoped(made(random_rows(seed))), STREAM)
    lengths = found.group_by("stream").agg((pl.col("end_ns") - pl.col("start_ns")).sum())
    assert set(lengths["end_ns"]) == {200 * US}
    assert found.filter((pl.col("waiting") < 0) | (pl.col("unfinished") < pl.col("waiting"))).is_empty()


def test_a_full_queue_is_counted_however_many_streams(made: Made) -> None:
    rows = [kernel(0, 5000, 1), *(kernel(5000 + n, 1, 10 + n) for n in range(FULL + 5))]
    rows += [call(0, 1, 1), *(call(1 + n, 1, 10 + n) for n in range(FULL + 5))]
    (stream,) = launches.ask(made(rows)).tables["streams"].iter_rows(named=True)
    assert stream["queue_max"] == FULL + 5
    # From the launch that fills it until the sixth start behind the long kernel.
    assert stream["full_us"] == 5000 + 5 - FULL


def test_short_kernels_are_shorter_than_their_own_call_and_not_of_a_graph(made: Made) -> None:
    rows = [kernel(10, 2, 1), kernel(20, 9, 2), kernel(30, 2, 3), kernel(33, 2, 3)]
    rows += [call(0, 5, 1), call(6, 5, 2), call(12, 5, 3, "cudaGraphLaunch")]
    result = launches.ask(made(rows))
    (device,) = result.main.iter_rows(named=True)
    assert (device["short"], device["short_pct"], device["launch_us"]) == (1, 50.0, 15.0)
    assert result.tables["apis"].select("api", "calls", "total_us", "activities").rows() == [
        ("cudaLaunchKernel", 2, 10.0, 2),
        ("cudaGraphLaunch", 1, 5.0, 2),
    ]


def test_launch_bound_when_launches_find_the_device_idle(made: Made) -> None:
    slow = [row for n in range(50) for row in (call(20 * n, 8, n), kernel(20 * n + 10, 3, n))]
    (device,) = launches(made(slow)).iter_rows(named=True)
    assert (device["verdict"], device["short"], device["queue_max"]) == ("launch-bound", 50, 1)
    # Of every 20 us the kernel runs 3; the launch returns 5 us after the one before ended, and takes 2 us to start.
    assert device["waited_pct"] == pytest.approx(100 * 49 * 17 / (49 * 20 + 3), abs=1e-3)
    ahead = [row for n in range(50) for row in (call(4 * n, 3, n), kernel(10 + 20 * n, 20, n))]
    (device,) = launches(made(ahead)).iter_rows(named=True)
    assert (device["verdict"], device["waited_us"], device["found_idle_pct"]) == ("not launch-bound", 0.0, 0.0)


def test_waiting_for_batches_is_not_being_launch_bound(made: Made) -> None:
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    rows = [row for n in range(20) for row in (call(100 * n + 90, 5, n), kernel(100 * n + 96, 8, n))]
    loads = [call(100 * n + 5, 84, None, name, cat="user_annotation") for n in range(20)]
    (device,) = launches(made([*rows, *loads])).iter_rows(named=True)
    assert device["verdict"] == "not launch-bound"
    (device,) = launches(made(rows)).iter_rows(named=True)
    assert device["verdict"] == "launch-bound"


def test_unknown_where_launches_are_not_recorded(made: Made) -> None:
    (device,) = launches(made([kernel(0, 5, 1), kernel(50, 5, 2), kernel(90, 5, 3), call(40, 5, 2)])).iter_rows(named=True)
    assert device["verdict"] == "unknown"
    assert device["linked_pct"] == pytest.approx(33.333)
    (device,) = launches(made([kernel(0, 5, 1), kernel(50, 5, 2)])).iter_rows(named=True)
    assert [device[name] for name in ("delay_median_us", "delay_max_us", "queue_mean", "short", "short_pct")] == [
        None,
        None,
        0.0,
        None,
        None,
    ]


def test_idle_time_in_synchronising_calls(made: Made) -> None:
    rows = [kernel(0, 20, 1), kernel(60, 10, 2), kernel(55, 5, 3, stream=8)]
    waits = [
        call(10, 15, None, "cudaDeviceSynchronize"),
        call(30, 10, None, "cudaDeviceSynchronize"),
        call(50, 8, None, "cudaMemcpy"),
    ]
    syncs = launches.ask(made([*rows, *waits, call(0, 50, None, "cudaStreamWaitEvent")])).tables["syncs"]
    assert syncs.select("call", "calls", "total_us", "mean_us", "max_us", "idle_us").rows() == [
        ("cudaDeviceSynchronize", 2, 25.0, 12.5, 15.0, 15.0),
        ("cudaMemcpy", 1, 8.0, 8.0, 8.0, 5.0),
    ]


NAMES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync", "cudaMemsetAsync")
"""The launches that HTA 0.5.0 looks at."""


@pytest.mark.parametrize("name", ["diff_control", "h100_qwen", "v100_ddp_rank1", "nccl_metadata", "b200_vllm_eager"])
def test_delays_are_those_of_hta_with_its_names(shared: Path, name: str) -> None:
    reference = json.loads((shared / "reference" / "hta" / f"{name}.json").read_text())
    exact = reference["no_ns_rounding"].get("apis", {}).get("get_cuda_kernel_launch_stats")
    told = (exact or reference["apis"]["get_cuda_kernel_launch_stats"])["result"]["frame"]["data"]
    theirs = dict(
        zip(told["correlation"], zip(told["cpu_duration"], told["gpu_duration"], told["launch_delay"], strict=True), strict=True)
    )
    trace = kinetop.open(shared / "traces" / f"{name}.json.gz")
    ours = trace.links.with_columns(trace.activities["correlation", "dur_ns", "start_ns"]).filter(pl.col("api").is_in(NAMES))
    found = {
        row["correlation"]: (
            (row["launch_end_ns"] - row["launch_start_ns"]) / US,
            row["dur_ns"] / US,
            max(0.0, (row["start_ns"] - row["launch_end_ns"]) / US),
        )
        for row in ours.iter_rows(named=True)
    }
    assert set(theirs) <= set(found)
    # HTA leaves out the last step where a trace has several; with it, theirs are all.
    steps = trace.events.filter(pl.col("name").cast(pl.String).str.starts_with("ProfilerStep#")).select(pl.col("name").n_unique())
    if steps.collect().item() < 2:
        assert set(theirs) == set(found)
    for correlation, figures in theirs.items():
        assert found[correlation] == pytest.approx(figures, abs=0.0015), correlation


@pytest.mark.parametrize("name", ["diff_control", "h100_qwen", "v100_ddp_rank1", "nccl_metadata", "mi210_gpu_only", "h100_bert"])
def test_greatest_queue_is_that_of_hta(shared: Path, made: Made, name: str) -> None:
    reference = json.loads((shared / "reference" / "hta" / f"{name}.json").read_text())
    exact = reference["no_ns_rounding"].get("apis", {}).get("get_queue_length_summary")
    told = (exact or reference["apis"]["get_queue_length_summary"])["result"]["data"]
    trace = kinetop.open(shared / "traces" / f"{name}.json.gz")
    found = _without_last_step(depths(scoped(trace, window="trace"), STREAM), trace)
    ours = dict(found.group_by("stream").agg(pl.col("waiting").max()).rows())
    assert {int(s): int(n) for s, n in zip(told["stream"], told["queue_length/max"], strict=True)} == {
        stream: ours[stream] for stream in map(int, told["stream"])
    }


def _without_last_step(found: pl.DataFrame, trace: TraceSet) -> pl.DataFrame:
    """Leave out what HTA leaves out: the time from the launches of the last step on."""
    steps = with_step(trace.activities, trace)["step"].drop_nulls()
    if steps.n_unique() < 2:
        return found
    marks = trace.events.filter(pl.col("name").cast(pl.String) == f"ProfilerStep#{steps.max()}").select(pl.col("ts_ns").min())
    return found.filter(pl.col("start_ns") < marks.collect().item())


QUESTIONS = (launches, graphs, series, idle)  # of the last one the rows are looked at


def test_every_trace_has_an_answer(every_trace: TraceSet, hazards: Path) -> None:
    """Every table comes as declared, every gap and stream with a sentence, and the tracks are JSON."""
    trace = every_trace
    scopes = [{"window": "trace"}, {"where": "dur > 5us"}] if trace.traces[0].path.is_relative_to(hazards) else []
    for options in (*scopes, {}):
        for question in QUESTIONS:
            answer = question.ask(trace, **options)
            for table in question.tables:
                names = [column.name for column in table.columns if column.name != "window"]
                assert [name for name in answer.tables[table.name].columns if name != "window"] == names
    found = answer.tables
    assert found["gaps"]["why"].null_count() == max(0, found["gaps"].height - MOST)
    assert found["streams"].filter(pl.col("gaps") > 0)["why"].null_count() == 0
    for part in range(len(trace.traces)):
        for text in counter_tracks(trace, part, 20):
            assert json.loads(text)["ph"] == "C"
