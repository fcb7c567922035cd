"""The gate: what it refuses, what structure shows, and that noise is never called slower."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import polars as pl
import pytest

from kinetop.analysis import benchmark, gate
from kinetop.analysis.benchmark import Run
from kinetop.analysis.comparable import differences
from kinetop.analysis.slowdown import Times, time_verdict
from kinetop.traces.live.worker.case import Case

if TYPE_CHECKING:
    from collections.abc import Callable

DATA = Path(__file__).resolve().parent.parent / "data" / "bench"
CASE = Case.of("1,4,256,64", dtype="fp32")
SCORES = 4 * 256 * 256 * 4
BASE_OPS = [
    ("cpu_op", "aten::bmm", 0),
    ("cpu_op", "aten::masked_fill_", 0),
    ("cpu_op", "aten::_softmax", 0),
    ("cpu_op", "aten::bmm", 0),
    ("cpu_instant_event", "[memory]", SCORES),
]
CLONE_OPS = [*BASE_OPS, ("cpu_op", "aten::clone", 0), ("cpu_op", "aten::copy_", 0), ("cpu_instant_event", "[memory]", SCORES)]
RIGHT = {"max_abs": 0.01, "bound": 0.1, "ok": True}
TRIES = 20

Noise = list[float]


def steady(rng: random.Random, count: int) -> Noise:
    return [rng.gauss(100, 3) for _ in range(count)]


def heavy_tail(rng: random.Random, count: int) -> Noise:
    return [100 + rng.lognormvariate(0, 1.5) + 300 * (rng.random() < 0.05) for _ in range(count)]


def bimodal(rng: random.Random, count: int) -> Noise:
    return [rng.gauss(100 if rng.random() < 0.6 else 150, 1) for _ in range(count)]


def bimodal_in_spells(rng: random.Random, count: int) -> Noise:
    made, slow = [], rng.random() < 0.5
    for _ in range(count):
        slow ^= rng.random() < 0.1
        made.append(rng.gauss(150 if slow else 100, 1))
    return made


def drifting_up_or_down(rng: random.Random, count: int) -> Noise:
    slope = rng.choice((-30, 30))
    return [115 + slope * (at / count - 0.5) + rng.gauss(0, 1) for at in range(count)]


def waves(rng: random.Random, count: int) -> Noise:
    phase = 2 * math.pi * rng.random()
    return [100 * (1 + 0.2 * math.sin(phase + 2 * math.pi * at / count)) + rng.gauss(0, 1) for at in range(count)]


NOISES = (steady, heavy_tail, bimodal, bimodal_in_spells, drifting_up_or_down, waves)


@pytest.mark.parametrize("noise", NOISES, ids=lambda noise: noise.__name__)
@pytest.mark.parametrize("count", [30, 90])
def test_the_same_code_is_never_slower(noise: Callable[[random.Random, int], Noise], count: int) -> None:
    outcomes = Counter()
    for attempt in range(TRIES):
        rng = random.Random(f"{noise.__name__} {count} {attempt}")
        new, old = Times(pl.Series(noise(rng, count))), Times(pl.Series(noise(rng, count)))
        outcomes[time_verdict(new, old, seed=attempt).outcome] += 1
    assert outcomes["SLOWER"] == 0
    if noise is steady:
        assert outcomes["SAME"] >= TRIES - 2


@pytest.mark.parametrize("noise", [steady, heavy_tail], ids=lambda noise: noise.__name__)
@pytest.mark.parametrize(("factor", "outcome"), [(1.25, "SLOWER"), (0.8, "FASTER")])
def test_a_real_difference_is_seen(noise: Callable[[random.Random, int], Noise], factor: float, outcome: str) -> None:
    seen = 0
    for attempt in range(TRIES):
        rng = random.Random(attempt)
        new, old = Times(pl.Series(noise(rng, 30)) * factor), Times(pl.Series(noise(rng, 30)))
        seen += time_verdict(new, old).outcome == outcome
    assert seen >= TRIES - 1


def test_a_level_that_wanders_between_runs_is_noise_where_a_history_shows_it() -> None:
    """Neither of two runs shows it by itself: each holds its level; only earlier runs tell."""
    rng = random.Random(5)
    levels = [100, 112, 104, 109, 101]
    old = Times(pl.Series([rng.gauss(100, 0.5) for _ in range(30)]))
    new = Times(pl.Series([rng.gauss(111, 0.5) for _ in range(30)]))
    assert time_verdict(new, old).outcome == "SLOWER"
    found = time_verdict(new, old, history_us=levels)
    assert found.outcome == "UNDECIDED"
    assert "the noise is 12.0" in found.why


@pytest.mark.parametrize("marked", [True, False], ids=["marks", "no marks"])
def test_recorded_runs_on_a_busy_machine_are_never_slower(marked: bool) -> None:
    """Six runs of the same code on two cores that others used, more in some runs than in others; each against each, 30 tries."""
    runs = json.loads((DATA / "busy_machine.json").read_text())
    times = [
        {
            name: Times(pl.Series(each["ns"]) / 1000, frozenset(each["contended"] + each["throttled"] if marked else []))
            for name, each in recorded.items()
        }
        for recorded in runs
    ]
    outcomes = Counter(
        (variant, time_verdict(new[variant], old[variant]).outcome) for new, old in permutations(times, 2) for variant in new
    )
    assert sum(outcomes.values()) == 150
    assert not [variant for variant, outcome in outcomes if outcome == "SLOWER"]


def test_each_doubt_alone_keeps_a_verdict_back() -> None:
    old = Times(pl.Series([100.0, 101.0] * 20))
    new = Times(old.us * 1.5)
    assert time_verdict(new, old).outcome == "SLOWER"
    often = Times(pl.Series([100.0, 160.0, 161.0, 162.0, 160.0] * 8))
    assert "fastest tenth" in time_verdict(often, old).why
    assert "Mann-Whitney" in time_verdict(new, old, p=0.2).why
    assert "clock" in time_verdict(Times(new.us, mhz=1200), Times(old.us, mhz=1900)).why
    wide = Times(pl.Series([100.0, 200.0] * 20))
    assert "spans the threshold" in time_verdict(wide, old).why
    assert "only 3 undisturbed samples in the baseline" in time_verdict(new, Times(old.us.head(3))).why
    assert "only 9 undisturbed samples in this run" in time_verdict(Times(new.us, frozenset(range(31))), old).why


def test_disturbed_samples_are_left_out_but_many_of_them_leave_no_verdict() -> None:
    old = Times(pl.Series([100.0, 101.0] * 20))
    one_in_four = Times(pl.Series([100.0, 101.0, 100.0, 190.0] * 10), frozenset(range(3, 40, 4)))
    assert time_verdict(one_in_four, old).outcome == "SAME"
    more = Times(one_in_four.us * 2, one_in_four.disturbed | {0})
    assert "28 % of the samples were disturbed in this run" in time_verdict(more, old).why


def run(recording: Any, **changes: Any) -> Run:
    made = Run.of(benchmark.document(recording))
    return Run(**{**{name: getattr(made, name) for name in ("id", "began", "environment", "trials")}, **changes})


def samples(seed: int, factor: float = 1.0) -> list[int]:
    rng = random.Random(seed)
    return [round(factor * rng.gauss(100_000, 2_000)) for _ in range(30)]


@pytest.fixture
def base(told: Callable[..., Any]) -> Run:
    prepared = {"backend": "eager", "peak_bytes": 1_000_000, "error": RIGHT}
    return run(told(CASE, {"a": {"ns": samples(1), "ops": BASE_OPS, "prepared": prepared}}), id="old")


def against(told: Callable[..., Any], base: Run, seed: int = 2, factor: float = 1.0, **about: Any) -> gate.GateResult:
    prepared = {"backend": "eager", "peak_bytes": 1_000_000, "error": RIGHT} | about.pop("prepared", {})
    spoken = {"a": {"ns": samples(seed, factor), "ops": BASE_OPS, "prepared": prepared, **about}}
    return gate.compare(run(told(CASE, spoken)), base)


def test_the_same_code_passes(told: Callable[..., Any], base: Run) -> None:
    result = against(told, base)
    assert result.exit_code == 0
    (verdict,) = result.verdicts
    assert verdict.outcome == "SAME"
    assert [check.ok for check in verdict.checks] == [True] * 6


def test_slower_and_faster(told: Callable[..., Any], base: Run) -> None:
    slower, faster = against(told, base, factor=1.3), against(told, base, factor=0.7)
    assert (slower.verdicts[0].outcome, slower.exit_code) == ("SLOWER", 1)
    assert (faster.verdicts[0].outcome, faster.exit_code) == ("FASTER", 0)
    assert slower.verdicts[0].time is not None
    assert slower.verdicts[0].time.ratio == pytest.approx(1.3, abs=0.03)


@pytest.mark.parametrize(
    ("about", "check", "words"),
    [
        ({"ops": CLONE_OPS}, "copies", "aten::copy_ 1 times a step, was 0"),
        ({"ops": CLONE_OPS}, "ops", "aten::clone 1 times a step, was 0"),
        ({"ops": CLONE_OPS}, "allocations", "2 a step, was 1"),
        ({"prepared": {"backend": "math"}}, "backend", "backend is math, was eager"),
        ({"prepared": {"peak_bytes": 1_100_000}}, "peak", "peak memory 1,100,000 bytes, was 1,000,000"),
        ({"prepared": {"error": RIGHT | {"ok": False, "max_abs": 3.0}}}, "numerics", "the result is wrong: largest error 3"),
    ],
)
def test_structure_is_caught_at_the_same_speed(
    told: Callable[..., Any], base: Run, about: dict[str, Any], check: str, words: str
) -> None:
    result = against(told, base, **about)
    (verdict,) = result.verdicts
    assert (verdict.outcome, result.exit_code) == ("CHANGED", 1)
    (found,) = [each for each in verdict.checks if each.name == check]
    assert found.ok is False
    assert words in found.why
    assert words in verdict.why


def test_what_became_less_is_no_failure(told: Callable[..., Any], base: Run) -> None:
    cloned = run(
        told(CASE, {"a": {"ns": samples(1), "ops": CLONE_OPS, "prepared": {"backend": "eager", "peak_bytes": 2_000_000}}})
    )
    result = against(told, cloned)
    assert result.exit_code == 0
    assert "fewer copies" in {check.name: check.why for check in result.verdicts[0].checks}["copies"]


def test_a_change_that_was_meant_can_be_allowed(told: Callable[..., Any], base: Run) -> None:
    new = run(told(CASE, {"a": {"ns": samples(2), "ops": CLONE_OPS, "prepared": {"backend": "eager", "peak_bytes": 1_000_000}}}))
    assert gate.compare(new, base, allow=("ops", "copies")).exit_code == 1
    assert gate.compare(new, base, allow=("ops", "copies", "allocations")).exit_code == 0


def test_without_windows_structure_is_unknown_not_wrong(told: Callable[..., Any], base: Run) -> None:
    result = against(told, base, ops=[])
    assert result.exit_code == 0
    assert {check.name: check.ok for check in result.verdicts[0].checks}["ops"] is None


def test_failed_missing_and_new(told: Callable[..., Any], base: Run) -> None:
    failed = against(told, base, ns=[], state="FAILED", why="out of memory")
    assert (failed.verdicts[0].outcome, failed.verdicts[0].why, failed.exit_code) == ("FAILED", "FAILED: out of memory", 1)
    fine = {"ns": samples(3)}
    both = run(told(CASE, {"a": fine, "b": fine}), id="both")
    one = run(told(CASE, {"a": fine}))
    assert {v.variant: v.outcome for v in gate.compare(one, both).verdicts} == {"a": "SAME", "b": "MISSING"}
    assert gate.compare(one, both).exit_code == 1
    assert {v.variant: v.outcome for v in gate.compare(both, one).verdicts} == {"a": "SAME", "b": "NEW"}
    assert gate.compare(both, one).exit_code == 0


def test_what_could_not_run_in_either_is_no_case(told: Callable[..., Any]) -> None:
    spoken = {"a": {"ns": samples(1)}, "cuda": {"state": "UNAVAILABLE", "why": "no GPU"}}
    assert len(gate.compare(run(told(CASE, spoken)), run(told(CASE, spoken), id="old")).verdicts) == 1


def test_disturbed_samples_leave_the_time_undecided(told: Callable[..., Any], base: Run) -> None:
    result = against(told, base, factor=2, marks=[["contended"]])
    assert (result.verdicts[0].outcome, result.exit_code) == ("UNDECIDED", 0)
    assert "only 0 undisturbed samples in this run" in result.verdicts[0].why


@pytest.mark.parametrize(
    ("hello", "words"),
    [
        ({"device_name": "NVIDIA H200"}, "device_name is NVIDIA H200, in the baseline Some CPU"),
        ({"torch": "2.14.0"}, "torch is 2.14, in the baseline 2.13"),
        ({"threads": 1}, "threads is 1, in the baseline 2"),
        ({"flags": {"OMP_NUM_THREADS": "2", "deterministic": True}}, "deterministic is True, in the baseline not set"),
    ],
)
def test_runs_of_another_machine_are_refused_with_the_reason(
    told: Callable[..., Any], base: Run, hello: dict[str, Any], words: str
) -> None:
    result = gate.compare(run(told(CASE, {"a": {"ns": samples(2)}}, hello=hello)), base)
    assert result.exit_code == 3
    assert result.refused == (words,)
    assert not result.verdicts


def test_every_reason_is_named(told: Callable[..., Any], base: Run) -> None:
    other = told(CASE.with_(dtype="bf16"), {"a": {"ns": samples(2)}}, hello={"threads": 1, "driver": "1", "torch": "2.13.1"})
    reasons = differences(run(other), base)
    assert reasons == ["threads is 1, in the baseline 2", "dtype is bf16, in the baseline fp32"]


def test_what_makes_no_difference_is_not_refused(told: Callable[..., Any], base: Run) -> None:
    hello = {
        "torch": "2.13.1+cpu",
        "git_sha": "def",
        "flags": {"OMP_NUM_THREADS": "2", "TORCH_HOME": "/x", "CUDA_VISIBLE_DEVICES": "3"},
    }
    result = gate.compare(run(told(CASE, {"a": {"ns": samples(2)}}, hello=hello)), base)
    assert not result.refused
    assert "git_sha: abc before, def now" in result.notes


def test_the_last_run_of_a_history_that_can_be_compared_is_the_baseline(told: Callable[..., Any], base: Run) -> None:
    def earlier(name: str, **hello: Any) -> Run:
        return run(told(CASE, {"a": {"ns": samples(4)}}, hello=hello), id=name)

    history = [earlier("first"), earlier("second"), earlier("elsewhere", threads=64)]
    assert gate.compare(base, history).old == "second"
    refused = gate.compare(base, history[-1:])
    assert (refused.old, refused.exit_code) == ("elsewhere", 3)
    with pytest.raises(ValueError, match="no baseline"):
        gate.compare(base, [])


def test_that_all_moved_alike_is_noted(told: Callable[..., Any]) -> None:
    old = run(told(CASE, {name: {"ns": samples(seed)} for seed, name in enumerate("abc")}), id="old")
    new = run(told(CASE, {name: {"ns": samples(seed + 9, 1.2)} for seed, name in enumerate("abc")}))
    assert any("every case moved the same way" in note for note in gate.compare(new, old).notes)


def test_junit_and_markdown_hold_hostile_names(told: Callable[..., Any]) -> None:
    names = ("a|b`<x>\n", "\x1b[31m\x00", "fine")
    old = run(told(CASE, {name: {"ns": samples(1)} for name in names}), id="old")
    spoken = {
        names[0]: {"ns": samples(2, 1.5)},
        names[1]: {"ns": samples(2), "marks": [["contended"]]},
        names[2]: {"ns": samples(2)},
    }
    result = gate.compare(run(told(CASE, spoken)), old)
    suite = ET.fromstring(result.to_junit())
    assert {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "3",
        "failures": "1",
        "errors": "0",
        "skipped": "1",
    }
    rows = [line for line in result.to_markdown().splitlines() if line.startswith("| ")]
    assert len(rows) == 4
    assert "a\\|b\\`&lt;x&gt;" in rows[1]
    assert "**SLOWER**" in rows[1]
    refused = gate.compare(run(told(CASE, spoken, hello={"threads": 9})), old)
    assert ET.fromstring(refused.to_junit()).find("testcase/error") is not None
    assert "threads is 9" in refused.to_markdown()
    assert refused.to_dict()["exit_code"] == 3
