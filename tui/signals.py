"""Being ended from outside: ctrl+c, `kill`, and a terminal that is closed."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ENDING = (signal.SIGTERM, signal.SIGHUP)
_AGAIN_S = 0.01


@contextmanager
def cancellable() -> Iterator[None]:
    """Let ctrl+c raise KeyboardInterrupt while a command works; before and after, it does what it did.

    Python drops an exception that comes while it runs a callback of its own (a finaliser, the release of an import lock), and
    prints where; one that a signal raised is raised again instead, a moment later.
    """
    before, complain = signal.getsignal(signal.SIGINT), sys.unraisablehook
    heard = callable(before)  # what is ignored, as in the background of a script, stays so
    sys.unraisablehook = _raise_again
    try:
        if heard:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
    finally:
        if heard:
            signal.signal(signal.SIGINT, before)
        sys.unraisablehook = complain


def _raise_again(dropped: sys.UnraisableHookArgs) -> None:
    ending = dropped.exc_value
    if not isinstance(ending, KeyboardInterrupt | SystemExit):
        sys.__unraisablehook__(dropped)
        return

    def end(*_: object) -> None:
        raise ending

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)


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
