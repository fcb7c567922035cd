"""How the house is built: layers, what is imported when, and the sizes that keep files readable."""

from __future__ import annotations

import ast
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("traces", "analysis", "tui")
SOURCES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
EVERYTHING = sorted([*SOURCES, *(path for folder in ("tests", "bench", "docs", "src") for path in (ROOT / folder).rglob("*.py"))])
MAX_FILE_LINES, MAX_FUNCTION_LINES = 500, 60
TRACE = "tests/data/hazards/01_baseline_clean.json"

Function = ast.FunctionDef | ast.AsyncFunctionDef


def title(path: Path) -> str:
    return str(path.relative_to(ROOT))


def modules_of(room: str) -> list[str]:
    return [module.name for module in pkgutil.walk_packages([str(ROOT / room)], f"kinetop.{room}.")]


def loaded_after(code: str, tmp_path: Path) -> set[str]:
    """Packages of which a fresh interpreter has loaded a part once the code has run; a stand-in for one has no parts."""
    report = tmp_path / "modules.json"
    script = (
        f"import sys\n{code}\nimport json, pathlib\npathlib.Path({str(report)!r}).write_text(json.dumps(sorted(sys.modules)))"
    )
    env = {"PYTHONPATH": str(ROOT / "src"), "HOME": str(tmp_path), "KINETOP_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in json.loads(report.read_text()) if "." in name}


def command(*args: str) -> str:
    """Code that runs a kinetop command in its interpreter and expects it to end well."""
    return "\n".join(
        (
            f"sys.argv = ['kinetop', *{list(args)!r}]",
            "from kinetop.tui.cli import main",
            "try:",
            "    main()",
            "except SystemExit as end:",
            "    assert not end.code, end.code",
        )
    )


def test_import_contracts_hold() -> None:
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={"PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


@pytest.mark.parametrize("room", ["traces", "analysis"])
def test_no_terminal_library_below_the_terminal(room: str, tmp_path: Path) -> None:
    names = modules_of(room)
    assert len(names) > 5
    loaded = loaded_after("\n".join(f"import {name}" for name in names), tmp_path)
    assert not loaded & {"textual", "rich", "typer", "torch"}


def test_importing_kinetop_loads_nothing_heavy(tmp_path: Path) -> None:
    assert not loaded_after("import kinetop", tmp_path) & {"polars", "pyarrow", "duckdb", "textual", "rich", "torch"}


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    assert not loaded_after(command("--help"), tmp_path) & {"polars", "pyarrow", "duckdb", "textual", "torch"}


def test_summary_loads_no_terminal_app(tmp_path: Path) -> None:
    loaded = loaded_after(command("summary", TRACE, "--json"), tmp_path)
    assert "polars" in loaded
    assert not loaded & {"textual", "torch"}


@pytest.mark.parametrize("path", SOURCES, ids=title)
def test_imports_are_relative_in_a_room_and_absolute_across(path: Path) -> None:
    room, *inner = path.relative_to(ROOT).parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level <= len(inner), f"line {node.lineno} climbs out of {room}/"
            names = [node.module or ""] if not node.level else []
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            assert not f"{name}.".startswith(f"kinetop.{room}."), f"line {node.lineno} imports its own room as {name}"
            assert name.partition(".")[0] not in ROOMS, f"line {node.lineno} imports {name} without kinetop."


@pytest.mark.parametrize("path", EVERYTHING, ids=title)
def test_files_and_functions_stay_small(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= MAX_FILE_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, Function):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= MAX_FUNCTION_LINES, f"{node.name} has {length} lines"


@pytest.mark.parametrize("path", SOURCES, ids=title)
def test_all_that_is_public_has_a_docstring(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), "the module says nothing about itself"
    holders = [tree, *(node for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_"))]
    for holder in holders:
        for node in holder.body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
                overload = any(ast.unparse(mark).endswith(("overload", ".setter")) for mark in node.decorator_list)
                assert overload or ast.get_docstring(node), f"{node.name}, line {node.lineno}"
