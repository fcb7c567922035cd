"""Ranks whose clocks differ: what is shown outside of the questions' tables stands on the first rank's clock too."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import kinetop
from kinetop.analysis.kernels import instances, labels
from kinetop.analysis.work import scoped
from kinetop.tui.document import window_facts
from kinetop.tui.survey import survey

if TYPE_CHECKING:
    from pathlib import Path

AHEAD_US = 50.0


@pytest.fixture
def both(hazards: Path) -> kinetop.TraceSet:
    """The same trace twice, the second time as of a rank whose clock runs ahead."""
    one = kinetop.open(hazards / "01_baseline_clean.json", cache=False)
    return kinetop.TraceSet((*one.traces, replace(one.traces[0], rank=1, clock_offset_ns=int(AHEAD_US * 1000))))


def test_launches_of_a_kernel(both: kinetop.TraceSet) -> None:
    rows = instances(scoped(both))
    starts = {rank: rows.filter(rows["rank"] == rank)["start_us"].to_list() for rank in (0, 1)}
    assert starts[0] == [start + AHEAD_US for start in starts[1]]


def test_windows_of_a_document(both: kinetop.TraceSet) -> None:
    late, early = window_facts(scoped(both))["devices"]
    assert (late["start_us"] - early["start_us"], late["end_us"] - early["end_us"]) == (AHEAD_US, AHEAD_US)
    assert late["span_us"] == early["span_us"] == late["end_us"] - late["start_us"]


def test_time_to_zoom_over(both: kinetop.TraceSet) -> None:
    windows = window_facts(scoped(both))["devices"]
    (first_ns, last_ns), _ = survey(both)
    assert first_ns / 1000 == min(window["start_us"] for window in windows)
    assert last_ns / 1000 == max(window["end_us"] for window in windows)


def test_an_annotation_of_impossible_length_is_around_nothing(tmp_path: Path, hazards: Path) -> None:
    text = (hazards / "68_no_profiler_step.json").read_text()
    events = [event for event in json.loads(text)["traceEvents"] if event.get("cat") == "cuda_runtime"]
    long = {"ph": "X", "cat": "user_annotation", "name": "for ever", "ts": events[0]["ts"] - 1, "dur": 4e15}
    long |= {name: events[0][name] for name in ("pid", "tid")}
    mended = json.loads(text)
    mended["traceEvents"].append(long)
    path = tmp_path / "long.json"
    path.write_text(json.dumps(mended))
    work = scoped(kinetop.open(path, cache=False))
    assert "for ever" not in set(labels(work.gpu, work, "annotation"))
