"""Windows: all that the profiler saw and nothing else, at a bounded share of the time; one profiler at a time."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import kinetop
from kinetop.traces.live.worker import frames, inputs, kineto, memory, profile, ranges, timing
from kinetop.traces.live.worker.case import Case
from kinetop.traces.live.worker.variant import Built

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

torch = pytest.importorskip("torch", reason="torch is not installed")

CASE = Case.of("2,4,64,16", dtype="fp32", causal=False)


def eager(case: Case = CASE) -> Callable[[], Any]:
    made = inputs.make(case, 0)

    def call() -> Any:
        with ranges.part("qk"):
            scores = made.q @ made.k.mT
        with ranges.part("softmax"):
            weights = scores.softmax(-1)
        return weights @ made.v

    return timing.step(case, Built(call), made)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A profiler that has sent no names and taken no window."""
    monkeypatch.setattr(profile, "_process", profile._Process())
    return profile._process


def test_rows_are_the_events_that_torch_itself_makes_of_them() -> None:
    names = kineto.Names()
    call = eager()
    with profile.recording("cpu", record_shapes=True, profile_memory=True) as profiler, profile.started(profiler, "cpu"):
        for _ in range(4):
            call()
    rows = kineto.rows(profile.events(profiler), names, shapes=True)
    mine = Counter(names.all[number] for number in rows.columns["name"])
    memory_records = mine.pop(kineto.MEMORY)
    theirs = [event for event in profiler.function_events if event.name != kineto.MEMORY]  # of these torch keeps some
    assert mine == Counter(event.name for event in theirs)
    assert memory_records == 4 * 6, "scores, weights and output, each taken and given back"
    by_name = [names.all[number] for number in rows.columns["name"]]
    durations = Counter()
    for name, duration in zip(by_name, rows.columns["dur_ns"], strict=True):
        durations[name] += duration
    for name in mine:
        total = sum(event.time_range.elapsed_us() for event in theirs if event.name == name)
        assert durations[name] / 1000 == pytest.approx(total, abs=0.01 * mine[name])
    shapes = {json.loads(text)[0][-1] for row, text in rows.shapes.items() if by_name[row] == "aten::bmm"}
    assert shapes == {16, 64}


def test_a_window_is_a_frame_whose_steps_hold_their_events(process: Any) -> None:
    windows = profile.Windows(CASE)
    header, columns = windows.take("eager", eager(), 3)
    reader = frames.Reader()
    (frame,) = reader.feed(frames.pack(header, columns))
    names = {int(number): name for number, name in frame.header["names"].items()}
    kinds = [header["kinds"][kind] for kind in frame.columns["kind"]]
    named = [names[number] for number in frame.columns["name"]]
    spans = list(zip(frame.columns["start_ns"], frame.columns["dur_ns"], strict=True))
    steps = [span for name, span in zip(named, spans, strict=True) if name.startswith("kinetop.step|eager|1|")]
    assert len(steps) == 3
    ops = [span for kind, span in zip(kinds, spans, strict=True) if kind == "cpu_op"]
    assert len(ops) > 3 * 5
    for start, duration in ops:
        assert any(begin <= start and start + duration <= begin + length for begin, length in steps)
    assert named.count("aten::_softmax") == named.count("kinetop.part|softmax") == named.count("kinetop.part|qk") == 3
    assert header["begin_ns"] == min(steps)[0]
    assert header["end_ns"] == max(start + duration for start, duration in spans)
    assert abs(header["begin_ns"] - time.time_ns()) < 60e9
    assert header["dropped"] == 0
    assert (header["window"], header["steps"]) == (1, 3)


def test_the_first_window_of_a_process_is_taken_and_thrown_away(process: Any) -> None:
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1
        torch.ones(2)

    windows = profile.Windows(CASE)
    numbers = [windows.take("a", call, 2)[0]["window"] for _ in range(2)]
    assert numbers == [1, 2]
    assert calls == (1 + 1) + (1 + 2) + (1 + 2), "each window has a call before it starts"
    assert profile.Windows(CASE).take("a", call, 2)[0]["window"] == 3


