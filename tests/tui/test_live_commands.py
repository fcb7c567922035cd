"""`live`, `replay` and `doctor`: their options, what they say without torch or a terminal, and a session printed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from array import array
from typing import TYPE_CHECKING, Any

import pytest
import typer
from typer.testing import CliRunner

from kinetop.traces.errors import WorkerError
from kinetop.traces.live import interpreter, measure, session
from kinetop.traces.live.link import Start
from kinetop.traces.live.recording import Recording
from kinetop.traces.live.worker.case import Case
from kinetop.traces.live.worker.frames import Frame
from kinetop.tui import examination
from kinetop.tui.cli import app
from kinetop.tui.commands import live, measuring

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

CASE = Case.of("1,4,64,64", dtype="fp32")
ENVIRONMENT = {
    "host": "box", "python": "3.11.9", "torch": "2.13.0+cpu", "cuda": None, "device": "cpu", "devices": ["cpu"],
    "device_name": "a CPU", "compiler": "g++ 12", "profiler": {"ok": True, "why_not": None},
}  # fmt: skip


def run(*arguments: object, code: int = 0) -> Result:
    found = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert found.exit_code == code, f"{found.exit_code}: {found.output}"
    assert "Traceback" not in found.output
    return found


def frames(variant: str = "eager", environment: dict[str, Any] = ENVIRONMENT) -> list[Frame]:
    about = {"variant": variant, "case": CASE.to_dict(), "t_ns": 1_796_000_000_000_000_000}
    known = [
        {"name": "eager", "group": "eager", "available": True, "why_not": None, "modes": ["forward"]},
        {"name": "sdpa:cudnn", "group": "sdpa", "available": True, "why_not": None, "modes": ["forward"]},
        {
            "name": "xformers",
            "group": "package",
            "available": False,
            "why_not": "xformers is not installed",
            "modes": ["forward"],
        },
    ]
    return [
        Frame({"kind": "hello", "t_ns": about["t_ns"], "environment": environment, "variants": known}),
        Frame({"kind": "prepared", **about, "backend": "eager", "first_call_us": 10.0, "flops_useful": 1e6}),
        Frame({"kind": "samples", **about, "round": 1, "marks": []}, {"ns": array("q", [100_000] * 20)}),
        Frame({"kind": "samples", **about, "round": 2, "marks": ["contended"]}, {"ns": array("q", [100_000] * 20)}),
        Frame(
            {"kind": "state", "variant": "sdpa:cudnn", "case": CASE.to_dict(), "state": "UNAVAILABLE", "why": "it is CUDA only"}
        ),
        Frame({"kind": "telemetry", "t_ns": about["t_ns"], "device": "cpu", "mhz": 2445.0, "load1": 1.0, "throttle": []}),
    ]


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    path = tmp_path / "session.parquet"
    with session.Writer(path) as writer:
        for frame in frames():
            writer.add(frame)
    return path


def test_defaults_depend_on_the_device() -> None:
    (on_cpu,) = measuring.wanted(device="cpu").cases
    (on_gpu,) = measuring.wanted(device="cuda:1", causal=False).cases
    assert (on_cpu.shape_text, on_cpu.dtype) == (measuring.DEFAULT_SHAPES["cpu"], "fp32")
    assert (on_gpu.shape_text, on_gpu.dtype, on_gpu.causal) == (measuring.DEFAULT_SHAPE, "bf16", False)


def test_options_are_read_as_people_write_them() -> None:
    found = measuring.wanted(
        shapes=["1,8/2,256,64", "2,8,128,32/16"],
        dtype="bfloat16",
        mode="bwd",
        window=64,
        device="cpu",
        host="me@box",
        plugin=["a.b"],
    )
    assert [case.text for case in found.cases] == [
        "1,8/2,256,64 bf16 causal window 64 backward cpu",
        "2,8,128,32/16 bf16 causal window 64 backward cpu",
    ]
    assert (found.start.host, found.start.plugins) == ("me@box", ("a.b",))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"shapes": ["1,2"]}, "a shape is B,Hq"),
        ({"dtype": "int8"}, "dtype is one of"),
        ({"mode": "sideways"}, "mode is one of"),
        ({"shapes": ["1,3/2,64,64"]}, "no multiple"),
        ({"host": "-oProxyCommand=x"}, "--host"),
        ({"host": "box;reboot"}, "--host: 'box;reboot' is no host"),
        ({"device": "nowhere"}, "device is one of"),
        ({"shapes": [f"1,1,{2**31},1"]}, "2,147,483,647 at most"),
        ({"window": 2**31}, "2,147,483,647 at most"),
        ({"variants": " , "}, "--variants names none"),
        ({"setup": "a:b"}, "belong to --target"),
        ({"target": "a:b", "setup": "a:c", "inputs": ["q=bf16[1]"]}, "give one"),
    ],
)
def test_what_cannot_be_is_said(options: dict[str, Any], said: str) -> None:
    with pytest.raises(typer.BadParameter, match=said):
        measuring.wanted(**{"device": "cpu", **options})


def test_another_machine_is_asked_for_its_gpu() -> None:
    assert measuring.default_device("me@box") == "cuda"


def test_live_without_a_terminal_points_to_bench() -> None:
    assert "kinetop bench" in run("live", "--device", "cpu", code=2).output


def test_live_without_torch_says_what_to_install_and_ends_with_3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "has_torch", lambda _: False)
    with pytest.raises(WorkerError, match="pip install") as found:
        live.with_torch(Start())
    assert "\n" not in str(found.value)
    with pytest.raises(WorkerError, match="/no/such/python"):
        live.with_torch(Start(python="/no/such/python"))
    assert live.with_torch(Start(host="me@box")).python is None


def test_live_names_the_interpreter_that_has_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "has_torch", lambda python: python == sys.executable)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    assert live.with_torch(Start()).python == sys.executable


@pytest.mark.parametrize(
    ("name", "said"), [("a.json", "a .parquet file"), ("no/folder/a.parquet", "no folder"), ("", "is there already")]
)
def test_a_session_that_cannot_be_recorded_is_refused(name: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / (name or "taken.parquet")
    if not name:
        path.write_bytes(b"")
    assert said in " ".join(run("live", "--device", "cpu", "--record", path, code=2).output.split())


def test_replay_prints_the_figures(kept: Path) -> None:
    text = run("replay", kept).stdout
    assert text.startswith(f"kinetop replay {kept.name}  a CPU  torch 2.13.0+cpu")
    assert "eager" in text
    assert "100.0" in text
    assert "it is CUDA only" in text
    assert "warning: eager: something else used the device" in text


def test_replay_in_the_other_formats(kept: Path, tmp_path: Path) -> None:
    document = json.loads(run("replay", kept, "--json").stdout)
    assert document["schema"] == "kinetop.bench/1"
    assert {trial["variant"]: trial["median_us"] for trial in document["trials"]} == {"eager": 100.0, "sdpa:cudnn": None}
    run("replay", kept, "-o", tmp_path / "out.csv", "--price-per-hour", 3.6)
    header, first, *_ = (tmp_path / "out.csv").read_text().splitlines()
    assert dict(zip(header.split(","), first.split(","), strict=False))["variant"] == "eager"


def test_replay_reads_the_journal_of_a_session_that_was_not_closed(tmp_path: Path) -> None:
    writer = session.Writer(tmp_path / "cut.parquet")
    for frame in frames():
        writer.add(frame)
    assert "eager" in run("replay", writer.journal).stdout
    writer.close()


@pytest.mark.parametrize("cut", [-1, -200])
def test_replay_of_a_damaged_session_says_so(kept: Path, cut: int) -> None:
    whole = kept.read_bytes()
    kept.write_bytes(whole[:cut])
    said = run("replay", kept, code=3).output
    assert "no recorded session" not in said
    assert "damaged" in said or "incomplete" in said, said


def test_replay_of_what_is_no_session(hazards: Path, tmp_path: Path) -> None:
    assert "this is no recorded session" in run("replay", hazards / "01_baseline_clean.json", code=3).output
    assert "name a session" in run("replay", code=2).output
    assert "no finite number" in run("replay", "--demo", "--pace", "nan", code=2).output
    assert "there is no file" in run("replay", tmp_path / "nothing.parquet", code=2).output


def measured(monkeypatch: pytest.MonkeyPatch, said: list[Frame]) -> None:
    def fake(*_: Any, **__: Any) -> Recording:
        made = Recording()
        for frame in said:
            made.add(frame)
        return made

    monkeypatch.setattr(measure, "measure", fake)
    monkeypatch.setattr(interpreter, "find", lambda: sys.executable)


def test_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    measured(monkeypatch, frames())
    found = json.loads(run("doctor", "--device", "cpu", "--json").stdout)
    states = {check["check"]: check["state"] for check in found["checks"]}
    assert found["schema"] == "kinetop.doctor/1"
    assert found["measures"]
    assert states["torch"] == states["compiler"] == states["profiler"] == states["telemetry"] == "ok"
    assert states["devices"] == states["measuring"] == "note"  # no accelerator; half of the samples are marked
    assert [(one["name"], one["runs_case"], one["why_not"]) for one in found["variants"]] == [
        ("eager", True, None),
        ("sdpa:cudnn", False, "it is CUDA only"),
        ("xformers", False, "xformers is not installed"),
    ]
    text = run("doctor", "--device", "cpu").stdout
    assert "not this case" in text
    assert "xformers is not installed" in text


def test_doctor_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = {
        **ENVIRONMENT, "cuda": "13.0", "driver": "580.1", "compiler": None,
        "profiler": {"ok": False, "why_not": "another profiler is active"},
        "permissions": {"gpu_counters": False, "perf_event_paranoid": 4},
    }  # fmt: skip
    measured(
        monkeypatch, [*frames(environment=broken)[:1], Frame({"kind": "error", "variant": None, "message": "out of memory"})]
    )
    found = json.loads(run("doctor", "--device", "cpu", "--json", code=3).stdout)
    checks = {check["check"]: check for check in found["checks"]}
    assert not found["measures"]
    assert checks["compiler"]["state"] == "missing"
    assert checks["profiler"]["what"] == "another profiler is active"
    assert "out of memory" in checks["measuring"]["what"]
    assert "CUDA_VISIBLE_DEVICES" in checks["devices"]["fix"]
    assert checks["GPU counters"]["what"] == "for root only"
    assert checks["perf events"]["state"] == "note"


def test_doctor_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "has_torch", lambda _: False)
    text = run("doctor", "--device", "cpu", code=3).stdout
    assert "missing" in text
    assert "pip install" in text


def test_doctor_on_a_host_that_is_not_there() -> None:
    start, case = Start(host="nobody@no-such-host.invalid"), CASE
    checks = {check.check: check for check in examination.examine(start, case).checks}
    assert checks["measuring"].state == "failed"


def test_doctor_measures_here() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    found = examination.examine(Start(python=sys.executable), CASE)
    assert found.measures
    assert {"eager", "linear"} <= {str(one["name"]) for one in found.variants if one["runs_case"]}
    assert next(one for one in found.variants if one["name"] == "sdpa:cudnn")["why_not"]


def test_replay_needs_no_torch(kept: Path, tmp_path: Path) -> None:
    """In an interpreter in which torch cannot be imported."""
    code = "\n".join(
        (
            "import sys",
            "sys.modules['torch'] = None",
            f"sys.argv = ['kinetop', 'replay', {str(kept)!r}]",
            "from kinetop.tui.cli import main",
            "main()",
        )
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    assert "eager" in done.stdout


def test_calls_can_be_replayed_from_a_graph() -> None:
    assert measuring.wanted(device="cuda", graph=True).cases[0].text.endswith("cuda graph")
    assert "--graph" in run("bench", "--help").output
