"""The bench document, and that it comes back from JSON and Parquet as it was."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from kinetop.analysis import benchmark
from kinetop.traces.errors import UnreadableError
from kinetop.traces.live.worker.case import Case

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CASE = Case.of("2,4/2,512,64", dtype="fp32")
OPS = [("cpu_op", "aten::bmm", 0), ("cpu_op", "aten::_softmax", 0), ("cpu_op", "aten::bmm", 0)]


@pytest.fixture(scope="module")
def document(told: Callable[..., Any]) -> dict[str, Any]:
    eager = {
        "ns": [[1000] * 10, [2000] * 5],
        "marks": [[], ["throttled"]],
        "ops": OPS,
        "prepared": {"backend": "eager", "error": {"max_abs": float("inf"), "bound": 0.1, "ok": False}},
    }
    return benchmark.document(told(CASE, {"eager": eager, "gone": {"state": "UNAVAILABLE", "why": "no \ud800 CUDA"}}))


@pytest.fixture
def made(document: dict[str, Any]) -> dict[str, Any]:
    """The document, for a test to do with as it likes."""
    return copy.deepcopy(document)


def test_a_document_holds_figures_raw_samples_and_structure(made: dict[str, Any]) -> None:
    assert made["schema"] == "kinetop.bench/1"
    assert made["environment"]["torch"] == "2.13.0+cpu"
    eager, gone = made["trials"]
    assert eager["samples_ns"] == [1000] * 10 + [2000] * 5
    assert eager["rounds"] == [0] * 10 + [1] * 5
    assert (eager["throttled"], eager["contended"]) == (list(range(10, 15)), [])
    assert eager["structure"]["ops"] == {"aten::bmm": 2, "aten::_softmax": 1}
    assert (eager["median_us"], eager["n"]) == (1.0, 10)
    assert gone["samples_ns"] == []
    assert gone["structure"] is None
    assert sum(part["dur_us"] for part in made["parts"]) == pytest.approx(500, rel=0.05)


def test_a_document_is_json_whatever_was_said(made: dict[str, Any]) -> None:
    text = json.dumps(made, allow_nan=False, ensure_ascii=False).encode()
    assert json.loads(text) == made
    assert made["trials"][0]["max_abs_error"] is None
    assert made["trials"][0]["error"].get("max_abs") is None
    assert made["trials"][1]["why"] == "no ? CUDA"


def test_json_and_parquet_give_the_same_run(made: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(made))
    benchmark.frame(made).write_parquet(tmp_path / "a.parquet")
    (plain,), (rows,) = benchmark.load(tmp_path / "a.json"), benchmark.load(tmp_path / "a.parquet")
    assert (plain.id, plain.began, plain.environment) == (rows.id, rows.began, rows.environment)
    for trial, row in zip(plain.trials, rows.trials, strict=True):
        shared = [name for name in trial if name in row]
        assert {"samples_ns", "structure", "median_us", "throttled", "timing", "error"} <= set(shared)
        assert {name: trial[name] for name in shared} == {name: row[name] for name in shared}


def test_parquet_is_a_row_a_trial_for_any_reader(made: dict[str, Any], tmp_path: Path) -> None:
    benchmark.frame(made).write_parquet(tmp_path / "a.parquet")
    read = pl.read_parquet(tmp_path / "a.parquet")
    assert read.height == 2
    assert read["samples_ns"].list.len().to_list() == [15, 0]
    assert read["torch"].to_list() == ["2.13.0+cpu"] * 2


def test_a_folder_and_a_history_give_their_runs_oldest_first(made: dict[str, Any], tmp_path: Path) -> None:
    def run(began: str) -> dict[str, Any]:
        return made | {"run": made["run"] | {"id": began, "began": began}}

    (tmp_path / "late.json").write_text(json.dumps(run("2026-03-01")))
    history = pl.concat([benchmark.frame(run("2026-02-01")), benchmark.frame(run("2026-01-01"))])
    history.write_parquet(tmp_path / "history.parquet")
    (tmp_path / "other.json").write_text("{}")
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "other.parquet")
    assert [each.began for each in benchmark.load(tmp_path / "history.parquet")] == ["2026-01-01", "2026-02-01"]
    assert [each.began for each in benchmark.load(tmp_path)] == ["2026-01-01", "2026-02-01", "2026-03-01"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"schema": "kinetop.summary/1"}', '{"schema": "kinetop.bench/1"}', "[" * 100_000]
)
def test_what_is_no_result_is_said_in_a_sentence(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(UnreadableError, match=r"a\.json: .*bench result") as caught:
        benchmark.load(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("samples_ns", None),
        ("samples_ns", [0]),
        ("samples_ns", ["1"]),
        ("variant", 3),
        ("peak_bytes", "much"),
        ("batch", 0),
        ("batch", "x"),
        ("dtype", []),
        ("structure", {"ops": {"a": "b"}}),
        ("structure", {"allocations": {"a": 1}}),
        ("structure", {"steps": "x"}),
        ("timing", []),
        ("timing", {"timer": []}),
        ("timing", {"clock_mhz": "fast"}),
        ("timing", {"clock_mhz": -1}),
        ("contended", [[]]),
        ("samples_ns", [2**63]),
        ("window", 2**31),
        ("window", 1.5),
        ("causal", "yes"),
        ("device", "nowhere"),
        ("throttled", {}),
    ],
)
def test_a_damaged_result_is_said_in_a_sentence(made: dict[str, Any], tmp_path: Path, member: str, value: object) -> None:
    made["trials"][0][member] = value
    (tmp_path / "a.json").write_text(json.dumps(made))
    with pytest.raises(UnreadableError, match=r"a\.json: no bench result"):
        benchmark.load(tmp_path / "a.json")


def test_numbers_and_texts_that_json_has_and_others_have_not_are_read(made: dict[str, Any], tmp_path: Path) -> None:
    made["trials"][0] |= {"backend": "\ud800", "median_us": float("inf"), "error_bound": float("nan")}
    (tmp_path / "a.json").write_text(json.dumps(made))
    (run,) = benchmark.load(tmp_path / "a.json")
    assert [run.trials[0][name] for name in ("backend", "median_us", "error_bound")] == ["?", None, None]


@pytest.mark.parametrize("member", ["samples_ns", "variant", "case", "state", "batch", "structure", "contended"])
def test_a_result_that_lacks_something_is_said_in_a_sentence(made: dict[str, Any], tmp_path: Path, member: str) -> None:
    del made["trials"][0][member]
    (tmp_path / "a.json").write_text(json.dumps(made))
    with pytest.raises(UnreadableError, match=r"a\.json: no bench result"):
        benchmark.load(tmp_path / "a.json")


def test_a_parquet_of_something_else_and_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="no bench results in this folder"):
        benchmark.load(tmp_path)
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(UnreadableError, match="of no benchmark"):
        benchmark.load(tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes(b"PAR1 cut off")
    with pytest.raises(UnreadableError):
        benchmark.load(tmp_path / "b.parquet")
