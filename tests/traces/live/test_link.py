"""The real worker, with tiny cases on the CPU: live rounds, benchmarks, captures, and variants that misbehave."""

from __future__ import annotations

import asyncio
import dataclasses
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from kinetop.traces.errors import WorkerError
from kinetop.traces.live.link import Link, Start, Timeouts
from kinetop.traces.live.measure import measure
from kinetop.traces.live.worker.case import Case

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kinetop.traces.live.worker.frames import Frame

pytestmark = [pytest.mark.usefixtures("torch"), pytest.mark.slow]

TINY = Case.of("1,2,16,8", dtype="fp32")
PLUGIN = """
import ctypes, os, signal, sys, time, threading
import torch
from kinetop.traces.live.worker.variant import Built, Variant

def fine(inputs):
    return Built(lambda: torch.nn.functional.scaled_dot_product_attention(inputs.q, inputs.k, inputs.v, is_causal=True))

def prints(case, inputs):
    print("KTP1 by print"); os.write(1, b"KTP1 by descriptor\\n"); sys.stdout.flush()
    return fine(inputs)

def out_of_memory(case, inputs):
    torch.empty(1 << 55)

def cuda_out_of_memory(case, inputs):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 EiB")

def raises(case, inputs):
    raise ValueError("this is wrong\\nand goes on")

def exits(case, inputs):
    sys.exit("as a program would")

def vanishes(case, inputs):
    os._exit(7)

def segfaults(case, inputs):
    ctypes.string_at(0)

def hangs(case, inputs):
    time.sleep(600)

def holds_the_lock(case, inputs):
    ctypes.PyDLL(None).usleep(600_000_000)

def later(case, inputs):
    calls = 0
    def call():
        nonlocal calls
        calls += 1
        if calls > 12: raise RuntimeError("worn out")
        return fine(inputs).call()
    return Built(call)

def eats_standard_input(case, inputs):
    assert sys.stdin.read() == ""
    return fine(inputs)

made = [prints, out_of_memory, cuda_out_of_memory, raises, exits, vanishes, segfaults, hangs, holds_the_lock, later]
made += [eats_standard_input]

def variant(build):
    limit = 2 if build is hangs else 60
    return Variant(name=f"my:{build.__name__}", title="", group="mine", about="It misbehaves.", build=build, timeout_s=limit)

variants = [variant(build) for build in made]
"""


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """The real worker with variants that misbehave."""
    (tmp_path / "misbehaving.py").write_text(PLUGIN)
    environment = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(tmp_path)}
    return Start(python=sys.executable, plugins=("misbehaving",), environment=environment)


PATIENT = Timeouts(stop_s=1.0, backoff_s=0.01)


def states(frames: list[Frame], variant: str) -> list[str]:
    return [frame.header["state"] for frame in frames if frame.kind == "state" and frame.header["variant"] == variant]


def sampled(*variants: str) -> Callable[[Frame], bool]:
    """Tell when all these variants were sampled."""
    missing = set(variants)

    def stop(frame: Frame) -> bool:
        if frame.kind == "samples":
            missing.discard(frame.header["variant"])
        return not missing

    return stop


async def test_live_rounds_then_another_case_a_pause_a_capture_and_the_end(start: Start, ask, tmp_path) -> None:
    async with Link(start, timeouts=PATIENT) as link:
        link.send("start", case=TINY, variants=["eager", "sdpa:math", "sdpa:cudnn"], round_ms=20)
        seen = await ask.until(link, ask.kind("window"), 90)
        hello = next(frame for frame in seen if frame.kind == "hello")
        assert hello.header["environment"]["torch"]
        assert {"eager", "sdpa:math", "my:prints"} <= {one["name"] for one in hello.header["variants"]}
        assert states(seen, "eager")[:2] == ["COLD", "RUNNING"]
        assert states(seen, "sdpa:cudnn")[-1] == "UNAVAILABLE"
        samples = [frame for frame in seen if frame.kind == "samples"]
        assert all(value > 0 for frame in samples for value in frame.columns["ns"])
        assert {frame.header["case"]["q_len"] for frame in samples} == {16}
        child = link._child.pid

        link.send("start", case=TINY.with_(q_len=32, kv_len=32), variants=["eager"], round_ms=20)
        seen = await ask.until(link, lambda frame: frame.kind == "samples" and frame.header["case"]["q_len"] == 32)
        link.send("capture", variant="eager", path=str(tmp_path / "deep.json.gz"), steps=2)
        await ask.until(link, ask.kind("captured"))
        assert (tmp_path / "deep.json.gz").read_bytes()[:2] == b"\x1f\x8b"

        link.send("pause")
        await ask.until(link, lambda frame: frame.header.get("state") == "PAUSED")
        quiet = [frame.kind for frame in await ask.until(link, ask.kind("telemetry"))]
        assert "samples" not in quiet
        link.send("resume")
        await ask.until(link, ask.kind("samples"))
    assert not ask.alive(child)


