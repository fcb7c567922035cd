"""Which windows a live job takes: at first one of each variant, then one in a few rounds, mostly of the chosen variant."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kinetop.traces.live.worker import loop

if TYPE_CHECKING:
    from collections.abc import Callable


class Stand(SimpleNamespace):
    """Variants that are ready at once and take no time."""

    def __init__(self, names: list[str], may: Callable[..., bool] = lambda *_: True) -> None:
        super().__init__(ready={}, seed=0, windows=SimpleNamespace(may=may))
        self.names, self.taken = names, []

    def choose(self, order: Any) -> list[str]:
        return self.names

    def prepare(self, name: str) -> None:
        self.ready[name] = SimpleNamespace(call_ns=1, windows=0, window_fails=False)

    def sample(self, name: str, count: int, number: int) -> None:
        self.number = number

    def window(self, name: str, **_: bool) -> None:
        self.ready[name].windows += 1
        self.taken.append((self.number, name))


def rounds(stand: Stand, count: int, focus: str | None = None) -> list[tuple[int, str]]:
    job = loop.Live(stand, {"round_ms": 1})  # type: ignore[arg-type]
    job.focus = focus
    for _ in job.pieces():
        if getattr(stand, "number", 0) > count:
            break
    return [one for one in stand.taken if one[0] <= count]


def test_each_variant_has_a_window_early_and_then_they_take_turns() -> None:
    taken = rounds(Stand(["a", "b"]), 12)
    assert taken[:2] == [(1, "a"), (2, "b")]
    assert [number for number, _ in taken[2:]] == [3, 6, 9, 12]
    assert [name for _, name in taken[2:]] == ["a", "b", "a", "b"]


def test_the_chosen_variant_has_most_windows() -> None:
    taken = [name for number, name in rounds(Stand(["a", "b"]), 60, focus="b") if number > 2]
    assert 0 < taken.count("a") < taken.count("b") / 2


def test_none_is_taken_where_it_would_cost_too_much() -> None:
    assert rounds(Stand(["a"], may=lambda *_: False), 9) == []
