"""The overlap view: lanes of communication against compute, and its tables."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest
from textual.pilot import Pilot

import kinetop
from kinetop.tui.app import KinetopApp, Options
from kinetop.tui.render import lanes
from kinetop.tui.screens.kernels import KernelsScreen
from kinetop.tui.screens.overlap import LanePane, lane_devices
from kinetop.tui.widgets.frame_table import FrameTable
from kinetop.tui.widgets.tables import Tables

if TYPE_CHECKING:
    from pathlib import Path

Settle = Callable[[Pilot[Any]], Awaitable[str]]
SIZES = pytest.mark.parametrize("size", [(80, 24), (140, 40)])
CLEAN = "01_baseline_clean.json"


def app_on(path: Path, **options: Any) -> KinetopApp:
    return KinetopApp([path], Options(view="overlap", **options))


def shown(app: KinetopApp) -> FrameTable:
    tables = app.screen.query_one(Tables)
    return tables.table(tables.current)


@SIZES
async def test_how_it_looks(size: tuple[int, int], hazards: Path, settled: Settle, snapshot: Callable[[str, str], None]) -> None:
    app = app_on(hazards / CLEAN)
    async with app.run_test(size=size) as pilot:
        snapshot(f"overlap_{size[0]}x{size[1]}", await settled(pilot))


async def test_ascii(hazards: Path, settled: Settle) -> None:
    app = app_on(hazards / CLEAN, ascii=True)
    async with app.run_test(size=(80, 24)) as pilot:
        assert (await settled(pilot)).isascii()


async def test_the_lanes_hold_the_figures_of_the_question(hazards: Path) -> None:
    answer = kinetop.overlap.ask(kinetop.open(hazards / CLEAN))
    (device,) = lane_devices(answer)
    row = answer.tables["devices"].row(0, named=True)
    window_us = device.end_us - device.start_us
    for lane, figure in (("compute", "compute_us"), ("comm", "comm_us"), ("exposed", "exposed_comm_us")):
        mean = sum(device.lanes[lane]) / len(device.lanes[lane])
        assert mean * window_us == pytest.approx(row[figure], rel=0.01)
    assert 100 - (device.exposed_pct or 0) == pytest.approx(row["overlap_pct"], abs=0.001)


async def test_the_tables_and_what_enter_does_in_each(hazards: Path, settled: Settle) -> None:
    app = app_on(hazards / CLEAN)
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        answer = kinetop.overlap.ask(kinetop.open(hazards / CLEAN))
        for at, name in enumerate(("kinds", "kernels", "beside", "devices")):
            await pilot.press("4", *["t"] * (at > 0))
            await settled(pilot)
            assert (shown(app).id, shown(app).rows) == (name, answer.tables[name].height)
            await pilot.press("enter")
            await settled(pilot)
            assert isinstance(app.screen, KernelsScreen), name
            frame = app.screen.query_one(FrameTable).frame
            assert frame is not None
            assert frame["name"].to_list() == answer.tables["kernels"]["name"].to_list(), name


async def test_esc_leads_back_from_a_view_that_was_there_already(hazards: Path, settled: Settle) -> None:
    app = app_on(hazards / CLEAN)
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await pilot.press("2")
        await settled(pilot)
        rows = app.screen.query_one(FrameTable).rows
        await pilot.press("enter")  # the launches, left open behind the other view
        await settled(pilot)
        await pilot.press("4", "enter")
        assert "/ family = " in await settled(pilot)
        assert isinstance(app.screen, KernelsScreen)
        await pilot.press("escape")
        await settled(pilot)
        assert app.current_mode == "overlap"
        await pilot.press("2")
        await settled(pilot)
        assert isinstance(app.screen, KernelsScreen)
        assert app.screen.where is None
        assert app.screen.query_one(FrameTable).rows == rows


async def test_zoom_and_pan(hazards: Path, settled: Settle) -> None:
    app = app_on(hazards / CLEAN)
    async with app.run_test(size=(100, 30)) as pilot:
        whole = await settled(pilot)
        await pilot.press("plus")
        half = await settled(pilot)
        assert app.scope.zoom_ns is not None
        start, end = app.scope.zoom_ns
        app.screen.query_one(LanePane).focus()
        await pilot.press("right")
        await settled(pilot)
        assert app.scope.zoom_ns[0] > start
        await pilot.press("left", "left")
        await settled(pilot)
        assert app.scope.zoom_ns[0] < start
        assert app.scope.zoom_ns[1] - app.scope.zoom_ns[0] == end - start
        await pilot.press("0")
        body = (await settled(pilot)).splitlines()[:-1]  # the key line depends on where the keys are
        assert body == whole.splitlines()[:-1] != half.splitlines()[:-1]


@pytest.mark.parametrize(
    ("name", "sentence"), [("75_cpu_only.json", "No GPU work here"), ("47_sub_microsecond_kernels.json", "no communication")]
)
async def test_traces_without_communication(name: str, sentence: str, hazards: Path, settled: Settle) -> None:
    app = app_on(hazards / name)
    async with app.run_test(size=(80, 24)) as pilot:
        text = await settled(pilot)
        assert sentence in text
        await pilot.press("t", "t", "t", "plus", "e")
        assert "could not be computed" not in await settled(pilot)


@SIZES
async def test_hostile_names(size: tuple[int, int], hazards: Path, settled: Settle) -> None:
    app = app_on(hazards / "77_hostile_names.json")
    async with app.run_test(size=size) as pilot:
        for key in ("t", "t", "t", "t"):
            text = await settled(pilot)
            assert [char for char in text if not char.isprintable() and char != "\n"] == []
            assert "could not be computed" not in text
            await pilot.press(key)


@SIZES
async def test_eight_ranks_get_two_lanes_each(size: tuple[int, int], shared: Path, settled: Settle) -> None:
    app = app_on(shared / "traces" / "dlrm_8rank")
    async with app.run_test(size=size) as pilot:
        text = await settled(pilot)
        seen = range(8) if size[1] == 40 else range(5)
        assert all(f"rank {rank}  GPU {rank}" in text for rank in seen)
        frame = shown(app).frame
        assert frame is not None
        assert set(frame["kind"]) == {"all-reduce", "send-recv"}


async def test_a_real_trace(shared: Path, settled: Settle) -> None:
    path = shared / "traces" / "diff_test.json.gz"
    app = app_on(path)
    async with app.run_test(size=(100, 30)) as pilot:
        text = await settled(pilot)
        row = kinetop.summary(kinetop.open(path)).row(0, named=True)
        assert f"({100 - row['overlap_pct']:.1f} %)" in text


DEVICE = lanes.LaneDevice("GPU 0", 0.0, 1_000.0, 300.0, 75.0, {"compute": (1.0, 0.0), "comm": (0.0, 1.0), "exposed": (0.0, 0.25)})


@pytest.mark.parametrize("width", [24, 80, 138])
def test_lanes_line_up_and_fit(width: int) -> None:
    card = lanes.cards([DEVICE], width)
    assert all(line.cell_length <= width for line in card)
    assert len({line.cell_length for line in card[1:4]}) == 1
    row = lanes.rows([DEVICE] * 3, width)
    assert len(row) == 6
    assert len({line.cell_length for line in row}) == 1


def test_a_lane_is_blank_where_nothing_runs() -> None:
    compute, comm = (
        line.plain.replace(name, " " * len(name)).rstrip()
        for name, line in zip(("compute", "comm"), lanes.cards([DEVICE], 80)[1:3], strict=True)
    )
    assert len(compute.split()) == len(comm.split()) == 1
    assert len(compute) + 1 == len(comm)  # the second half of two buckets


def test_what_is_said_of_a_device() -> None:
    head, *_, axis = (line.plain for line in lanes.cards([DEVICE], 80))
    assert head == " GPU 0   comm 300.000 µs, exposed 75.000 µs (25.0 %)"
    assert axis.split() == ["0.000", "µs", "500.000", "µs", "1.000", "ms"]
