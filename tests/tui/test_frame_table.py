"""The table over a frame: what it draws, its cursor, sort, columns, mouse."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import polars as pl
import pytest
from textual.app import App, ComposeResult
from textual.pilot import Pilot

from kinetop.analysis.question import Column
from kinetop.tui.widgets.frame_table import THREAD_ROWS, FrameTable

COLUMNS = (
    Column("name", "text", "name", priority=0),
    Column("class", "text", "class", priority=3),
    Column("count", "count", "how many", priority=2),
    Column("total_us", "us", "time", priority=0),
)
Settle = Callable[[Pilot[Any]], Awaitable[str]]


def frame(rows: int) -> pl.DataFrame:
    """Rows whose total falls in another order than their names."""
    return pl.DataFrame(
        {
            "name": [f"k{n:07}" for n in range(rows)],
            "class": [("compute", "comm", "memory", "other")[n % 4] for n in range(rows)],
            "count": range(rows),
            "total_us": [float(n * 7919 % 10_007) for n in range(rows)],
        }
    )


class Host(App[None]):
    """A table alone, and what it said."""

    def __init__(self, rows: int, sort: str = "") -> None:
        super().__init__()
        self.rows, self.sort = rows, sort
        self.picked: list[dict[str, Any]] = []
        self.moved: list[dict[str, Any] | None] = []

    def compose(self) -> ComposeResult:
        yield FrameTable(id="t", empty="no rows")

    def on_mount(self) -> None:
        self.table.show(frame(self.rows), COLUMNS, sort=self.sort)

    @property
    def table(self) -> FrameTable:
        return self.query_one(FrameTable)

    def on_frame_table_picked(self, message: FrameTable.Picked) -> None:
        self.picked.append(message.row)

    def on_frame_table_moved(self, message: FrameTable.Moved) -> None:
        self.moved.append(message.row)


async def test_vim_keys_arrows_and_pages(settled: Settle) -> None:
    app = Host(1000)
    async with app.run_test(size=(60, 11)) as pilot:
        letters = {"j": 1, "down": 2, "k": 1, "G": 999, "j ": 999, "g": 0, "k ": 0, "ctrl+d": 5, "ctrl+u": 0}
        for key, row in {**letters, "pagedown": 10, "pageup": 0, "end": 999, "home": 0}.items():
            await pilot.press(key.strip())
            assert app.table.cursor == row, key
        await pilot.press("G", "enter")
        assert "k0000999" in await settled(pilot)
        assert app.picked == [frame(1000).row(999, named=True)]
        assert app.moved[-1] == frame(1000).row(999, named=True)


async def test_the_cursor_costs_two_lines(settled: Settle, monkeypatch: pytest.MonkeyPatch) -> None:
    app = Host(1000)
    async with app.run_test(size=(60, 20)) as pilot:
        await settled(pilot)
        drawn: list[int] = []
        draw = FrameTable.render_line
        monkeypatch.setattr(FrameTable, "render_line", lambda self, y: (drawn.append(y), draw(self, y))[1])
        await pilot.press("j")
        await settled(pilot)
        assert sorted(set(drawn)) == [1, 2]


@pytest.mark.parametrize("rows", [50, THREAD_ROWS + 1])
async def test_sort_by_key_and_round(rows: int, settled: Settle) -> None:
    app = Host(rows)
    async with app.run_test(size=(60, 11)) as pilot:
        app.table.sort_by("total_us", descending=True)
        text = await settled(pilot)
        assert "▼" in text.splitlines()[0]
        expected = frame(rows).sort("total_us", descending=True)["total_us"].to_list()
        assert app.table.ordered is not None
        assert app.table.ordered["total_us"].to_list() == expected
        await pilot.press("S")
        text = await settled(pilot)
        assert "▲" in text.splitlines()[0]
        assert app.table.ordered["total_us"].to_list() == expected[::-1]


async def test_s_goes_through_the_columns_shown(settled: Settle) -> None:
    app = Host(20, sort="total_us")
    async with app.run_test(size=(60, 11)) as pilot:
        seen = []
        for _ in range(4):
            await pilot.press("s")
            await settled(pilot)
            seen.append((app.table.sort_column, app.table.descending))
        assert seen == [("name", False), ("class", False), ("count", True), ("total_us", True)]


async def test_a_sort_in_a_thread_that_came_too_late_is_dropped(settled: Settle) -> None:
    app = Host(10)
    async with app.run_test(size=(60, 11)) as pilot:
        late = FrameTable.Ordered(app.table._request, pl.Series([9, 8, 7, 6, 5, 4, 3, 2, 1, 0]))
        app.table.sort_by("count", descending=False)
        app.table.on_frame_table_ordered(late)
        await settled(pilot)
        assert app.table.ordered is not None
        assert app.table.ordered["count"].to_list() == list(range(10))


async def test_columns_leave_by_priority_and_scroll_back(settled: Settle) -> None:
    app = Host(5)
    async with app.run_test(size=(60, 8)) as pilot:
        assert (await settled(pilot)).split()[:5] == ["name", "class", "count", "total", "µs"]
        await pilot.resize_terminal(36, 8)
        assert (await settled(pilot)).split()[:4] == ["name", "count", "total", "µs"]
        await pilot.resize_terminal(26, 8)
        assert (await settled(pilot)).split()[:3] == ["name", "total", "µs"]
        await pilot.press("l")
        assert "count" in (await settled(pilot)).splitlines()[0]
        await pilot.press("h")
        assert "count" not in (await settled(pilot)).splitlines()[0]


async def test_numbers_stand_to_the_right_in_one_unit(settled: Settle) -> None:
    app = Host(5)
    async with app.run_test(size=(60, 8)) as pilot:
        app.table.show(pl.DataFrame({"name": ["a", "b", "c"], "total_us": [2_000_000.0, 1.5, None]}), COLUMNS)
        lines = (await settled(pilot)).splitlines()
        assert "total ms" in lines[0]
        assert [line.split()[-1] for line in lines[1:4]] == ["2,000.000", "0.002", "\u2013"]
        assert len({len(line) for line in lines[1:4]}) == 1


async def test_header_click_sorts_row_click_picks(settled: Settle) -> None:
    app = Host(20, sort="total_us")
    async with app.run_test(size=(60, 11)) as pilot:
        left = {placed.column.name: placed.left for placed in app.table._placed}
        await pilot.click(FrameTable, offset=(left["count"] + 1, 0))
        await settled(pilot)
        assert (app.table.sort_column, app.table.descending) == ("count", True)
        await pilot.click(FrameTable, offset=(left["count"] + 1, 0))
        await settled(pilot)
        assert not app.table.descending
        await pilot.click(FrameTable, offset=(5, 4))
        assert app.table.cursor == 3
        await pilot.click(FrameTable, offset=(5, 6), times=2)
        assert [row["count"] for row in app.picked] == [5]


async def test_a_new_frame_keeps_row_and_chosen_sort(settled: Settle) -> None:
    app = Host(20)
    async with app.run_test(size=(60, 11)) as pilot:
        app.table.sort_by("count", descending=True)
        await pilot.press("j", "j")
        assert app.table.key == "k0000017"
        app.table.show(frame(20).filter(pl.col("count") != 3), COLUMNS)
        await settled(pilot)
        assert (app.table.sort_column, app.table.descending, app.table.key) == ("count", True, "k0000017")


async def test_an_empty_frame_says_so(settled: Settle) -> None:
    app = Host(0)
    async with app.run_test(size=(60, 8)) as pilot:
        assert "no rows" in await settled(pilot)
        await pilot.press("j", "G", "enter", "s", "S", "l")
        await settled(pilot)
        assert app.picked == []
        assert app.table.row is None


async def test_find_goes_round(settled: Settle) -> None:
    app = Host(20)
    async with app.run_test(size=(60, 11)) as pilot:
        await settled(pilot)
        hits = frame(20)["count"].is_in([4, 9])
        rows = []
        for step in (1, 1, 1, -1):
            assert app.table.find(hits, step)
            rows.append(app.table.cursor)
        assert rows == [4, 9, 4, 9]
        assert not app.table.find(frame(20)["count"] > 99, 1)
