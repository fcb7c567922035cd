"""`--compat hta` against stored outputs of HolisticTraceAnalysis 0.5.0, its rounding on and off."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

import kinetop
from kinetop.analysis.hta import temporal
from kinetop.analysis.work import scoped

if TYPE_CHECKING:
    from pathlib import Path

Open = Callable[[str], kinetop.TraceSet]

TIMES = {"kernel_time_us": "kernel_time(us)", "idle_time_us": "idle_time(us)", "compute_time_us": "compute_time(us)"}
RAISES = {"cpu_only_rank34.pt.trace", "cupti_counters"}  # no GPU rows: HTA stops, and there is no row here


def first(api: dict[str, Any], column: str) -> float | None:
    return api["result"]["data"][column][0]


def differences(made: dict[str, Any], apis: dict[str, Any], tolerance_us: float) -> dict[str, tuple]:
    breakdown, overlap = apis["get_temporal_breakdown"], apis["get_comm_comp_overlap"]
    wanted = {name: first(breakdown, theirs) for name, theirs in TIMES.items()} | {
        "non_compute_time_us": first(breakdown, "non_compute_time(us)"),
        "overlap_pct": first(overlap, "comp_comm_overlap_pctg"),
    }
    return {
        name: (made[name], value)
        for name, value in wanted.items()
        if (made[name] is None) != (value is None) or (value is not None and abs(made[name] - value) > tolerance_us)
    }


@pytest.mark.slow
def test_every_breakdown_that_hta_prints(shared: Path, real: Open) -> None:
    wrong, compared = {}, 0
    for path in sorted((shared / "reference" / "hta").glob("*.json")):
        stored = json.loads(path.read_text())
        trace = real(f"{path.stem.replace('__', '/')}.json.gz")
        work = scoped(trace)
        for rounded in (True, False):
            apis = stored["apis"] | ({} if rounded else stored.get("no_ns_rounding", {}).get("apis", {}))
            made = temporal(work, rounded=rounded)
            if apis["get_temporal_breakdown"]["status"] != "ok":
                assert made.is_empty() if path.stem in RAISES else made["non_compute_time_us"].item() < 0
                continue
            compared += 1
            # Unrounded, HTA adds up float64 microseconds; epoch timestamps then have steps of 0.25 us.
            if found := differences(made.row(0, named=True), apis, 0.001 if rounded else 0.5):
                wrong[path.stem, rounded] = found
    assert wrong == {}
    assert compared >= 45


def exact(stored: dict[str, Any]) -> dict[str, float] | None:
    everything = (stored.get("independent_exact") or {}).get("all_gpu_activities") or {}
    names = {"span_us": "span_ns", "busy_us": "busy_ns", "idle_us": "idle_ns", "memory_us": "mem_union_ns"}
    return {name: everything[ns] / 1000 for name, ns in names.items()} if everything.get("n") else None


@pytest.mark.slow
def test_our_own_figures_are_the_exact_ones_and_not_htas(shared: Path, real: Open) -> None:
    compared = 0
    for path in sorted((shared / "reference" / "hta").glob("*.json")):
        wanted = exact(json.loads(path.read_text()))
        if wanted is None or path.stem.startswith("mtia"):  # there the reference leaves out the accelerator's own category
            continue
        trace = real(f"{path.stem.replace('__', '/')}.json.gz")
        made = kinetop.summary(trace).row(0, named=True)
        assert {name: made[name] for name in wanted} == pytest.approx(wanted, abs=0.002), path.stem
        compared += 1
    assert compared >= 20


def test_the_table_comes_when_asked_for(hazards: Path) -> None:
    trace = kinetop.open(hazards / "01_baseline_clean.json")
    assert "hta" not in kinetop.summary.ask(trace).tables
    assert kinetop.summary.ask(trace, compat="hta").tables["hta"]["overlap_pct"].to_list() == [62.5]
