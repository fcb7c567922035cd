"""The cache: nothing half is ever taken for whole, whatever happens to the process, the disk or the folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import polars as pl
import pytest

import kinetop
from kinetop.traces import cache
from kinetop.traces.store import read_metadata

ROOT = Path(kinetop.__file__).parent.parent


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path, monkeypatch, import_process):
    """Each of these tests has a cache of its own, and imports as a user does."""
    monkeypatch.setenv("KINETOP_CACHE_DIR", str(tmp_path / "cache"))


def write_trace(path: Path, count: int) -> Path:
    """A trace whose names do not compress."""
    event = '{{"ph": "X", "cat": "kernel", "name": "k{:x}", "pid": 0, "ts": {}, "dur": 5, "args": {{"stream": 7, "device": 0}}}}'
    path.write_text(
        '{"traceEvents": [\n' + ",\n".join(event.format(pow(3, i, 2**127 - 1), 10 * i) for i in range(count)) + "\n]}"
    )
    return path


def leftovers(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.name.endswith(".part")]


def test_a_trace_is_imported_once(tmp_path):
    path = write_trace(tmp_path / "t.json", 50)
    said: list[object] = []
    first = kinetop.open(path, progress=said.append)
    assert kinetop.open(path).traces[0].parquet == first.traces[0].parquet == cache.entry(path)
    assert kinetop.open(path, cache=False).traces[0].parquet != cache.entry(path)
    path.write_text(path.read_text() + " ")
    assert not cache.entry(path).exists()


def test_list_and_clear(tmp_path):
    paths = [write_trace(tmp_path / f"{i}.json", 10 + i) for i in range(2)]
    for path in paths:
        kinetop.open(path)
    listed = cache.entries()
    assert sorted(item["events"] for item in listed) == [10, 11]
    assert {item["path"] for item in listed} == {cache.entry(path) for path in paths}
    assert cache.clear() == (2, sum(item["bytes"] for item in listed))
    assert not cache.entries()
    assert cache.clear() == (0, 0)
    assert kinetop.open(paths[0]).events.collect().height == 10


def test_half_files_of_dead_processes_are_swept_and_those_of_living_ones_left(tmp_path):
    cache.folder().mkdir(parents=True)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    dead = cache.folder() / f".a.parquet.{gone.pid}-00000000.part"
    alive = cache.folder() / f".a.parquet.{os.getpid()}-00000000.part"
    for path in (dead, alive):
        path.write_bytes(b"PAR1")
    kinetop.open(write_trace(tmp_path / "t.json", 5))
    assert leftovers(cache.folder()) == [alive]


def test_a_damaged_entry_is_not_listed_but_made_anew_or_cleared(tmp_path):
    path = write_trace(tmp_path / "t.json", 5)
    kept = kinetop.open(path).traces[0].parquet
    kept.write_bytes(kept.read_bytes()[:100])
    assert not cache.entries()
    assert kinetop.open(path).events.collect().height == 5
    kept.write_bytes(kept.read_bytes()[:100])
    assert cache.clear() == (1, 100)


@pytest.mark.parametrize("after_s", [0.3, 0.6, 0.9, 1.3])
def test_an_import_that_is_killed_leaves_nothing_that_is_taken_for_whole(after_s, tmp_path):
    path, out = write_trace(tmp_path / "t.json", 60_000), tmp_path / "out.parquet"
    order = {"jobs": 1, "requests": [{"path": str(path), "member": None, "out": str(out), "rank_hint": 0}]}
    command = [sys.executable, "-m", "kinetop.traces.reading.child", json.dumps(order)]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(ROOT)})
    time.sleep(after_s)
    child.send_signal(signal.SIGKILL)
    child.wait()
    if out.exists():  # it was faster
        assert read_metadata(out)["report"]["events"] == pl.scan_parquet(out).select(pl.len()).collect().item() == 60_000
    cache.sweep(tmp_path)
    assert not leftovers(tmp_path)


def test_cancelling_leaves_nothing(tmp_path):
    path = write_trace(tmp_path / "t.json", 120_000)

    class StopError(Exception):
        pass

    def stop(_: object) -> None:
        raise StopError

    with pytest.raises(StopError):
        kinetop.open(path, progress=stop)
    assert not cache.entry(path).exists()
    assert not leftovers(cache.folder())
    assert kinetop.open(path).events.select(pl.len()).collect().item() == 120_000


def test_a_full_disk_leaves_nothing_and_is_said(tmp_path):
    """A limit on the size of files stands for the disk: the write that goes beyond it fails in the middle."""
    path = write_trace(tmp_path / "t.json", 120_000)
    program = (
        "import resource, sys, kinetop; from kinetop.traces.errors import TraceError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
        "try:\n    print('opened', kinetop.open(sys.argv[1]).traces[0].report.events)\n"
        "except TraceError as error:\n    print('said', error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert done.stdout.startswith("said")
    assert done.stdout.count("\n") == 1
    assert not cache.entry(path).exists()
    assert not leftovers(tmp_path)
    assert not leftovers(cache.folder())


def test_a_cache_that_cannot_be_written_is_done_without_and_said(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("KINETOP_CACHE_DIR", str(blocked))
    found = kinetop.open(write_trace(tmp_path / "t.json", 5))
    assert found.events.collect().height == 5
    assert [notice.code for notice in found.notices] == ["no-cache"]


def test_two_at_one_time_do_not_harm_each_other(tmp_path):
    path = write_trace(tmp_path / "t.json", 30_000)
    heights: list[int] = []

    def run() -> None:
        heights.append(kinetop.open(path).events.select(pl.len()).collect().item())

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert heights == [30_000] * 3
    assert not leftovers(cache.folder())
    assert len(cache.entries()) == 1


def test_an_import_ends_when_nobody_listens(tmp_path):
    path, out = write_trace(tmp_path / "t.json", 120_000), tmp_path / "out.parquet"
    order = {"jobs": 1, "requests": [{"path": str(path), "member": None, "out": str(out), "rank_hint": 0}]}
    with subprocess.Popen(
        [sys.executable, "-m", "kinetop.traces.reading.child", json.dumps(order)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as child:  # fmt: skip
        assert child.stdout is not None
        child.stdout.close()
        assert child.wait(60) in {0, 1}
        assert child.stderr is not None
        assert b"Traceback" not in child.stderr.read()
    assert not leftovers(tmp_path)
