"""Figures of trials, against closed formulas and counts made by hand."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from kinetop.analysis import trials
from kinetop.analysis.peaks import Peaks, given, peaks_of
from kinetop.analysis.structure import Structure, structure
from kinetop.traces.live.recording import Recording
from kinetop.traces.live.worker.case import Case
from kinetop.traces.live.worker.frames import Frame

if TYPE_CHECKING:
    from collections.abc import Callable

CASE = Case.of("2,4/2,512,64", dtype="fp32")
SCORES = 2 * 4 * 512 * 512 * 4
CLONING = [
    ("cpu_op", "aten::bmm", 0),
    ("cpu_op", "aten::clone", 0),
    ("cpu_op", "aten::copy_", 0),
    ("cpu_op", "aten::_softmax", 0),
    ("cpu_op", "aten::bmm", 0),
    ("cpu_instant_event", "[memory]", SCORES),
    ("cpu_instant_event", "[memory]", SCORES),
    ("cpu_instant_event", "[memory]", -SCORES),
    ("cpu_instant_event", "[memory]", 64),
]


def test_a_row_a_trial_with_the_columns_declared(told: Callable[..., Any]) -> None:
    recording = told(CASE, {"eager": {"ns": [1000] * 12}, "gone": {"state": "UNAVAILABLE", "why": "no CUDA"}})
    table = trials.table(recording)
    assert table.columns == [column.name for column in trials.COLUMNS]
    assert table["variant"].to_list() == ["eager", "gone"]
    assert table["median_us"].to_list() == [1.0, None]
    assert table["why"].to_list() == [None, "no CUDA"]
    assert table["n"].to_list() == [12, 0]
    assert Case.from_dict({column.name: table[column.name][0] for column in trials.CASE_COLUMNS}) == CASE


def test_time_figures(told: Callable[..., Any]) -> None:
    row = trials.table(told(CASE, {"eager": {"ns": [1000 * value for value in range(1, 22)]}})).to_dicts()[0]
    assert (row["median_us"], row["p10_us"], row["p90_us"], row["mad_us"]) == (11.0, 3.0, 19.0, 5.0)
    assert row["low_us"] < 11.0 < row["high_us"]
    assert row["vs_base"] == 1.0


def test_rates_are_flops_and_bytes_over_the_median(told: Callable[..., Any]) -> None:
    prepared = {"flops_useful": 3e9, "flops_executed": 6e9, "bytes_min": 4_000_000}
    about = {"ns": [1_500_000] * 12, "prepared": prepared, "energy_mj": 60.0}
    row = trials.table(told(CASE, {"a": about}), peaks=Peaks({"fp32": 8.0}, 100.0), price_per_hour=3.6).to_dicts()[0]
    assert row["useful_tflops"] == pytest.approx(2.0)
    assert row["executed_tflops"] == pytest.approx(4.0)
    assert row["gb_s"] == pytest.approx(4_000_000 / 1.5e-3 / 1e9)
    assert row["peak_pct"] == pytest.approx(25.0)
    assert row["kv_gb_s"] is None
    assert row["energy_mj"] == pytest.approx(5.0)
    assert row["cost"] == pytest.approx(0.001 * 1.5e-3 * 1e6)


def test_decode_is_held_against_the_memory(told: Callable[..., Any]) -> None:
    case = Case.of("2,8/2,4096,128/64", dtype="bf16", mode="decode")
    about = {"ns": [100_000] * 12, "prepared": {"bytes_min": 5_000_000, "flops_useful": 1.0}}
    row = trials.table(told(case, {"a": about}), peaks=Peaks({}, 100.0)).to_dicts()[0]
    assert row["kv_gb_s"] == pytest.approx(2 * 2 * 4096 * (128 + 64) * 2 / 100e-6 / 1e9)
    assert row["peak_pct"] == pytest.approx(50.0)


def test_no_peak_no_share(told: Callable[..., Any]) -> None:
    row = trials.table(told(CASE, {"a": {"ns": [5], "prepared": {"flops_useful": 1.0}}})).to_dicts()[0]
    assert row["peak_pct"] is None
    assert row["useful_tflops"] is not None


def test_the_baseline_is_eager_or_the_one_named_and_of_the_same_case(told: Callable[..., Any]) -> None:
    longer = CASE.with_(q_len=1024, kv_len=1024)
    recording = told(
        CASE,
        {"fast": {"ns": [1000]}, "eager": {"ns": [4000]}, "slow": {"ns": [8000]}},
        longer,
        {"fast": {"ns": [3000]}, "slow": {"ns": [6000]}},
    )
    assert trials.table(recording)["vs_base"].to_list() == [4.0, 1.0, 0.5, 1.0, 0.5]
    assert trials.table(recording, base="slow")["vs_base"].to_list() == [8.0, 2.0, 1.0, 2.0, 1.0]


def test_disturbed_samples_are_left_out_when_enough_others_remain(told: Callable[..., Any]) -> None:
    about = {"ns": [[1000] * 10, [9000] * 20, [8000] * 10], "marks": [[], ["throttled"], ["contended"]]}
    row = trials.table(told(CASE, {"a": about})).to_dicts()[0]
    assert (row["median_us"], row["n"], row["throttled_pct"], row["contended_pct"]) == (1.0, 10, 50.0, 25.0)
    about["ns"][0].pop()
    row = trials.table(told(CASE, {"a": about})).to_dicts()[0]
    assert row["n"] == 39


def test_errors_and_backend_come_as_they_were_told(told: Callable[..., Any]) -> None:
    error = {"max_abs": 0.5, "bound": 0.1, "ok": False}
    about = {"ns": [5], "prepared": {"backend": "math", "error": error, "peak_bytes": 77, "compile_s": 1.5}}
    row = trials.table(told(CASE, {"a": about, "b": {}}, declared={"a": {"group": "linear", "exact": False}})).to_dicts()
    assert [row[0][name] for name in ("backend", "max_abs_error", "error_bound", "error_ok")] == ["math", 0.5, 0.1, False]
    assert [row[0][name] for name in ("peak_bytes", "compile_s", "group", "exact")] == [77, 1.5, "linear", False]
    assert [row[1][name] for name in ("backend", "error_ok", "group", "exact")] == [None, None, None, True]


def test_counts_of_a_step(told: Callable[..., Any]) -> None:
    row = trials.table(told(CASE, {"a": {"ops": CLONING}})).to_dicts()[0]
    assert (row["ops"], row["copies"], row["scores"], row["kernels"]) == (5, 1, 2, None)


def test_gpu_rows_are_counted_apart_from_operators(told: Callable[..., Any]) -> None:
    ops = [("cpu_op", "aten::bmm", 0), ("kernel", "gemm", 0), ("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 0)]
    recording = told(CASE, {"a": {"ops": ops * 2}})
    row = trials.table(recording).to_dicts()[0]
    assert (row["ops"], row["copies"], row["kernels"], row["scores"]) == (2, 2, 4, None)
    found = structure(recording.events(), CASE)
    assert found.kernels == {"gemm": 2, "Memcpy DtoD (Device -> Device)": 2}
    assert found.copies == {"Memcpy": 2}


def test_structure_is_kept_by_json_and_knows_only_large_allocations(told: Callable[..., Any]) -> None:
    found = structure(told(CASE, {"a": {"ops": CLONING}}).events(), CASE)
    assert found.ops == {"aten::bmm": 2, "aten::clone": 1, "aten::copy_": 1, "aten::_softmax": 1}
    assert found.allocations == {SCORES: 2}
    assert found.steps == 3
    assert Structure.from_dict(found.to_dict()) == found


def test_an_operation_of_one_step_only_is_no_part_of_the_step(told: Callable[..., Any]) -> None:
    events = told(CASE, {"a": {"ops": CLONING}}).events()
    first_softmax = (events["name"] == "aten::_softmax") & (events["step"] > 0)
    assert structure(events.filter(~first_softmax), CASE).ops == {"aten::bmm": 2, "aten::clone": 1, "aten::copy_": 1}


@pytest.mark.parametrize(
    ("said", "stable"),
    [
        ("## Call CompiledFxGraph fq3k ##", "## Call CompiledFxGraph ##"),
        ("Torch-Compiled Region: 3/1", "Torch-Compiled Region"),
        ("graph_7_cpp_fused_mul_0", "graph_cpp_fused_mul_0"),
        ("aten::bmm", "aten::bmm"),
    ],
)
def test_names_lose_what_differs_between_runs_of_the_same_code(told: Callable[..., Any], said: str, stable: str) -> None:
    assert list(structure(told(CASE, {"a": {"ops": [("cpu_op", said, 0)]}}).events(), CASE).ops) == [stable]


def test_peaks_by_name_or_as_given() -> None:
    assert peaks_of("NVIDIA H200").tflops["bf16"] == 989
    assert peaks_of("NVIDIA H100 NVL").tflops["bf16"] == 835
    assert peaks_of("NVIDIA H200 MIG 1g.18gb") == Peaks()
    assert peaks_of(None) == Peaks()
    assert given(50, None, peaks_of("NVIDIA H200")).tflops["fp32"] == 50
    assert given(None, 9.0, peaks_of("NVIDIA H200")) == Peaks(peaks_of("NVIDIA H200").tflops, 9.0)


def test_intervals_are_made_again_when_enough_is_new() -> None:
    known = trials.Kept()

    def ends(low: float, high: float) -> Callable[[], tuple[float, float]]:
        return lambda: (low, high)

    us = pl.Series([5.0] * 100)
    assert known.interval("a", 100, us, 5.0, ends(4, 6)) == (4, 6)
    assert known.interval("a", 109, us, 5.5, ends(3, 7)) == (4, 6)
    assert known.interval("b", 109, us, 5.5, ends(1, 9)) == (1, 9)
    assert known.interval("a", 109, us, 6.5, ends(5, 7)) == (5, 7), "the median left it"
    assert known.interval("a", 119, us, 6.5, ends(6, 7)) == (6, 7), "a tenth is new"
    assert known.interval("a", 120, us.head(50), 6.5, ends(6, 8)) == (6, 8), "fewer samples are looked at"
    assert known.interval("a", 3, us.head(3), 6.5, ends(6, 9)) == (6, 9), "it began anew"


def test_figures_with_intervals_kept_are_those_without() -> None:
    case = Case.of("1,4,64,64", dtype="fp32")
    made, known = Recording(), trials.Kept()
    for number in range(4):
        header = {"kind": "samples", "variant": "eager", "case": case.to_dict(), "round": number, "marks": []}
        made.add(Frame(header, {"ns": array("q", [1000 + 7 * (at % 13) + number for at in range(40)])}))
        assert trials.rows(made, former=known) == trials.rows(made)


def test_a_structure_is_made_again_when_there_is_another_window(told: Callable[..., Any]) -> None:
    recording = told(CASE, {"eager": {"ns": [1000] * 12, "ops": CLONING}})
    (trial,) = recording.trials.values()
    known, other = trials.Kept(), Structure(ops={"aten::bmm": 1})
    first = known.structure(trial, lambda: other)
    assert known.structure(trial, Structure) is first
    trial.windows.append(trial.windows[-1])
    assert known.structure(trial, Structure) == Structure()
