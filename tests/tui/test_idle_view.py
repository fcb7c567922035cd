"""The idle view: devices, gaps, causes, and the gap under the cursor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest
from textual.pilot import Pilot

import kinetop
from kinetop.analysis import idle as question
from kinetop.tui.app import KinetopApp, Options
from kinetop.tui.render import gaps
from kinetop.tui.screens.export import ExportScreen
from kinetop.tui.screens.idle import IdleScreen, idle_devices
from kinetop.tui.screens.kernels import KernelsScreen
from kinetop.tui.widgets.tables import Tables

if TYPE_CHECKING:
    from pathlib import Path

    from textual.content import Content

    from kinetop.tui.widgets.frame_table import FrameTable

Settle = Callable[[Pilot[Any]], Awaitable[str]]
SIZES = pytest.mark.parametrize("size", [(80, 24), (140, 40)])
GAPS = "69_step_gap_and_overlap.json"
"""Three gaps: 40, 30 and 10 us."""
HOSTILE = "[/x][red]\x1b[31m核\n" + "y" * 5_000
TEXTS = ("next", "previous", "sync_name", "op", "frame", "annotation", "thread")
ROW = {
    "rank": 0,
    "device": 0,
    "start_us": 14_635.2,
    "dur_us": 290.943,
    "cause": "host late",
    "host_late_us": 283.122,
    "sync_us": 7.821,
}
ROW |= {"next_stream": 7, **dict.fromkeys(TEXTS, HOSTILE)}


def app_on(path: Path, **options: Any) -> KinetopApp:
    return KinetopApp([path], Options(view="idle", **options))


async def rested(pilot: Pilot[Any], settled: Settle) -> str:
    """Wait for the picture of the gap, which follows a cursor at rest."""
    await settled(pilot)
    await pilot.pause(0.2)
    return await settled(pilot)


def shown(app: KinetopApp) -> FrameTable:
    tables = app.screen.query_one(Tables)
    return tables.table(tables.current)


@SIZES
async def test_how_it_looks(size: tuple[int, int], hazards: Path, settled: Settle, snapshot: Callable[[str, str], None]) -> None:
    app = app_on(hazards / GAPS)
    async with app.run_test(size=size) as pilot:
        snapshot(f"idle_{size[0]}x{size[1]}", await rested(pilot, settled))


async def test_ascii(hazards: Path, settled: Settle) -> None:
    app = app_on(hazards / GAPS, ascii=True)
    async with app.run_test(size=(80, 24)) as pilot:
        text = await rested(pilot, settled)
        assert text.isascii()
        assert ": dependency" in text


async def test_the_picture_shows_the_figures_of_the_question(hazards: Path) -> None:
    answer = kinetop.idle.ask(kinetop.open(hazards / GAPS))
    (device,) = idle_devices(answer)
    assert device.idle_us == pytest.approx(answer.main["dur_us"].sum())
    assert device.gaps == answer.main.height
    assert dict(device.parts)["dependency"] == answer.tables["causes"]["total_us"].sum()
    mean = sum(device.share) / len(device.share)
    assert mean * device.window_us == pytest.approx(device.idle_us, rel=0.01)


async def test_one_cause_after_the_other(hazards: Path, settled: Settle) -> None:
    path = hazards / "73_copy_only_gap.json"
    app = app_on(path)
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        every = kinetop.idle(kinetop.open(path))
        causes = [name for name in gaps.CAUSES if name in every["cause"].unique().to_list()]
        for cause in causes:
            await pilot.press("c")
            text = await settled(pilot)
            frame = shown(app).frame
            assert frame is not None
            assert frame["cause"].unique().to_list() == [cause]
            assert f"cause: {cause}" in text
        await pilot.press("c")
        await settled(pilot)
        assert shown(app).rows == every.height


async def test_the_tables_and_what_enter_does_in_each(hazards: Path, settled: Settle) -> None:
    app = app_on(hazards / GAPS)
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        assert shown(app).id == "gaps"
        await pilot.press("t", "enter")
        await settled(pilot)
        view = app.screen
        assert isinstance(view, IdleScreen)
        assert (view.cause, shown(app).id) == ("dependency", "gaps")
        await pilot.press("t", "t")
        assert shown(app).id == "streams"
        stream = shown(app).row
        assert stream is not None
        await pilot.press("enter")
        await settled(pilot)
        kernels = app.screen
        assert isinstance(kernels, KernelsScreen)
        assert kernels.where == f"stream = {stream['stream']}"
        await pilot.press("3", "t", "enter")
        await settled(pilot)
        assert isinstance(app.screen, KernelsScreen)


async def test_the_picture_follows_the_cursor_and_can_be_hidden(hazards: Path, settled: Settle) -> None:
    app = app_on(hazards / GAPS)
    async with app.run_test(size=(100, 30)) as pilot:
        first = await rested(pilot, settled)
        await pilot.press("j")
        second = await rested(pilot, settled)
        assert "40.000 µs from" in first
        assert "30.000 µs from" in second
        assert "40.000 µs from" not in second
        await pilot.press("d")
        assert "µs from" not in await rested(pilot, settled)


async def test_export_takes_the_gaps_shown(hazards: Path, settled: Settle) -> None:
    app = app_on(hazards / GAPS)
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await pilot.press("s", "e")
        await settled(pilot)
        dialog = app.screen
        assert isinstance(dialog, ExportScreen)
        assert list(dialog.tables) == ["gaps"]
        frame = dialog.tables["gaps"]
        assert frame.height == 3
        assert {column.name for column in question.GAP_COLUMNS} - {"rank", "window", "device"} <= set(frame.columns)


@SIZES
async def test_hostile_names(size: tuple[int, int], hazards: Path, settled: Settle) -> None:
    app = app_on(hazards / "77_hostile_names.json")
    async with app.run_test(size=size) as pilot:
        for key in ("j", "G", "t", "t", "t", "c"):
            text = await rested(pilot, settled)
            assert [char for char in text if not char.isprintable() and char != "\n"] == []
            assert "could not be computed" not in text
            await pilot.press(key)


async def test_a_trace_without_gpu_work(hazards: Path, settled: Settle) -> None:
    app = app_on(hazards / "75_cpu_only.json")
    async with app.run_test(size=(80, 24)) as pilot:
        text = await rested(pilot, settled)
        assert "No GPU work here" in text
        await pilot.press("c", "t", "enter", "e")
        assert "could not be computed" not in await rested(pilot, settled)


async def test_eight_ranks_get_a_line_each(shared: Path, settled: Settle) -> None:
    app = app_on(shared / "traces" / "dlrm_8rank")
    async with app.run_test(size=(140, 40)) as pilot:
        text = await rested(pilot, settled)
        assert all(f"rank {rank}  GPU {rank}" in text for rank in range(8))


async def test_a_real_trace_idles_as_the_summary_says(shared: Path, settled: Settle) -> None:
    path = shared / "traces" / "h100_qwen.json.gz"
    app = app_on(path)
    async with app.run_test(size=(100, 30)) as pilot:
        text = await rested(pilot, settled)
        row = kinetop.summary(kinetop.open(path)).row(0, named=True)
        assert f"idle {100 * row['idle_us'] / row['span_us']:.1f} %" in text


def plain(lines: list[Content]) -> list[str]:
    return [line.plain for line in lines]


@pytest.mark.parametrize("width", [20, 78, 138])
def test_a_gap_fits_its_width_and_is_clean(width: int) -> None:
    lines = gaps.gap(ROW, width)
    assert all(line.cell_length <= width for line in lines)
    assert all(char.isprintable() for line in plain(lines) for char in line)


def test_a_gap_in_words() -> None:
    head, bar, legend, *_ = plain(gaps.gap(ROW, 78))
    assert head == " 290.943 µs from 14.635 ms: the next launch came late"
    assert len(bar.strip()) == 76
    assert bar.count("▓") == 2
    assert legend.split() == ["█", "host", "late", "283.122", "µs", "97.3", "%", "▓", "sync", "7.821", "µs", "2.7", "%"]


def test_a_gap_about_which_nothing_is_known() -> None:
    bare = {
        **dict.fromkeys(ROW),
        "rank": 0,
        "device": 0,
        "start_us": 0.0,
        "dur_us": 5.0,
        "cause": "no record",
        "no_record_us": 5.0,
    }
    text = "\n".join(plain(gaps.gap(bare, 78)))
    assert "the trace holds no launch of what follows" in text
    assert "not recorded what it did" in text
    assert "None" not in text


def test_every_cause_of_the_question_has_a_fill_and_a_sentence() -> None:
    names = {name.replace("_", " ") for name in question.CAUSES}
    assert set(gaps.CAUSES) == names == set(gaps.WHY)
    assert len({fill for fill, _ in gaps.CAUSES.values()}) == len(names)  # told apart without colour
