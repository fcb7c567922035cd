"""Loggers, with the real TensorBoard where it is installed and with fakes of the others; nothing goes over a network."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from kinetop.tui import loggers

if TYPE_CHECKING:
    from pathlib import Path

CASE = "2,4/2,512,64 bf16 causal forward cpu"
DOCUMENT = {
    "schema": "kinetop.bench/1",
    "run": {"id": "20261130T190000-abcdef", "began": "2026-11-30T19:00:00+00:00", "settings": {"samples": 30}},
    "environment": {"host": "box", "torch": "2.13.0", "cuda": None, "flags": {"OMP_NUM_THREADS": "1"}},
    "trials": [
        {
            "variant": "sdpa:flash",
            "case": CASE,
            "backend": "flash",
            "state": "RUNNING",
            "median_us": 12.5,
            "n": 30,
            "peak_bytes": None,
        },
        {"variant": "sdpa:cudnn", "case": CASE, "backend": None, "state": "UNAVAILABLE", "median_us": None},
    ],
}
SERIES = "median_us/2x4-2x512x64 bf16 causal forward cpu/sdpa_flash"


class Fake(ModuleType):
    """A module that notes how it is called; what it gives notes the same, and is a context manager."""

    def __init__(self, name: str, calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]]) -> None:
        super().__init__(name)
        self.calls = calls

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*args: Any, **kwargs: Any) -> Fake:
            self.calls.append((name, args, kwargs))
            print("hello from the client")  # noqa: T201 -- real ones do
            return self

        return call

    def __enter__(self) -> Fake:
        return self

    def __exit__(self, *_: object) -> None:
        self.calls.append(("exit", (), {}))

    def __setitem__(self, key: str, value: Any) -> None:
        self.calls.append(("set", (key, value), {}))


@pytest.fixture
def calls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    made: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
    monkeypatch.setitem(sys.modules, request.param, Fake(request.param, made))
    return made


@pytest.mark.parametrize("calls", ["wandb"], indirect=True)
def test_wandb(calls: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    said = loggers.log(DOCUMENT, ["wandb:team/attention"])
    assert said == ["logged to Weights & Biases, project team/attention, run 20261130T190000-abcdef"]
    by_name = {name: (args, kwargs) for name, args, kwargs in calls}
    assert by_name["init"][1]["project"] == "attention"
    assert by_name["init"][1]["entity"] == "team"
    assert by_name["init"][1]["config"]["environment.torch"] == "2.13.0"
    assert "environment.cuda" not in by_name["init"][1]["config"]
    logged = by_name["log"][0][0]
    assert logged[SERIES] == 12.5
    assert len(by_name["Table"][1]["data"]) == 2
    assert calls[-1][0] == "exit"
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("calls", ["mlflow"], indirect=True)
def test_mlflow(calls: list[Any]) -> None:
    (said,) = loggers.log(DOCUMENT, ["mlflow:http://localhost:5000"])
    assert said.startswith("logged to MLflow at http://localhost:5000")
    by_name = {name: (args, kwargs) for name, args, kwargs in calls}
    assert by_name["set_tracking_uri"][0] == ("http://localhost:5000",)
    assert by_name["log_metrics"][0][0] == {SERIES: 12.5, SERIES.replace("median_us", "n"): 30.0}
    assert by_name["log_dict"][0] == (DOCUMENT, "bench.json")


@pytest.mark.parametrize("calls", ["neptune"], indirect=True)
def test_neptune(calls: list[Any]) -> None:
    (said,) = loggers.log(DOCUMENT, ["neptune:team/attention"])
    assert said.startswith("logged to Neptune, project team/attention")
    assert ("set", (f"figures/{SERIES}", 12.5), {}) in calls
    assert calls[-1][0] == "stop"


def test_tensorboard(tmp_path: Path) -> None:
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="tensorboard is not installed"
    )
    (said,) = loggers.log(DOCUMENT, [f"tensorboard:{tmp_path}"])
    assert str(tmp_path) in said
    read = accumulator.EventAccumulator(str(tmp_path / "20261130T190000-abcdef"))
    read.Reload()
    assert [event.value for event in read.Scalars(SERIES)] == [12.5]
    assert "environment" in read.Tags()["tensors"]


@pytest.mark.parametrize("calls", ["mlflow"], indirect=True)
def test_a_server_that_is_away_costs_no_figure(calls: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> None:
        raise ConnectionError("no route to host\nmore")

    monkeypatch.setattr(sys.modules["mlflow"], "set_experiment", away, raising=False)
    assert loggers.log(DOCUMENT, ["mlflow:http://away"]) == ["--log mlflow:http://away failed: ConnectionError: no route to host"]


@pytest.mark.parametrize("spec", ["email:me", "wandb", "wandb:", ""])
def test_an_unknown_logger_is_refused(spec: str) -> None:
    with pytest.raises(ValueError, match="--log is tensorboard:DIR"):
        loggers.check([spec])


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loggers, "find_spec", lambda _: None)
    with pytest.raises(ValueError, match=r"pip install 'kinetop\[mlflow\]'"):
        loggers.check(["mlflow:http://localhost"])


def test_series_hold_nothing_but_numbers() -> None:
    assert [(name, value) for _, _, name, value in loggers.figures(DOCUMENT)] == [("median_us", 12.5), ("n", 30.0)]
