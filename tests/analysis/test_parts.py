"""Parts of attention, from real windows of this CPU, from made GPU rows, and from real traces."""

from __future__ import annotations

import math
import shutil
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from kinetop.analysis import parts
from kinetop.traces.live.worker.case import Case

if TYPE_CHECKING:
    from collections.abc import Callable

    import kinetop
    from kinetop.traces.live.recording import Recording

CASE = Case.of("1,2,48,16", dtype="fp32")


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture
def tensors(torch: Any) -> tuple[Any, Any, Any]:
    return tuple(torch.randn(1, 2, 48, 16) for _ in range(3))


def eager(torch: Any, q: Any, k: Any, v: Any) -> Any:
    future = torch.ones(48, 48, dtype=torch.bool).triu(1)
    return lambda: torch.softmax((q @ k.transpose(-2, -1) / 4).masked_fill(future, -math.inf), -1) @ v


def shares(table: pl.DataFrame, variant: str | None = None) -> dict[str, float]:
    rows = table.filter(pl.col("variant").eq_missing(pl.lit(variant, pl.String)))
    return dict(zip(rows["part"], rows["dur_us"], strict=True))


def step_us(events: pl.DataFrame) -> float:
    steps = events.filter(pl.col("name").str.starts_with("kinetop.step|"))
    return steps["dur_ns"].mean() / 1000  # type: ignore[operator]


def test_unknown_eager_code_is_divided_by_order(windowed: Callable[..., Recording], torch: Any, tensors: Any) -> None:
    events = windowed(CASE, {"mine": eager(torch, *tensors)}).events()
    table = parts.split(events)
    assert table["part"].to_list() == list(parts.PARTS)
    found = shares(table, "mine")
    assert all(found[part] > 0 for part in ("qk", "scale", "mask", "softmax", "pv", "copy", "layout", "gaps"))
    assert found["fused"] == found["other"] == 0
    assert sum(found.values()) == pytest.approx(step_us(events), abs=1e-6)
    assert table["share_pct"].sum() == pytest.approx(100)
    assert table["steps"].unique().to_list() == [3]
    assert table["on"].unique().to_list() == ["cpu"]
    assert table["case"].unique().to_list() == [CASE.text]


def test_own_ranges_decide_and_hidden_copies_stand_out(windowed: Callable[..., Recording], torch: Any, tensors: Any) -> None:
    from kinetop.traces.live.worker.ranges import part

    q, k, v = tensors
    future = torch.ones(48, 48, dtype=torch.bool).triu(1)

    def labelled() -> Any:
        with part("qk"):
            scores = torch.cumsum(q @ k.transpose(-2, -1), -1)  # cumsum has no part by name
        with part("mask"):
            scores = scores.masked_fill(future, -math.inf)
        with part("word of my own"):
            scores = torch.softmax(scores, -1)
        with part("pv"):
            return scores @ v

    found = shares(parts.split(windowed(CASE, {"own": labelled}).events()), "own")
    assert all(found[part] > 0 for part in ("qk", "mask", "pv", "copy", "other"))
    assert found["softmax"] == found["layout"] == found["scale"] == 0


def test_sdpa_math_bf16_casts_and_flash_is_one_part(windowed: Callable[..., Recording], torch: Any, tensors: Any) -> None:
    from torch.nn import functional
    from torch.nn.attention import SDPBackend, sdpa_kernel

    small = [tensor.bfloat16() for tensor in tensors]

    def sdpa(backend: Any) -> Callable[[], Any]:
        def call() -> Any:
            with sdpa_kernel(backend):
                return functional.scaled_dot_product_attention(*small, is_causal=True)

        return call

    calls = {"math": sdpa(SDPBackend.MATH), "flash": sdpa(SDPBackend.FLASH_ATTENTION)}
    table = parts.split(windowed(CASE, calls).events())
    math_found, flash = shares(table, "math"), shares(table, "flash")
    assert all(math_found[part] > 0 for part in ("qk", "scale", "mask", "softmax", "pv", "cast"))
    assert math_found["fused"] == 0
    assert {part for part, us in flash.items() if us > 0} <= {"fused", "gaps"}


def test_backward_goes_to_the_same_parts(windowed: Callable[..., Recording], torch: Any, tensors: Any) -> None:
    q, k, v = (tensor.requires_grad_() for tensor in tensors)
    forward = eager(torch, q, k, v)
    events = windowed(CASE, {"mine": lambda: forward().sum().backward()}).events()
    found = shares(parts.split(events), "mine")
    assert sum(found.values()) == pytest.approx(step_us(events), abs=1e-6)
    seen = parts.operators(rows := parts.host_rows(events), parts.steps(rows))
    matmuls = seen.filter(pl.col("name") == "aten::bmm").sort("start_ns").filter(pl.col("step") == 0)
    assert matmuls["part"].to_list() == ["qk", "pv", "pv", "pv", "qk", "qk"]


def row(cat: str, name: str, ts: int, dur: int, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "ts_ns": ts, "dur_ns": dur, "process": "1", "thread": "1", **more}


