"""The script that checks a GPU, run on a CPU: it ends by itself, within its time, whatever fails in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

BENCH = Path(__file__).resolve().parents[3] / "bench"


def run(out: Path, *options: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    before = f"{path}{os.pathsep}" if path else ""
    env = {**os.environ, "PYTHONPATH": f"{before}{BENCH.parent / 'src'}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(BENCH / "check_device.py"), "--device", "cpu", "--out", str(out), *options]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def told(out: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((out / "figures.json").read_text())
    return read


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    import device_figures

    made: ModuleType = device_figures
    return made


def test_all_of_it_on_a_cpu(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    done = run(tmp_path, "--seconds", "120", "--only", "forward", "--only", "graph")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("bench.json", "checks.json", "figures.json", "figures.md", "live.parquet", "run.parquet"),
    ]
    made = told(tmp_path)["figures"]
    states = {row["variant"]: row for row in made["variants"] if not row["case"].endswith("graph")}
    assert states["sdpa:flash"]["samples"] >= 30
    assert states["sdpa:cudnn"]["why"] == "it is CUDA only"
    assert all(row["ok"] for row in made["numerics"] + made["kernels"])
    assert [(row["said"], "aten::scaled_dot_product_attention" in row["seen"]) for row in made["backends"]] == [("flash", True)]
    assert [row["why"] for row in made["graphs"]] == ["graphs need a CUDA device"]
    assert {row["where"]: row["windows"] > 0 for row in made["windows"]} == {"run": True, "live": False}
    assert "mask-clone" in {row["code"] for row in made["findings"]}
    assert "| power_w | 0 |" in (tmp_path / "figures.md").read_text()


def test_what_fails_is_written_down_and_ends_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, "--seconds", "30", "--python", "/bin/false", "--only", "forward", "--only", "decode")
    assert done.returncode == 1
    failed = told(tmp_path)["failed"]
    assert [text.partition(":")[0] for text in failed] == ["forward", "decode"]
    assert "no worker can be had" in failed[0]


def test_without_polars_and_pyarrow_the_figures_are_made_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    for name in ("polars", "pyarrow"):
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError('No module named {name}', name={name!r})")
    out = tmp_path / "out"
    there = run(out, "--seconds", "90", "--only", "graph", path=tmp_path)
    assert there.returncode == 1
    assert "the figures are made elsewhere" in there.stderr
    assert sorted(path.name for path in out.iterdir()) == ["checks.json", "live.parquet.journal", "run.parquet.journal"]
    here = run(out, "--figures-only")
    assert here.returncode == 0, here.stderr
    assert [row["why"] for row in told(out)["figures"]["variants"]] == ["graphs need a CUDA device"]
    assert [check["name"] for check in told(out)["checks"]] == ["graph"]


def test_a_check_without_time_is_left_out_and_a_former_run_is_kept(tmp_path: Path) -> None:
    assert run(tmp_path, "--seconds", "1").returncode == 1
    assert told(tmp_path)["failed"][0] == "forward: no time was left"
    again = run(tmp_path, "--seconds", "1")
    assert again.returncode == 2
    assert "name another folder" in again.stderr
    assert run(tmp_path, "--figures-only").returncode == 1
    assert "there is no such check" in run(tmp_path / "other", "--only", "nothing").stderr


def test_a_figure_that_fails_leaves_the_others(tmp_path: Path, figures: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    from kinetop.traces.live import session

    def broken(*_: object) -> None:
        raise ZeroDivisionError("nothing to divide by")

    monkeypatch.setattr(figures, "FIGURES", (broken, *figures.FIGURES))
    failed = figures.write(tmp_path, session.demo(), tmp_path / "none.parquet")
    assert failed == ["figure broken: ZeroDivisionError: nothing to divide by"]
    made = told(tmp_path)["figures"]
    assert len(made["times"]) == len({row["variant"] for row in made["variants"]})
    assert all(row["duty_pct"] is None or row["where"] == "live" for row in made["windows"])


def test_every_cuda_check_is_a_case_that_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    import check_device

    checks = check_device.plan("cuda:1")
    assert {check.case.device for check in checks} == {"cuda:1"}
    assert len({check.name for check in checks}) == len(checks)
    assert {check.case.mode for check in checks} == {"forward", "backward", "decode"}
    assert any(check.case.graph for check in checks)
    from kinetop.traces.live.worker import catalog

    known = catalog.built_in()
    for check in checks:
        for pattern in check.variants:
            assert catalog.select(pattern, known)
