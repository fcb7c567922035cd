"""What has been said so far: any frame may come, in any order, and a bounded recording stays bounded."""

from __future__ import annotations

import json
import subprocess
import sys
from array import array
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kinetop
from kinetop.traces.live import recording as recording_module
from kinetop.traces.live.recording import Recording, Trial
from kinetop.traces.live.worker.case import Case
from kinetop.traces.live.worker.frames import CODES, Frame

CASE = Case.of("1,2,64,16", dtype="fp32")
OTHER = Case.of("1,2,128,16", dtype="fp32")
KINDS = ("hello", "beat", "state", "prepared", "samples", "window", "telemetry", "captured", "error", "done", "link", "log")
MEMBERS = (
    *(
        "variant",
        "case",
        "round",
        "marks",
        "energy_mj",
        "clock_mhz",
        "timer",
        "cold_cache",
        "t_ns",
        "seq",
        "environment",
        "variants",
    ),
    *("doing", "state", "why", "backend", "compile_s", "error", "expected", "window", "steps", "begin_ns", "end_ns", "dropped"),
    *(
        "duty_pct",
        "pid",
        "names",
        "kinds",
        "shapes",
        "cores_pct",
        "throttle",
        "others",
        "power_w",
        "line",
        "message",
        "what",
        "event",
    ),
)


def samples(variant: str, *ns: int, case: Case = CASE, **more: object) -> Frame:
    return Frame({"kind": "samples", "variant": variant, "case": case.to_dict(), "round": 1, **more}, {"ns": array("q", ns)})


def window(number: int = 1, rows: int = 2, **more: object) -> Frame:
    header = {
        "kind": "window",
        "variant": "eager",
        "case": CASE.to_dict(),
        "window": number,
        "steps": 1,
        "kinds": ["cpu_op"],
        "pid": 7,
    }
    columns = {"name": array("I", [0] * rows), "kind": array("B", [0] * rows)}
    times = {"start_ns": array("q", range(rows)), "dur_ns": array("q", [1] * rows)}
    return Frame({**header, **more}, {**columns, **times})


def fed(*frames: Frame, limit: int | None = None) -> Recording:
    made = Recording(limit)
    for frame in frames:
        made.add(frame)
    return made


def test_samples_come_with_their_round_and_marks() -> None:
    made = fed(
        samples("eager", 5, 6, round=1), samples("sdpa:math", 7, round=1, marks=["throttled"]),
        samples("eager", 8, round=2, marks=["contended", "eaten"]), samples("eager", 9, case=OTHER),
    )  # fmt: skip
    assert made.samples().rows() == [
        ("eager", CASE.text, 1, 5, False, False),
        ("eager", CASE.text, 1, 6, False, False),
        ("eager", CASE.text, 2, 8, False, True),
        ("sdpa:math", CASE.text, 1, 7, True, False),
        ("eager", OTHER.text, 1, 9, False, False),
    ]
    assert made.cases == [CASE, OTHER]
    assert made.case == OTHER
    assert made.trials["eager", CASE.text].marks[-1] == {"contended"}
    assert made.trial("sdpa:math") is None
    assert made.trial("sdpa:math", CASE) is made.trials["sdpa:math", CASE.text]


def test_an_empty_recording_has_empty_frames_of_the_same_columns() -> None:
    empty, full = Recording(), fed(samples("eager", 5), window())
    assert empty.samples().schema == full.samples().schema
    assert empty.events().schema == full.events().schema
    assert (empty.samples().height, empty.events().height) == (0, 0)


def test_a_case_is_told_by_its_text_once_it_is_known_and_is_the_current_one_where_none_is_told() -> None:
    made = fed(samples("eager", 5), samples("eager", 6, case=OTHER))
    made.add(Frame({"kind": "samples", "variant": "eager", "case": CASE.text}, {"ns": array("q", [7])}))
    made.add(Frame({"kind": "state", "variant": "eager", "state": "FAILED", "why": "out of memory"}))
    assert made.trials["eager", CASE.text].samples_ns == [5, 7]
    assert (made.trials["eager", CASE.text].state, made.trials["eager", CASE.text].why) == ("FAILED", "out of memory")
    assert made.trials["eager", OTHER.text].state == "COLD"
    assert not made.ignored
    made.add(Frame({"kind": "state", "variant": "eager", "state": "FAILED", "case": "9,9,9,9 fp32"}))
    assert sum(made.ignored.values()) == 1


