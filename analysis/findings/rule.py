"""A rule of the findings: what it looks for stands in `rules/findings.toml`, how it is found in a function beside this file."""

from __future__ import annotations

import pkgutil
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .facts import Facts

Confidence = Literal["high", "medium", "low"]
CONFIDENCES: tuple[Confidence, ...] = ("high", "medium", "low")


class Place(NamedTuple):
    """A device of a trace."""

    part: int
    rank: int
    device: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a rule found on one device."""

    place: Place | None
    """None stands for the trace as a whole."""
    saving_ns: int | None
    """Time that the window could be shorter at most; None where that is not known."""
    what: str
    """One sentence with figures."""
    view: str
    """The question whose rows are the evidence."""
    where: str = ""
    """The filter that opens them there."""
    confidence: Confidence
    why: str
    """Reason for the confidence."""
    fix: str = ""
    """What to do, in place of the rule's own text."""
    whole_ns: int | None = None
    """What the saving is a share of, in place of the window."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule as `rules/findings.toml` states it."""

    code: str
    about: str
    """What it looks for, and how the saving is counted."""
    fix: str
    at_least_pct: float
    """Below this share of the window it says nothing."""
    find: Callable[[Facts], Iterable[Found]]


_functions: dict[str, Callable[[Facts], Iterable[Found]]] = {}


def rule(code: str) -> Callable[[Callable[[Facts], Iterable[Found]]], Callable[[Facts], Iterable[Found]]]:
    """Declare the decorated function as the one that finds `code`."""

    def declare(function: Callable[[Facts], Iterable[Found]]) -> Callable[[Facts], Iterable[Found]]:
        _functions[code] = function
        return function

    return declare


@cache
def rules() -> dict[str, Rule]:
    """Return every rule by its code, in the order of `rules/findings.toml`; a new file in this folder is found by itself.

    Example:
        >>> rules()["data-loader"].at_least_pct
        2.0
    """
    for module in pkgutil.iter_modules(import_module(__package__).__path__):
        import_module(f"{__package__}.{module.name}")
    texts = _texts()
    if unlike := set(texts) ^ set(_functions):
        raise RuntimeError(f"rules/findings.toml and the functions differ in {', '.join(sorted(unlike))}")
    return {code: Rule(code, **text, find=_functions[code]) for code, text in texts.items()}


def _texts() -> dict[str, dict[str, Any]]:
    return tomllib.loads((files("kinetop.analysis") / "rules" / "findings.toml").read_text(encoding="utf-8"))