async def test_bench_takes_as_many_samples_as_asked_interleaved_and_says_done(start: Start, ask, tmp_path) -> None:
    async with Link(start, timeouts=PATIENT) as link:
        order = {"samples": 30, "min_time_ms": 5, "windows": 1, "trace_dir": str(tmp_path / "traces")}
        link.send("bench", case=TINY, variants=["eager", "sdpa:*"], **order)
        seen = await ask.until(link, ask.kind("done"), 90)
    names = [frame.header["variant"] for frame in seen if frame.kind == "samples"]
    for name in ("eager", "sdpa:math", "sdpa:flash"):
        taken = [
            value
            for frame in seen
            if frame.kind == "samples" and frame.header["variant"] == name
            for value in frame.columns["ns"]
        ]
        assert len(taken) >= 30
        assert sum(taken) >= 5e6
        assert len([frame for frame in seen if frame.kind == "window" and frame.header["variant"] == name]) == 1
    changes = sum(one != other for one, other in pairwise(names))
    assert changes >= 10  # each round changes twice or more; one after the other it would be two or three in all
    prepared = {frame.header["variant"]: frame.header for frame in seen if frame.kind == "prepared"}
    assert prepared["eager"]["error"]["ok"]
    assert prepared["eager"]["flops_useful"] == 2 * 1 * 2 * (8 + 8) * (16 * 17 / 2)
    files = sorted(path.name for path in (tmp_path / "traces").iterdir())
    assert f"eager-{TINY.text.replace(',', '-').replace(' ', '-')}.json.gz" in files
    assert len(files) == len(prepared)


