"""`kinetop bench` and `kinetop gate`, on recordings made by hand and, where torch is there, for real."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import polars as pl
import pytest
from typer.testing import CliRunner

from kinetop.analysis import sweep
from kinetop.traces.live import measure as measure_module
from kinetop.traces.live.worker.case import Case
from kinetop.traces.live.worker.frames import Frame
from kinetop.tui.bench_progress import BenchProgress
from kinetop.tui.bench_text import shown
from kinetop.tui.cli import app

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

ROOT = Path(__file__).resolve().parents[2]
SHAPE = "1,4/2,64,16"
CASE = Case.of(SHAPE, dtype="fp32")
OPS = [("cpu_op", "aten::bmm", 0), ("cpu_op", "aten::_softmax", 0), ("cpu_op", "aten::bmm", 0)]
CLONE = [("cpu_op", "aten::clone", 0), ("cpu_op", "aten::copy_", 0)]


def run(*arguments: object, code: int = 0) -> Result:
    found = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert found.exit_code == code, f"{found.exit_code}: {found.output}"
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found


def samples(seed: int, factor: float = 1.0) -> list[int]:
    rng = random.Random(seed)
    return [round(factor * rng.gauss(100_000, 2_000)) for _ in range(30)]


def spoken(seed: int = 1, factor: float = 1.0, ops: Any = OPS) -> dict[str, Any]:
    prepared = {"backend": "eager", "flops_useful": 1e6, "flops_executed": 2e6, "peak_bytes": 4096}
    return {
        "eager": {"ns": samples(seed, factor), "ops": ops, "prepared": prepared},
        "sdpa:cudnn": {"state": "UNAVAILABLE", "why": "it is CUDA only"},
    }


@pytest.fixture
def worker(told: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[dict[str, Any]]]:
    """In place of a worker: what it would have said of each case, by call; returns what was asked of it."""
    monkeypatch.setattr("kinetop.tui.commands.live.with_torch", lambda start: start)
    asked: list[dict[str, Any]] = []

    def answers(made: Callable[[Case], dict[str, Any]], **hello: Any) -> list[dict[str, Any]]:
        def measure(start: Any, cases: Any, variants: Any, **how: Any) -> Any:
            asked.append({"start": start, "cases": cases, "variants": variants, **how})
            return told(*(part for case in cases for part in (case, made(case))), hello=hello)

        monkeypatch.setattr(measure_module, "measure", measure)
        return asked

    return answers


def test_table_on_stdout_and_files_of_both_kinds(worker: Callable[..., Any], tmp_path: Path) -> None:
    asked = worker(lambda case: spoken())
    out = run(
        "bench",
        "--shape",
        SHAPE,
        "--device",
        "cpu",
        "--out",
        tmp_path / "a.json",
        "--out",
        tmp_path / "a.parquet",
        "--samples",
        7,
    )
    assert "eager" in out.stdout
    assert "it is CUDA only" in out.stdout
    assert "wrote" in out.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "a.parquet"]
    made = json.loads((tmp_path / "a.json").read_text())
    assert made["schema"] == "kinetop.bench/1"
    assert made["run"]["settings"]["samples"] == 7
    assert made["trials"][0]["samples_ns"] == samples(1)
    assert pl.read_parquet(tmp_path / "a.parquet")["median_us"].to_list() == [row["median_us"] for row in made["trials"]]
    (call,) = asked
    assert (call["cases"], call["samples"], call["min_time_ms"]) == ((CASE,), 7, 200)


def test_json_on_stdout_is_the_document_alone(worker: Callable[..., Any]) -> None:
    worker(lambda case: spoken())
    made = json.loads(run("bench", "--shape", SHAPE, "--device", "cpu", "--json", "--peak-tflops", "1").stdout)
    row = made["trials"][0]
    assert row["useful_tflops"] == pytest.approx(1e6 / (row["median_us"] * 1e-6) / 1e12)
    assert row["peak_pct"] == pytest.approx(100 * row["useful_tflops"])
    assert "sweep" not in made


def test_options_reach_the_worker(worker: Callable[..., Any]) -> None:
    asked = worker(lambda case: spoken())
    run(
        *("bench", "--variants", "eager, sdpa:*", "--shape", SHAPE, "--shape", "1,1,8,8", "--dtype", "fp16", "--full"),
        *(
            "--window",
            4,
            "--mode",
            "bwd",
            "--device",
            "cpu",
            "--min-time",
            "1.5s",
            "--seed",
            3,
            "--target",
            "a:b",
            "--plugin",
            "p",
        ),
    )
    (call,) = asked
    assert [case.shape_text for case in call["cases"]] == [SHAPE, "1,1,8,8"]
    first = call["cases"][0]
    assert (first.dtype, first.causal, first.window, first.mode) == ("fp16", False, 4, "backward")
    assert (call["min_time_ms"], call["start"].seed, call["start"].target, call["start"].plugins) == (1500, 3, "a:b", ("p",))
    assert call["variants"] == ["target*", "eager", " sdpa:*"]


def test_a_sweep_says_what_to_choose_and_writes_the_table_to_dispatch_on(worker: Callable[..., Any], tmp_path: Path) -> None:
    def measured(case: Case) -> dict[str, Any]:
        return {"a": {"ns": [case.kv_len**2] * 12}, "b": {"ns": [10_000 + case.kv_len**2 // 9] * 12}}

    worker(measured)
    path = tmp_path / "d.json"
    out = run("bench", "--shape", SHAPE, "--device", "cpu", "--sweep", "seq=32:256:x2", "--dispatch", path)
    for words in ("best variant of each case", "where the best variant changes", "how far each variant goes"):
        assert words in out.stdout
    table = json.loads(path.read_text())
    assert sweep.lookup(table, CASE.with_(q_len=32, kv_len=32)) == "a"
    assert sweep.lookup(table, CASE.with_(q_len=500, kv_len=500)) == "b"
    made = json.loads(run("bench", "--shape", SHAPE, "--device", "cpu", "--sweep", "seq=32:256:x2", "--json").stdout)
    assert [row["variant"] for row in made["sweep"]["best"]] == ["a", "a", "b", "b"]


def test_a_history_grows_with_append(worker: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "h.parquet"
    worker(lambda case: spoken())
    for _ in range(2):
        run("bench", "--shape", SHAPE, "--device", "cpu", "--out", path, "--append")
    assert pl.read_parquet(path).height == 4
    run("bench", "--shape", SHAPE, "--device", "cpu", "--out", path)
    assert pl.read_parquet(path).height == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--out", "a.csv"], ".json or a .parquet"),
        (["--out", "nowhere/a.json"], "no folder nowhere"),
        (["--dispatch", "a.txt"], "is a .json file"),
        (["--append"], "name it with --out"),
        (["--min-time", "soon"], "200ms or 2s"),
        (["--sweep", "depth=1:2"], "a sweep runs along"),
        (["--shape", "1,2"], "a shape is"),
        (["--shape", "1,8/2,64,8", "--sweep", "heads=6"], "share key heads"),
        (["--format", "parquet"], "stdout gets"),
        (["--setup", "a:b"], "belong to --target"),
        (["--base", "flex:full"], "none of the --variants"),
        (["--trace-dir", "/dev/null/a"], "cannot be made: Not a directory"),
        (["--peak-tflops", "nan"], "no finite number"),
        (["--price-per-hour", "inf"], "no finite number"),
        (["--seed", "-1"], "not in the range"),
    ],
)
def test_wrong_options_end_with_two_before_anything_is_measured(
    worker: Callable[..., Any], arguments: list[str], says: str
) -> None:
    asked = worker(lambda case: spoken())
    assert says in run("bench", "--device", "cpu", *arguments, code=2).output.replace("\n", " ")
    assert not asked


def test_where_nothing_could_be_measured_it_says_why_and_ends_with_three(worker: Callable[..., Any]) -> None:
    worker(lambda case: {"sdpa:cudnn": {"state": "UNAVAILABLE", "why": "it is CUDA only"}})
    out = run("bench", "--device", "cpu", code=3)
    assert "it is CUDA only" in out.stdout
    assert "nothing could be measured" in out.stderr


def test_columns_shown_are_those_that_say_something(worker: Callable[..., Any]) -> None:
    worker(lambda case: spoken())
    made = json.loads(run("bench", "--shape", SHAPE, "--device", "cpu", "--json").stdout)
    names = [column.name for column in shown(pl.DataFrame(made["trials"], strict=False))]
    assert {"variant", "state", "median_us", "low_us", "high_us", "useful_tflops", "why"} <= set(names)
    assert not {"case", "batch", "energy_mj", "peak_pct", "throttled_pct"} & set(names)


@pytest.fixture
def results(worker: Callable[..., Any], tmp_path: Path) -> Callable[..., Path]:
    """Write a bench result to a file and return it."""

    def write(name: str, made: dict[str, Any], **hello: Any) -> Path:
        worker(lambda case: made, **hello)
        run("bench", "--shape", SHAPE, "--device", "cpu", "--out", tmp_path / name)
        return tmp_path / name

    return write


def test_gate_passes_and_fails(results: Callable[..., Path], tmp_path: Path) -> None:
    old, same = results("old.json", spoken(1)), results("same.parquet", spoken(2))
    slow, cloned = results("slow.json", spoken(2, 1.4)), results("cloned.json", spoken(2, ops=[*OPS, *CLONE]))
    assert "passed: 1 SAME" in run("gate", same, "--baseline", old).stdout
    assert "SLOWER" in run("gate", slow, "--baseline", old, code=1).stdout
    assert "passed: 1 SLOWER" not in run("gate", slow, "--baseline", old, "--threshold", 60).stdout
    out = run("gate", cloned, "--baseline", old, "--json", code=1)
    (verdict,) = json.loads(out.stdout)["verdicts"]
    assert (verdict["verdict"], verdict["time_verdict"]) == ("CHANGED", "SAME")
    assert "aten::copy_ 1 times a step, was 0" in verdict["why"]
    run("gate", cloned, "--baseline", old, "--allow", "ops", "--allow", "copies")
    files = ["--markdown", tmp_path / "g.md", "--junit", tmp_path / "g.xml"]
    run("gate", slow, "--baseline", old, *files, code=1)
    assert "**SLOWER**" in (tmp_path / "g.md").read_text()
    assert ET.parse(tmp_path / "g.xml").getroot().get("failures") == "1"


def test_gate_refuses_and_says_each_reason(results: Callable[..., Path], tmp_path: Path) -> None:
    old, other = results("old.json", spoken()), results("other.json", spoken(), threads=9, driver="1", device_name="Another")
    out = run("gate", other, "--baseline", old, "--junit", tmp_path / "g.xml", code=3)
    for reason in ("device_name is Another, in the baseline Some CPU", "threads is 9, in the baseline 2"):
        assert reason in out.stderr
    assert ET.parse(tmp_path / "g.xml").getroot().get("errors") == "1"
    (tmp_path / "no.json").write_text("{}")
    assert "no bench result" in run("gate", tmp_path / "no.json", "--baseline", old, code=3).stderr
    assert "gone.json" in run("gate", tmp_path / "gone.json", "--baseline", old, code=3).stderr


def test_gate_against_a_folder(results: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "history").mkdir()
    results("history/first.json", spoken(1))
    results("history/second.parquet", spoken(2), threads=9)
    assert "passed: 1 SAME" in run("gate", results("new.json", spoken(3)), "--baseline", tmp_path / "history").stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["--threshold", "0"], "above 0"), (["--allow", "speed"], "numerics"), (["--markdown", "."], "folder")],
)
def test_gate_options(results: Callable[..., Path], arguments: list[str], says: str) -> None:
    old = results("old.json", spoken())
    assert says in run("gate", old, "--baseline", old, *arguments, code=2).output


def started(*arguments: object, modules: Path = ROOT) -> subprocess.Popen[str]:
    env = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{modules}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "kinetop", *map(str, arguments)]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def descendants(pid: int) -> set[int]:
    """Processes below one, by /proc."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(fields[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl+c", "kill"])
