"""The app: opening, views, keys, errors, scope, copy, palette, plain letters."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from textual.binding import Binding
from textual.command import CommandList
from textual.pilot import Pilot
from textual.widgets import Input, OptionList, Static

from kinetop.analysis import question as registry
from kinetop.analysis.question import Column, Table, all_questions, question
from kinetop.tui.app import KinetopApp, Options
from kinetop.tui.clipboard import copy
from kinetop.tui.keys import commands
from kinetop.tui.screens.base import ViewScreen, where_name
from kinetop.tui.screens.kernels import KernelsScreen
from kinetop.tui.screens.overview import OverviewScreen
from kinetop.tui.screens.table import QuestionScreen
from kinetop.tui.widgets.filter_bar import FilterBar
from kinetop.tui.widgets.frame_table import FrameTable
from kinetop.tui.widgets.lines import TitleLine

if TYPE_CHECKING:
    from pathlib import Path

    from kinetop.analysis.work import Work

Settle = Callable[[Pilot[Any]], Awaitable[str]]
Declare = Callable[..., None]
COLUMNS = (Column("name", "text", "the kernel", priority=0), Column("total_us", "us", "sum of durations", priority=0))


@pytest.fixture
def extra(monkeypatch: pytest.MonkeyPatch) -> Declare:
    """Declare a question for one test."""
    all_questions()
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))

    def declare(function: Callable[[Work], dict[str, pl.DataFrame]], name: str = "extra") -> None:
        tables = (Table("rows", COLUMNS, sort="total_us"),)
        question(name=name, title="Extra", about="A question of a test.", tables=tables, order=999)(function)

    return declare


def named(work: Work) -> dict[str, pl.DataFrame]:
    return {"rows": work.gpu.group_by("name").agg(total_us=pl.col("dur_ns").sum() / 1000).sort("total_us", descending=True)}


def app_on(path: Path, **options: Any) -> KinetopApp:
    return KinetopApp([path], Options(**{"view": "extra", **options}))


def table(app: KinetopApp) -> FrameTable:
    return app.screen.query_one(FrameTable)


async def test_a_declared_question_gets_a_view_with_filter_sort_and_help(hazards: Path, extra: Declare, settled: Settle) -> None:
    extra(named)
    app = app_on(hazards / "01_baseline_clean.json")
    async with app.run_test(size=(80, 24)) as pilot:
        text = await settled(pilot)
        assert isinstance(app.screen, QuestionScreen)
        assert "01_baseline_clean.json  extra" in text
        assert app.views[-1] == "extra"
        assert table(app).rows == 6
        await pilot.press("slash", *"nccl", "enter")
        await settled(pilot)
        assert table(app).rows == 1
        assert "1 of 6 activities" in app.screen.query_one(TitleLine).status
        assert "/ nccl" in app.screen.query_one(TitleLine).parts
        await pilot.press("escape")
        await settled(pilot)
        assert table(app).rows == 6
        await pilot.press("f1")
        text = await settled(pilot)
        assert "A question of a test." in text


async def test_a_wrong_filter_says_where_and_leaves_the_view(hazards: Path, extra: Declare, settled: Settle) -> None:
    extra(named)
    app = app_on(hazards / "01_baseline_clean.json")
    async with app.run_test(size=(100, 24)) as pilot:
        await settled(pilot)
        await pilot.press("slash")
        app.screen.query_one(Input).value = "dur > > 3"  # pasted: of what is typed, each letter is a filter by itself
        await pilot.press("tab")
        for _ in range(3):
            await pilot.pause(0.1)
        text = await settled(pilot)
        said = app.screen.query_one("#said", Static)
        assert said.has_class("-error")
        assert "at " in str(said.render())
        assert table(app).rows == 6
        assert "could not be computed" not in text
        app.screen.query_one(Input).value = "nccl"
        await pilot.pause(0.3)
        await settled(pilot)
        assert table(app).rows == 1
        assert not said.has_class("-error")


async def test_a_failing_question_shows_its_error_and_the_app_lives(hazards: Path, extra: Declare, settled: Settle) -> None:
    def broken(work: Work) -> dict[str, pl.DataFrame]:
        raise ZeroDivisionError("[/x] \x1b[31m divided")

    extra(broken)
    extra(named, name="sound")
    app = app_on(hazards / "01_baseline_clean.json")
    async with app.run_test(size=(80, 24)) as pilot:
        text = await settled(pilot)
        assert "This view could not be computed." in text
        assert r"ZeroDivisionError: [/x] \x1b[31m divided" in text
        app.open_view("sound")
        await settled(pilot)
        assert table(app).rows == 6


async def test_only_the_newest_answer_is_shown(hazards: Path, extra: Declare, settled: Settle) -> None:
    slow = threading.Event()

    def late(work: Work) -> dict[str, pl.DataFrame]:
        if work.scope.where == "nccl":
            slow.wait(120)
        return named(work)

    extra(late)
    app = app_on(hazards / "01_baseline_clean.json")
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        view = app.screen
        assert isinstance(view, ViewScreen)
        view.filter_by("nccl")
        view.filter_by("gemm")
        for _ in range(3000):
            await asyncio.sleep(0.02)
            if table(app).rows == len(named(view.work())["rows"]):
                break
        shown = table(app).frame
        slow.set()
        await settled(pilot)
        assert table(app).frame is shown
        assert view.where == "gemm"


async def test_an_unreadable_file_says_so_and_the_app_lives(tmp_path: Path, settled: Settle) -> None:
    path = tmp_path / "not.json"
    path.write_text("hello")
    app = app_on(path)
    async with app.run_test(size=(80, 24)) as pilot:
        text = await settled(pilot)
        assert "not.json" in text
        assert app.is_running
        await pilot.press("escape")
        assert "home" in app.current_mode


@pytest.mark.parametrize("key", ["q", "ctrl+c", "ctrl+q"])
async def test_all_ways_out(key: str, hazards: Path, extra: Declare, settled: Settle) -> None:
    extra(named)
    app = app_on(hazards / "01_baseline_clean.json")
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press(key)
        await pilot.pause()
        assert not app.is_running


def test_every_binding_has_an_id() -> None:
    owners = (KinetopApp, ViewScreen, OverviewScreen, KernelsScreen, FrameTable, FilterBar)
    bindings = [binding for owner in owners for binding in owner.BINDINGS]
    assert [binding for binding in bindings if not (isinstance(binding, Binding) and binding.id)] == []


async def test_the_palette_lists_every_command(hazards: Path, extra: Declare, settled: Settle) -> None:
    extra(named)
    app = app_on(hazards / "01_baseline_clean.json")
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        shown = {key for key, _, _ in commands(app.screen)}
        assert f"view {app.views[1]}" in {label for _, label, _ in commands(app.screen)}
        assert str(len(app.views) + 1) not in shown
        assert {"/", "s", "S", "e", "y", "q", "?", "f1"} <= {part for key in shown for part in key.split(", ")}
        await pilot.press("question_mark")
        app.screen.query_one(Input).value = "reverse"  # pasted: each letter that is typed is a search by itself
        hits = app.screen.query_one(CommandList)
        for _ in range(3000):
            await pilot.pause(0.02)
            if any("reverse" in str(hit.prompt).lower() for hit in hits.options):
                break
        await pilot.press("enter")
        await settled(pilot)
        before = table(app).descending
        await pilot.press("S")
        await settled(pilot)
        assert table(app).descending != before


async def test_steps_and_zoom_change_every_view(hazards: Path, extra: Declare, settled: Settle) -> None:
    extra(named)
    app = app_on(hazards / "69_step_gap_and_overlap.json")
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        assert app.scope.steps == (10, 11, 13)
        every = table(app).rows
        await pilot.press("right_square_bracket")
        text = await settled(pilot)
        assert "step 10" in text
        assert 0 < table(app).rows <= every
        await pilot.press("0", "plus")
        text = await settled(pilot)
        assert " ms" in app.scope.text
        assert app.scope.text in text
        await pilot.press("minus")
        await settled(pilot)
        assert app.scope.zoom_ns is None


async def test_copy_goes_to_the_terminal_and_to_a_file(
    hazards: Path, extra: Declare, settled: Settle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KINETOP_CACHE_DIR", str(tmp_path))
    extra(named)
    app = app_on(hazards / "01_baseline_clean.json")
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("y")
        row = table(app).row
        assert row is not None
        assert app.clipboard == f"{row['name']}\t{row['total_us']}"
        assert (tmp_path / "clip.txt").read_text() == app.clipboard
        await pilot.press("Y")
        lines = (tmp_path / "clip.txt").read_text().splitlines()
        assert lines[0] == "name\ttotal_us"
        assert len(lines) == 7


async def test_a_long_copy_goes_to_the_file_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETOP_CACHE_DIR", str(tmp_path / "a"))
    app = KinetopApp()
    async with app.run_test():
        said = copy(app, "x" * 100_000)
        assert "too long" in said
        assert app.clipboard == ""
        assert (tmp_path / "a" / "clip.txt").stat().st_size == 100_000
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("KINETOP_CACHE_DIR", str(tmp_path / "file" / "b"))
        assert "could not be written" in copy(app, "x")
        assert app.clipboard == "x"


async def test_ascii_leaves_nothing_else_on_the_screen(hazards: Path, extra: Declare, settled: Settle) -> None:
    extra(named)
    app = app_on(hazards / "77_hostile_names.json", ascii=True)
    async with app.run_test(size=(80, 24)) as pilot:
        assert (await settled(pilot)).isascii()


async def test_next_hit_finds_what_the_last_filter_named(hazards: Path, extra: Declare, settled: Settle) -> None:
    extra(named)
    app = app_on(hazards / "01_baseline_clean.json")
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("slash", *"nccl", "enter")
        await settled(pilot)
        await pilot.press("escape")
        await settled(pilot)
        await pilot.press("G", "n")
        assert "nccl" in table(app).key.lower()


async def test_an_idle_app_writes_nothing(
    hazards: Path, extra: Declare, settled: Settle, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra(named)
    app = app_on(hazards / "01_baseline_clean.json")
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("slash")
        await settled(pilot)
        drawn: list[object] = []
        monkeypatch.setattr(app, "_display", lambda *args: drawn.append(args))
        await asyncio.sleep(1.2)
        assert drawn == []


def test_the_first_frame_needs_no_polars() -> None:
    code = (
        "import sys, kinetop.tui.app, kinetop.tui.screens.importing, kinetop.tui.screens.home\nsys.exit('polars' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, env={"PYTHONPATH": "src"}).returncode == 0


@pytest.mark.parametrize("name", ["gemm", 'say "x"', "\x1b[31m[/x]\nred", "a/b\tc", "x" * 5000, "核心"])
def test_the_filter_for_a_name_finds_it(name: str) -> None:
    from kinetop.analysis.filter import predicate

    frame = pl.DataFrame({"name": [name, "other"]})
    assert frame.filter(predicate(where_name(name), frame.schema))["name"].to_list() == [name]


async def test_filter_bar_keeps_what_is_typed(hazards: Path, extra: Declare, settled: Settle) -> None:
    extra(named)
    app = app_on(hazards / "01_baseline_clean.json", where="nccl")
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        bar = app.screen.query_one(FilterBar)
        assert bar.display
        assert bar.text == "nccl"
        assert table(app).rows == 1
        await pilot.press("slash", *"q1")
        assert bar.text == "ncclq1"
        assert app.is_running


async def test_the_list_of_views_says_what_each_shows(hazards: Path, settled: Settle) -> None:
    app = KinetopApp([hazards / "01_baseline_clean.json"])
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await pilot.press("v")
        await pilot.pause()
        listed = app.screen.query_one(OptionList)
        lines = [str(listed.get_option_at_index(at).prompt).strip() for at in range(listed.option_count)]
    assert len(lines) == len(app.views)
    assert all(" " in line and line.endswith(".") for line in lines), lines
