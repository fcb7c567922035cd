"""`kinetop export`: a Chrome trace, plain or compressed, with counter tracks where wanted."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

from typer.testing import CliRunner

from kinetop.tui.cli import app

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result


def run(*arguments: object, code: int = 0) -> Result:
    found = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert found.exit_code == code, found.output
    return found


def test_counter_tracks_come_after_the_events(hazards: Path, tmp_path: Path) -> None:
    source, out = hazards / "01_baseline_clean.json", tmp_path / "with_counters.json.gz"
    said = run("export", source, "-o", out, "--counters", "--buckets", 10).stderr
    events = json.loads(gzip.decompress(out.read_bytes()))["traceEvents"]
    own = len(json.loads(source.read_text())["traceEvents"])
    assert [event["ph"] == "C" for event in events] == [False] * own + [True] * (len(events) - own)
    assert len(events) > own
    assert f"wrote {len(events)} events" in said
    plain = tmp_path / "plain.json"
    run("export", source, "-o", plain)
    assert len(json.loads(plain.read_text())["traceEvents"]) == own


def test_what_it_refuses(hazards: Path, tmp_path: Path) -> None:
    source = hazards / "01_baseline_clean.json"
    run("export", source, "-o", tmp_path / "trace.parquet", code=2)
    run("export", source, "-o", source, code=2)
    run("export", source, "-o", tmp_path / "a.json", "--rank", 7, code=2)
    run("export", source, hazards / "69_step_gap_and_overlap.json", "-o", tmp_path / "a.json", code=2)
    assert not any(tmp_path.iterdir())


def test_without_gpu_work_there_are_no_tracks(hazards: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.json"
    said = run("export", hazards / "75_cpu_only.json", "-o", out, "--counters").stderr
    assert "no counter tracks: the trace holds no GPU work" in said
    assert all(event["ph"] != "C" for event in json.loads(out.read_text())["traceEvents"])
