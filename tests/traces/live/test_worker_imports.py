"""What the worker's sources need: the standard library of Python 3.10, torch late, and each other."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).resolve().parents[3] / "traces" / "live" / "worker"
SOURCES = sorted(WORKER.rglob("*.py"))
LATE = {"torch", "torch_xla", "pynvml"}
PACKAGES = {"flash_attn", "flash_attn_interface", "xformers", "flashinfer", "sageattention", "kernels"}
"""Packages of attention kernels, for the variants that use them."""
TOO_NEW = {"tomllib", "ExceptionGroup", "BaseExceptionGroup", "StrEnum", "batched"}
"""Names of the standard library that Python 3.10 has not."""


def title(path: Path) -> str:
    return str(path.relative_to(WORKER))


def imports(node: ast.AST) -> list[tuple[int, str]]:
    """Line and top package of what a statement imports; relative ones have none."""
    if isinstance(node, ast.Import):
        return [(node.lineno, alias.name.partition(".")[0]) for alias in node.names]
    if isinstance(node, ast.ImportFrom) and not node.level:
        return [(node.lineno, (node.module or "").partition(".")[0])]
    return []


def typing_only(tree: ast.Module) -> set[ast.AST]:
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    return {inner for block in blocks for inner in ast.walk(block)}


@pytest.mark.parametrize("path", SOURCES, ids=title)
def test_it_imports_the_standard_library_and_the_rest_late(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 10))
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    late = {inner for function in functions for inner in ast.walk(function)}
    allowed_late = LATE | (PACKAGES if "variants" in path.parts else set())
    for node in ast.walk(tree):
        if node in typing_only(tree):
            continue
        for line, name in imports(node):
            assert name in sys.stdlib_module_names | (allowed_late if node in late else set()), f"line {line} imports {name}"


@pytest.mark.parametrize("path", SOURCES, ids=title)
def test_it_stays_within_its_package_and_reads_no_file_of_it(path: Path) -> None:
    depth = len(path.relative_to(WORKER).parts)
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level <= depth, f"line {node.lineno} climbs out of the worker"
        if isinstance(node, ast.Name):
            assert node.id not in {"__file__", *TOO_NEW}, f"line {node.lineno} uses {node.id}"


def test_there_is_something_to_look_at() -> None:
    assert {"main.py", "loader.py", "frames.py"} <= {path.name for path in SOURCES}