def test_a_name_is_sent_once(process: Any) -> None:
    windows, call = profile.Windows(CASE), eager()
    first, second = (windows.take("eager", call)[0]["names"] for _ in range(2))
    assert "aten::_softmax" in first.values()
    assert sorted(second.values()) == [f"kinetop.step|eager|2|{step}" for step in range(3)]
    assert not set(first) & set(second)


def test_parts_are_marked_in_windows_only(process: Any) -> None:
    def seen() -> list[str]:
        with profile.recording("cpu") as profiler, profile.started(profiler, "cpu"):
            eager()()
        return [event.name() for event in profile.events(profiler) if event.name().startswith(ranges.PART)]

    assert seen() == []
    with ranges.taking():
        assert seen() == ["kinetop.part|qk", "kinetop.part|softmax"]
    assert seen() == []


def test_reset_comes_before_each_step_and_outside_of_it(process: Any) -> None:
    def reset() -> None:
        torch.zeros(3)

    _, columns = profile.Windows(CASE).take("eager", eager(), 2, reset=reset)
    names = process.names.all
    rows = list(zip(columns["name"][1], columns["start_ns"][1], strict=True))
    order = [
        names[name] for name, _ in sorted(rows, key=lambda row: row[1]) if names[name].startswith(("aten::zeros", ranges.STEP))
    ]
    assert order == ["aten::zeros", "kinetop.step|eager|1|0", "aten::zeros", "kinetop.step|eager|1|1"]


def test_windows_keep_to_their_share_of_the_time(process: Any) -> None:
    windows, call = profile.Windows(CASE), eager()
    one = min(timing.Timer(CASE).samples(call, 20))
    began = time.perf_counter_ns()
    assert not windows.may("eager", 10**9), "at the beginning there is no time to take a share of"
    taken = spent_ns = 0
    while taken < 4:
        if windows.may("eager", one):
            before = time.perf_counter_ns()
            windows.take("eager", call, windows.steps(one))
            spent_ns += time.perf_counter_ns() - before
            taken += 1
        timing.Timer(CASE).samples(call, 5)
        assert time.perf_counter_ns() - began < 60e9, "windows are never allowed"
    assert windows.duty_pct == pytest.approx(100 * spent_ns / (time.perf_counter_ns() - windows._began_ns), rel=0.1)
    while not windows.may("eager", one):
        timing.Timer(CASE).samples(call, 5)
    assert windows.duty_pct <= 5


def test_collecting_garbage_is_a_part_of_the_share(process: Any) -> None:
    windows, call = profile.Windows(CASE), eager()
    process.windows = profile.WINDOWS_BETWEEN_COLLECTIONS - 2
    windows.take("eager", call)
    windows._began_ns -= 10**10  # ten seconds ago
    process.collection_ns = 10**9
    assert not windows.may("eager", 0)
    process.collection_ns = 0
    assert windows.may("eager", 0)
    before = windows.duty_pct
    windows.take("eager", call)
    assert process.collection_ns > 0
    assert windows.duty_pct > before + 100 * process.collection_ns / 20e9
    process.collection_ns = 10**9
    windows._began_ns -= 10**11
    assert windows.may("eager", 0), "the next one collects nothing"


def test_long_calls_have_windows_of_one_step() -> None:
    assert [profile.Windows.steps(ns) for ns in (1_000, 50_000_000, 50_000_001)] == [3, 3, 1]


def test_code_that_profiles_itself_is_refused_in_words(process: Any) -> None:
    windows = profile.Windows(CASE)
    with torch.autograd.profiler.profile(use_kineto=True), pytest.raises(profile.ProfilerBusyError, match="profiles itself"):
        windows.take("eager", eager())
    assert windows.take("eager", eager())[0]["window"] == 1


def test_a_window_within_a_window_is_refused(process: Any) -> None:
    windows = profile.Windows(CASE)
    with pytest.raises(profile.ProfilerBusyError, match="being taken already"):
        windows.take("eager", lambda: windows.take("eager", eager()))
    assert windows.take("eager", eager())[0]["window"] >= 1


