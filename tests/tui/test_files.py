"""Paths as typed, dropped and listed, and what files hold."""

from __future__ import annotations

import gzip
import json
import os
from typing import TYPE_CHECKING

import pytest
import zstandard

from kinetop.tui import files

if TYPE_CHECKING:
    from pathlib import Path

TRACE = json.dumps(
    {"schemaVersion": 1, "deviceProperties": [], "traceEvents": [{"ph": "X", "name": "k", "ts": 1, "dur": 1}]}
).encode()


def test_folders_first_then_files_by_number(tmp_path: Path) -> None:
    for name in ("rank_10.json", "rank_2.json", "Rank_1.json", ".hidden"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "zeta").mkdir()
    entries = files.listing(tmp_path)
    assert [e.path.name for e in entries] == ["zeta", "Rank_1.json", "rank_2.json", "rank_10.json"]
    assert [e.kind for e in entries] == ["folder", None, None, None]
    assert entries[1].bytes == 2


def test_a_dangling_link_is_listed(tmp_path: Path) -> None:
    (tmp_path / "gone.json").symlink_to(tmp_path / "nowhere")
    assert [e.kind for e in files.listing(tmp_path)] == ["unreadable"]


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("plain.txt", TRACE, "trace"),  # the suffix does not matter
        ("packed", gzip.compress(TRACE, mtime=0), "trace"),
        ("packed.json", zstandard.compress(TRACE), "trace"),
        ("array.json", b'[{"ph": "X", "name": "k"}]', "trace"),
        ("config.json", b'{"learning_rate": 1e-3}', "other"),
        ("config.json.gz", gzip.compress(b'{"learning_rate": 1e-3}', mtime=0), "other"),
        ("empty.json", b"", "other"),
        ("torn.gz", b"\x1f\x8b\x00broken", "other"),
    ],
)
def test_traces_are_told_from_other_files(tmp_path: Path, name: str, data: bytes, kind: str) -> None:
    (tmp_path / name).write_bytes(data)
    assert files.kind_of(tmp_path / name) == kind


def test_a_huge_file_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    path.write_bytes(TRACE)
    os.truncate(path, 1 << 40)  # a sparse terabyte: reading it would never end
    assert files.kind_of(path) == "trace"


def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert files.kind_of(tmp_path / "pipe") == "other"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("  {folder}/one.json ", ["one.json"]),
        ("'{folder}/with blank.json'", ["with blank.json"]),
        ("{folder}/with blank.json", ["with blank.json"]),  # it exists as it stands
        (r"{folder}/with\ blank.json", ["with blank.json"]),
        ("'{folder}/one.json' \"{folder}/with blank.json\"", ["one.json", "with blank.json"]),
        ("file://{folder}/with%20blank.json", ["with blank.json"]),
        ("$KINETOP_TEST_FOLDER/one.json", ["one.json"]),
        ("~/one.json", ["one.json"]),
        ("{folder}/absent.json", ["absent.json"]),
    ],
)
def test_named_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, names: list[str]) -> None:
    (tmp_path / "one.json").write_bytes(TRACE)
    (tmp_path / "with blank.json").write_bytes(TRACE)
    monkeypatch.setenv("KINETOP_TEST_FOLDER", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert files.named_paths(text.replace("{folder}", str(tmp_path))) == [tmp_path / name for name in names]


def test_an_open_quote_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="quotation"):
        files.named_paths(f"'{tmp_path}")


def test_completions_keep_what_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run_10.json").write_text("")
    (tmp_path / "run_9.json").write_text("")
    (tmp_path / "runs").mkdir()
    (tmp_path / ".run").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert files.completions("~/run") == ["~/run_9.json", "~/run_10.json", "~/runs/"]
    assert files.completions("~/.r") == ["~/.run"]
    assert files.completions("~/nowhere/x") == []
