"""Causes that the generator plants: each is named first, and a healthy job gets no finding."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import kinetop
from kinetop.analysis.findings import findings
from kinetop.traces import schema
from kinetop.traces.synthetic import CAUSES, Plan, Written, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FIRST = {
    None: [],
    "data-loader": ["data-loader"],
    "sync": ["sync"],
    "tiny-kernels": ["tiny-kernels"],
    "lost-flash": ["attention-unfused"],
    "exposed-all-reduce": ["exposed-all-reduce"],
    "straggler-op": ["straggler"],
}
"""The code that must come first, by the cause planted."""
SEEDS = 20
COLUMNS = {arg.key: arg.column for arg in schema.ARGS}
RENAMED = {"ph": "ph", "cat": "cat", "name": "name", "pid": "process", "tid": "thread"}
TEXT = {column for column, kind in schema.COLUMNS.items() if kind == "text"}
NESTED = {column for column, kind in schema.COLUMNS.items() if kind == "json"}


def planted(folder: Path, cause: str | None, seed: int) -> list[Written]:
    straggler = 1 if cause == "straggler-op" else None
    return write(Plan(ranks=2, steps=2, layers=8, seed=seed, straggler=straggler, causes=(cause,) if cause else ()), folder)


def rows(file: Written) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Read a file that is known to be whole, in this process: the importer starts one of its own for each."""
    header = json.loads(file.path.read_text())
    wanted = {"kernel", "gpu_memcpy", "cpu_op", "cuda_runtime", "user_annotation", "python_function"}
    events = [event for event in header.pop("traceEvents") if event.get("cat") in wanted]
    return [_row(event) for event in events], header


def _row(event: dict[str, Any]) -> dict[str, Any]:
    found = {column: event[key] for key, column in RENAMED.items()}
    found |= {COLUMNS[key]: value for key, value in event["args"].items() if key in COLUMNS}
    found |= {column: str(value) for column, value in found.items() if column in TEXT}
    found |= {column: json.dumps(value) for column, value in found.items() if column in NESTED}
    return {**found, "ts_ns": round(event["ts"] * 1000), "dur_ns": round(event["dur"] * 1000)}


def test_each_cause_has_a_finding() -> None:
    assert set(FIRST) == {None, *CAUSES}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("cause", FIRST)
def test_names_the_cause_first(made: Callable[..., Any], tmp_path: Path, cause: str | None, seed: int) -> None:
    read = [rows(file) for file in planted(tmp_path, cause, seed)]
    found = findings(made(*(each for each, _ in read), **read[0][1]))
    assert found["code"].head(1).to_list() == FIRST[cause]


def test_as_imported(tmp_path: Path) -> None:
    """The rows above are what the importer gives: the same findings, with savings near what was planted."""
    files = planted(tmp_path, "straggler-op", 7)
    found = findings(kinetop.open(tmp_path)).row(0, named=True)
    assert (found["code"], found["rank"], found["confidence"]) == ("straggler", 1, "high")
    assert found["saving_us"] == pytest.approx(max(file.figures.planted_ns for file in files) / 1000, rel=0.1)
    assert "layer_norm" in found["what"]
