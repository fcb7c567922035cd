"""The real traces, each imported once for all tests of this folder."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest

import kinetop

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="session")
def real(shared: Path) -> Callable[[str], kinetop.TraceSet]:
    """Open a real trace by its name below `traces/`; skips where the folder is absent."""

    @cache
    def opened(name: str) -> kinetop.TraceSet:
        return kinetop.open(shared / "traces" / name)

    return opened