def gpu(name: str, ts: int, dur: int, correlation: int) -> dict[str, Any]:
    return row("kernel", name, ts, dur, process="0", thread="7", correlation=correlation)


def launch(ts: int, correlation: int) -> dict[str, Any]:
    return row("cuda_runtime", "cudaLaunchKernel", ts, 2, correlation=correlation)


def test_gpu_work_counts_by_its_launch_and_a_shared_moment_once() -> None:
    rows = [
        row("user_annotation", "kinetop.step|eager|1|0", 0, 100),
        row("cpu_op", "aten::bmm", 0, 10), launch(2, 1), gpu("sm90_gemm", 100, 40, 1),
        row("user_annotation", "kinetop.part|mask", 10, 10), launch(12, 2), gpu("vectorized_kernel", 130, 30, 2),
        row("cpu_op", "aten::softmax", 20, 10), launch(22, 3), gpu("softmax_forward", 200, 20, 3),
        row("cpu_op", "aten::bmm", 30, 10), launch(32, 4), gpu("sm90_gemm", 220, 30, 4),
        launch(500, 5), gpu("flush_kernel", 600, 1000, 5),  # launched outside of the step
        row("user_annotation", "kinetop.step|flash|1|0", 1000, 100),
        launch(1002, 6), gpu("pytorch_flash::flash_fwd_kernel", 1200, 50, 6),  # no operator around it: its name says what it is
    ]  # fmt: skip
    table = parts.split(pl.DataFrame(rows))
    assert {part: us * 1000 for part, us in shares(table, "eager").items() if us} == pytest.approx(
        {"qk": 40, "mask": 20, "softmax": 20, "pv": 30, "gaps": 40}
    )
    assert {part: us * 1000 for part, us in shares(table, "flash").items() if us} == pytest.approx({"fused": 50})
    assert table["on"].unique().to_list() == ["gpu"]


def test_two_matmuls_of_a_compiled_graph() -> None:
    rows = [
        row("user_annotation", "kinetop.step|compiled|1|0", 0, 100),
        row("cpu_op", "## Call CompiledFxGraph abc ##", 10, 80),
        row("cpu_op", "aten::bmm", 20, 10),
        row("cpu_op", "aten::bmm", 50, 20),
    ]
    found = {part: us * 1000 for part, us in shares(parts.split(pl.DataFrame(rows)), "compiled").items() if us}
    assert found == pytest.approx({"qk": 10, "pv": 20, "fused": 50, "gaps": 20})


def test_a_trace_without_labels_counts_only_attention() -> None:
    rows = [
        row("user_annotation", "ProfilerStep#3", 0, 100),
        row("cpu_op", "aten::addmm", 0, 10),
        row("cpu_op", "aten::add", 10, 10),
        row("cpu_op", "aten::bmm", 20, 10),
        row("cpu_op", "aten::mul", 30, 10),
        row("cpu_op", "aten::softmax", 40, 10),
        row("cpu_op", "aten::bmm", 50, 10),
        row("cpu_op", "aten::mul", 60, 10),
    ]
    found = {part: us * 1000 for part, us in shares(parts.split(pl.DataFrame(rows))).items() if us}
    assert found == pytest.approx({"qk": 10, "scale": 10, "softmax": 10, "pv": 10, "other": 30, "gaps": 30})


@pytest.mark.parametrize("rows", [[], [row("python_function", "f", 0, 5)], [row("kernel", "k", 0, 5, correlation=1)]])
def test_nothing_to_divide_is_an_empty_table(rows: list[dict[str, Any]]) -> None:
    columns = {"ph": pl.String, "cat": pl.String, "name": pl.String, "ts_ns": pl.Int64, "dur_ns": pl.Int64}
    table = parts.split(pl.DataFrame(rows) if rows else pl.DataFrame(schema=columns))
    assert table.is_empty()
    assert table.columns == list(parts.PART_COLUMNS)


def test_a_real_trace_sums_to_its_steps(real: Callable[[str], kinetop.TraceSet], shared: Any) -> None:
    path = sorted((shared / "traces").rglob("*.json*"), key=lambda path: path.stat().st_size)[0]
    table = parts.split(real(str(path.relative_to(shared / "traces"))).events.collect())
    totals = table.group_by("variant", "case").agg(pl.col("share_pct").sum(), pl.col("dur_us").min())
    assert (totals["share_pct"] - 100).abs().max() < 1e-6  # type: ignore[operator]
    assert totals["dur_us"].min() >= 0  # type: ignore[operator]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch's compiler warns about its own use of torch
def test_a_compiled_graph_keeps_its_matmuls(windowed: Callable[..., Recording], torch: Any, tensors: Any) -> None:
    if not any(map(shutil.which, ("g++", "clang++"))):
        pytest.skip("there is no C++ compiler")
    with torch.no_grad():
        events = windowed(CASE, {"compiled": torch.compile(eager(torch, *tensors))}).events()
    found = shares(parts.split(events), "compiled")
    assert all(found[part] > 0 for part in ("qk", "fused", "pv", "gaps"))
    assert found["mask"] == found["softmax"] == found["copy"] == 0
    assert sum(found.values()) == pytest.approx(step_us(events), abs=1e-6)
