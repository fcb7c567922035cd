"""The generator's own figures against a count of the file it wrote, and against kinetop's."""

from __future__ import annotations

import gzip
import json
from dataclasses import asdict
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

import kinetop
from kinetop.traces.synthetic import CAUSES, Plan, Written, write, write_demo

if TYPE_CHECKING:
    from pathlib import Path

SMALL = Plan(ranks=2, steps=2, layers=3, seed=4, straggler=1)


def events_of(path: Path) -> list[dict[str, Any]]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return json.loads(text, parse_float=Decimal)["traceEvents"]


def marked(events: list[dict[str, Any]], wanted: str) -> int:
    """Every nanosecond that a class of work covers, as one bit each of a very long integer: hard to get wrong."""
    covered = 0
    for event in events:
        kind = "memory" if event["cat"] == "gpu_memcpy" else "comm" if "Collective name" in event["args"] else "compute"
        if kind == wanted:
            covered |= ((1 << int(event["dur"] * 1000)) - 1) << int((event["ts"] - events[0]["ts"] + 1_000) * 1000)
    return covered


def counted(path: Path) -> dict[str, int]:
    events = events_of(path)
    work = [event for event in events if event.get("cat") in {"kernel", "gpu_memcpy"}]
    kernels = [event for event in work if event["cat"] == "kernel"]
    compute, comm, memory = (marked(work, kind) for kind in ("compute", "comm", "memory"))
    busy = compute | comm | memory
    span = busy.bit_length() - ((busy & -busy).bit_length() - 1)
    return {
        "events": len(events),
        "kernels": len(kernels),
        "copies": len(work) - len(kernels),
        "kernel_sum_ns": sum(int(event["dur"] * 1000) for event in kernels),
        "busy_ns": busy.bit_count(),
        "span_ns": span,
        "idle_ns": span - busy.bit_count(),
        "compute_ns": compute.bit_count(),
        "comm_ns": comm.bit_count(),
        "memory_ns": memory.bit_count(),
        "overlap_ns": (comm & compute).bit_count(),
    }


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> list[Written]:
    return write(SMALL, tmp_path_factory.mktemp("small"))


def test_figures_equal_a_count_of_the_file(tmp_path: Path) -> None:
    for file in write(Plan(ranks=2, steps=1, layers=1, seed=9, straggler=0), tmp_path):
        figures = asdict(file.figures)
        assert {name: figures[name] for name in counted(file.path)} == counted(file.path)


@pytest.mark.parametrize("cause", [None, *CAUSES])
def test_figures_equal_kinetops(tmp_path: Path, cause: str | None) -> None:
    plan = Plan(ranks=2, steps=2, layers=3, seed=4, straggler=1, causes=(cause,) if cause else ())
    files = write(plan, tmp_path, compress=True)
    summary = kinetop.summary(kinetop.open(tmp_path)).rows(named=True)
    assert len(summary) == len(files)
    for row, file in zip(summary, files, strict=True):
        assert (row["rank"], row["device"]) == (file.rank, file.device)
        assert (row["kernels"], row["copies"]) == (file.figures.kernels, file.figures.copies)
        for name in ("kernel_sum", "busy", "span", "idle", "compute", "comm", "memory", "overlap"):
            assert row[f"{name}_us"] == pytest.approx(getattr(file.figures, f"{name}_ns") / 1000, abs=0.001), name


def test_same_plan_gives_the_same_bytes(tmp_path: Path, small: list[Written]) -> None:
    again = write(SMALL, tmp_path / "again")
    assert [file.path.read_bytes() for file in again] == [file.path.read_bytes() for file in small]
    packed = [write(SMALL, tmp_path / name, compress=True)[0].path.read_bytes() for name in ("a", "b")]
    assert packed[0] == packed[1]
    assert gzip.decompress(packed[0]) == small[0].path.read_bytes()


def test_another_seed_gives_other_times(tmp_path: Path, small: list[Written]) -> None:
    other = write(Plan(ranks=2, steps=2, layers=3, seed=5, straggler=1), tmp_path)
    assert other[0].figures.kernels == small[0].figures.kernels
    assert other[0].figures.busy_ns != small[0].figures.busy_ns


@pytest.mark.parametrize("wanted", [8_000, 20_000, 100_000])
def test_the_wanted_number_of_events_is_met(tmp_path: Path, wanted: int) -> None:
    files = write(Plan(events=wanted), tmp_path)
    assert sum(file.figures.events for file in files) == pytest.approx(wanted, rel=0.05)


