"""How much GPU time is linked, and the verdict: planted cases, and the real traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

import kinetop
from kinetop.analysis.coverage import COVERAGE_FIELDS, coverage
from kinetop.analysis.work import scoped
from kinetop.traces.trace import TraceSet

if TYPE_CHECKING:
    from pathlib import Path

Made = Callable[..., TraceSet]
US = 1_000


def gpu(start: int, correlation: int | None, dur: int = 10, **more: Any) -> dict[str, Any]:
    """A kernel; times in microseconds."""
    row = {"ph": "X", "cat": "kernel", "name": "k", "process": "0", "thread": "7", "device": 0, "stream": 7}
    return {**row, "ts_ns": start * US, "dur_ns": dur * US, "correlation": correlation, **more}


def call(start: int, correlation: int) -> dict[str, Any]:
    row = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "process": "42", "thread": "42"}
    return {**row, "ts_ns": start * US, "dur_ns": 2 * US, "correlation": correlation}


def told(trace: TraceSet, **options: Any) -> dict[str, Any]:
    found = coverage(scoped(trace, **options))
    assert list(found) == [field.name for field in COVERAGE_FIELDS]
    return found


def test_shares_are_of_time_and_sum_to_a_hundred(made: Made) -> None:
    rows = [gpu(100, 1, 30), gpu(200, 10, 50), gpu(300, 11, 10), gpu(400, 12, 10)]
    found = told(made([*rows, call(150, 10), call(160, 12)]))
    assert (found["linked_pct"], found["before_window_pct"], found["no_launch_pct"]) == (60.0, 30.0, 10.0)
    assert (found["gpu_events"], found["unlinked"], found["before_window"]) == (4, 2, 1)
    assert found["verdict"] == "partial"
    assert found["why"] == (
        "40.0 % of GPU time has no launch record (30.0 % was launched before the capture began): "
        "time figures are complete, launch figures are not."
    )


def test_without_ids_the_first_launch_divides(made: Made) -> None:
    found = told(made([gpu(10, None), gpu(100, 5), gpu(200, None), call(50, 5)]))
    assert (found["unlinked"], found["before_window"]) == (2, 1)


def test_a_filter_does_not_move_the_start_of_the_capture(made: Made) -> None:
    trace = made([gpu(100, 10, name="first"), gpu(200, 11, name="lost"), gpu(300, 12, name="last"), call(50, 10), call(60, 12)])
    assert told(trace, where="lost")["no_launch_pct"] == 100.0
    assert told(trace, where="first")["linked_pct"] == 100.0


def test_no_launch_records_at_all(made: Made) -> None:
    found = told(made([gpu(100, 1), gpu(200, 2)]))
    assert (found["linked_pct"], found["before_window_pct"], found["no_launch_pct"]) == (0.0, 0.0, 100.0)
    assert found["verdict"] == "partial"


def test_overlap_is_counted_per_stream(made: Made) -> None:
    rows = [gpu(100, 1, 20), gpu(110, 2, 20), gpu(105, 3, 20, stream=8)]
    assert told(made([*rows, *(call(at, at) for at in (1, 2, 3))]))["same_stream_overlap_us"] == 10.0


def test_zero_length_and_clipped(made: Made) -> None:
    rows = [gpu(100 + 20 * at, at) for at in range(10)]
    rows[3]["dur_ns"] = 2_000_000 * US
    rows[9]["dur_ns"] = -5
    found = told(made([*rows, *(call(at, at) for at in range(10))]))
    assert (found["zero_or_clipped"], found["verdict"]) == (2, "partial")
    assert found["why"].startswith("What could be read is not all there was: ")


def test_zero_lengths_alone_are_weighed_by_number(made: Made) -> None:
    assert told(made([gpu(100, 1, 0), gpu(200, 2, 0), call(1, 1)]))["linked_pct"] == 50.0


def test_no_gpu_work(made: Made) -> None:
    found = told(made([call(1, 1)]))
    assert (found["verdict"], found["linked_pct"], found["gpu_events"]) == ("no gpu", None, 0)
    assert told(made([]))["verdict"] == "no gpu"
    trace = made([gpu(100, 1), call(1, 1)])
    assert told(trace, where="nothing has this name")["why"].startswith("No GPU event is in scope")


@pytest.mark.parametrize(
    ("name", "unlinked", "verdict"),
    [
        ("h100_qwen.json.gz", 509, "partial"),
        ("recsys_rank0.json.gz", 872, "partial"),
        ("mi300_resnet.json.gz", 968, "partial"),
        ("a100_vit_cudagraph.json.gz", 0, "trust"),
        ("cpu_only_memory.json.gz", 0, "no gpu"),
    ],
)
def test_real_traces(shared: Path, name: str, unlinked: int, verdict: str) -> None:
    found = told(kinetop.open(shared / "traces" / name))
    assert (found["unlinked"], found["verdict"]) == (unlinked, verdict)
    assert found["before_window"] == unlinked
    if name == "mi300_resnet.json.gz":
        assert 31 < found["before_window_pct"] < 33
