"""Which Python measures."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from kinetop.traces.errors import TorchMissingError
from kinetop.traces.live import interpreter

if TYPE_CHECKING:
    from pathlib import Path


def environment(folder: Path, code: int) -> str:
    """An environment whose Python ends with a code, whatever it is asked; return the interpreter."""
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\nexit {code}\n")
    python.chmod(0o755)
    return str(python)


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.delenv("CONDA_PREFIX", raising=False)


@pytest.mark.parametrize(("venv", "conda", "found"), [(0, 0, "venv"), (9, 0, "conda"), (0, 9, "venv")])
def test_the_first_environment_with_torch_is_taken(venv, conda, found, tmp_path, monkeypatch) -> None:
    paths = {"venv": environment(tmp_path / "venv", venv), "conda": environment(tmp_path / "conda", conda)}
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "venv"))
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path / "conda"))
    assert interpreter.candidates() == [*paths.values(), sys.executable]
    assert interpreter.find() == paths[found]


def test_an_environment_that_is_gone_is_passed_over(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "gone"))
    assert interpreter.candidates() == [sys.executable]


def test_where_there_is_none_it_says_where_it_looked_and_what_to_do(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
    python = environment(tmp_path, 9)
    monkeypatch.setattr(interpreter.sys, "executable", environment(tmp_path / "own", 9))
    with pytest.raises(TorchMissingError, match=r"pip install torch.*--python") as caught:
        interpreter.find()
    assert python in str(caught.value)
    assert str(tmp_path / "own") in str(caught.value)


def test_what_is_no_program_has_no_torch(tmp_path) -> None:
    (tmp_path / "python").write_text("no program")
    assert not interpreter.has_torch(str(tmp_path / "python"))
    assert not interpreter.has_torch(str(tmp_path / "absent"))


def test_a_folder_called_torch_is_no_torch(tmp_path, monkeypatch) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "bare").write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    (tmp_path / "bare").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert not interpreter.has_torch(str(tmp_path / "bare"))


def test_our_own_is_found_when_it_has_torch(torch) -> None:
    assert interpreter.has_torch(sys.executable)


def test_why_a_named_interpreter_cannot_measure_is_said(tmp_path) -> None:
    for code, said in {8: "older than Python 3.10", 9: "no torch in", 1: "is no Python (it ended with exit code 1)"}.items():
        assert said in interpreter.why_not(environment(tmp_path / str(code), code))
    for absent in (str(tmp_path / "absent"), str(tmp_path), ""):
        assert "is no Python (it cannot be run)" in interpreter.why_not(absent)
    assert not interpreter.has_torch("a\0b")
