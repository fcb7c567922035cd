"""Named parts of a variant (`kinetop.part|softmax`), marked only while a window is taken."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

PART = "kinetop.part|"
"""What the name of a part's range begins with."""
STEP = "kinetop.step|"
"""What the name of a step's range begins with."""
_taking = False


def part(name: str) -> AbstractContextManager[Any]:
    """Return a context manager that marks what runs inside as a part; while no window is taken it does nothing.

    A range costs 8 to 15 us, more than some of the ops it would mark, so timed samples go without. Inside torch.compile it is
    always nothing: its switch would be a guard, and each window a recompilation.

    Args:
        name: qk, scale, mask, softmax, pv, copy, cast, layout, or another word.
    """
    import torch

    if torch.compiler.is_compiling() or not _taking:
        return nullcontext()
    marked: AbstractContextManager[Any] = torch.profiler.record_function(PART + name)
    return marked


def step(variant: str, window: int, number: int) -> AbstractContextManager[Any]:
    """Return the range that marks one profiled step.

    Args:
        variant: its name.
        window: the window's number.
        number: the step in the window, from 0.
    """
    import torch

    marked: AbstractContextManager[Any] = torch.profiler.record_function(f"{STEP}{variant}|{window}|{number}")
    return marked


def is_taking() -> bool:
    """Return whether a window is being taken, so that parts are marked."""
    return _taking


@contextmanager
def taking() -> Iterator[None]:
    """Let `part` mark its ranges within."""
    global _taking  # noqa: PLW0603 -- one window at a time in a process, as there is one profiler
    _taking = True
    try:
        yield
    finally:
        _taking = False
