"""The export dialog: every format gives back what was shown, and no file is lost by accident."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from textual.widgets import Static

from kinetop.tui import output
from kinetop.tui.app import KinetopApp
from kinetop.tui.screens.export import ExportScreen
from kinetop.tui.widgets.path_field import PathField

HOSTILE = '[/x][red]\x1b[31m核 | "quoted", comma\nnext line ' + "y" * 5_000
GAPS = pl.DataFrame({"name": [HOSTILE, "plain", None], "dur_us": [1.5, None, 2.125], "count": [1, 2, 3]})
CAUSES = pl.DataFrame({"cause": ["host late"], "idle_us": [12.5]})


def box(text: str) -> str:
    """Return the frame of a dialog without the view behind it."""
    lines = text.splitlines()
    top = next(at for at, line in enumerate(lines) if "╭" in line)
    bottom = next(at for at, line in enumerate(lines) if "╰" in line)
    left, right = lines[top].index("╭"), lines[top].rindex("╮") + 1
    return "\n".join(line[left:right] for line in lines[top : bottom + 1])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The dialog's default paths are in the current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Dialog:
    """The dialog over an empty home, and what came of it."""

    def __init__(self) -> None:
        self.app = KinetopApp()
        self.result: Any = "open"

    async def open(self, settled: Any, pilot: Any) -> None:
        await settled(pilot)
        self.app.push_screen(ExportScreen("idle", {"gaps": GAPS, "causes": CAUSES}), lambda path: setattr(self, "result", path))
        await settled(pilot)

    def put(self, text: str) -> None:
        self.app.screen.query_one(PathField).put(text)

    @property
    def path(self) -> str:
        return self.app.screen.query_one(PathField).value

    @property
    def said(self) -> str:
        return str(self.app.screen.query_one("#export-said", Static).content)


async def write(name: str, settled: Any, *keys: str) -> Dialog:
    dialog = Dialog()
    async with dialog.app.run_test(size=(80, 24)) as pilot:
        await dialog.open(settled, pilot)
        await pilot.press(*keys)
        dialog.put(name)
        await pilot.pause()
        await pilot.press("enter")
        await settled(pilot)
        note = [note.message for note in dialog.app._notifications]
        assert any("Wrote" in text and name in text for text in note)
    return dialog


async def test_parquet_gives_the_frame_back(folder: Path, settled: Any) -> None:
    dialog = await write("out.parquet", settled)
    assert dialog.result == Path("out.parquet")
    assert_frame_equal(pl.read_parquet(folder / "out.parquet"), GAPS)


async def test_csv_gives_the_frame_back(folder: Path, settled: Any) -> None:
    await write("out.csv", settled)
    assert_frame_equal(pl.read_csv(folder / "out.csv"), GAPS)


async def test_json_gives_the_rows_back(folder: Path, settled: Any) -> None:
    await write("out.json", settled)
    assert json.loads((folder / "out.json").read_text()) == GAPS.to_dicts()


async def test_markdown_holds_each_row_on_a_line(folder: Path, settled: Any) -> None:
    await write("out.md", settled, "down")
    text = (folder / "out.md").read_text()
    assert "host late" in text
    assert "12.5" in text


async def test_the_table_is_chosen_and_names_the_file(settled: Any) -> None:
    dialog = Dialog()
    async with dialog.app.run_test(size=(80, 24)) as pilot:
        await dialog.open(settled, pilot)
        assert dialog.path == "kinetop-idle-gaps.csv"
        await pilot.press("down")
        assert dialog.path == "kinetop-idle-causes.csv"
        dialog.put("mine.json")
        await pilot.press("up")
        assert dialog.path == "mine.json"  # what a user typed stays


async def test_a_file_is_not_overwritten_unasked(folder: Path, settled: Any) -> None:
    (folder / "out.csv").write_text("precious")
    dialog = Dialog()
    async with dialog.app.run_test(size=(80, 24)) as pilot:
        await dialog.open(settled, pilot)
        dialog.put("out.csv")
        await pilot.pause()
        await pilot.press("enter")
        await settled(pilot)
        assert "exists" in dialog.said
        assert (folder / "out.csv").read_text() == "precious"
        await pilot.press("enter")
        await settled(pilot)
    assert pl.read_csv(folder / "out.csv").height == GAPS.height


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("out.xlsx", ".xlsx is no format"),
        ("out", "no suffix is no format"),
        ("nowhere/out.csv", "there is no folder nowhere"),
        ("folder.csv", "this is a folder"),
    ],
)
async def test_what_cannot_be_written_is_said(folder: Path, name: str, sentence: str, settled: Any) -> None:
    (folder / "folder.csv").mkdir()
    dialog = Dialog()
    async with dialog.app.run_test(size=(80, 24)) as pilot:
        await dialog.open(settled, pilot)
        dialog.put(name)
        await pilot.pause()
        await pilot.press("enter")
        await settled(pilot)
        assert sentence in dialog.said
        await pilot.press("escape")
        await pilot.pause()
        assert dialog.result is None
    assert [path.name for path in folder.iterdir()] == ["folder.csv"]


async def test_a_full_disk_leaves_the_old_file(folder: Path, monkeypatch: pytest.MonkeyPatch, settled: Any) -> None:
    def full(frame: pl.DataFrame, path: Path, kind: str) -> None:
        path.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kinetop.tui.screens.export.write_frame", full)
    (folder / "out.csv").write_text("precious")
    dialog = Dialog()
    async with dialog.app.run_test(size=(80, 24)) as pilot:
        await dialog.open(settled, pilot)
        dialog.put("out.csv")
        await pilot.pause()
        await pilot.press("enter", "enter")
        await settled(pilot)
        assert "No space left on device" in dialog.said
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"out.csv": "precious"}


@pytest.mark.parametrize("size", [(80, 24), (140, 40)])
async def test_how_it_looks(size: tuple[int, int], settled: Any, snapshot: Any) -> None:
    dialog = Dialog()
    async with dialog.app.run_test(size=size) as pilot:
        await dialog.open(settled, pilot)
        snapshot(f"export_{size[0]}x{size[1]}", box(await settled(pilot)))


def test_the_dialog_writes_what_the_command_writes() -> None:
    from kinetop.tui.screens.export import FORMATS

    assert {suffix: kind for suffix, kind in output.SUFFIXES.items() if kind != "table"} == FORMATS
