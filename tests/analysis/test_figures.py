"""Figures of `summary` against independent ones: the real traces, and the small broken ones with their expected outcome."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import kinetop
from kinetop.analysis.breakdown import SHARES
from kinetop.traces.errors import TraceError

Open = Callable[[str], kinetop.TraceSet]

HAZARDS = Path(__file__).resolve().parents[1] / "data" / "hazards"
EXPECTED = json.loads((HAZARDS / "EXPECTED.json").read_text())["hazards"]
FIGURES = [
    "kernels",
    "copies",
    "kernel_sum_us",
    "busy_us",
    "span_us",
    "idle_us",
    "compute_us",
    "comm_us",
    "memory_us",
    "overlap_us",
    "exposed_comm_us",
]


def agrees(made: dict[str, float], wanted: dict[str, float], tolerance_us: float) -> bool:
    return all(abs(made[name] - wanted[name]) < tolerance_us for name in FIGURES)


def unmatched(made: pl.DataFrame, wanted: list[dict[str, float]], tolerance_us: float) -> str:
    """Say which wanted row has no made row of its own, or nothing."""
    rows = [row for row in made.iter_rows(named=True) if row["kernels"] or row["copies"]]
    if len(rows) != len(wanted):
        return f"{len(rows)} devices, not {len(wanted)}: {rows}"
    for want in wanted:
        hit = next((row for row in rows if agrees(row, want, tolerance_us)), None)
        if hit is None:
            return f"{want} is not in {rows}"
        rows.remove(hit)
    return ""


@pytest.mark.parametrize("hazard", EXPECTED, ids=[entry["file"] for entry in EXPECTED])
def test_hazards(hazard: dict) -> None:
    path = HAZARDS / hazard["file"]
    if hazard["outcome"] == "ERROR":
        with pytest.raises(TraceError):
            kinetop.open(path)
        return
    trace = kinetop.open(path)
    assert unmatched(kinetop.summary(trace), list((hazard["figures"] or {}).values()), 0.0015) == ""
    if hazard["outcome"] == "LOAD+WARN":
        assert trace.warnings


@pytest.mark.slow
def test_real_traces_agree_with_independent_figures(shared: Path, real: Open) -> None:
    reference = json.loads((shared / "reference" / "gpu_figures.json").read_text())["traces"]
    wrong = {}
    for name, devices in reference.items():
        trace = real(name)
        wanted = [row for row in devices.values() if row["kernels"] or row["copies"]]
        answer = kinetop.summary.ask(trace)
        if said := unmatched(answer.main, wanted, 0.002):
            wrong[name] = said
        parts = answer.tables["breakdown"]
        assert ((parts.select(pl.sum_horizontal(f"{s}_pct" for s in SHARES)).to_series() - 100).abs() < 1e-9).all(), name
        assert (
            (parts.select(pl.sum_horizontal(f"{s}_us" for s in SHARES) - pl.col("window_us")).to_series()).abs() < 0.003
        ).all(), name
    assert wrong == {}
