"""The list of recent traces: kept, capped, tolerant, and never fatal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kinetop.tui.recent import KEPT, RecentTrace, RecentTraces


def entry(name: str, opened_s: float) -> RecentTrace:
    return RecentTrace((f"/traces/{name}",), bytes=1_000, opened_s=opened_s, events=10, ranks=1)


def test_newest_first_and_one_row_a_path(tmp_path: Path) -> None:
    recent = RecentTraces(tmp_path)
    for name, opened_s in (("a", 1.0), ("b", 2.0), ("a", 3.0)):
        recent.add(entry(name, opened_s))
    assert [(e.paths[0], e.opened_s) for e in RecentTraces(tmp_path).entries()] == [("/traces/a", 3.0), ("/traces/b", 2.0)]


def test_keeps_at_most_so_many(tmp_path: Path) -> None:
    recent = RecentTraces(tmp_path)
    for number in range(KEPT + 5):
        recent.add(entry(f"t{number}", float(number)))
    entries = recent.entries()
    assert len(entries) == KEPT
    assert entries[0].paths == (f"/traces/t{KEPT + 4}",)


def test_remove(tmp_path: Path) -> None:
    recent = RecentTraces(tmp_path)
    recent.add(entry("a", 1.0))
    recent.add(entry("b", 2.0))
    recent.remove(("/traces/b",))
    assert [e.paths for e in recent.entries()] == [("/traces/a",)]


def test_names_of_any_bytes_survive(tmp_path: Path) -> None:
    odd = RecentTrace(("/traces/[/x] \udcff 核\n.json",), 1, 1.0, 1, 1)
    RecentTraces(tmp_path).add(odd)
    assert RecentTraces(tmp_path).entries() == [odd]


def test_state_folder_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETOP_STATE_DIR", str(tmp_path / "state"))
    RecentTraces().add(entry("a", 1.0))
    assert json.loads((tmp_path / "state" / "recent.json").read_text())[0]["paths"] == ["/traces/a"]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1, null, {}]", '{"paths": 3}', '[{"paths": [], "bytes": 1, "opened_s": 1, "events": 1, "ranks": 1}]', "\x00\xff"],
)
def test_a_broken_list_is_empty_and_is_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / "recent.json").write_bytes(text.encode("latin-1"))
    recent = RecentTraces(tmp_path)
    assert recent.entries() == []
    recent.add(entry("a", 1.0))
    assert [e.paths for e in RecentTraces(tmp_path).entries()] == [("/traces/a",)]


def test_a_good_entry_beside_a_broken_one_stays(tmp_path: Path) -> None:
    recent = RecentTraces(tmp_path)
    recent.add(entry("a", 1.0))
    rows = json.loads(recent.path.read_text())
    recent.path.write_text(json.dumps([{"paths": "no list"}, *rows]))
    assert [e.paths for e in recent.entries()] == [("/traces/a",)]
    assert "left out" in (recent.problem() or "")


def test_a_disk_that_takes_nothing_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recent = RecentTraces(tmp_path / "state")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    recent.add(entry("a", 1.0))
    recent.add(entry("b", 2.0))
    assert "No space left on device" in (recent.problem() or "")
    assert recent.problem() is None
    assert list((tmp_path / "state").iterdir()) == []  # no half file stays behind


def test_a_folder_that_cannot_be_made_is_not_fatal(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    recent = RecentTraces(tmp_path / "file" / "state")
    recent.add(entry("a", 1.0))
    assert "recent traces cannot be read" in (recent.problem() or "")
