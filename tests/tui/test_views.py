"""Overview and kernels: what they show, how one gets on from there, hostile names, snapshots."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from textual.pilot import Pilot

import kinetop
from kinetop.analysis.kernels import instances, kernels
from kinetop.analysis.work import scoped
from kinetop.tui.app import KinetopApp, Options
from kinetop.tui.screens.instances import InstancesScreen
from kinetop.tui.screens.kernels import BINS, KernelsScreen, detail
from kinetop.tui.screens.overview import devices
from kinetop.tui.widgets.frame_table import FrameTable
from kinetop.tui.widgets.lines import KeyLine, TitleLine
from kinetop.tui.widgets.picture import Picture

if TYPE_CHECKING:
    from pathlib import Path

Settle = Callable[[Pilot[Any]], Awaitable[str]]
SIZES = pytest.mark.parametrize("size", [(80, 24), (140, 40)])
CLEAN = "01_baseline_clean.json"


def app_on(path: Path, view: str = "overview", **options: Any) -> KinetopApp:
    return KinetopApp([path], Options(view=view, **options))


async def rested(pilot: Pilot[Any], settled: Settle) -> str:
    """Wait for the detail pane, which follows a cursor at rest."""
    await settled(pilot)
    await pilot.pause(0.2)
    return await settled(pilot)


@SIZES
async def test_overview(size: tuple[int, int], hazards: Path, settled: Settle, snapshot: Callable[[str, str], None]) -> None:
    app = app_on(hazards / CLEAN)
    async with app.run_test(size=size) as pilot:
        snapshot(f"overview_{size[0]}x{size[1]}", await settled(pilot))


@SIZES
async def test_kernels(size: tuple[int, int], hazards: Path, settled: Settle, snapshot: Callable[[str, str], None]) -> None:
    app = app_on(hazards / CLEAN, "kernels")
    async with app.run_test(size=size) as pilot:
        snapshot(f"kernels_{size[0]}x{size[1]}", await rested(pilot, settled))


async def test_kernels_in_ascii(hazards: Path, settled: Settle, snapshot: Callable[[str, str], None]) -> None:
    app = app_on(hazards / CLEAN, "kernels", ascii=True)
    async with app.run_test(size=(80, 24)) as pilot:
        text = await rested(pilot, settled)
        assert text.isascii()
        snapshot("kernels_80x24_ascii", text)


async def test_the_overview_shows_the_figures_of_the_summary(hazards: Path, settled: Settle) -> None:
    app = app_on(hazards / "60_two_gpus_one_process.json")
    async with app.run_test(size=(100, 40)) as pilot:
        text = await settled(pilot)
        trace = kinetop.open(hazards / "60_two_gpus_one_process.json")
        shares = kinetop.summary.ask(trace).tables["breakdown"]
        for row in shares.iter_rows(named=True):
            assert f"GPU {row['device']}" in text
            assert f"compute {row['compute_pct']:.1f} %" in text
            assert f"idle {row['idle_pct']:.1f} %" in text


async def test_busy_over_time_sums_to_the_busy_time(hazards: Path) -> None:
    trace = kinetop.open(hazards / CLEAN)
    summary = kinetop.summary.ask(trace)
    (device,) = devices(summary)
    mean = sum(value or 0 for value in device.busy) / len(device.busy)
    assert mean * device.window_us == pytest.approx(summary.main["busy_us"][0], rel=0.01)
    assert [name for name, _ in device.streams] == ["stream 7", "stream 20"]


async def test_enter_goes_from_a_kernel_to_its_launches_and_back(hazards: Path, settled: Settle) -> None:
    app = app_on(hazards / CLEAN)
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await pilot.press("j")
        name = app.screen.query_one(FrameTable).key
        await pilot.press("enter")
        await settled(pilot)
        assert isinstance(app.screen, KernelsScreen)
        assert app.screen.query_one(FrameTable).ordered["name"].to_list() == [name]  # type: ignore[index]
        await pilot.press("enter")
        await settled(pilot)
        assert isinstance(app.screen, InstancesScreen)
        assert app.screen.query_one(FrameTable).rows == 1
        await pilot.press("escape")
        await settled(pilot)
        assert isinstance(app.screen, KernelsScreen)
        assert app.screen.where is not None
        await pilot.press("escape")  # leaves the drill-down together with its filter
        await settled(pilot)
        assert app.current_mode == "overview"


async def test_a_filter_from_elsewhere_that_names_a_copy_shows_it(hazards: Path, settled: Settle) -> None:
    app = app_on(hazards / CLEAN)
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        for where, names in (("memcpy", ["Memcpy HtoD (Pinned -> Device)"]), ("gemm", ["gemm_kernel"])):
            app.open_view("kernels", where=where)
            await settled(pilot)
            assert app.screen.query_one(FrameTable).ordered["name"].to_list() == names  # type: ignore[index]


async def test_group_by_and_copies(hazards: Path, settled: Settle) -> None:
    app = app_on(hazards / CLEAN, "kernels")
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await pilot.press("g")
        await settled(pilot)
        await pilot.press("j", "j", "enter")
        await settled(pilot)
        view, table = app.screen, app.screen.query_one(FrameTable)
        assert isinstance(view, KernelsScreen)
        assert view.group_by == "family"
        trace = kinetop.open(hazards / CLEAN)
        assert table.ordered["name"].to_list() == kernels(trace, group_by="family")["name"].to_list()  # type: ignore[index]
        assert "by family" in view.query_one(TitleLine).status
        await pilot.press("c")
        await settled(pilot)
        assert table.rows == kernels(trace, group_by="family", copies="yes").height
        await pilot.press("G", "home")
        assert table.cursor == 0


async def test_the_pane_follows_the_cursor_and_can_be_hidden(hazards: Path, settled: Settle) -> None:
    app = app_on(hazards / CLEAN, "kernels")
    async with app.run_test(size=(100, 30)) as pilot:
        await rested(pilot, settled)
        await pilot.press("j")
        text = await rested(pilot, settled)
        name = app.screen.query_one(FrameTable).key
        assert sum(name[:40] in line for line in text.splitlines()) == 2
        await pilot.press("d")
        assert not app.screen.query_one("#detail", Picture).display


def test_the_figures_of_the_pane(hazards: Path) -> None:
    work = scoped(kinetop.open(hazards / CLEAN))
    rows = instances(work)
    for group_by, label in (("name", "gemm_kernel"), ("class", "compute")):
        found = detail(work, group_by, label)
        mine = instances(work, group_by=group_by, label=label)
        assert found.count == mine.height == sum(found.bins) <= rows.height
        assert (found.shortest_us, found.longest_us) == (mine["dur_us"].min(), mine["dur_us"].max())
        assert found.slowest[0][0] == found.longest_us
        assert sum(count for _, count in found.ops) == mine["op"].drop_nulls().len()
    assert len(detail(work, "class", "compute").bins) == BINS


async def test_a_key_on_the_key_line_can_be_clicked(hazards: Path, settled: Settle) -> None:
    app = app_on(hazards / CLEAN)
    async with app.run_test(size=(100, 30)) as pilot:
        line = (await settled(pilot)).splitlines()[-1]
        await pilot.click(KeyLine, offset=(line.index("kernels"), 0))
        await settled(pilot)
        assert app.current_mode == "kernels"


@SIZES
async def test_hostile_names_in_every_view(size: tuple[int, int], hazards: Path, settled: Settle) -> None:
    app = app_on(hazards / "77_hostile_names.json")
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        for number in range(1, len(app.views) + 1):
            await pilot.press(str(number))
            for key in ("end", "y", "Y", "f1", "escape", "home", "enter"):
                await pilot.press(key)
                text = await settled(pilot)
                raw = [char for char in text if not char.isprintable() and char != "\n"]
                assert raw == [], (app.current_mode, key)
                assert "could not be computed" not in text, (app.current_mode, key)
            assert "\x1b" not in await rested(pilot, settled)
            while len(app.screen_stack) > 1:
                app.pop_screen()


@pytest.mark.parametrize("name", ["75_cpu_only.json", "68_no_profiler_step.json", "69_step_gap_and_overlap.json"])
async def test_traces_that_lack_something(name: str, hazards: Path, settled: Settle) -> None:
    app = app_on(hazards / name)
    async with app.run_test(size=(80, 24)) as pilot:
        text = await settled(pilot)
        assert "could not be computed" not in text
        if "cpu_only" in name:
            assert "No GPU work here" in text
        await pilot.press("2")
        assert "could not be computed" not in await rested(pilot, settled)


async def test_w_reads_what_stands_against_the_figures(hazards: Path, settled: Settle) -> None:
    app = app_on(hazards / "08_truncated_mid_event.json")
    async with app.run_test(size=(120, 40)) as pilot:
        text = await settled(pilot)
        assert "partial" in text
        assert "2 notes" in text
        await pilot.press("w")
        text = await settled(pilot)
        assert "The file is cut off" in text
        await pilot.press("escape")
        await settled(pilot)
        assert len(app.screen_stack) == 1


@SIZES
async def test_a_real_trace(size: tuple[int, int], shared: Path, settled: Settle) -> None:
    app = app_on(shared / "traces" / "diff_test.json.gz")
    async with app.run_test(size=size) as pilot:
        assert "Tesla V100-SXM2-16GB" in await settled(pilot)
        await pilot.press("2")
        text = await rested(pilot, settled)
        assert "ncclKernel_SendRecv" in text
        frame = app.screen.query_one(FrameTable).frame
        assert frame is not None
        assert frame["total_us"].is_sorted(descending=True)
        assert frame.select(pl.col("count").sum()).item() > 1000


async def test_eight_ranks_get_a_line_each(shared: Path, settled: Settle) -> None:
    app = app_on(shared / "traces" / "dlrm_8rank")
    async with app.run_test(size=(80, 24)) as pilot:
        text = await settled(pilot)
        assert [f"rank {n}" in text for n in range(8)] == [True] * 8
