"""The examples in the docstrings of the library run and give what they say."""

from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module
from pathlib import Path

import pytest

import kinetop

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("traces", "analysis", "tui")
MODULES = ["kinetop"] + [
    module.name for room in ROOMS for module in pkgutil.walk_packages([str(ROOT / room)], f"kinetop.{room}.")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    done = doctest.testmod(import_module(name), optionflags=doctest.ELLIPSIS)
    assert done.failed == 0


def test_the_library_has_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    with_examples = [name for name in MODULES if any(test.examples for test in finder.find(import_module(name)))]
    assert kinetop.__name__ in with_examples
    assert len(with_examples) > 20
