"""Converted traces are read by others, whole: Parquet by Polars, pandas and DuckDB, JSON by anyone."""

from __future__ import annotations

import gzip
import json
from typing import Any

import duckdb
import polars as pl
import pytest

import kinetop
from kinetop.traces import export, schema
from kinetop.traces.convert import convert
from kinetop.traces.errors import IncompatibleError

VALUES: dict[str, Any] = {"int": 3, "uint": 2**64 - 1, "float": 0.25, "text": 'a "b" \n é', "json": [[1, 2], []]}


@pytest.fixture
def trace(tmp_path, small):
    """A trace with every known arg and some unknown ones."""
    everything = {arg.key: VALUES[arg.kind] for arg in schema.ARGS}
    events = [
        *small,
        {"ph": "X", "name": "all", "ts": 1669783687464181.125, "dur": 0.5, "args": {**everything, "odd": {"a": [1.5]}}},
    ]
    path = tmp_path / "in.json.gz"
    text = json.dumps({"traceEvents": events, "deviceProperties": [{"id": 0}]})
    # Python's float prints fewer digits than a profiler does.
    path.write_bytes(gzip.compress(text.replace(repr(1669783687464181.125), "1669783687464181.125").encode()))
    return path, events


def test_others_read_the_parquet_file(trace, tmp_path):
    pandas = pytest.importorskip("pandas")
    path, events = trace
    out = tmp_path / "out.parquet"
    (written,) = convert([path], out)
    assert (written["path"], written["events"], written["bytes"]) == (out, len(events), out.stat().st_size)
    frame = pl.read_parquet(out)
    assert frame.columns == list(schema.COLUMNS)
    assert frame.height == len(events) == len(pandas.read_parquet(out))
    assert duckdb.sql(f"SELECT count(*), count(DISTINCT event_id) FROM '{out}'").fetchall() == [(len(events), len(events))]
    last = frame.row(-1, named=True)
    for arg in schema.ARGS:
        assert (json.loads(last[arg.column]) if arg.kind == "json" else last[arg.column]) == VALUES[arg.kind], arg.key
    assert last["ts_ns"] == 1669783687464181125
    assert json.loads(last["args"]) == {"odd": {"a": [1.5]}}


def test_a_converted_trace_opens_as_the_trace(trace, tmp_path):
    path, events = trace
    out = tmp_path / "out.parquet"
    convert([path], out)
    again = kinetop.open(out)
    assert list(export.events(again.traces[0])) == events
    assert again.traces[0].header == {"deviceProperties": [{"id": 0}]}
    assert again.events.collect().equals(kinetop.open(path).events.collect())


def test_json_comes_back(trace, tmp_path):
    path, events = trace
    out = tmp_path / "out.json"
    convert([path], out)
    text = out.read_text()
    assert json.loads(text) == {"deviceProperties": [{"id": 0}], "traceEvents": events}
    assert "1669783687464181.125" in text


def test_only_what_is_wanted(trace, tmp_path):
    path, _ = trace
    wanted = pl.col("cat") == "kernel"
    for name in ("out.parquet", "out.json"):
        (written,) = convert([path], tmp_path / name, where=wanted)
        assert written["events"] == 5
        assert kinetop.open(tmp_path / name).events.collect()["name"].to_list() == [f"k{i}" for i in range(5)]


def test_ranks_go_into_a_hive_folder(tmp_path, small):
    for rank in (0, 1, 10):
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(small))
    sources = [tmp_path / f"rank{rank}.json" for rank in (0, 1, 10)]
    with pytest.raises(IncompatibleError, match="3 traces do not go into one file"):
        convert(sources, tmp_path / "one.parquet")
    written = convert(sources, tmp_path / "out")
    assert [item["rank"] for item in written] == [0, 1, 10]
    frame = pl.read_parquet(tmp_path / "out" / "**" / "*.parquet", hive_partitioning=True)
    assert frame.group_by("rank").len().sort("rank").rows() == [(rank, len(small)) for rank in (0, 1, 10)]
    files = f"{tmp_path}/out/*/*.parquet"
    counted = f"SELECT rank, count(*) FROM read_parquet('{files}', hive_partitioning = true) GROUP BY rank ORDER BY rank"
    assert [row[1] for row in duckdb.sql(counted).fetchall()] == [len(small)] * 3
    assert [trace.rank for trace in kinetop.open(tmp_path / "out").traces] == [0, 1, 10]


def test_windows_of_one_rank_do_not_replace_each_other(tmp_path, small):
    for name in ("a", "b"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "rank3.json").write_text(json.dumps(small))
    written = convert([tmp_path / "a", tmp_path / "b"], tmp_path / "out")
    assert len({item["path"] for item in written}) == 2
    assert [item["rank"] for item in written] == [3, 3]


def test_a_trace_is_not_written_over_itself(trace, tmp_path):
    path, _ = trace
    out = tmp_path / "out.parquet"
    convert([path], out)
    before = out.read_bytes()
    with pytest.raises(IncompatibleError, match="this is the trace itself"):
        convert([out], out)
    assert out.read_bytes() == before


def test_an_archive_of_ranks_takes_them_from_the_members_names(tmp_path, small):
    import zipfile

    with zipfile.ZipFile(tmp_path / "run.zip", "w") as archive:
        for rank in (2, 0):
            archive.writestr(f"rank{rank}.json", json.dumps(small))
    assert [trace.rank for trace in kinetop.open(tmp_path / "run.zip").traces] == [0, 2]
