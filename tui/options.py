"""How the terminal app opens traces and shows them, as the commands hand it over."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """How to open traces and how to show them."""

    where: str | None = None
    rank: int | None = None
    device: int | None = None
    step: str | None = None
    window: str | None = None
    jobs: int | None = None
    cache: bool = True
    ascii: bool = False
    theme: str | None = None
    mouse: bool = True
    view: str = "overview"
    """View to begin with."""
