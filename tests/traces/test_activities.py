"""GPU work, cleaned: each kind of fault in several shapes, what must not be taken for one, and the real traces."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import kinetop
from kinetop.traces.activities import ACTIVITY_COLUMNS
from kinetop.traces.trace import TraceSet

if TYPE_CHECKING:
    from pathlib import Path

    from kinetop.traces.report import Notice

Made = Callable[..., TraceSet]
US, MS, S = 1_000, 1_000_000, 1_000_000_000
EPOCH = 1_767_225_605 * S


def kernel(start: int, dur: int | None = 10 * US, stream: int | None = 7, **more: Any) -> dict[str, Any]:
    row = {"ph": "X", "cat": "kernel", "name": "k", "process": "0", "thread": str(stream), "device": 0, "stream": stream}
    return {**row, "ts_ns": start, "dur_ns": dur, **more}


def host(start: int, dur: int = US, cat: str = "cuda_runtime", **more: Any) -> dict[str, Any]:
    row = {"ph": "X", "cat": cat, "name": "cudaLaunchKernel", "process": "42", "thread": "42", "ts_ns": start, "dur_ns": dur}
    return {**row, **more}


def row_of_kernels(count: int, first: int = EPOCH) -> list[dict[str, Any]]:
    """Kernels of 10 us every 20 us, each launched by a call of its own."""
    return [kernel(first + at * 20 * US, correlation=at + 1) for at in range(count)]


def notice(trace: TraceSet, code: str) -> Notice:
    (found,) = [one for one in trace.warnings if one.code == code]
    return found


def codes(trace: TraceSet) -> set[str]:
    return {one.code for one in trace.warnings}


def spans(trace: TraceSet) -> list[tuple[int, int]]:
    return trace.activities.select("start_ns", "end_ns").rows()


def test_columns_and_order(made: Made) -> None:
    trace = made(row_of_kernels(3)[::-1])
    assert trace.activities.columns == list(ACTIVITY_COLUMNS)
    assert trace.activities["start_ns"].is_sorted()
    assert trace.warnings == ()


def test_work_is_chosen_by_category(made: Made) -> None:
    kinds = {"kernel": "kernel", "Kernel": "kernel", "gpu_memcpy": "memcpy", "Memset": "memset"}
    rows = [kernel(EPOCH + at * MS, cat=cat) for at, cat in enumerate(kinds)]
    others = ["gpu_user_annotation", "cuda_sync", "cpu_op", "user_annotation", "Trace", "overhead"]
    trace = made(rows + [kernel(EPOCH, 90 * MS, cat=cat) for cat in others])
    assert trace.activities["kind"].to_list() == list(kinds.values())


@pytest.mark.parametrize("dur", [-1, -5 * US, -(2**62)])
def test_negative_durations_count_as_zero(made: Made, dur: int) -> None:
    trace = made([*row_of_kernels(3), kernel(EPOCH + MS, dur, correlation=9), host(EPOCH, -1)])
    assert trace.activities["dur_ns"].to_list()[-1] == 0
    assert trace.activities["raw_dur_ns"].to_list()[-1] == dur
    assert trace.activities["fault"].to_list()[-1] == "negative-duration"
    assert notice(trace, "negative-duration").message == "2 events had a negative duration (1 kernel); they count as zero length"


def test_missing_durations_count_as_zero(made: Made) -> None:
    trace = made([*row_of_kernels(3), kernel(EPOCH + MS, None)])
    assert spans(trace)[-1] == (EPOCH + MS, EPOCH + MS)
    assert notice(trace, "missing-duration").message == "1 event had no duration (1 kernel); it counts as zero length"


def test_begin_and_end_events_are_work(made: Made) -> None:
    begin = {"ph": "B", "cat": "kernel", "name": "k", "process": "0", "thread": "7", "device": 0, "stream": 7, "ts_ns": EPOCH}
    end = {"ph": "E", "process": "0", "thread": "7", "ts_ns": EPOCH + 30 * US}
    trace = made([end, begin, begin | {"ts_ns": EPOCH + MS}])
    assert spans(trace) == [(EPOCH, EPOCH + 30 * US)]
    assert notice(trace, "unpaired-begin-end").message == "1 begin without end (left out of the figures)"


@pytest.mark.parametrize("copies", [2, 3, 5])
def test_duplicates_count_once(made: Made, copies: int) -> None:
    rows = row_of_kernels(4)
    trace = made(rows + [rows[1]] * (copies - 1) + [rows[2]])
    assert trace.activities.height == 4
    assert notice(trace, "duplicate-events").count == copies
    assert notice(trace, "duplicate-events").message == f"{copies} GPU events are exact duplicates and were counted once"


@pytest.mark.parametrize("other", [{"name": "l"}, {"grid": "[2,1,1]"}, {"args": '{"x":1}'}, {"stream": 8, "thread": "8"}])
def test_what_differs_anywhere_is_no_duplicate(made: Made, other: dict[str, Any]) -> None:
    rows = row_of_kernels(2)
    trace = made([*rows, rows[1] | other])
    assert trace.activities.height == 3
    assert "duplicate-events" not in codes(trace)


@pytest.mark.parametrize("when", [0, -5 * US, EPOCH - 30 * 86_400 * S, EPOCH + 365 * 86_400 * S, 2**62])
def test_impossible_timestamps_are_left_out(made: Made, when: int) -> None:
    trace = made([*row_of_kernels(5), kernel(when, correlation=99)])
    assert trace.activities.height == 5
    found = notice(trace, "impossible-timestamp")
    assert found.count == 1
    assert found.message.startswith(f"1 GPU event has an impossible timestamp ({when / 1000:.15g})")


def test_zero_is_impossible_beside_a_base_time(made: Made) -> None:
    trace = made([*row_of_kernels(5, EPOCH + 5 * S), kernel(EPOCH), kernel(EPOCH - 7 * US)], baseTimeNanoseconds=EPOCH)
    assert trace.activities.height == 5
    assert notice(trace, "impossible-timestamp").message == (
        "2 GPU events have impossible timestamps (-7, 0) and are left out of span, busy and idle"
    )


def test_one_kernel_of_two_is_judged_by_the_host_events(made: Made) -> None:
    trace = made([host(EPOCH), host(EPOCH + 20 * US), host(EPOCH + 40 * US), kernel(EPOCH + 50 * US), kernel(0)])
    assert spans(trace) == [(EPOCH + 50 * US, EPOCH + 60 * US)]


@pytest.mark.parametrize(
    "starts",
    [
        [0, 20 * US, 40 * US],
        [0, 2 * S, 2 * S + 20 * US, 4 * S],
        [-3 * US, 20 * US, 40 * US],
        [0, 0, 0],
        [0],
        [EPOCH + hour * 3_600 * S for hour in (0, 2, 4, 6)],
        [EPOCH + hour * 7_200 * S + at for hour in (0, 1) for at in range(4)],
    ],
    ids=["from zero", "seconds from zero", "below zero", "all zero", "one at zero", "hours apart", "two windows"],
)
def test_possible_timestamps_stay(made: Made, starts: list[int]) -> None:
    trace = made([kernel(start, correlation=at) for at, start in enumerate(starts)])
    assert trace.activities.height == len(starts)
    assert "impossible-timestamp" not in codes(trace)


@pytest.mark.parametrize("dur", [1 * MS, 50 * MS, 2 * S, 3_600 * S, 2**62])
@pytest.mark.parametrize("at", [0, 4, 8])
def test_an_end_far_past_the_next_starts_is_clipped(made: Made, dur: int, at: int) -> None:
    rows = row_of_kernels(10)
    rows[at]["dur_ns"] = dur
    trace = made([*rows, host(EPOCH + 400 * US)])
    assert trace.activities["dur_ns"].to_list() == [20 * US if at == other else 10 * US for other in range(10)]
    assert trace.activities["fault"].to_list()[at] == "overrun"
    assert trace.activities["raw_dur_ns"].to_list()[at] == dur
    assert notice(trace, "overrun").count == 1


def test_an_overrun_is_said_with_its_length(made: Made) -> None:
    rows = row_of_kernels(10)
    rows[4]["dur_ns"] = 2 * S
    assert notice(made(rows), "overrun").message == (
        "1 kernel overruns its successors on the same stream by 1 999 980 us; figures use the clipped end, the raw value is shown"
    )


def test_several_overruns_of_one_stream_are_clipped(made: Made) -> None:
    rows = row_of_kernels(12)
    for at in (3, 4, 8):
        rows[at]["dur_ns"] = 2 * S
    trace = made(rows)
    assert trace.activities["dur_ns"].to_list() == [20 * US if at in (3, 4, 8) else 10 * US for at in range(12)]


def test_an_overrun_with_nothing_after_ends_with_the_trace(made: Made) -> None:
    rows = row_of_kernels(10)
    rows[9]["dur_ns"] = 2 * S
    trace = made([*rows, host(EPOCH + 300 * US, 10 * US)])
    assert trace.activities["end_ns"].max() == EPOCH + 310 * US
    assert "overruns the end of the trace" in notice(trace, "overrun").message


def test_an_overrun_inside_a_long_trace_is_clipped(made: Made) -> None:
    rows = row_of_kernels(2_000)
    rows[100]["dur_ns"] = 20 * MS
    trace = made([*rows, host(EPOCH + 10 * S)])
    assert trace.activities["dur_ns"][100] == 20 * US


@pytest.mark.parametrize(
    "rows",
    [
        [kernel(EPOCH + at * 10 * US, 14 * US, correlation=at) for at in range(50)],
        [kernel(EPOCH, 5 * MS, correlation=1), *[kernel(EPOCH + at * 20 * US, correlation=1) for at in range(1, 200)]],
        [*row_of_kernels(20), kernel(EPOCH + 100 * US, 5 * MS, stream=20)],
        [kernel(EPOCH + at * 100 * US, 10 * MS, correlation=at) for at in range(100)],
        [*row_of_kernels(5), kernel(EPOCH + 200 * US, 15 * MS, correlation=77)],
    ],
    ids=["dependent launch", "graph replay", "another stream", "lane of many streams", "long last kernel"],
)
def test_long_and_overlapping_work_stays(made: Made, rows: list[dict[str, Any]]) -> None:
    trace = made(rows)
    assert trace.activities["dur_ns"].equals(trace.activities["raw_dur_ns"])
    assert "overrun" not in codes(trace)


@pytest.mark.parametrize(
    ("processes", "hosts", "ranks"),
    [
        (("[TP00] 0", "[TP01] 0"), ("[TP00] 42", "[TP01] 43"), [0, 1]),
        (("[TP01] 0", "[TP03] 0"), ("[TP01] 42", "[TP03] 42"), [1, 3]),
        (("rank1 GPU 0", "rank0 GPU 0"), ("rank1 python 42", "rank0 python 42"), [1, 0]),
        (("TP0: 0", "TP1: 0"), ("TP0: 42", "TP1: 42"), [0, 1]),
        (("0 (rank 4)", "0 (rank 5)"), ("42 (rank 4)", "42 (rank 5)"), [4, 5]),
        (("[DP0 TP1] 0", "[DP1 TP1] 0"), ("[DP0 TP1] 42", "[DP1 TP1] 42"), [0, 1]),
        (("actor 0", "critic 0"), ("actor 42", "critic 42"), [0, 1]),
        (("[TP00] 0", "[TP01] 1"), ("[TP00] 42", "[TP01] 42"), [0, 1]),
        (("100", "200"), ("142", "242"), [0, 1]),
    ],
)
def test_merged_ranks_stay_apart(made: Made, processes: tuple[str, str], hosts: tuple[str, str], ranks: list[int]) -> None:
    rows = []
    for process, launcher, late in zip(processes, hosts, (0, 15 * US), strict=True):
        device = 1 if process == "[TP01] 1" else 0
        rows += [host(EPOCH + at * 10 * US, process=launcher, correlation=at) for at in range(3)]
        rows += [kernel(EPOCH + late + at * 30 * US, correlation=at, process=process, device=device) for at in range(3)]
    trace = made(rows)
    both = trace.activities.join(trace.launches, on=["part", "event_id"], suffix="_host")
    assert both.height == 6
    for process, launcher, rank in zip(processes, hosts, ranks, strict=True):
        mine = both.filter(pl.col("process") == process)
        assert mine["rank"].to_list() == [rank] * 3
        assert mine["process_host"].to_list() == [launcher] * 3
    message = notice(trace, "merged-processes").message
    assert message.startswith("the file merges 2 processes (")
    assert message.endswith("figures are per process")


def test_two_gpus_of_one_process_are_no_merge(made: Made) -> None:
    trace = made([kernel(EPOCH, device=device, process=str(device)) for device in (0, 1)])
    assert trace.activities.select("rank", "device").rows() == [(0, 0), (0, 1)]
    assert codes(trace) == {"no-correlation"}


def test_lane_without_stream_comes_from_the_thread(made: Made) -> None:
    rows = [
        kernel(EPOCH + at * MS, stream=None, thread=tid, device=None)
        for at, tid in enumerate(["64", "stream 65", "copy", "draw"])
    ]
    trace = made(rows)
    assert trace.activities["stream"].to_list()[:2] == [64, 65]
    assert trace.activities["stream"].n_unique() == 4
    found = notice(trace, "unknown-stream")
    assert (found.level, found.message) == ("info", "stream is unknown for 4 of 4 GPU events: lane taken from tid")


def test_large_ids_stay_exact(made: Made) -> None:
    trace = made([kernel(EPOCH, stream=2**53), kernel(EPOCH, stream=2**53 + 1)])
    assert trace.activities["stream"].to_list() == [2**53, 2**53 + 1]


def test_device_comes_from_the_process(made: Made) -> None:
    assert made([kernel(EPOCH, device=None, process="17")]).activities["device"].to_list() == [17]


def test_nothing_on_the_gpu_is_told_from_nothing_recorded(made: Made) -> None:
    calls = [
        host(EPOCH + at, name=name) for at, name in enumerate(["cudaLaunchKernel", "cuLaunchKernelEx", "cudaStreamSynchronize"])
    ]
    lost = made(calls)
    assert lost.activities.is_empty()
    assert notice(lost, "gpu-not-captured").message.startswith(
        "2 kernel launches but 0 GPU events: GPU activity was not captured"
    )
    assert notice(made([host(EPOCH, name="cudaLaunchKernel")]), "gpu-not-captured").message.startswith(
        "1 kernel launch but 0 GPU events"
    )
    cpu = made([host(EPOCH, cat="cpu_op")])
    assert [one.level for one in cpu.warnings if one.code == "no-gpu-events"] == ["info"]
    assert codes(made(calls, row_of_kernels(2))) == {"gpu-not-captured"}


def test_all_that_is_missing_at_once(made: Made) -> None:
    assert made([]).activities.is_empty()
    assert made([]).activities.columns == list(ACTIVITY_COLUMNS)


def real_traces(folder: Path) -> dict[str, dict[str, dict[str, float]]]:
    return json.loads((folder / "reference" / "gpu_figures.json").read_text())["traces"]


def test_real_traces_need_no_repair(shared: Path) -> None:
    for name, devices in real_traces(shared).items():
        trace = kinetop.open(shared / "traces" / name)
        work = trace.activities
        assert work["dur_ns"].equals(work["raw_dur_ns"]), name
        assert codes(trace) <= {"no-gpu-events", "rank-name-differs", "starts-before-launch"}, name
        kernels = work.filter(pl.col("kind") == "kernel").group_by("device").len()
        assert {str(device): count for device, count in kernels.iter_rows()} == {
            device: figures["kernels"] for device, figures in devices.items() if figures["kernels"]
        }, name


def test_work_without_a_name_or_a_process_counts_as_any_other(made: Made) -> None:
    bare = made([kernel(EPOCH + at * MS, name=None, process=None, thread=None, correlation=at + 1) for at in range(3)])
    named = made([kernel(EPOCH + at * MS, correlation=at + 1) for at in range(3)])
    figures = ["kernels", "busy_us", "compute_us"]
    assert kinetop.summary(bare).select(figures).equals(kinetop.summary(named).select(figures))
    assert kinetop.kernels(bare)["name"].to_list() == [""]


def test_ranges_without_a_category_are_counted_where_no_gpu_work_is_found(made: Made) -> None:
    nameless = [kernel(EPOCH + at * MS, cat=None) for at in range(3)]
    found = notice(made(nameless), "no-category")
    assert (found.count, found.message.split(" (")[0]) == (3, "3 ranges have no category")
    assert "no-category" not in codes(made([*nameless, *row_of_kernels(2)]))
