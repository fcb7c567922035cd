"""What is worked out once, whichever threads ask."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from kinetop.traces.once import once


class Owner:
    """Something that things are kept with."""


def test_threads_that_ask_together_get_the_one_thing_that_is_made() -> None:
    owner, together, made = Owner(), Barrier(8), []

    def make() -> object:
        time.sleep(0.02)  # long enough for all to ask meanwhile
        made.append(object())
        return made[-1]

    def ask(_: int) -> object:
        together.wait()
        return once(owner, "thing", make)

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(ask, range(8)))
    assert len(made) == 1
    assert all(answer is made[0] for answer in answers)


def test_what_one_thing_needs_of_another_is_made_inside() -> None:
    owner = Owner()
    assert once(owner, "outer", lambda: 1 + once(owner, "inner", lambda: 2)) == 3
    assert once(owner, "inner", lambda: 5) == 2


def test_what_could_not_be_made_is_tried_again() -> None:
    owner = Owner()
    with pytest.raises(ZeroDivisionError):
        once(owner, "share", lambda: 1 / 0)
    assert once(owner, "share", lambda: 0.5) == 0.5


def test_nothing_is_made_twice_of_a_trace(hazards) -> None:
    import kinetop

    trace = kinetop.open(hazards / "01_baseline_clean.json", cache=False)
    for name in ("events", "pairs", "extent", "activities", "links", "launches", "host", "calls"):
        assert getattr(trace, name) is getattr(trace, name), name
