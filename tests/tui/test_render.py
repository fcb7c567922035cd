"""Pictures as text: pure functions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color

from kinetop.analysis.question import Column
from kinetop.tui.render.bars import apportion, histogram, meter, sparkline, squeeze, stacked
from kinetop.tui.render.columns import Look, Placed, place, time_look
from kinetop.tui.render.devices import Device, cards, rows
from kinetop.tui.render.plain import PlainText, plain

SHARES = st.lists(st.floats(0, 1e9), min_size=1, max_size=6)


@given(SHARES, st.integers(6, 200))
def test_apportion_gives_out_every_cell_and_hides_nothing(shares: list[float], width: int) -> None:
    cells = apportion(shares, width)
    assert sum(cells) == (width if sum(shares) > 0 else 0)
    assert all((count > 0) == (share > 0) for count, share in zip(cells, shares, strict=True)) or sum(shares) == 0


@given(st.lists(st.one_of(st.none(), st.floats(allow_nan=True)), max_size=400), st.integers(0, 100))
def test_sparkline_has_the_width(values: list[float | None], width: int) -> None:
    assert len(sparkline(values, width)) == width


def test_sparkline_of_a_ramp_with_a_gap() -> None:
    assert sparkline([0, None, 0.5, 1.0], 4, low=0, high=1) == "▁ ▄▇"
    assert sparkline([5, 5, 5], 3) == "▄▄▄"
    assert sparkline([float("nan"), 1.0], 2) == " ▄"


def test_squeeze_averages_neighbours() -> None:
    assert squeeze([0, 2, 4, 6, None, 8], 3) == [1, 5, 8]


def test_histogram_shows_rare_bins() -> None:
    assert histogram([0, 1000, 1], 3) == " ▇▁"
    assert len(histogram([1] * 100, 10)) == 10


@pytest.mark.parametrize(
    ("share", "text"), [(0, "    "), (0.5, "██  "), (1, "████"), (7, "████"), (-1, "    "), (0.28125, "█▏  ")]
)
def test_meter(share: float, text: str) -> None:
    assert meter(share, 4) == text


def test_stacked_tells_classes_apart_without_colour() -> None:
    assert stacked([("compute", 50), ("comm", 25), ("memory", 0), ("idle", 25)], 8).plain == "████▓▓··"


def test_plain_keeps_every_cell() -> None:
    text = "▁▂▃▄▅▆▇█▓▒·▌▼▲…µ\u2013✓⚠⏎ 核é abc"
    assert plain(text).isascii()
    assert cell_len(plain(text)) == cell_len(text)
    assert plain("▁▂▃▄▅▆▇ █▓▒·") == ".:-=+*# #=-."
    assert [s.text for s in PlainText().apply([Segment("µs ▼")], Color(0, 0, 0))] == ["us v"]


def test_times_get_the_unit_of_the_largest() -> None:
    column = Column("total_us", "us", "x")
    assert [
        (time_look(column, us).unit, time_look(column, us).text(us)) for us in (12.3456, 12_345.6, 123_456.7, 123_456_789.0)
    ] == [
        ("µs", "12.346"),
        ("µs", "12,345.6"),
        ("ms", "123.457"),
        ("s", "123.457"),
    ]
    assert time_look(column, 1e6).text(None) == "\u2013"


def test_priority_zero_never_leaves() -> None:
    columns = [Column(name, "count", "x", priority=priority) for name, priority in (("a", 0), ("b", 3), ("c", 0), ("d", 1))]
    looks = {column.name: Look(column, width=6) for column in columns}
    assert [p.column.name for p in place(columns, looks, 100, skip=0, left=0)] == ["a", "b", "c", "d"]
    assert [p.column.name for p in place(columns, looks, 26, skip=0, left=0)] == ["a", "c", "d"]
    assert [p.column.name for p in place(columns, looks, 5, skip=0, left=0)] == ["a", "c"]
    assert [p.column.name for p in place(columns, looks, 100, skip=2, left=0)] == ["a", "d"]


def test_a_cell_is_cut_with_a_mark_and_wide_letters_count_two() -> None:
    placed = Placed(Look(Column("name", "text", "x")), 0, 8)
    assert placed.fit("abcdefgh") == "abcde…  "
    assert cell_len(placed.fit("核核核核核")) == 8


def device(**changes: object) -> Device:
    values = {
        "title": "GPU 0",
        "name": "H100",
        "window_us": 1284.3,
        "shares": (("compute", 71.4), ("comm", 11.9), ("memory", 0.6), ("idle", 16.1)),
        "busy": (1.0, 0.0),
        "streams": (("stream 7", (1.0, 0.0)), ("stream 20", (0.0, 1.0))),
        "coverage_pct": 99.2,
    }
    return Device(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [40, 80, 140])
def test_cards_and_rows_fit_the_width(width: int) -> None:
    lines = [line.plain for line in cards([device()], width)]
    assert max(cell_len(line) for line in lines) <= width
    assert "compute 71.4 %" in lines[2]
    assert ("⚠ partial" in cards([device(verdict="partial")], width)[0].plain) == (width > 40)
    assert ("coverage 99.2 %  ✓ trust" in lines[0]) == (width > 40)
    many = [line.plain for line in rows([device(), device(title="rank 10  GPU 3")], max(width, 80))]
    assert max(cell_len(line) for line in many) <= max(width, 80)
    assert len(many) == 3


def test_a_card_names_the_streams_left_out() -> None:
    streams = tuple((f"stream {n}", (1.0,)) for n in range(5))
    assert "and 2 streams more" in cards([device(streams=streams)], 80)[-1].plain
    assert len(cards([device(streams=streams[:1])], 80)) == 4
