"""The package as others meet it: its names, its command, and what goes into a wheel and an sdist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import kinetop
from kinetop.analysis.question import Question, all_questions

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("tui", "analysis", "traces")


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def run(*args: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [sys.executable, "-m", "kinetop", *args], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )


def test_version_is_said_once_and_everywhere() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", kinetop.__version__)
    done = run("--version")
    assert done.returncode == 0, done.stderr
    assert kinetop.__version__ in done.stdout


def test_the_command_is_what_the_project_names(project: dict[str, Any]) -> None:
    module, _, function = project["project"]["scripts"]["kinetop"].partition(":")
    assert callable(getattr(import_module(module), function))


def test_every_name_that_kinetop_lists_is_there() -> None:
    names = dir(kinetop)
    assert names == sorted(set(names))
    assert {"open", "TraceSet", "summary", "kernels", "idle", "overlap"} <= set(names)
    for name in names:
        assert getattr(kinetop, name) is not None, name


def test_every_question_is_a_function_of_kinetop() -> None:
    for name, question in all_questions().items():
        assert isinstance(question, Question)
        assert getattr(kinetop, name) is question
        assert name.isidentifier(), f"{name} cannot be called from Python"


def test_a_name_that_is_not_there_says_so() -> None:
    with pytest.raises(AttributeError, match="no attribute 'gizmos'"):
        kinetop.gizmos  # noqa: B018 - the access is the test


def test_rooms_are_linked_and_not_copied() -> None:
    for room in ROOMS:
        link = ROOT / "src" / "kinetop" / room
        assert link.is_symlink()
        assert os.fspath(link.readlink()) == f"../../{room}"


def test_every_folder_of_modules_is_a_package() -> None:
    folders = {path.parent for room in ROOMS for path in (ROOT / room).rglob("*.py")}
    assert not [str(folder) for folder in folders if not (folder / "__init__.py").is_file()]


@pytest.mark.parametrize("target", ["wheel", "sdist"])
def test_all_that_belongs_is_packed(project: dict[str, Any], target: str) -> None:
    listed = set(project["tool"]["hatch"]["build"]["targets"][target]["only-include"])
    face = {f"src/kinetop/{path.name}" for path in (ROOT / "src" / "kinetop").iterdir() if path.is_file()}
    assert {*ROOMS, *face} <= listed
    if target == "sdist":
        assert {"tests", "README.md", "LICENSE", "CHANGELOG.md"} <= listed
    assert not [name for name in listed if not (ROOT / name).exists()]


def test_each_room_goes_where_it_is_imported_from(project: dict[str, Any]) -> None:
    sources = project["tool"]["hatch"]["build"]["targets"]["wheel"]["sources"]
    assert sources == {"src": "", **{room: f"kinetop/{room}" for room in ROOMS}}
