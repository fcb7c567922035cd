"""What is worked out once for a trace set, or for a scope of it, and serves every question after that."""

from __future__ import annotations

from threading import RLock
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Made = TypeVar("Made")


def once(owner: object, name: str, make: Callable[[], Made]) -> Made:
    """Return what was made for an owner before, else make it; it lasts as long as the owner does.

    Threads that ask at the same time get the same: one of them makes it, the others wait. The views of the app ask in a thread
    each, all of them first for the same, and the standard library's `cached_property` lets each make its own since Python 3.12.

    Args:
        owner: a trace set or `Work`.
        name: what it is; nothing else kept with the owner has it.
        make: makes it.

    Example:
        >>> import kinetop
        >>> trace = kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False)
        >>> once(trace, "answer", lambda: 42), once(trace, "answer", lambda: 43)
        (42, 42)
    """
    kept = vars(owner)
    if name not in kept:
        with kept.setdefault(f"{name} is being made", RLock()):
            if name not in kept:
                kept[name] = make()
    made: Made = kept[name]
    return made