def test_names_that_came_with_an_earlier_window_are_known_until_the_worker_is_another() -> None:
    first, second = window(1, names={"0": "aten::mul"}), window(2)
    known = fed(first, second)
    assert known.events()["name"].to_list() == ["aten::mul"] * 4
    anew = fed(first, Frame({"kind": "hello"}), second)
    assert anew.events().filter(window=2)["name"].to_list() == ["name #0"] * 2


def test_names_are_learned_from_a_window_that_cannot_be_used() -> None:
    broken = window(1, names={"0": "aten::mul"})
    del broken.columns["dur_ns"]
    made = fed(Frame({"kind": "hello"}), broken, window(2))
    assert made.ignored.total() == 1
    assert made.events()["name"].to_list() == ["aten::mul"] * 2


def test_events_are_of_a_variant_and_a_case() -> None:
    made = fed(window(1), window(2, variant="sdpa:math"), window(3, case=OTHER.to_dict()))
    assert made.events()["window"].unique().sort().to_list() == [1, 2, 3]
    assert made.events("eager")["window"].unique().sort().to_list() == [1, 3]
    assert made.events(case=CASE.text)["window"].unique().sort().to_list() == [1, 2]
    assert made.events("sdpa:math", OTHER.text).is_empty()


def test_energy_and_losses_add_up() -> None:
    made = fed(samples("eager", 5, 6, energy_mj=3.5), samples("eager", 5, energy_mj=None), samples("eager", 5, energy_mj=1))
    trial = made.trials["eager", CASE.text]
    assert (trial.energy_mj, trial.energy_samples, trial.seen) == (4.5, 3, 4)
    made.add(window(1, dropped=2, duty_pct=3.5))
    made.add(window(2, dropped=1, duty_pct=4))
    assert (made.dropped, made.duty_pct) == (3, 4)


def test_members_of_the_wrong_kind_are_left_out_and_counted() -> None:
    header = {"kind": "prepared", "variant": "eager", "case": CASE.to_dict(), "compile_s": "long", "peak_bytes": 5, "expected": 3}
    made = fed(
        Frame({**header, "error": {"max_abs": "nan", "bound": 0.5}}), Frame({"kind": "telemetry", "mhz": [], "load1": 0.5})
    )
    trial = made.trials["eager", CASE.text]
    assert (trial.compile_s, trial.prepared["peak_bytes"], trial.prepared["expected"]) == (None, 5, [])
    assert trial.prepared["error"] == {"bound": 0.5}
    assert made.telemetry[0] == {"kind": "telemetry", "load1": 0.5}
    assert made.ignored == {"a compile_s that cannot be": 1, "a expected that cannot be": 1, "a mhz that cannot be": 1}


def test_what_is_nested_where_it_must_not_be_is_left_out() -> None:
    deep: list[object] = []
    for _ in range(500):
        deep = [deep]
    header = {"kind": "prepared", "variant": "eager", "case": CASE.to_dict(), "error": {"why": deep}, "error_skipped": deep}
    machine = {"host": "box", "threads": {}, "torch": 2, "flags": {"A": deep, "B": 1}, "devices": ["cpu"], "more": deep}
    made = fed(Frame({"kind": "hello", "environment": machine}), Frame(header))
    assert made.environment == {"host": "box", "flags": {"B": 1}, "devices": ["cpu"]}
    prepared = made.trials["eager", CASE.text].prepared
    assert prepared["error"] == {}
    assert "error_skipped" not in prepared


