"""Roofline: all kernel time is in it, rates follow from closed formulas, limits only where they are known."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import kinetop
from kinetop.analysis.peaks import Peaks, peaks_of
from kinetop.analysis.work import scoped

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAMES = ["h100_qwen.json.gz", "mi300_resnet.json.gz", "a100_particle_transformer.json.gz", "diff_test.json.gz", "tp_2rank"]


@pytest.mark.parametrize("name", NAMES)
def test_times_sum_to_the_kernels(real: Callable[[str], kinetop.TraceSet], name: str) -> None:
    trace = real(name)
    kernels = scoped(trace).gpu.filter((pl.col("kind") == "kernel") & (pl.col("class") != "comm"))
    whole = kinetop.roofline(trace)
    assert whole["device_us"].sum() == pytest.approx(kernels["dur_ns"].sum() / 1000, abs=0.01 * whole.height)
    assert whole["share_pct"].sum() == pytest.approx(100, abs=0.1)
    assert (whole["calls"] > 0).all()
    for group_by in ("name", "family"):
        wide = kinetop.roofline(trace, group_by=group_by)
        assert wide.height <= whole.height
        for figure in ("device_us", "calls", "gflop", "bytes", "above_roof_us"):
            assert wide[figure].sum() == pytest.approx(whole[figure].sum(), rel=1e-6, abs=0.01 * whole.height)


def test_against_the_kernels_themselves(real: Callable[[str], kinetop.TraceSet]) -> None:
    trace = real("h100_qwen.json.gz")
    row = kinetop.roofline(trace).filter(op="aten::mm", shape="8944x1024 1024x2816").to_dicts()[0]
    dims = trace.events.filter(pl.col("name") == "aten::mm", pl.col("input_dims") == "[[8944,1024],[1024,2816]]").collect()
    own = trace.launches.filter(pl.col("op_id").is_in(dims["event_id"].implode()))
    us = trace.activities.filter(kind="kernel").join(own, on="event_id", how="semi")["dur_ns"].sum() / 1000
    assert row["device_us"] == pytest.approx(us)
    calls = own["op_id"].n_unique()
    assert row["calls"] == calls
    assert row["gflop"] == pytest.approx(2 * 8944 * 1024 * 2816 * calls / 1e9)
    assert row["bytes"] == 2 * (8944 * 1024 + 1024 * 2816 + 8944 * 2816) * calls
    assert row["tflops"] == pytest.approx(1e3 * row["gflop"] / us, rel=1e-5)
    assert row["compute_pct"] == pytest.approx(100 * row["tflops"] / 989, abs=0.01)
    assert row["bound"] == "compute"
    assert row["above_roof_us"] == pytest.approx(us - row["gflop"] / 989e3 * 1e6, rel=1e-6)


def test_bound_is_told_only_where_all_is_known(real: Callable[[str], kinetop.TraceSet]) -> None:
    for name in NAMES:
        for row in kinetop.roofline(real(name)).iter_rows(named=True):
            known = None not in (row["gflop"], row["bytes"], row["peak_tflops"], row["peak_gb_s"])
            assert (row["bound"] != "unknown") == known
            assert (row["above_roof_us"] is not None) == known
            if known:
                ridge = 1e3 * row["peak_tflops"] / row["peak_gb_s"]
                assert row["bound"] == ("compute" if row["gflop"] * 1e9 > ridge * row["bytes"] else "memory")


def launched(op: str, dims: list[Any], kernel: str) -> list[dict[str, Any]]:
    types = json.dumps(["float" if one else "" for one in dims])
    at = {"ph": "X", "process": "9", "thread": "1"}
    return [
        {**at, "cat": "cpu_op", "name": op, "ts_ns": 0, "dur_ns": 50, "input_dims": json.dumps(dims), "input_types": types},
        {**at, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts_ns": 5, "dur_ns": 2, "correlation": 1},
        {"ph": "X", "cat": "kernel", "name": kernel, "process": "0", "thread": "7", "device": 0, "stream": 7, "ts_ns": 90,
         "dur_ns": 10_000, "correlation": 1},
    ]  # fmt: skip


def device(name: str, sms: int | None = None) -> dict[str, Any]:
    return {"deviceProperties": [{"id": 0, "name": name, "numSms": sms}]}


def test_an_operator_without_sizes_is_one_row(hazards: Path) -> None:
    found = kinetop.roofline(kinetop.open(hazards / "01_baseline_clean.json", cache=False))
    assert found.select("op", "calls", "device_us", "gflop", "bound").rows() == [("aten::linear", 1, 85.0, None, "unknown")]


def test_tf32_is_told_from_the_kernel(made: Callable[..., kinetop.TraceSet]) -> None:
    dims = [[512, 512], [512, 512]]
    a100 = device("NVIDIA A100-SXM4-80GB")
    plain = kinetop.roofline(made(launched("aten::mm", dims, "ampere_sgemm_128x64_nn"), **a100))
    assert plain.select("dtype", "peak_tflops").row(0) == ("fp32", 19.5)
    tf32 = kinetop.roofline(
        made(launched("aten::mm", dims, "sm80_xmma_gemm_f32f32_tf32f32_f32"), **device("NVIDIA A100-SXM4-80GB"))
    )
    assert tf32.select("dtype", "peak_tflops").row(0) == ("tf32", 156.0)


def test_a_part_of_a_device_has_no_limits(made: Callable[..., kinetop.TraceSet]) -> None:
    rows = launched("aten::mm", [[512, 512], [512, 512]], "ampere_sgemm_128x64_nn")
    whole = kinetop.roofline(made(rows, **device("NVIDIA H100 80GB HBM3", 132)))
    assert whole["peak_gb_s"].item() == 3350
    part = kinetop.roofline(made(rows, **device("NVIDIA H100 80GB HBM3", 16)))
    assert part.select("peak_gb_s", "peak_tflops", "compute_pct", "bound").row(0) == (None, None, None, "unknown")
    assert part["tflops"].item() == whole["tflops"].item() == pytest.approx(2 * 512**3 / 10e-6 / 1e12, abs=1e-3)


def test_communication_and_copies_have_no_roof(real: Callable[[str], kinetop.TraceSet]) -> None:
    kinds = kinetop.roofline(real("tp_2rank"), group_by="family")["kind"].to_list()
    assert "all-reduce" not in kinds
    assert "memset" not in kinds


@pytest.mark.parametrize(
    ("name", "bf16", "gb_s"),
    [
        ("NVIDIA A100-SXM4-40GB", 312, 1555),
        ("NVIDIA A100-SXM4-80GB", 312, 2039),
        ("NVIDIA A100 80GB PCIe", 312, 1935),
        ("NVIDIA H100 80GB HBM3", 989, 3350),
        ("NVIDIA H100 PCIe", 756, 2000),
        ("NVIDIA H100 NVL", 835, 3900),
        ("NVIDIA H200", 989, 4800),
        ("NVIDIA B200", 2250, 8000),
        ("NVIDIA B300 SXM6 AC", 2250, 8000),
        ("NVIDIA L4", 121, 300),
        ("NVIDIA L40S", 362, 864),
        ("NVIDIA GeForce RTX 4090", 165.2, 1008),
        ("NVIDIA GeForce RTX 5090", 209.5, 1792),
        ("AMD Instinct MI210", 181, 1638),
        ("AMD Instinct MI250X", 191.5, 1638),
        ("AMD Instinct MI300X VF", 1307.4, 5300),
        ("AMD Instinct MI325X", 1307.4, 6000),
        ("AMD Instinct MI350X", 2306.9, 8000),
        ("AMD Instinct MI355X", 2516.6, 8000),
    ],
)
def test_limits_of_devices(name: str, bf16: float, gb_s: float) -> None:
    found = peaks_of(name)
    assert (found.tflops["bf16"], found.gb_s) == (bf16, gb_s)


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 5090 D",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "AMD Radeon Graphics",
    ],
)
def test_devices_that_no_sheet_is_known_of(name: str) -> None:
    assert peaks_of(name) == Peaks()
