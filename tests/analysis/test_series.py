"""Series: means over the buckets are the figures of the whole window, copies and memory against brute force."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import kinetop
from kinetop.analysis.queues import DEVICE, depths, weighted
from kinetop.analysis.series import series
from kinetop.analysis.series_tracks import counter_tracks
from kinetop.analysis.work import scoped
from kinetop.traces.errors import FilterError
from kinetop.traces.export import write_json
from kinetop.traces.trace import TraceSet

if TYPE_CHECKING:
    from pathlib import Path

Made = Callable[..., TraceSet]
US = 1_000


def gpu(start: int, dur: int, name: str = "k", cat: str = "kernel", **more: Any) -> dict[str, Any]:
    row = {"ph": "X", "cat": cat, "name": name, "process": "0", "thread": "7", "device": 0, "stream": 7}
    return {**row, "ts_ns": start * US, "dur_ns": dur * US, **more}


def memory(at: int, total: int, device: int = 0, kind: int = 1) -> dict[str, Any]:
    row = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "process": "42", "thread": "42", "ts_ns": at * US}
    return {
        **row,
        "memory_device": device,
        "memory_device_type": kind,
        "total_allocated_bytes": total,
        "total_reserved_bytes": 2 * total,
    }


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("buckets", [1, 7, 40])
def test_copies_and_memory_against_each_moment(made: Made, seed: int, buckets: int) -> None:
    chance = random.Random(seed)
    rows, edges = [gpu(0, 1), gpu(279, 1)], 280
    copies = []
    for _ in range(12):
        start, dur, size = chance.randint(0, 250), chance.randint(0, 29), chance.randint(1, 9) * 1000
        kind = chance.choice(["Memcpy HtoD (Pinned -> Device)", "Memcpy DtoD (Device -> Device)", "Memset (Device)"])
        if (start, kind) not in [(at, name) for at, _, _, name in copies]:
            copies.append((start, dur, size, kind))
            rows.append(gpu(start, dur, kind, "gpu_memset" if kind.startswith("Memset") else "gpu_memcpy", bytes=size))
    records = sorted({chance.randint(-50, 330): chance.randint(1, 99) for _ in range(10)}.items())
    rows += [memory(at, total) for at, total in records] + [memory(100, 10**9, -1, 0), memory(100, 10**9, 5)]
    result = series.ask(made(rows), buckets=buckets)
    width = -(-edges // buckets)
    assert result.main.height == -(-edges // width)
    offset = result.main["start_us"][0]
    for row in result.main.iter_rows(named=True):
        low = row["start_us"] - offset
        high = low + row["dur_us"]
        seen = [total for at, total in records if low <= at < high]
        before = [total for at, total in records if at <= low]
        assert row["allocated_bytes"] == max(seen + before[-1:], default=None)
        moved = sum(_moved(copy, low, high, edges) for copy in copies)
        assert row["copy_gbps"] == pytest.approx(moved / (row["dur_us"] * US), abs=2e-3)
    total = result.tables["copies"].group_by("kind").agg(pl.col("bytes").sum())
    sizes = {"HtoD": 0, "DtoD": 0, "memset": 0}
    for _, _, size, name in copies:
        sizes["memset" if name.startswith("Memset") else name[7:11]] += size
    for kind, moved in total.rows():
        assert moved == pytest.approx(sizes[kind], abs=12 * buckets)  # each piece is rounded to whole bytes


def _moved(copy: tuple[int, int, int, str], low: float, high: float, edges: int) -> float:
    start, dur, size, _ = copy
    if dur == 0:
        return size if low <= start < high or (start == edges == high) else 0
    return size * max(0.0, min(start + dur, high) - max(start, low)) / dur


@pytest.mark.parametrize("name", ["h100_qwen", "v100_ddp_rank1", "diff_test", "b200_vllm_eager"])
def test_means_over_the_buckets_are_the_figures_of_the_window(shared: Path, name: str) -> None:
    trace = kinetop.open(shared / "traces" / f"{name}.json.gz")
    found = series(trace, buckets=33)
    (device,) = kinetop.summary(trace).iter_rows(named=True)
    assert found["dur_us"].sum() == pytest.approx(device["span_us"], abs=0.01)
    assert found["busy_pct"].dot(found["dur_us"]) / 100 == pytest.approx(device["busy_us"], rel=1e-4)
    whole = weighted(depths(scoped(trace), DEVICE), DEVICE).row(0, named=True)
    for column, figure in (("queue_mean", "waiting_mean"), ("unfinished_mean", "unfinished_mean")):
        assert found[column].dot(found["dur_us"]) / found["dur_us"].sum() == pytest.approx(whole[figure], rel=1e-3)


def test_bandwidth_is_what_the_profiler_wrote_while_a_copy_runs(shared: Path) -> None:
    trace = kinetop.open(shared / "traces" / "v100_ddp_rank1.json.gz")
    told = trace.events.filter(pl.col("bandwidth_gbps") > 0).select(pl.col("bytes").sum(), "bandwidth_gbps", "dur_ns").collect()
    both = told.select((pl.col("bandwidth_gbps") * pl.col("dur_ns")).sum(), pl.col("bytes").first()).row(0)
    assert both[0] == pytest.approx(
        both[1], rel=0.03
    )  # this trace has whole microseconds, and its rates were made from finer ones
    copies = kinetop.series.ask(trace, buckets=50).tables["copies"]
    assert copies["bytes"].sum() == pytest.approx(both[1], abs=copies["copies"].sum())
    assert copies.select((pl.col("gbps") * pl.col("dur_us") * US).sum()).item() == pytest.approx(both[1], rel=0.01)


def test_unknown_bytes_are_null_and_no_copies_are_zero(made: Made) -> None:
    found = series.ask(made([gpu(0, 10, "CopyHostToDevice", "gpu_memcpy"), gpu(90, 10)]), buckets=2)
    assert found.main["copy_gbps"].to_list() == [None, 0.0]
    assert found.tables["copies"].select("kind", "copies", "bytes", "gbps", "busy_pct").rows() == [("HtoD", 1, None, None, 20.0)]
    assert found.main["allocated_bytes"].to_list() == [None, None]


def test_buckets_have_a_range(made: Made) -> None:
    trace = made([gpu(0, 10)])
    for buckets in (0, -3, 10**9):
        with pytest.raises(FilterError):
            series(trace, buckets=buckets)
    assert series(made([gpu(0, 0)])).is_empty()
    assert series(made([])).is_empty()


def test_counter_tracks_in_a_chrome_trace(made: Made, tmp_path: Path) -> None:
    rows = [gpu(0, 10), gpu(20, 10, "Memcpy HtoD", "gpu_memcpy", bytes=10_000), gpu(90, 10), memory(5, 77)]
    trace = made(rows, baseTimeNanoseconds=-1000 * US)
    out = tmp_path / "with_counters.json.gz"
    written = write_json(trace.traces[0], out, None, counter_tracks(trace, 0, 10))
    document = json.loads(gzip.decompress(out.read_bytes()))
    events = document["traceEvents"]
    assert len(events) == written
    assert [event["ph"] for event in events[:4]] == ["X", "X", "X", "i"]
    counters = [event for event in events if event["ph"] == "C"]
    assert {event["name"] for event in counters} == {"GPU 0 launch queue", "GPU 0 busy", "GPU 0 allocator", "GPU 0 copies GB/s"}
    copies = [(event["ts"], event["args"]["HtoD"]) for event in counters if event["name"] == "GPU 0 copies GB/s"]
    assert copies == [*((1000 + 10 * n, 1.0 if n == 2 else 0.0) for n in range(10)), (1100, 0.0)]
    busy = [event["args"]["percent"] for event in counters if event["name"] == "GPU 0 busy"]
    assert busy == [100.0, 0.0, 100.0, *[0.0] * 6, 100.0, 0.0]
    assert {event["pid"] for event in counters} == {0}
    plain = tmp_path / "plain.json"
    assert write_json(trace.traces[0], plain) == 4
    assert not plain.read_bytes().startswith(b"\x1f\x8b")
    again = kinetop.open(out)
    assert again.activities.height == 3