def test_causes_add_the_time_they_say(tmp_path: Path) -> None:
    plain = Plan(ranks=2, steps=2, layers=2, seed=3, straggler=1)
    base = write(plain, tmp_path / "base")
    for cause in CAUSES:
        planted = write(Plan(ranks=2, steps=2, layers=2, seed=3, straggler=1, causes=(cause,)), tmp_path / cause)
        slower = planted[1].figures
        assert slower.planted_ns > 0, cause
        assert base[1].figures.planted_ns == 0
        if cause == "exposed-all-reduce":
            extra = (slower.comm_ns - slower.overlap_ns) - (base[1].figures.comm_ns - base[1].figures.overlap_ns)
            assert extra == pytest.approx(12_000_000, rel=0.05)
        if cause == "data-loader":
            assert slower.idle_ns - base[1].figures.idle_ns > 8_000_000  # the first step's wait lies before its first kernel


def test_a_collective_ends_at_one_time_on_all_ranks(small: list[Written]) -> None:
    ends: list[dict[int, Decimal]] = []
    for file in small:
        rows = [event for event in events_of(file.path) if event.get("cat") == "kernel" and "Seq" in event["args"]]
        ends.append({event["args"]["Seq"]: event["ts"] + event["dur"] for event in rows})
    assert ends[0] == ends[1]
    assert len(ends[0]) == 2 * (3 + 3 + 1)


def test_launches_and_flows_match_the_gpu_work(small: list[Written]) -> None:
    events = events_of(small[0].path)
    work = [event for event in events if event.get("cat") in {"kernel", "gpu_memcpy"}]
    launched = [
        event for event in events if event.get("cat") == "cuda_runtime" and event["name"].startswith(("cudaLaunch", "cudaMemcpy"))
    ]
    ids = sorted(event["args"]["correlation"] for event in work)
    assert ids == sorted(event["args"]["correlation"] for event in launched)
    for end in "sf":
        assert ids == sorted(event["id"] for event in events if event["ph"] == end)


def test_one_stream_runs_one_thing_at_a_time(small: list[Written]) -> None:
    last: dict[int, Decimal] = {}
    work = [event for event in events_of(small[0].path) if event.get("cat") in {"kernel", "gpu_memcpy"}]
    for event in sorted(work, key=lambda event: event["ts"]):
        stream = event["args"]["stream"]
        assert event["ts"] >= last.get(stream, 0)
        last[stream] = event["ts"] + event["dur"]
    assert len(last) == 3


def test_host_ranges_nest(small: list[Written]) -> None:
    events = [event for event in events_of(small[0].path) if event.get("cat") in {"cpu_op", "user_annotation", "cuda_runtime"}]
    for thread in {event["tid"] for event in events}:
        ends: list[Decimal] = []
        for event in sorted((e for e in events if e["tid"] == thread), key=lambda e: (e["ts"], -e["dur"])):
            end = event["ts"] + event["dur"]
            while ends and ends[-1] <= event["ts"]:
                ends.pop()
            assert not ends or end <= ends[-1], event["name"]
            ends.append(end)


def test_demo_is_two_ranks_of_a_readable_size(tmp_path: Path) -> None:
    paths = write_demo(tmp_path)
    assert [path.name for path in paths] == ["rank-0.pt.trace.json", "rank-1.pt.trace.json"]
    assert 20_000 <= sum(len(events_of(path)) for path in paths) <= 40_000


@pytest.mark.parametrize("plan", [{"causes": ("gremlins",)}, {"ranks": 0}, {"layers": 0}, {"steps": 0}])
def test_a_plan_that_makes_no_sense_is_refused(plan: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"causes are|at least 1"):
        Plan(**plan)


def test_no_more_memory_is_allocated_than_reserved_and_each_step_gives_its_own_back(tmp_path: Path) -> None:
    # Layers enough that a step holds more than is reserved at the start.
    for written in write(Plan(ranks=1, steps=3, layers=60, seed=4), tmp_path):
        told = [event["args"] for event in events_of(written.path) if event["name"] == "[memory]"]
        allocated, reserved = ([one[f"Total {what}"] for one in told] for what in ("Allocated", "Reserved"))
        assert all(held >= used > 0 for held, used in zip(reserved, allocated, strict=True))
        assert max(allocated) > reserved[0]
        assert allocated.count(min(allocated)) == 3
