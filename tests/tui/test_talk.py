"""The progress line and the layout for a terminal."""

from __future__ import annotations

import io
import re
import sys
from typing import TYPE_CHECKING

import polars as pl
import pytest
from rich.cells import cell_len

import kinetop
from kinetop.tui import talk
from kinetop.tui.output import Look, format_of, frame_bytes, rendered, write_frame
from kinetop.tui.text import markdown_table

if TYPE_CHECKING:
    from pathlib import Path


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_only_and_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    state = {"bytes": 10, "total_bytes": 20, "events": 3, "file": "a\x1b[31m.json"}
    monkeypatch.setenv("TERM", "xterm")
    for stream in (Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, "stderr", stream)
        with talk.ProgressLine() as line:
            line(state)
            line(state)
        shown = stream.getvalue()
        if stream.isatty():
            assert shown.startswith("\r50 %  10 B of 20 B  3 events")
            assert shown.count("events") == 1  # the second one came too soon
            assert "\x1b[31m" not in shown
            assert shown.endswith("\r\x1b[K")
        else:
            assert shown == ""


def test_progress_without_a_total() -> None:
    assert talk.progress_text({"bytes": 2_000_000, "events": 1}, 2.0) == "1.9 MiB  1 event  1.0 MB/s"


def test_no_colour_where_it_is_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert not talk.is_plain(Terminal())
    assert talk.is_plain(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert talk.is_plain(Terminal())


@pytest.mark.parametrize("width", [40, 80, 140])
def test_lines_fit_the_terminal(hazards: Path, width: int) -> None:
    for name, file in (("kernels", "77_hostile_names.json"), ("summary", "60_two_gpus_one_process.json")):
        result = getattr(kinetop, name).ask(kinetop.open(hazards / file))
        lines = rendered(result, "table", look=Look(width)).decode().splitlines()
        assert max(map(cell_len, lines)) <= width
        assert len(lines) > 5


def test_a_wide_table_of_few_rows_is_turned(hazards: Path) -> None:
    result = kinetop.summary.ask(kinetop.open(hazards / "01_baseline_clean.json"))
    text = rendered(result, "table", table="devices", look=Look(60, bold=True)).decode()
    assert re.search(r"^exposed comm µs +15.000$", text, re.MULTILINE)
    assert text.startswith("\x1b[1mkinetop summary")


def test_frames_without_a_declaration(tmp_path: Path) -> None:
    frame = pl.DataFrame({"name": ["a|b", None], "dur_us": [1.5, float("nan")], "n": [1, 2], "list": [[1], None]})
    assert frame_bytes(frame, "table").decode().splitlines()[0].split() == ["name", "dur", "µs", "n", "list"]
    assert frame_bytes(frame, "csv").decode().splitlines()[1] == "a|b,1.5,1,[1]"
    assert markdown_table(frame).splitlines()[2] == "| a\\|b | 1.500 | 1 | \\[1\\] |"
    assert frame_bytes(pl.DataFrame({"n": pl.Series([], dtype=pl.Int64)}), "table") == b"(no rows)\n"
    for kind in ("json", "csv", "md", "parquet"):
        write_frame(frame, tmp_path / f"x.{kind}", kind)
    assert pl.read_parquet(tmp_path / "x.parquet").equals(frame)
    assert pl.read_json(tmp_path / "x.json")["dur_us"].to_list() == [1.5, None]


def test_formats_by_name_and_suffix(tmp_path: Path) -> None:
    assert format_of("csv", tmp_path / "x.json") == "csv"
    assert format_of(None, tmp_path / "x.MD") == "md"
    for kind, path in (("xml", None), (None, tmp_path / "x.xlsx")):
        with pytest.raises(ValueError, match="format"):
            format_of(kind, path)


@pytest.mark.parametrize(
    ("stdin", "stdout", "term", "screens"),
    [
        (Terminal, Terminal, "xterm", True),
        (Terminal, Terminal, "dumb", False),
        (io.StringIO, Terminal, "xterm", False),
        (Terminal, io.StringIO, "xterm", False),
    ],
)
def test_screens_need_a_terminal_that_shows_them(
    monkeypatch: pytest.MonkeyPatch, stdin: type[io.StringIO], stdout: type[io.StringIO], term: str, *, screens: bool
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(sys, "stdin", stdin())
    monkeypatch.setattr(sys, "stdout", stdout())
    assert talk.on_terminal() is screens
