"""`kinetop flame`: files that flame graph viewers read, and one sentence for what goes wrong."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from kinetop.tui.cli import app

if TYPE_CHECKING:
    from pathlib import Path

run = CliRunner().invoke


@pytest.fixture
def trace(hazards: Path) -> str:
    return str(hazards / "01_baseline_clean.json")


def test_folded_and_speedscope_hold_the_same(trace: str, tmp_path: Path) -> None:
    for weight, whole in (("cpu", 390_000), ("device", 135_000)):
        shown = run(app, ["flame", trace, "--weight", weight])
        assert shown.exit_code == 0
        out = tmp_path / f"{weight}.speedscope.json"
        assert run(app, ["flame", trace, "--weight", weight, "-o", str(out)]).exit_code == 0
        profile = json.loads(out.read_text())["profiles"][0]
        weights = [int(line.rsplit(" ", 1)[1]) for line in shown.stdout.splitlines()]
        assert profile["weights"] == weights
        assert sum(weights) == whole
        again = tmp_path / f"{weight}.folded"
        assert run(app, ["flame", trace, "--weight", weight, "-o", str(again)]).exit_code == 0
        assert again.read_text() == shown.stdout


def test_hostile_names_stay_on_their_line(hazards: Path) -> None:
    shown = run(app, ["flame", str(hazards / "77_hostile_names.json"), "--weight", "device"])
    assert shown.exit_code == 0
    assert all(line.rsplit(" ", 1)[1].isdigit() for line in shown.stdout.splitlines())
    assert not set("\x1b\x07\x00\r") & set(shown.stdout)


def test_nothing_to_draw_is_said(hazards: Path) -> None:
    shown = run(app, ["flame", str(hazards / "75_cpu_only.json"), "--weight", "device"])
    assert (shown.exit_code, shown.stdout) == (0, "")
    assert "no GPU work in scope" in shown.stderr


@pytest.mark.parametrize("more", [["-o", "x.svg"], ["--weight", "memory"], ["--where", "dur >"], ["--step", "x"]])
def test_what_cannot_be_understood_ends_with_2(
    trace: str, more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = run(app, ["flame", trace, *more])
    assert shown.exit_code == 2
    assert "Traceback" not in shown.stderr
    assert not [*tmp_path.iterdir()]
