"""Moving the part that all views look at."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kinetop.tui.scope import Scope

WHOLE = Scope(extent_ns=(1_000, 1_001_000), steps=(10, 11, 13))


def test_steps_go_on_and_stop_at_the_ends() -> None:
    assert [WHOLE.stepped(1).step, WHOLE.stepped(-1).step] == ["10", "13"]
    assert WHOLE.stepped(1).stepped(1).stepped(1).stepped(1).step == "13"
    assert WHOLE.stepped(-1).stepped(-1).step == "11"
    assert Scope().stepped(1) == Scope()


def test_zoom_halves_around_the_middle_and_zero_shows_all() -> None:
    half = WHOLE.zoomed(0.5)
    assert half.zoom_ns == (251_000, 751_000)
    assert half.options["window"] == "251000ns..751000ns"
    assert half.zoomed(2).zoom_ns is None
    assert half.stepped(1).zoom_ns is None
    assert WHOLE.stepped(1).zoomed(0).step is None


def test_pan_stops_at_the_ends() -> None:
    quarter = WHOLE.zoomed(0.25)
    assert quarter.zoom_ns == (376_000, 626_000)
    assert quarter.panned(1).zoom_ns == (501_000, 751_000)
    late = quarter
    for _ in range(9):
        late = late.panned(1)
    assert late.zoom_ns == (751_000, 1_001_000)
    assert WHOLE.panned(1) == WHOLE


@given(st.lists(st.sampled_from([0.5, 2.0, 1, -1]), max_size=40))
def test_no_way_out_of_the_extent(moves: list[float]) -> None:
    scope = WHOLE
    for move in moves:
        scope = scope.panned(int(move)) if abs(move) == 1 else scope.zoomed(move)
        if scope.zoom_ns is not None:
            start, end = scope.zoom_ns
            assert 1_000 <= start < end <= 1_001_000


def test_text_for_the_title() -> None:
    assert Scope(rank=1, device=0, step="12-14").text == "rank 1  GPU 0  step 12-14"
    assert WHOLE.zoomed(0.5).text == "0.251 to 0.751 ms"
    assert Scope(window="trace").text == "window trace"
    assert Scope().text == ""