async def test_a_worker_through_ssh_sends_its_traces(start: Start, ask, ssh: Path, tmp_path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    async with Link(dataclasses.replace(start, host="me@box"), timeouts=PATIENT) as link:
        link.send("bench", case=TINY, variants=["eager"], samples=3, min_time_ms=0, windows=0, trace_dir=str(folder))
        seen = await ask.until(link, ask.kind("done"), 90)
        link.send("capture", variant="eager", path=str(tmp_path / "deep.json.gz"), steps=2)
        seen += await ask.until(link, ask.kind("captured"))
    captured = [frame.header for frame in seen if frame.kind == "captured"]
    paths = [folder / f"eager-{TINY.text.replace(',', '-').replace(' ', '-')}.json.gz", tmp_path / "deep.json.gz"]
    assert [header["path"] for header in captured] == [str(path) for path in paths]
    for header, path in zip(captured, paths, strict=True):
        assert path.stat().st_size == header["trace_bytes"]
        assert "traceEvents" in json.loads(gzip.decompress(path.read_bytes()))


async def test_what_a_variant_does_to_the_worker_is_its_own(start: Start, ask) -> None:
    bad = {
        "out_of_memory": "RuntimeError",
        "cuda_out_of_memory": "OutOfMemoryError",
        "raises": "ValueError",
        "exits": "SystemExit",
    }
    names = ["my:prints", *(f"my:{name}" for name in bad), "my:eats_standard_input", "eager"]
    async with Link(start, timeouts=PATIENT) as link:
        link.send("bench", case=TINY, variants=names, samples=3, min_time_ms=0)
        seen = await ask.until(link, ask.kind("done"), 90)
    assert [frame.header["event"] for frame in seen if frame.kind == "link"] == ["started"]
    errors = {frame.header["variant"]: frame.header for frame in seen if frame.kind == "error"}
    for name, kind in bad.items():
        assert errors[f"my:{name}"]["type"] == kind
        assert states(seen, f"my:{name}")[-1] == "FAILED"
    assert "this is wrong" in errors["my:raises"]["detail"]
    for name in ("my:prints", "my:eats_standard_input", "eager"):
        assert any(frame.kind == "samples" and frame.header["variant"] == name for frame in seen)
    lines = [frame.header["line"] for frame in seen if frame.kind == "log"]
    assert {"KTP1 by print", "KTP1 by descriptor"} <= set(lines)


@pytest.mark.parametrize(
    ("name", "event", "why"),
    [
        ("my:vanishes", "lost", "exit code 7"),
        ("my:segfaults", "lost", "SIGSEGV"),
        ("my:hangs", "timeout", "preparing my:hangs took more than 2 s"),
        ("my:holds_the_lock", "hung", "no sign of life for 3 s (preparing my:holds_the_lock)"),
    ],
)
async def test_a_variant_that_ends_the_worker_is_left_out_and_the_others_go_on(name, event, why, start: Start, ask) -> None:
    async with Link(start, timeouts=dataclasses.replace(PATIENT, silence_s=3.0)) as link:
        link.send("start", case=TINY, variants=[name, "eager"], round_ms=20)
        seen = await ask.until(link, ask.event("restarted"), 90)
        grief = next(frame.header for frame in seen if ask.event(event)(frame))
        assert why in grief["why"]
        assert grief["variant"] == name
        if event != "lost":  # the worker says where it was
            assert any(f" in {name.removeprefix('my:')}" in frame.header["line"] for frame in seen if frame.kind == "log")
        seen = await ask.until(link, sampled("eager"))
        assert states(seen, name) == ["FAILED"]


async def test_a_variant_that_fails_while_it_is_sampled_leaves_the_round(start: Start, ask) -> None:
    async with Link(start, timeouts=PATIENT) as link:
        link.send("start", case=TINY, variants=["my:later", "eager"], round_ms=20)
        seen = await ask.until(link, lambda frame: frame.header.get("state") == "FAILED", 90)
        assert seen[-1].header["why"] == "RuntimeError: worn out"
        await ask.until(link, sampled("eager"))


async def test_commands_that_cannot_be_done_are_answered(start: Start, ask) -> None:
    async with Link(start, timeouts=PATIENT) as link:
        link.send("dance")
        link.send("bench", case=TINY, variants=["eagre"])
        link.send("bench", case={"batch": 0}, variants=["eager"])
        link.send("capture", variant="eager", path="x")
        link.send("focus", variant="eager")
        await ask.until(link, ask.event("started"), 90)
        link._child.write(b"this is no JSON\n[]\n")
        seen = await ask.until(link, lambda frame: "this is no JSON" in frame.header.get("message", ""))
        link.send("bench", case=TINY, variants=["eagre"])
        seen += await ask.until(link, ask.kind("done"))
        said = " ".join(frame.header["message"] for frame in seen if frame.kind == "error")
        assert "dance: there is no such command" in said
        assert "there is no variant 'eagre'; near it: eager" in said
        assert "eager is not running" in said
        link.send("bench", case=TINY, variants=["eager"], samples=2, min_time_ms=0)
        await ask.until(link, sampled("eager"))


async def test_closing_while_it_computes_takes_no_time(start: Start, ask) -> None:
    link = Link(start, timeouts=PATIENT)
    link.send("bench", case=TINY, variants=["my:hangs"])
    await ask.until(link, lambda frame: frame.kind == "beat" and frame.header["doing"]["variant"] == "my:hangs", 90)
    child, began = link._child.pid, time.monotonic()
    await link.close()
    assert time.monotonic() - began < 2 * PATIENT.stop_s
    assert not ask.alive(child)


async def test_the_event_loop_goes_on_while_it_measures(start: Start, ask) -> None:
    """A tick of 10 ms beside a link and its consumer: nothing on the loop waits for the worker."""
    late: list[float] = []

    async def tick() -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.01)
            late.append(time.monotonic() - began - 0.01)

    async with Link(start, timeouts=PATIENT) as link:
        ticking = asyncio.create_task(tick())
        link.send("start", case=TINY, variants=["eager", "sdpa:math", "linear"], round_ms=100)
        end = time.monotonic() + 6
        await ask.until(link, lambda frame: frame.kind == "samples" and time.monotonic() > end, 90)
        ticking.cancel()
    assert sorted(late)[len(late) // 2] < 0.05
    assert max(late) < 2


def test_measure_returns_what_was_measured(start: Start) -> None:
    seen: list[str] = []
    cases = [TINY, TINY.with_(causal=False)]
    made = measure(
        start, cases, ["eager", "sdpa:math"], samples=10, min_time_ms=0, progress=lambda frame: seen.append(frame.kind)
    )
    assert [(variant, case) for variant, case in made.trials] == [
        (name, case.text) for case in cases for name in ("eager", "sdpa:math")
    ]
    assert all(len(trial.samples_ns) == 10 for trial in made.trials.values())
    assert all(len(trial.windows) == 1 for trial in made.trials.values())
    assert seen.count("done") == 2
    json.dumps(made.environment)


async def test_measure_can_be_called_where_a_loop_runs(start: Start) -> None:
    made = await asyncio.to_thread(measure, start, [TINY], ["eager"], samples=3, min_time_ms=0, windows=0)
    assert len(made.trials) == 1


def test_ctrl_c_ends_measuring_and_its_worker(start: Start, ask, tmp_path) -> None:
    code = f"""
import sys
from kinetop.traces.live.link import Start
from kinetop.traces.live.measure import measure
from kinetop.traces.live.worker.case import Case

def say(frame):
    if frame.kind == "window" or frame.header.get("doing", {{}}).get("variant") == "my:hangs": print("at it", flush=True)

start = Start(python=sys.executable, plugins=("misbehaving",), environment={start.environment!r})
measure(start, [Case.of("1,2,16,8", dtype="fp32")], ["my:hangs"], progress=say)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    host = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    while "at it" not in host.stdout.readline():
        assert host.poll() is None
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(host.pid)], capture_output=True, text=True, check=True)
    workers = [int(pid) for pid in listed.stdout.split()]
    assert len(workers) == 1
    host.send_signal(signal.SIGINT)
    _, errors = host.communicate(timeout=30)
    assert errors.strip().endswith("KeyboardInterrupt")
    assert not ask.alive(workers[0])


def test_measure_says_why_there_is_no_worker(tmp_path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    with pytest.raises(WorkerError, match=r"there is no torch in .*pip install torch"):
        measure(Start(python=str(bare)), [TINY], ["eager"])


async def test_a_device_that_is_not_there_is_said_of_each_variant(start: Start, ask) -> None:
    async with Link(start, timeouts=PATIENT) as link:
        for device in ("mps", "xpu:3"):
            link.send("bench", case=TINY.with_(device=device), variants=["eager", "sdpa:math"])
            seen = await ask.until(link, ask.kind("done"), 90)
            assert states(seen, "eager") == states(seen, "sdpa:math") == ["COLD", "UNAVAILABLE"]
            assert not [frame for frame in seen if frame.kind == "error"]


async def test_a_target_is_a_variant_and_one_that_cannot_be_had_is_said(start: Start, ask, tmp_path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("import torch\ndef attend(q, k, v):\n    return torch.nn.functional.scaled_dot_product_attention(q, k, v)\n")
    full = TINY.with_(causal=False)
    async with Link(dataclasses.replace(start, target=f"{path}:attend"), timeouts=PATIENT) as link:
        link.send("bench", case=full, variants=["target:*"], samples=3, min_time_ms=0)
        seen = await ask.until(link, ask.kind("done"), 90)
    assert [frame.header["variant"] for frame in seen if frame.kind == "prepared"] == ["target:attend"]
    async with Link(dataclasses.replace(start, target=f"{path}:gone"), timeouts=PATIENT) as link:
        seen = await ask.until(link, ask.event("started"), 90)
    (error,) = [frame.header for frame in seen if frame.kind == "error"]
    assert error["message"].startswith(f"--target {path}:gone: ")
    assert "has no gone" in error["message"]


async def test_windows_are_of_each_variant_first_and_then_mostly_of_the_chosen_one(start: Start, ask) -> None:
    windows: list[Frame] = []
    async with Link(start, timeouts=PATIENT) as link:
        link.send("start", case=TINY, variants=["eager", "sdpa:math"], round_ms=20, duty_pct=40)
        link.send("focus", variant="eager")
        await ask.until(link, lambda frame: frame.kind == "window" and not windows.append(frame) and len(windows) == 10, 90)
    names = [frame.header["variant"] for frame in windows]
    assert set(names[:2]) == {"eager", "sdpa:math"}
    assert 2 <= names.count("sdpa:math") <= 4
    first = {name: next(frame.header for frame in windows if frame.header["variant"] == name) for name in names}
    assert all("shapes" in header for header in first.values())
    assert "shapes" not in windows[-1].header
    assert windows[-1].header["duty_pct"] < 80
