"""Being ended from outside: `kill`, and a terminal that is closed."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_ENDING = (signal.SIGTERM, signal.SIGHUP)


def on_ending(act: Callable[[int], None]) -> None:
    """Have something done instead of dying at once.

    A closed terminal sends two signals; the second must not break off the end, so the first is the last one heard. What
    is ignored, as under nohup, stays so.

    Args:
        act: takes the exit code; called in the main thread.
    """

    def end(number: int, _frame: object) -> None:
        for other in _ENDING:
            signal.signal(other, signal.SIG_IGN)
        act(128 + number)

    for number in _ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, end)