def test_a_call_that_fails_leaves_the_profiler_usable(process: Any) -> None:
    calls = 0

    def fails_at(number: int) -> None:
        nonlocal calls
        calls += 1
        torch.ones(2)
        if calls == number:
            raise MemoryError

    windows = profile.Windows(CASE)
    for number in (1, 2):  # before the trace is started, and while it runs
        calls = 0
        with pytest.raises(MemoryError):
            windows.take("a", lambda at=number: fails_at(at), 1)
    assert profile.check() == {"ok": True, "why_not": None}
    assert len(windows.take("eager", eager())[1]["name"][1]) > 15


def test_peak_memory_is_what_the_call_must_hold() -> None:
    case = Case.of("2,4,64,16", dtype="fp32", causal=False)
    made = inputs.make(case, 0)
    square, out = 2 * 4 * 64 * 64 * 4, 2 * 4 * 64 * 16 * 4
    eager_peak = memory.peak(lambda: (made.q @ made.k.mT).softmax(-1) @ made.v, case)
    assert eager_peak == 2 * square, "scores and weights stand side by side; scores go before the output comes"
    assert memory.peak(lambda: made.q + made.q, case) == 2 * 4 * 64 * 16 * 4 == out
    assert memory.peak(lambda: made.q.mT, case) == 0


def test_a_deep_capture_is_a_trace_that_opens(tmp_path: Path, process: Any) -> None:
    path = tmp_path / "new" / "deep.json.gz"
    said = profile.deep(eager(), path, 2, variant="eager")
    assert said["bytes"] == path.stat().st_size
    assert [other.name for other in path.parent.iterdir()] == ["deep.json.gz"]
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    categories = {event.get("cat") for event in events}
    assert {"cpu_op", "user_annotation", "python_function", "cpu_instant_event"} <= categories
    assert any("Input Dims" in event.get("args", {}) for event in events if event.get("cat") == "cpu_op")
    (trace,) = kinetop.open(path).traces
    names = trace.events.collect()["name"].to_list()
    assert names.count("kinetop.step|eager|0|0") == names.count("kinetop.step|eager|0|1") == 1
    assert names.count("kinetop.part|softmax") == 2


def test_a_deep_capture_that_is_not_packed(tmp_path: Path, process: Any) -> None:
    profile.deep(eager(), tmp_path / "deep.json", 1)
    assert json.loads((tmp_path / "deep.json").read_text())["traceEvents"]