def test_a_share_of_a_core_that_cannot_be_is_left_out() -> None:
    made = fed(Frame({"kind": "telemetry", "cores_pct": [50, 1e308, float("nan"), -900, "x", None, []]}))
    assert made.telemetry[0]["cores_pct"] == [50, 1e308]


def test_halves_of_surrogate_pairs_come_out_of_no_member() -> None:
    half = "\ud800"
    about = {"variant": half, "state": half, "why": half, "case": CASE.to_dict()}
    said = {"environment": {"host": half, "flags": {half: half}}, "variants": [{"name": half, "tags": [half], "more": half}]}
    prepared = {"error": {"reference": half, "ok": "maybe"}, "backend": half, "error_skipped": half}
    made = fed(
        Frame({"kind": "hello", **said}),
        Frame({"kind": "state", **about}),
        Frame({"kind": "prepared", **about, **prepared}),
        Frame({"kind": "error", "message": half}),
        Frame({"kind": "log", "line": half}),
    )
    (trial,) = made.trials.values()
    kept = [made.environment, made.variants, trial.variant, trial.state, trial.why, trial.prepared, *made.errors, *made.log]
    assert json.dumps(kept, ensure_ascii=False).encode()
    assert "ok" not in trial.prepared["error"]


@pytest.mark.parametrize("odd", [{"window": 2**70}, {"window": 1.5}, {"causal": "x"}, {"device": "nowhere"}, {"batch": True}])
def test_a_case_that_cannot_be_is_left_out(odd: dict[str, object]) -> None:
    made = fed(Frame({"kind": "state", "variant": "eager", "state": "COLD", "case": CASE.to_dict() | odd}))
    assert (made.trials, dict(made.ignored)) == ({}, {"a case that cannot be": 1})


def test_a_sample_that_took_no_time_is_none() -> None:
    made = fed(samples("eager", 5, 0, -7, 6))
    assert made.trials["eager", CASE.text].samples_ns == [5, 6]
    assert made.ignored == {"a sample that took no time": 2}


def sizes(made: Recording) -> dict[str, int]:
    trials = made.trials.values()
    return {
        "trials": len(trials),
        "cases": len(made.cases),
        "samples": max(len(trial.samples_ns) for trial in trials),
        "marks": max(len(trial.marks) for trial in trials),
        "rounds": max(len(trial.rounds) for trial in trials),
        "windows": max(len(trial.windows) for trial in trials),
        **{name: len(getattr(made, name)) for name in ("telemetry", "log", "errors", "captured", "done")},
    }


def test_a_bounded_recording_keeps_the_last_of_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_module, "MAX_TRIALS", 6)
    monkeypatch.setattr(recording_module, "MAX_LINES", 20)
    made = Recording(limit=50)
    for number in range(300):
        case = CASE.with_(kv_len=64 + number // 30, causal=False)
        made.add(samples("eager", *range(1 + 7 * number, 8 + 7 * number), case=case, round=number))
        made.add(window(number, case=case.to_dict(), names={"0": "a", str(number): f"kinetop.step|eager|{number}|0"}))
        for frame in ({"kind": "telemetry", "load1": number}, {"kind": "log", "line": "x" * 10_000}, {"kind": "error"}):
            made.add(Frame(frame))
        for kind in ("captured", "done"):
            made.add(Frame({"kind": kind}))
    assert not made.ignored
    found = sizes(made)
    assert found == {
        "trials": 6, "cases": 6, "samples": 50, "marks": 50, "rounds": 50, "windows": 8,
        "telemetry": 50, "log": 20, "errors": 20, "captured": 20, "done": 20,
    }  # fmt: skip
    last = made.trial("eager")
    assert last is not None
    assert last.samples_ns == list(range(7 * 300 - 49, 7 * 300 + 1))
    assert last.rounds[-1] == 299
    assert last.seen == 7 * 30
    assert [one.number for one in last.windows] == list(range(292, 300))
    assert {len(line) for line in made.log} == {4096}
    assert len(made._names._texts) == 1, "the name of a step is kept only with its window"


def test_a_bounded_recording_takes_no_huge_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_module, "MAX_WINDOW_ROWS", 10)
    bounded, free = fed(window(rows=11), limit=5), fed(window(rows=11))
    assert bounded.ignored.total() == 1
    assert bounded.events().is_empty()
    assert free.events().height == 11


