"""`kinetop check`: both tools' figures, and parts that add up to what lies between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

import kinetop
from kinetop.analysis import hta_bridge
from kinetop.analysis.check import REASONS, check

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def without_hta(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hta_bridge, "version", lambda: None)


def told(trace: kinetop.TraceSet, table: str, figure: str) -> dict[str, object]:
    return check.ask(trace).tables[table].filter(pl.col("figure") == figure).row(0, named=True)


def test_parts_add_up_on_every_trace(every_trace: kinetop.TraceSet, without_hta: None) -> None:
    for table, unit, off in (("times", "us", 0.01), ("shares", "pct", 0.01), ("counts", "count", 0)):
        found = check.ask(every_trace).tables[table].drop_nulls([f"ours_{unit}", f"theirs_{unit}"])
        parts = found.select(pl.sum_horizontal(f"{name}_{unit}" for name in REASONS)).to_series()
        known = found.select(pl.all_horizontal(pl.col(f"{name}_{unit}").is_not_null() for name in REASONS)).to_series()
        assert ((parts - found[f"difference_{unit}"]).abs().filter(known) <= off).all()
        assert (found["source"].str.contains("reimplementation")).all()
        assert found["reason"].str.len_chars().min() != 0


def test_ours_are_the_figures_of_summary(every_trace: kinetop.TraceSet, without_hta: None) -> None:
    if len(every_trace.traces) > 1:
        pytest.skip("one file is enough here")
    devices, found = kinetop.summary(every_trace), check.ask(every_trace).main
    if devices.is_empty():
        assert found["ours_us"].null_count() == found.height
        return
    for figure in ("span", "idle", "compute", "kernel_sum"):
        ours = found.filter(pl.col("figure") == figure)["ours_us"].item()
        if figure == "kernel_sum":
            continue  # that of the summary leaves out copies
        assert ours == pytest.approx(devices[f"{figure}_us"].sum(), abs=0.002)


def test_the_reason_is_the_one_that_the_trace_is_known_for(real: Callable[[str], kinetop.TraceSet], without_hta: None) -> None:
    resnet = told(real("mi300_resnet.json.gz"), "counts", "rows")
    assert (resnet["no_launch_count"], resnet["reason"]) == (968, REASONS["no_launch"])
    triton = told(real("triton_cpu_ops_with_stream.json.gz"), "counts", "rows")
    assert triton["not_work_count"] < 0
    assert told(real("diff_control.json.gz"), "counts", "rows")["last_step_count"] > 0
    assert told(real("h100_bert.json.gz"), "times", "idle")["reason"] == REASONS["rounding"]


def test_nothing_differs_on_a_clean_trace(hazards: Path, without_hta: None) -> None:
    found = check.ask(kinetop.open(hazards / "01_baseline_clean.json")).main
    assert set(found["reason"]) == {"the same"}


@pytest.mark.skipif(hta_bridge.version() is None, reason="HolisticTraceAnalysis (extra hta) is not installed")
@pytest.mark.filterwarnings("ignore")
def test_hta_itself_says_what_the_reimplementation_says(real: Callable[[str], kinetop.TraceSet]) -> None:
    for name in ("h100_bert", "diff_control", "alexnet_cuda_sync", "mi300_resnet", "triton_cpu_ops_with_stream"):
        for table, unit in (("times", "us"), ("shares", "pct"), ("counts", "count")):
            found = check.ask(real(f"{name}.json.gz")).tables[table]
            assert (found["source"] == f"HTA {hta_bridge.version()}").all()
            assert (found[f"rest_{unit}"].drop_nulls().abs() <= 0.006).all(), name


@pytest.mark.skipif(hta_bridge.version() is None, reason="HolisticTraceAnalysis (extra hta) is not installed")
@pytest.mark.filterwarnings("ignore")
def test_where_hta_stops_it_is_said(real: Callable[[str], kinetop.TraceSet]) -> None:
    found = check.ask(real("h100_qwen.json.gz")).main
    assert found["source"].str.contains("which stops: AssertionError").all()
    assert found.filter(pl.col("figure") == "span")["theirs_us"].item() is None
