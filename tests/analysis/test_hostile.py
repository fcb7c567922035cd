"""Traces that lack what every trace has, or say it in a way of their own: each question has an answer to each of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import kinetop
from kinetop.analysis.question import all_questions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Events = list[dict[str, Any]]

WITHOUT = {f"without {key}": key for key in ("cat", "args", "pid", "tid", "name", "dur", "ts")}
"""A member that no event has."""
FIRST_KERNEL: dict[str, dict[str, Any]] = {
    "start in the far future": {"ts": 9e15},
    "start before time zero": {"ts": -5},
    "start in words": {"ts": "soon"},
    "endless": {"dur": 1e30},
    "no args but a text": {"args": "none"},
    "no args but a list": {"args": [1, 2]},
    "a name of 1 MB": {"name": "x" * 1_000_000},
    "no correlation": {"args": {"device": 0, "stream": 7, "correlation": 0}},
    "ids in words": {"args": {"device": "zero", "stream": "default", "correlation": "0x1f"}},
}
"""What the first kernel says in place of what it said."""
HEADERS: dict[str, dict[str, Any]] = {
    "base time at the end of 64 bits": {"baseTimeNanoseconds": 9_223_372_036_854_775_000},
    "base time beyond 64 bits": {"baseTimeNanoseconds": 10**20},
    "base time in words": {"baseTimeNanoseconds": "noon"},
    "header of other kinds": {"deviceProperties": {"id": 0}, "distributedInfo": [1], "displayTimeUnit": 7},
    "devices without a name": {"deviceProperties": [{}, None, {"id": "x"}]},
}
"""Members of the trace other than its events."""


def without(key: str) -> Callable[[Events], Events]:
    return lambda events: [{name: value for name, value in event.items() if name != key} for event in events]


def first_kernel(**said: Any) -> Callable[[Events], Events]:
    def change(events: Events) -> Events:
        at = next(at for at, event in enumerate(events) if event.get("cat") == "kernel")
        return [*events[:at], {**events[at], **said}, *events[at + 1 :]]

    return change


CHANGES: dict[str, Callable[[Events], Events]] = {
    **{name: without(key) for name, key in WITHOUT.items()},
    **{name: first_kernel(**said) for name, said in FIRST_KERNEL.items()},
    "only GPU work": lambda events: [event for event in events if event.get("cat") in {"kernel", "gpu_memcpy"}],
    "only the host": lambda events: [event for event in events if event.get("cat") not in {"kernel", "gpu_memcpy"}],
}


def ask_all(folder: Path, document: dict[str, Any]) -> None:
    path = folder / "trace.json"
    path.write_text(json.dumps(document))
    trace = kinetop.open(path, cache=False)
    for name, question in all_questions().items():
        answer = question.ask(trace)
        assert answer.tables.keys() <= {table.name for table in question.tables}, name
        assert question.tables[0].name in answer.tables, name


@pytest.fixture
def clean(hazards: Path) -> dict[str, Any]:
    """A trace without fault."""
    document: dict[str, Any] = json.loads((hazards / "01_baseline_clean.json").read_text())
    return document


@pytest.mark.parametrize("change", CHANGES)
def test_events(change: str, clean: dict[str, Any], tmp_path: Path) -> None:
    ask_all(tmp_path, {**clean, "traceEvents": CHANGES[change](clean["traceEvents"])})


@pytest.mark.parametrize("header", HEADERS)
def test_headers(header: str, clean: dict[str, Any], tmp_path: Path) -> None:
    ask_all(tmp_path, {**clean, **HEADERS[header]})
