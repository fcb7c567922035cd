"""Forward and backward by sequence number, and recomputation: rows made by hand, and traces of torch beside torch's own table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import kinetop
from kinetop.analysis.question import all_questions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def op(name: str, thread: str, start: int, dur: int, seq: int | None = None, fwd: int = 0, dims: str = "[[4]]") -> dict[str, Any]:
    at = {"ph": "X", "cat": "cpu_op", "name": name, "process": "9", "thread": thread, "ts_ns": 1000 * start, "dur_ns": 1000 * dur}
    return {**at, "input_dims": dims, "sequence_number": seq, "fwd_thread_id": None if seq is None else fwd}


def launch(thread: str, start: int, correlation: int, dur: int) -> list[dict[str, Any]]:
    call = {
        "cat": "cuda_runtime",
        "name": "cudaLaunchKernel",
        "process": "9",
        "thread": thread,
        "dur_ns": 1000,
        "ts_ns": 1000 * start,
    }
    work = {"cat": "kernel", "name": "k", "process": "0", "thread": "7", "device": 0, "stream": 7}
    work |= {"ts_ns": 1000 * (500 + 20 * correlation), "dur_ns": 1000 * dur}
    return [{"ph": "X", "correlation": correlation, **row} for row in (call, work)]


def asked(trace: kinetop.TraceSet, **scope: Any) -> pl.DataFrame:
    return all_questions()["ops"].ask(trace, view="autograd", **scope).tables["autograd"]


EVALUATE = "autograd::engine::evaluate_function: "
FORWARD = [
    op("aten::linear", "1", 0, 12, 5), op("aten::t", "1", 1, 2, 5), op("aten::addmm", "1", 4, 6, 6), *launch("1", 5, 1, 8),
    op("aten::relu", "1", 14, 4, 7), *launch("1", 15, 2, 2),
]  # fmt: skip
BACKWARD = [
    op(f"{EVALUATE}ReluBackward0", "2", 100, 60, 7, 1), op("ReluBackward0", "2", 101, 58, 7, 1), *launch("2", 156, 3, 3),
    op(f"{EVALUATE}AddmmBackward0", "2", 170, 20, 6, 1), op("AddmmBackward0", "2", 171, 18, 6, 1),
    op("aten::mm", "2", 172, 8), *launch("2", 173, 4, 20),
    op(f"{EVALUATE}AlienBackward0", "2", 195, 2, 99, 4),
]  # fmt: skip
DECOY = [op("aten::other", "3", 0, 5, 6), op("aten::relu", "2", 210, 5, 7)]
"""The numbers on another thread, and on the right one after the backward."""
AGAIN = [op("aten::addmm", "2", 110, 20, 40), *launch("2", 112, 5, 9), op("aten::unlike", "2", 135, 5, 41)]
"""Inside backward: one that ran forward, and one that did not."""


@pytest.mark.parametrize("again", [False, True])
def test_links_by_number_and_thread(made: Callable[..., Any], again: bool) -> None:
    found = asked(made([*FORWARD, *BACKWARD, *DECOY, *(AGAIN if again else [])]))
    rows = {row["backward"]: row for row in found.iter_rows(named=True)}
    assert {node: row["name"] for node, row in rows.items()} == {
        "ReluBackward0": "aten::relu", "AddmmBackward0": "aten::addmm", "AlienBackward0": None,
    }  # fmt: skip
    addmm, relu = rows["AddmmBackward0"], rows["ReluBackward0"]
    assert (addmm["forward_calls"], addmm["forward_cpu_us"], addmm["forward_device_us"]) == (1, 6, 8)
    assert (addmm["backward_calls"], addmm["backward_cpu_us"], addmm["backward_device_us"]) == (1, 20, 20)
    assert addmm["device_ratio"] == 2.5
    assert (addmm["recompute_calls"], addmm["recompute_cpu_us"], addmm["recompute_device_us"]) == (
        (1, 20, 9) if again else (0, 0, 0)
    )
    assert (relu["backward_cpu_us"], relu["backward_device_us"]) == (40 if again else 60, 3)
    assert relu["device_ratio"] == 1.5


def test_a_number_belongs_to_the_last_operator_that_began_with_it(made: Callable[..., Any]) -> None:
    backward = [op(f"{EVALUATE}TBackward0", "2", 300, 4, 5, 1), *BACKWARD]
    found = asked(made([*FORWARD, *backward]))
    assert found.filter(pl.col("backward") == "TBackward0")["name"].to_list() == ["aten::t"]
    assert "aten::linear" not in found["name"]


def test_none_without_backward(hazards: Path, made: Callable[..., Any]) -> None:
    for trace in (made(FORWARD), kinetop.open(hazards / "75_cpu_only.json")):
        assert asked(trace).is_empty()


def test_checkpointed_resnet(real: Callable[[str], kinetop.TraceSet]) -> None:
    trace = real("mi300_resnet.json.gz")
    found = asked(trace)
    convolution = found.filter(pl.col("name") == "aten::convolution").row(0, named=True)
    # 20 convolutions a step, three steps; the first of each lies outside the blocks that are checkpointed.
    assert [convolution[f"{phase}_calls"] for phase in ("forward", "backward", "recompute")] == [60, 60, 57]
    ops = kinetop.ops(trace, group_by="thread").filter(pl.col("name").str.starts_with("process"))
    assert found.select(pl.sum_horizontal(pl.selectors.ends_with("device_us"))).sum().item() < ops["self_device_us"].sum()
    assert found.select(pl.sum_horizontal(pl.selectors.ends_with("cpu_us"))).sum().item() < ops["self_cpu_us"].sum()


@pytest.mark.parametrize("reentrant", [False, True])
def test_beside_torch(tmp_path: Path, reentrant: bool) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from torch.utils.checkpoint import checkpoint

    inner = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8))
    outer, given = torch.nn.Linear(8, 4), torch.randn(32, 8, requires_grad=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        for _ in range(3):
            outer(checkpoint(inner, given, use_reentrant=reentrant)).sum().backward()
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    trace = kinetop.open(tmp_path / "trace.json", cache=False)

    rows = {row["name"]: row for row in asked(trace).iter_rows(named=True) if row["name"]}
    addmm, relu = rows["aten::addmm"], rows["aten::relu"]
    # A reentrant checkpoint runs its first forward without autograd, which numbers nothing then.
    assert [addmm[f"{phase}_calls"] for phase in ("forward", "backward", "recompute")] == [3 if reentrant else 9, 9, 6]
    assert [relu[f"{phase}_calls"] for phase in ("forward", "backward", "recompute")] == [0 if reentrant else 3, 3, 3]
    assert rows["aten::sum"]["recompute_calls"] == 0

    ops = {row[0]: row[1:] for row in kinetop.ops(trace).select("name", "calls", "self_cpu_us", "total_cpu_us").rows()}
    for one in profile.key_averages():
        calls, own, whole = ops[one.key]
        assert own == pytest.approx(one.self_cpu_time_total, abs=0.01)
        assert whole == pytest.approx(one.cpu_time_total, abs=0.01)
        if one.key != "aten::sum":  # calls itself, which torch counts as one call
            assert calls == one.count