@pytest.mark.slow
def test_windows_do_not_import_the_compiler() -> None:
    code = (
        "import sys\n"
        "from kinetop.traces.live.worker import profile\n"
        "print(profile.check())\n"
        "assert 'torch._inductor' not in sys.modules, 'seconds of imports before the first window'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})


class Event:
    """A raw event as Kineto gives it, made by hand: what a GPU would leave."""

    def __init__(self, name: str, kind: str, correlation: int, *, device_type: int = 0, nbytes: int = 0, at: int = 0) -> None:
        values = {
            "name": name,
            "activity_type": kind,
            "correlation_id": correlation,
            "linked_correlation_id": 0,
            "device_type": SimpleNamespace(value=device_type),
            "device_index": 0,
            "device_resource_id": 7,
            "start_ns": at,
            "duration_ns": 5,
            "nbytes": nbytes,
            "flops": 0,
            "shapes": [],
        }
        for member, value in values.items():
            setattr(self, member, lambda value=value: value)


def test_launches_without_work_are_counted() -> None:
    names = kineto.Names()
    events = [
        Event("aten::mm", "cpu_op", 1),
        Event("cudaLaunchKernel", "cuda_runtime", 10),
        Event("sgemm", "kernel", 10, device_type=1),
        Event("cuLaunchKernelEx", "cuda_driver", 11),
        Event("cudaGraphLaunch", "cuda_runtime", 12),
        Event("k1", "kernel", 12, device_type=1),
        Event("k2", "kernel", 12, device_type=1),
        Event("cudaMemcpyAsync", "cuda_runtime", 13),
        Event("cudaMemsetAsync", "cuda_runtime", 14),
        Event("Memset (Device)", "gpu_memset", 14, device_type=1),
        Event("cudaDeviceSynchronize", "cuda_runtime", 15),
        Event("cudaLaunchHostFunc", "cuda_runtime", 16),
        Event("cudaOccupancyMaxActiveBlocksPerMultiprocessor", "cuda_runtime", 17),
    ]
    rows = kineto.rows(events, names)
    assert kineto.dropped(rows, names) == 2, "the driver's launch and the copy have no work"
    assert rows.kinds == ["cpu_op", "cuda_runtime", "kernel", "cuda_driver", "gpu_memset"]


@pytest.mark.parametrize(
    ("name", "device_type", "kind"),
    [
        ("aten::mm", 0, "cpu_op"),
        ("[memory]", 0, "cpu_instant_event"),
        ("cudaLaunchKernel", 0, "cuda_runtime"),
        ("cuda_helper", 0, "cpu_op"),
        ("sgemm", 1, "kernel"),
        ("Memcpy DtoD (Device -> Device)", 1, "gpu_memcpy"),
        ("Memset (Device)", 1, "gpu_memset"),
        ("Stream Wait Event", 1, "cuda_sync"),
        ("kinetop.step|eager|1|0", 1, "gpu_user_annotation"),
        ("kinetop.part|qk", 0, "user_annotation"),
        ("my range", 0, "user_annotation"),
    ],
)
def test_older_torch_gives_no_activity_and_microseconds(name: str, device_type: int, kind: str) -> None:
    event = Event(name, "", 1, device_type=device_type)
    del event.activity_type, event.start_ns, event.duration_ns
    event.start_us, event.duration_us = lambda: 3, lambda: 2
    event.scope = lambda: 7 if name == "my range" else 0
    rows = kineto.rows([event], kineto.Names())
    assert rows.kinds == [kind]
    assert (rows.columns["start_ns"], rows.columns["dur_ns"]) == ([3000], [2000])


@pytest.mark.parametrize(("device_type", "kind"), [(0, "user_annotation"), (1, "gpu_user_annotation")])
def test_older_torch_says_what_is_an_annotation(device_type: int, kind: str) -> None:
    event = Event("my range", "", 1, device_type=device_type)
    del event.activity_type
    event.is_user_annotation = lambda: True
    assert kineto.rows([event], kineto.Names()).kinds == [kind]


def test_kinds_that_are_worked_out_are_those_that_torch_gives() -> None:
    with profile.recording("cpu", profile_memory=True) as profiler, profile.started(profiler, "cpu"), ranges.taking():
        eager()()
    for event in profile.events(profiler):
        kept = {name: getattr(event, name) for name in ("name", "is_user_annotation", "scope")}
        assert kineto._kind(SimpleNamespace(**kept), event.name(), 0) == event.activity_type()


def test_peak_is_the_largest_running_sum_in_order_of_time() -> None:
    moves = [(3, -100), (1, 100), (2, 50), (4, 20), (5, 10)]
    events = [Event("[memory]", "cpu_instant_event", 0, nbytes=nbytes, at=at) for at, nbytes in moves]
    events += [
        Event("[memory]", "cpu_instant_event", 0, nbytes=9999, at=2, device_type=1),
        Event("aten::mm", "cpu_op", 1, nbytes=500),
    ]
    assert kineto.peak_bytes(events) == 150


@pytest.mark.slow
def test_windows_do_not_recompile_what_has_parts(process: Any) -> None:
    compiled = 0

    def backend(graph: Any, example: Any) -> Any:
        nonlocal compiled
        compiled += 1
        return graph.forward

    def function(x: Any) -> Any:
        with ranges.part("scale"):
            return x * 2

    call = torch.compile(function, backend=backend, fullgraph=True)
    call(torch.ones(3))
    with ranges.taking():
        call(torch.ones(3))
    assert compiled == 1
