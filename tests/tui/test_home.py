"""Home: recent traces, the browser, the path field."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from textual.events import Paste
from textual.widgets import Static

from kinetop.tui import app as tui_app
from kinetop.tui.app import KinetopApp
from kinetop.tui.recent import RecentTrace, RecentTraces
from kinetop.tui.screens.home import HomeScreen, file_frame, printable, tail
from kinetop.tui.widgets.frame_table import FrameTable
from kinetop.tui.widgets.path_field import PathField

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.pilot import Pilot

HOSTILE = "[red][b]\x1b[31m核\n.json"


class Recorder(KinetopApp):
    """The app with home in a folder of the test; it notes what would be opened."""

    CSS_PATH = Path(tui_app.__file__).with_name("app.tcss")

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.asked: list[list[Path]] = []

    def go_home(self) -> None:
        self._start_mode("home", lambda: HomeScreen(self.folder))

    def open_paths(self, paths: Sequence[Path]) -> None:
        self.asked.append(list(paths))


@pytest.fixture
def folder(tmp_path: Path, hazards: Path) -> Path:
    """A folder with two traces, other JSON, a rank folder and a file of a hostile name."""
    root = tmp_path / "runs"
    (root / "ranks").mkdir(parents=True)
    for name in ("a.json", "b.json", f"ranks/{HOSTILE}", HOSTILE):
        shutil.copy(hazards / "01_baseline_clean.json", root / name)
    (root / "config.json").write_text('{"lr": 0.1}')
    for path, seconds in ((root, 0), *((path, 1_700_000_000 + at) for at, path in enumerate(sorted(root.rglob("*"))))):
        os.utime(path, (seconds, seconds))
    return root


async def settle(pilot: Pilot[int]) -> None:
    await pilot.pause()
    await pilot.app.workers.wait_for_complete()
    await pilot.pause()


def names(app: KinetopApp, table: str) -> list[str]:
    frame = app.screen.query_one(f"#{table}", FrameTable).frame
    return [] if frame is None else frame["name"].to_list()


def said(app: KinetopApp) -> str:
    return str(app.screen.query_one("#hint", Static).content)


async def test_only_traces_and_folders_are_listed(folder: Path) -> None:
    app = Recorder(folder)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert names(app, "files") == ["..", "ranks/", HOSTILE, "a.json", "b.json"]
        await pilot.press("a")
        await settle(pilot)
        assert "config.json" in names(app, "files")


async def test_enter_opens_a_trace_and_goes_into_a_folder(folder: Path) -> None:
    app = Recorder(folder)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("down", "enter")
        await settle(pilot)
        assert names(app, "files") == ["..", HOSTILE]
        await pilot.press("down", "enter")
        assert app.asked == [[folder / "ranks" / HOSTILE]]
        await pilot.press("u")
        await settle(pilot)
        assert app.screen.query_one("#files", FrameTable).key == "ranks/"  # the cursor is on the folder it came from


async def test_o_opens_a_folder_as_one_set(folder: Path) -> None:
    app = Recorder(folder)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("o", "down", "o")
        assert app.asked == [[folder], [folder / "ranks"]]


async def test_recent_traces_come_first_and_can_be_forgotten(folder: Path) -> None:
    for at, name in enumerate((HOSTILE, "a.json")):
        RecentTraces().add(RecentTrace((str(folder / name),), 1_000, float(at), 10, 1))
    app = Recorder(folder)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert names(app, "recent") == ["a.json", HOSTILE]
        await pilot.press("enter", "x")
        await settle(pilot)
        assert app.asked == [[folder / "a.json"]]
        assert names(app, "recent") == [HOSTILE]
        assert len(json.loads(RecentTraces().path.read_text())) == 1


async def test_a_typed_path_opens(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNS", str(folder))
    app = Recorder(folder)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("p", *"'$RUNS/a.json'", "enter")
        assert app.asked == [[folder / "a.json"]]


@pytest.mark.parametrize(("text", "sentence"), [("nowhere.json", "there is no nowhere.json"), ("'a.json", "a quote is open")])
async def test_a_path_that_cannot_be_is_said(folder: Path, text: str, sentence: str) -> None:
    app = Recorder(folder)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("p", *text, "enter")
        await pilot.pause()
        assert sentence in said(app)
        assert app.asked == []


async def test_tab_completes_and_shows_the_choice(folder: Path) -> None:
    (folder / "alpha.json").write_text("{}")
    app = Recorder(folder)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("p")
        field = app.screen.query_one(PathField)
        field.put(f"{folder}/al")
        await pilot.press("tab")
        assert field.value == f"{folder}/alpha.json"
        field.put(f"{folder}/a")
        await pilot.pause()
        await pilot.press("tab")
        await pilot.pause()
        assert said(app).split() == ["a.json", "alpha.json"]


async def test_a_dropped_file_lands_in_the_field(folder: Path) -> None:
    app = Recorder(folder)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        app.screen.query_one("#files").post_message(Paste(f"'{folder}/a.json'"))
        await pilot.pause()
        await pilot.press("enter")
        assert app.asked == [[folder / "a.json"]]


async def test_a_folder_that_cannot_be_read_is_said(folder: Path) -> None:
    app = Recorder(folder / "gone")
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert "cannot be read: No such file" in str(app.screen.query_one("#where", Static).content)
        await pilot.press("u")
        await settle(pilot)
        assert "a.json" in names(app, "files")


async def test_a_broken_recent_list_is_said_and_home_works(folder: Path) -> None:
    path = RecentTraces().path
    path.write_text("{broken")
    app = Recorder(folder)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert [note.message for note in app._notifications if "cannot be read" in note.message]
        assert names(app, "files")


def test_names_that_are_not_utf8_become_valid_text() -> None:
    assert printable("a\udcff.json") == "a\ufffd.json"
    assert file_frame([], show_all=False, top=False)["name"].to_list() == [".."]
    assert file_frame([], show_all=False, top=True).height == 0


async def test_an_opened_trace_is_the_first_recent_one(folder: Path, settled: Any) -> None:
    app = KinetopApp([folder / "a.json"])
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        (entry,) = RecentTraces().entries()
        assert (entry.paths, entry.ranks, entry.bytes) == (
            (str((folder / "a.json").resolve()),),
            1,
            (folder / "a.json").stat().st_size,
        )
        assert entry.events > 0
        await pilot.press("o")
        text = await settled(pilot)
        assert app.current_mode == "home"
        assert "a.json" in text


@pytest.mark.parametrize("size", [(80, 24), (140, 40)])
async def test_how_it_looks(
    size: tuple[int, int], folder: Path, settled: Any, snapshot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder.parent))
    when_s = time.mktime((2026, 1, 2, 3, 4, 5, 0, 0, -1))
    RecentTraces().add(RecentTrace(("/data/runs/llama8b/rank-0.pt.trace.json.gz",), 149_000_000, when_s, 412_907, 1))
    RecentTraces().add(RecentTrace((f"/data/runs/{HOSTILE}",), 1_000, when_s - 90_000, 10, 8))
    for path in folder.iterdir():
        os.utime(path, (when_s, when_s))
    app = Recorder(folder)
    async with app.run_test(size=size) as pilot:
        snapshot(f"home_{size[0]}x{size[1]}", await settled(pilot))


@pytest.mark.parametrize(("width", "text"), [(20, "~/traces/核/run"), (8, "…/核/run"), (7, "…核/run"), (1, "…")])
def test_the_end_of_a_path_stays(width: int, text: str) -> None:
    assert tail("~/traces/核/run", width) == text