def test_an_end_in_the_middle_leaves_no_process_and_no_file(tmp_path: Path, number: signal.Signals) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    out = tmp_path / "a.json"
    process = started(
        "bench", "--device", "cpu", "--variants", "eager", "--shape", "1,2,64,16", "--min-time", "60s", "--out", out
    )
    try:
        deadline = time.monotonic() + 60
        while not (below := descendants(process.pid)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert below
        time.sleep(1.0)
        below |= descendants(process.pid)
        process.send_signal(number)
        _, talk = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == (130 if number == signal.SIGINT else 128 + signal.SIGTERM), talk
    assert "Traceback" not in talk
    assert not [pid for pid in below if Path(f"/proc/{pid}").exists()]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_for_real_figures_follow_the_formulas_and_a_clone_is_caught(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    plugin = tmp_path / "hidden_clone.py"
    plugin.write_text(PLUGIN)
    files = []
    for cloning in ("", "1"):
        files.append(tmp_path / f"run{cloning}.json")
        process = started(
            *("bench", "--device", "cpu", "--variants", "eager,sdpa:flash,mine", "--shape", "2,4/2,128,32"),
            *("--plugin", "hidden_clone", "--json", "--out", files[-1]),
            modules=tmp_path,
        )
        out, talk = process.communicate(timeout=120)
        assert process.returncode == 0, talk
        plugin.write_text(PLUGIN.replace("query = q", "query = q.clone()"))
    made = json.loads(out)
    rows = {row["variant"]: row for row in made["trials"]}
    pairs = 128 * 129 // 2
    assert rows["eager"]["flops_useful"] == 2 * 2 * 4 * (32 + 32) * pairs
    assert rows["eager"]["flops_executed"] == 2 * 2 * 4 * (32 + 32) * 128 * 128
    for row in rows.values():
        assert row["low_us"] <= row["median_us"] <= row["high_us"]
        assert row["max_abs_error"] <= row["error_bound"]
    result = run("gate", files[1], "--baseline", files[0], "--json", code=1)
    verdicts = {verdict["variant"]: verdict for verdict in json.loads(result.stdout)["verdicts"]}
    assert verdicts["mine"]["verdict"] == "CHANGED"
    assert "aten::clone 1 times a step, was 0" in verdicts["mine"]["why"]
    assert {verdicts[name]["verdict"] for name in ("eager", "sdpa:flash")} <= {"SAME", "FASTER", "UNDECIDED"}


PLUGIN = """
import torch.nn.functional as F
from kinetop.traces.live.worker.variant import Built, Variant


def build(case, inputs):
    def call():
        q, k, v = inputs.q, inputs.k, inputs.v
        query = q
        return F.scaled_dot_product_attention(query, k, v, is_causal=True, enable_gqa=True)

    return Built(call)


variants = [Variant("mine", "Mine", "package", "A plug-in's.", build)]
"""


def test_what_befalls_a_variant_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    failed = {"kind": "state", "variant": "mine", "state": "FAILED", "why": "RuntimeError: no"}
    with BenchProgress(1) as progress:
        for header in (
            {"kind": "hello"},
            {"kind": "error", "variant": "mine", "message": "no", "type": "RuntimeError"},
            {"kind": "beat", "doing": {"what": "waiting"}},
            failed,
            {"kind": "link", "event": "timeout", "variant": "slow", "why": "slow took 60 s"},
            {**failed, "variant": "slow", "why": "slow took 60 s"},
            {"kind": "error", "variant": "eager", "message": "another profiler is active", "type": "ProfilerBusyError"},
            {"kind": "window", "variant": "eager"},
            {"kind": "link", "event": "lost", "variant": None, "why": "it ended"},
            {"kind": "error", "variant": "linear", "message": "the last word"},
        ):
            progress(Frame(header))
    assert capsys.readouterr().err.splitlines() == [
        "mine: FAILED: RuntimeError: no",
        "slow: FAILED: slow took 60 s",
        "eager: another profiler is active",
        "worker lost: it ended",
        "linear: the last word",
    ]


def test_what_a_target_prints_is_said(worker: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    worker(lambda case: spoken())
    before = measure_module.measure

    def printing(*given: Any, **how: Any) -> Any:
        recording = before(*given, **how)
        recording.log.extend(["hello", "hello again"])
        return recording

    monkeypatch.setattr(measure_module, "measure", printing)
    said = "wrote on standard error: 2 lines, the last: hello again"
    assert said in run("bench", "--shape", SHAPE, "--device", "cpu", "--target", "mine:attend").stderr
    assert said not in run("bench", "--shape", SHAPE, "--device", "cpu").stderr
