"""The view of any question: its tables, options, what stands below them, where rows lead, pictures, why there is nothing."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from textual.app import App
from textual.pilot import Pilot

import kinetop
from kinetop.analysis import question as registry
from kinetop.analysis.question import Column, Parameter, Question, Table, all_questions, question
from kinetop.traces.errors import FilterError
from kinetop.tui.app import KinetopApp, Options
from kinetop.tui.drill import target
from kinetop.tui.pictures import PICTURES, picture
from kinetop.tui.render.plain import plain
from kinetop.tui.screens.entry import EntryScreen
from kinetop.tui.screens.kernels import KernelsScreen
from kinetop.tui.screens.pick import PickScreen
from kinetop.tui.screens.row import RowScreen
from kinetop.tui.screens.table import QuestionScreen
from kinetop.tui.widgets.column_table import ColumnTable
from kinetop.tui.widgets.picture import Picture
from kinetop.tui.widgets.tables import Tables

if TYPE_CHECKING:
    from pathlib import Path

    from textual.app import ComposeResult

    from kinetop.analysis.work import Work

Settle = Callable[[Pilot[Any]], Awaitable[str]]
CLEAN = "01_baseline_clean.json"
LONG = "[/x]\x1b[31m核 " + "a rather long sentence that no cell has room for, " * 4
COLUMNS = (
    Column("name", "text", "the kernel", priority=0),
    Column("stream", "id", "stream it ran on", priority=0),
    *(Column(f"c{at}_us", "us", f"figure {at}", priority=2) for at in range(20)),
    Column("told", "text", "what is said of it", priority=3),
    Column("unknown", "text", "never known", priority=1),
)


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> Question:
    """Declare a question with several tables, options of each kind and a wide table, for one test."""
    all_questions()
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))

    @question(
        name="extra",
        title="Extra",
        about="A question of a test.",
        parameters=(
            Parameter("by", "name", "what one row stands for", choices=("name", "family")),
            Parameter("more", False, "one more table"),
            Parameter("least", 0, "smallest figure"),
        ),
        tables=(
            Table("rows", COLUMNS, sort="c0_us"),
            Table("devices", COLUMNS[:3]),
            Table("none", COLUMNS[:3], none="the trace holds nothing of the kind, " * 4),
            Table("further", COLUMNS[:3]),
        ),
        order=0,
    )
    def extra(work: Work, *, by: str, more: bool, least: int) -> dict[str, pl.DataFrame]:
        if least > 100:
            raise FilterError("least is at most 100")
        figures = [(pl.col("dur_ns").sum() / 1000 + at).alias(f"c{at}_us") for at in range(20)]
        rows = work.gpu.group_by(pl.col(by).alias("name")).agg(pl.col("stream").first(), *figures)
        rows = rows.with_columns(told=pl.lit(LONG), unknown=pl.lit(None, pl.String)).sort("c0_us", "name", descending=True)
        rows = rows.filter(pl.col("c0_us") >= least)
        tables = {"rows": rows, "devices": rows.select("name", "stream", "c0_us"), "none": rows.head(0)}
        return {**tables, "further": rows.head(1)} if more else tables

    return extra


def app_on(path: Path, view: str = "extra", **options: Any) -> KinetopApp:
    return KinetopApp([path], Options(view=view, **options))


def view(app: KinetopApp) -> QuestionScreen:
    assert isinstance(app.screen, QuestionScreen)
    return app.screen


async def rested(pilot: Pilot[Any], settled: Settle) -> str:
    """Wait for the lines below the table, which follow a cursor at rest."""
    await settled(pilot)
    await pilot.pause(0.2)
    return await settled(pilot)


async def pick(pilot: Pilot[Any], settled: Settle, *words: str) -> None:
    """Open the options and choose a line, then a line, by how they begin."""
    await pilot.press("g")
    for word in words:
        await settled(pilot)
        assert isinstance(pilot.app.screen, PickScreen)
        lines = pilot.app.screen._choices
        at = next(at for at, line in enumerate(lines) if line.startswith(word))
        await pilot.press("home", *["down"] * at, "enter")
    await settled(pilot)


@pytest.mark.usefixtures("declared")
async def test_one_table_at_a_time(hazards: Path, settled: Settle) -> None:
    app = app_on(hazards / CLEAN)
    async with app.run_test(size=(80, 24)) as pilot:
        text = await rested(pilot, settled)
        assert " rows 6  devices 6  none 0   t next   g by: name  more: no" in text
        assert view(app).query_one(Tables).current == "rows"
        seen = []
        for _ in range(3):
            await pilot.press("t")
            await settled(pilot)
            seen.append(view(app).query_one(Tables).current)
            shown = [table.id for table in view(app).query(ColumnTable) if table.display]
            assert shown == seen[-1:]
            assert view(app).shown_table.has_focus
            assert view(app).shown_table.size.height >= 18, "a table must have the room there is"
        assert seen == ["devices", "none", "rows"]
        assert [*view(app).tables()] == ["rows", "devices", "none"]


@pytest.mark.usefixtures("declared")
async def test_an_empty_table_says_why(hazards: Path, settled: Settle) -> None:
    app = app_on(hazards / CLEAN)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("t", "t")
        text = await settled(pilot)
        assert " ".join(text.split()).count("the trace holds nothing of the kind,") == 4, "cut off"
        await pilot.press("slash", *"nosuchname", "enter")
        assert "no GPU work matches the filter" in await settled(pilot)
        await pilot.press("escape", "plus")
        assert "0 shows all" in await settled(pilot)


@pytest.mark.usefixtures("declared")
async def test_options_are_chosen_and_typed(hazards: Path, settled: Settle) -> None:
    app = app_on(hazards / CLEAN)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pick(pilot, settled, "by", "family")
        families = kinetop.open(hazards / CLEAN)
        asked = all_questions()["extra"].ask(families, by="family").main
        assert view(app).shown_table.ordered["name"].to_list() == asked["name"].to_list()  # type: ignore[index]
        await pick(pilot, settled, "more", "yes")
        assert view(app).query_one(Tables).current == "further", "the table that the option makes is shown"
        await pick(pilot, settled, "more", "no")
        assert view(app).query_one(Tables).current == "rows"
        assert view(app).shown_table.has_focus
        await pick(pilot, settled, "least")
        assert isinstance(app.screen, EntryScreen)
        await pilot.press("home", "ctrl+k", *"ten", "enter")
        text = await settled(pilot)
        assert "least is a number, such as 0" in text
        assert "smallest figure" in text
        await pilot.press("home", "ctrl+k", *"40", "enter")
        await settled(pilot)
        figures = view(app).shown_table.frame["c0_us"]  # type: ignore[index]
        assert 0 < figures.len() < asked.height
        assert figures.min() >= 40  # type: ignore[operator]
        assert "least: 40" in await settled(pilot)


@pytest.mark.usefixtures("declared")
async def test_an_option_that_is_refused_leaves_the_view_as_it_was(hazards: Path, settled: Settle) -> None:
    app = app_on(hazards / CLEAN)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        rows = view(app).shown_table.rows
        await pick(pilot, settled, "least")
        await pilot.press("home", "ctrl+k", *"200", "enter")
        text = await settled(pilot)
        assert "least is at most 100" in [note.message for note in app._notifications]
        assert "could not be computed" not in text
        assert view(app).shown_table.rows == rows > 0
        assert view(app).own == {}


@pytest.mark.usefixtures("declared")
async def test_the_column_cursor_reaches_every_column_and_says_what_it_means(hazards: Path, settled: Settle) -> None:
    app = app_on(hazards / CLEAN)
    async with app.run_test(size=(80, 24)) as pilot:
        await rested(pilot, settled)
        table = view(app).shown_table
        assert table.column == "c0_us"
        await pilot.press("left", "left", "left")
        assert table.column == "name"
        for column in COLUMNS:
            text = await settled(pilot)
            assert table.column == column.name
            assert column.about in text.splitlines()[-3]
            assert column.name in [placed.column.name for placed in table._placed]
            assert table._placed[0].column.name == "name", "the first column stays"
            await pilot.press("right")
        for column in reversed(COLUMNS):
            assert table.column == column.name
            assert column.name in [placed.column.name for placed in table._placed]
            await pilot.press("left")
            await settled(pilot)


@pytest.mark.usefixtures("declared")
async def test_s_sorts_by_the_column_under_the_cursor(hazards: Path, settled: Settle) -> None:
    app = app_on(hazards / CLEAN)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        table = view(app).shown_table
        await pilot.press("right", "right", "s")
        assert (table.sort_column, table.column) == ("c2_us", "c2_us")
        await pilot.press("s")
        assert table.sort_column == table.column == "c3_us"
        await pilot.press("g", "escape", "S")
        assert table.ordered["c3_us"].is_sorted()  # type: ignore[index]


@pytest.mark.usefixtures("declared")
async def test_texts_that_are_cut_are_told_in_full_below_and_on_a_page(hazards: Path, settled: Settle) -> None:
    app = app_on(hazards / CLEAN)
    async with app.run_test(size=(100, 40)) as pilot:
        text = await rested(pilot, settled)
        below = "".join(line.strip() for line in text.splitlines()[-5:-1])
        assert "[/x]\\x1b[31m核" in below
        assert "sentence that no cell has room for" in below
        await pilot.press("d")
        text = await settled(pilot)
        assert isinstance(app.screen, RowScreen)
        await pilot.press("G")
        await pilot.pause(0.1)
        text = await settled(pilot)
        flat = re.sub(r"[\s│▁▂▃▄▅▆▇█]+", " ", text)
        assert flat.count("a rather long sentence that no cell has room for,") >= 4  # and once more below the page
        assert "figure 19" in text
        assert "\x1b" not in text
        assert "without a value: unknown" in text


@pytest.mark.usefixtures("declared")
async def test_enter_opens_the_kernels_of_a_row_and_escape_comes_back(hazards: Path, settled: Settle) -> None:
    app = app_on(hazards / CLEAN)
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        row = view(app).shown_table.row
        assert row is not None
        await pilot.press("enter")
        await settled(pilot)
        assert app.current_mode == "kernels"
        assert isinstance(app.screen, KernelsScreen)
        assert app.screen.table is not None
        assert app.screen.table.ordered["name"].to_list() == [row["name"]]  # type: ignore[index]
        await pilot.press("escape")
        await settled(pilot)
        assert app.current_mode == "extra"


def test_where_rows_lead() -> None:
    one = pl.DataFrame({"rank": [0], "device": [0]})
    two = pl.DataFrame({"rank": [0, 1], "device": [0, 1]})
    many = pl.DataFrame({"rank": [0, 1, 1], "device": [0, 1, 1]})
    place = {"rank": 1, "device": 1}

    def where(name: str, row: dict[str, Any], frame: pl.DataFrame = one, **options: Any) -> str | None:
        found = target(name, row, frame, options)
        assert found is None or found[0] == "kernels"
        return found and found[1]

    assert where("steps", {**place, "step": 12}) == "step = 12"
    assert where("steps", {**place, "step": 12}, two) == "rank = 1 and device = 1 and step = 12"
    assert where("launches", dict(place), two) == "rank = 1 and device = 1"
    assert where("series", dict(place), many) is None, "a bucket is not a device"
    assert where("ops", {"name": "aten::mm"}, group_by="name") == "op = 'aten::mm'"
    assert where("ops", {"name": "it's"}, group_by="shape") == "op = 'it''s'"
    assert where("ops", {"name": "(no launch record)"}, group_by="name") == "api is null"
    assert where("ops", {"name": "Linear_0"}, group_by="module") is None
    assert where("collectives", {"kind": "all-reduce", "name": "nccl", "bytes": 8}) == "family = 'all-reduce'"
    assert where("anything", {"name": "gemm", "family": "gemm", "stream": 7}) == '"gemm" and stream = 7'
    assert where("anything", {"name": "a\x1bb"}) == "/a(?s:.)b/"
    assert where("anything", {"total_us": 1.0, "op": None, "family": "x" * 5000}) is None
    assert target("findings", {"view": "idle", "where": "sync"}, one, {}) == ("idle", "sync")
    assert target("findings", {"view": "idle", "where": None}, one, {}) == ("idle", "")


QUESTIONS = [name for name in all_questions() if name not in {"summary", "kernels", "idle", "overlap"}]


async def test_every_question_shows_every_table_and_every_row_leads_somewhere(hazards: Path, settled: Settle) -> None:
    app = app_on(hazards / "77_hostile_names.json", "overview")
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        for asked in QUESTIONS:
            app.open_view(asked)
            text = await settled(pilot)
            shown = view(app)
            assert shown.answer is not None, asked
            for _ in shown.answer.result.tables:
                table = shown.shown_table
                assert "could not be computed" not in text, (asked, table.id)
                assert not [char for char in text if not char.isprintable() and char != "\n"], (asked, table.id)
                if table.rows:
                    await pilot.press("end", "enter")
                    assert "could not be computed" not in await settled(pilot), (asked, table.id)
                    assert app.screen is not shown, (asked, table.id)
                    await pilot.press("escape")
                    await settled(pilot)
                else:
                    assert table.empty.split("(")[0].strip()[:60] in text, (asked, table.id)
                assert app.screen is shown, (asked, table.id)
                await pilot.press("t")
                text = await settled(pilot)


def drawn(name: str, trace: Any, width: int, height: int) -> list[str]:
    drawing = picture(all_questions()[name].ask(trace))
    return [] if drawing is None else [line.plain for line in drawing(width, height)]


@pytest.mark.parametrize("name", sorted(PICTURES))
@pytest.mark.parametrize("file", ["60_two_gpus_one_process.json", "71_memory_instants.json"])
def test_pictures_keep_to_their_room_and_have_a_twin_in_ascii(name: str, file: str, hazards: Path) -> None:
    trace = kinetop.open(hazards / file, cache=False)
    for width, height in ((40, 8), (80, 10), (140, 14)):
        lines = drawn(name, trace, width, height)
        assert len(lines) <= height, (width, lines)
        assert all(len(line) <= width for line in lines), (width, lines)
        assert all(plain(line).isascii() and "?" not in plain(line) for line in lines), lines


def test_what_pictures_show(hazards: Path) -> None:
    steps = drawn("steps", kinetop.open(hazards / "69_step_gap_and_overlap.json", cache=False), 80, 10)
    assert [line.split("  ")[0].strip()[:7] for line in steps[:3]] == ["step 10", "step 11", "step 13"]
    lengths = [len(re.sub(r"[^█▓▒▏▅▆░·]", "", line)) for line in steps[:3]]
    assert lengths == sorted(lengths, key=lambda n: n) or lengths[1] > lengths[0], "as long as the steps: 100, 105, 100 µs"
    assert "~ partial" in steps[-1]
    many = drawn("steps", kinetop.open(hazards / "69_step_gap_and_overlap.json", cache=False), 80, 3)
    assert many, "side by side where there is no line for each"
    memory = drawn("memory", kinetop.open(hazards / "71_memory_instants.json", cache=False), 80, 10)
    assert any("3.0 MiB" in line for line in memory)
    assert drawn("memory", kinetop.open(hazards / CLEAN, cache=False), 80, 10) == []


@pytest.mark.parametrize(("size", "seen"), [((80, 24), False), ((100, 30), True)])
async def test_pictures_leave_a_low_screen(size: tuple[int, int], seen: bool, hazards: Path, settled: Settle) -> None:
    app = app_on(hazards / "69_step_gap_and_overlap.json", "steps")
    async with app.run_test(size=size) as pilot:
        text = await settled(pilot)
        assert app.screen.query_one("#picture", Picture).display is seen
        assert ("█ kernel" in text) is seen
        await pilot.press("c")
        assert "█ kernel" not in await settled(pilot)
        await pilot.press("c")
        assert ("█ kernel" in await settled(pilot)) is seen


async def test_a_tree_is_indented_until_it_is_sorted() -> None:
    columns = (Column("name", "text", "who"), Column("depth", "count", "level"), Column("total_us", "us", "time"))
    names = ["root", "child", "grandchild", "other"]
    frame = pl.DataFrame({"name": names, "depth": [0, 1, 2, 0], "total_us": [9.0, 8.0, 7.0, 1.0]})

    class One(App[None]):
        def compose(self) -> ComposeResult:
            yield ColumnTable()

    app = One()
    async with app.run_test(size=(60, 10)) as pilot:
        table = app.query_one(ColumnTable)
        table.show(frame, columns)
        await pilot.pause()
        assert [cells[0].rstrip() for cells in table._page(0)] == ["root", "  child", "    grandchild", "other"]
        table.sort_by("total_us", descending=False)
        assert [cells[0].rstrip() for cells in table._page(0)] == ["other", "grandchild", "child", "root"]
