"""The kernel table against Python's statistics, its groupings, the pooled rest, and short names."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

import polars as pl
import pytest

import kinetop
from kinetop.analysis.kernels import GROUPS, KERNEL_COLUMNS, instances
from kinetop.analysis.names import short_names
from kinetop.analysis.work import scoped

if TYPE_CHECKING:
    from pathlib import Path

Open = Callable[[str], kinetop.TraceSet]


def durations(trace: kinetop.TraceSet) -> dict[str, list[float]]:
    found = defaultdict(list)
    for name, kind, ns in trace.activities.select("name", "kind", "dur_ns").iter_rows():
        if kind == "kernel":
            found[name].append(ns / 1000)
    return found


def test_statistics_come_from_raw_durations(real: Open) -> None:
    trace = real("h100_qwen.json.gz")
    found = durations(trace)
    made = kinetop.kernels(trace)
    assert set(made["name"]) == set(found)
    for row in made.iter_rows(named=True):
        times = found[row["name"]]
        wanted = {
            "total_us": sum(times),
            "mean_us": statistics.mean(times),
            "median_us": statistics.median(times),
            "min_us": min(times),
            "max_us": max(times),
        }
        if len(times) > 1:
            wanted |= {"std_us": statistics.stdev(times), "p95_us": statistics.quantiles(times, n=20, method="inclusive")[-1]}
        assert row["count"] == len(times)
        assert {name: row[name] for name in wanted} == pytest.approx(wanted, abs=0.00051)
    assert made["share_pct"].sum() == pytest.approx(100 * 45432.698 / 45647.3, abs=0.05)


@pytest.mark.parametrize("group_by", GROUPS)
def test_every_grouping_holds_every_kernel_and_pools_the_rest_once(hazards: Path, group_by: str) -> None:
    trace = kinetop.open(hazards / "01_baseline_clean.json")
    whole, top = kinetop.kernels(trace, group_by=group_by), kinetop.kernels(trace, group_by=group_by, top=1)
    assert whole.columns == [column.name for column in KERNEL_COLUMNS]
    assert (whole["count"].sum(), whole["total_us"].sum()) == (5, 125.0) == (top["count"].sum(), top["total_us"].sum())
    assert whole["total_us"].is_sorted(descending=True)
    assert top["name"].to_list()[1:] == ["others"] * (whole.height > 1)


def test_others_is_pooled_from_durations_and_not_from_rows(hazards: Path) -> None:
    trace = kinetop.open(hazards / "01_baseline_clean.json")
    others = kinetop.kernels(trace, top=2).row(-1, named=True)
    rest = sorted((sum(times), times) for times in durations(trace).values())[:-2]
    times = [t for _, group in rest for t in group]
    assert (others["count"], others["median_us"], others["std_us"]) == (
        len(times),
        statistics.median(times),
        round(statistics.stdev(times), 3),
    )


def test_copies_are_counted_when_asked_for(hazards: Path) -> None:
    trace = kinetop.open(hazards / "01_baseline_clean.json")
    assert kinetop.kernels(trace, group_by="class", copies="yes")["name"].to_list() == ["compute", "comm", "memory"]


def test_nothing_on_the_gpu_is_an_empty_table(hazards: Path) -> None:
    trace = kinetop.open(hazards / "75_cpu_only.json")
    for group_by in GROUPS:
        assert kinetop.kernels(trace, group_by=group_by, top=3).is_empty()
    assert instances(scoped(trace)).is_empty()


def test_instances_of_a_row_are_its_launches(hazards: Path) -> None:
    work = scoped(kinetop.open(hazards / "52_graph_replay_shared_correlation.json"))
    for group_by in GROUPS:
        table = kinetop.kernels(work.trace, group_by=group_by)
        for name, count in table.select("name", "count").iter_rows():
            assert instances(work, group_by=group_by, label=name).height == count
    assert instances(work)["start_us"].is_sorted()


def test_modules_and_operators(real: Open) -> None:
    trace = real("h100_qwen.json.gz")
    modules = kinetop.kernels(trace, group_by="module")["name"]
    assert modules.str.starts_with("Qwen2Attention_").sum() >= 20
    operators = kinetop.kernels(trace, group_by="op")
    assert operators.filter(pl.col("name") == "aten::mul")["count"].item() == 220
    assert kinetop.kernels(trace, group_by="step")["name"].to_list()[0] == "step 6"


def test_short_names_lose_no_row_and_say_how_many_they_stand_for(hazards: Path) -> None:
    trace = kinetop.open(hazards / "77_hostile_names.json")
    short = kinetop.kernels(trace, group_by="short")
    assert short["names"].sum() == kinetop.kernels(trace).height == 10


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>, std::array<char*, 1ul> >(int)",
            "vectorized_elementwise_kernel<4, FillFunctor<int>, array<char*, 1ul>>",
        ),
        (
            "void at::native::elementwise_kernel<128, at::native::gpu_kernel_impl<at::native::direct_copy_kernel_cuda(at::Iter&)"
            "::{lambda()#3}::operator()() const::{lambda(float)#1}>(at::Iter&)::{lambda(int)#1}>(int)",
            "elementwise_kernel<128, gpu_kernel_impl<direct_copy_kernel_cuda[float]>>",
        ),
        ("void (anonymous namespace)::softmax_warp_forward<float, 10>(float*, float const*)", "softmax_warp_forward<float, 10>"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevComm*, unsigned long, ncclWork*)", "ncclDevKernel_AllGather_RING_LL"),
        ("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256EEvPT0_", "add_rmsnorm_quant_kernel"),
        ("_ZN999999999999999999999x", "_ZN999999999999999999999x"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("(x)", "(x)"),
        ("", ""),
    ],
)
def test_short_names(name: str, short: str) -> None:
    assert short_names(pl.Series([name])).to_list() == [short]