def test_of_one_frame_a_bounded_recording_keeps_the_last_samples() -> None:
    made = fed(samples("eager", *range(1, 101)), limit=7)
    trial = made.trials["eager", CASE.text]
    assert trial.samples_ns == list(range(94, 101))
    assert (len(trial.marks), len(trial.rounds), trial.seen) == (7, 7, 100)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["eager", "RUNNING", CASE.text]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8) | st.sampled_from(MEMBERS), inner, max_size=3)
    ),
    max_leaves=4,
)
CASES = st.sampled_from([CASE.to_dict(), OTHER.to_dict(), {**CASE.to_dict(), "batch": 1.5}, {**CASE.to_dict(), "device": []}])
COLUMNS = st.dictionaries(
    st.sampled_from(["ns", "name", "kind", "start_ns", "dur_ns", "device_type", "device", "resource", "correlation", "flops"]),
    st.sampled_from(sorted(CODES.values())).flatmap(
        lambda code: st.lists(st.floats(width=32) if code == "d" else st.integers(0, 127), max_size=4).map(
            lambda made: array(code, made)
        )
    ),
)
HOSTILE = st.builds(
    lambda kind, members, variant, case, columns: Frame({"kind": kind, "variant": variant, "case": case, **members}, columns),
    st.sampled_from(KINDS) | VALUES,
    st.dictionaries(st.sampled_from(MEMBERS), VALUES, max_size=8),
    st.sampled_from(["eager", "sdpa:math", "", None, "\ud800"]),
    CASES | VALUES,
    COLUMNS,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(HOSTILE, max_size=6), st.sampled_from([None, 1, 4]))
def test_no_frame_is_too_hostile(frames: list[Frame], limit: int | None) -> None:
    made = Recording(limit)
    for frame in frames:
        made.add(frame)
    assert made.frames == len(frames)
    assert made.samples().height == sum(len(trial.samples_ns) for trial in made.trials.values())
    rows = sum(len(one) for trial in made.trials.values() for one in trial.windows)
    assert made.events().height == rows
    assert all(isinstance(trial, Trial) and isinstance(trial.case, Case) for trial in made.trials.values())
    if limit:
        assert all(len(trial.samples_ns) <= limit for trial in made.trials.values())


def test_taking_frames_in_loads_nothing_heavy() -> None:
    code = (
        "import sys; from array import array\n"
        "from kinetop.traces.live.recording import Recording; from kinetop.traces.live import session\n"
        "from kinetop.traces.live.worker.frames import Frame\n"
        "Recording(5).add(Frame({'kind': 'samples', 'variant': 'a'}, {'ns': array('q', [1])}))\n"
        "assert not {'polars', 'pyarrow', 'torch', 'numpy'} & set(sys.modules)"
    )
    root = Path(kinetop.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(root)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="1 or more"):
        Recording(0)


def test_samples_are_integers_even_where_there_are_none() -> None:
    made = fed(samples("eager"))
    assert made.samples().schema["ns"] == pl.Int64


def test_of_a_window_is_kept_after_how_many_samples_it_was_taken() -> None:
    made, about = Recording(limit=100), {"variant": "eager", "case": Case.of("1,1,8,8").to_dict()}
    window = {name: array("q", [0]) for name in ("name", "kind", "start_ns", "dur_ns")}
    for number in range(12):
        made.add(Frame({"kind": "samples", **about, "round": number}, {"ns": array("q", [1000] * 5)}))
        made.add(Frame({"kind": "window", **about, "window": number, "steps": 1, "names": {}, "kinds": ["cpu_op"]}, window))
    (trial,) = made.trials.values()
    assert trial.windows_at == [5 * (number + 1) for number in range(4, 12)]
    assert len(trial.windows) == len(trial.windows_at)
