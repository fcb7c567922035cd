"""Parquet traces that were damaged, or that another program wrote: refused in a sentence, or read with every figure right."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest

import kinetop
from kinetop.traces.convert import convert
from kinetop.traces.errors import NotATraceError, UnreadableError
from kinetop.traces.seal import BLANK, seal, state

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def trace(hazards: Path, tmp_path: Path) -> Path:
    """A Parquet trace as kinetop writes it."""
    out = tmp_path / "trace.parquet"
    convert([hazards / "01_baseline_clean.json"], out, cache=False)
    return out


def figures(path: Path) -> tuple[Any, ...]:
    return kinetop.summary(kinetop.open(path, cache=False)).select("kernels", "copies", "busy_us", "idle_us", "span_us").row(0)


REWRITE: dict[str, Callable[[Path, Path], object]] = {
    "pyarrow": lambda path, out: pq.write_table(pq.read_table(path), out),
    "Polars": lambda path, out: pl.read_parquet(path).write_parquet(out),
    "DuckDB": lambda path, out: duckdb.execute(f"copy (from '{path}') to '{out}'"),
    "few columns": lambda path, out: pl.read_parquet(path).select("ph", "cat", "name", "ts_ns", "dur_ns").write_parquet(out),
    "more columns": lambda path, out: pl.read_parquet(path).with_columns(mine=1).write_parquet(out),
    "text, not categories": lambda path, out: (
        pl.read_parquet(path).with_columns(pl.col(pl.Categorical).cast(pl.String)).write_parquet(out)
    ),
    "sealed by kinetop, copied by pyarrow": lambda path, out: pq.write_table(
        pq.read_table(path).replace_schema_metadata(pq.read_metadata(path).metadata), out
    ),
}


@pytest.mark.parametrize("how", REWRITE)
def test_what_another_program_wrote_gives_the_same_figures(how: str, trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "again.parquet"
    REWRITE[how](trace, out)
    assert state(trace) == "whole"
    assert state(out) == "unsealed"
    assert figures(out) == figures(trace) == (5, 1, 110.0, 20.0, 130.0)
    opened = kinetop.open(out, cache=False)
    codes = {notice.code for notice in opened.warnings}
    assert ("missing-columns" in codes) == (how == "few columns")
    assert ("unknown-columns" in codes) == (how == "more columns")
    if how != "few columns":
        assert opened.events.drop("part").collect().equals(pl.read_parquet(trace))


def test_the_rank_is_taken_from_the_rows(trace: Path, tmp_path: Path) -> None:
    rows = pl.read_parquet(trace)
    rows.with_columns(rank=pl.lit(3, pl.Int32)).write_parquet(tmp_path / "three.parquet")
    assert kinetop.open(tmp_path / "three.parquet", cache=False).traces[0].rank == 3
    pl.concat([rows, rows.with_columns(rank=pl.lit(1, pl.Int32))]).write_parquet(tmp_path / "both.parquet")
    with pytest.raises(UnreadableError, match="rows of 2 ranks"):
        kinetop.open(tmp_path / "both.parquet", cache=False)


def test_columns_of_another_kind_are_named(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "odd.parquet"
    pl.read_parquet(trace).with_columns(ts_ns=pl.lit("soon")).write_parquet(out)
    with pytest.raises(NotATraceError, match="its column ts_ns is"):
        kinetop.open(out, cache=False)


@pytest.mark.parametrize("said", [b"[1]", b"{", b'{"header": 3}', b'{"report": {}}', b'{"rank": "x"}', b'{"schema_version": 99}'])
def test_metadata_of_another_kind_are_said(said: bytes, trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "odd.parquet"
    pq.write_table(pq.read_table(trace).replace_schema_metadata({b"kinetop": said}), out)
    with pytest.raises(UnreadableError):
        kinetop.open(out, cache=False)


def test_a_changed_byte_anywhere_is_noticed(trace: Path, tmp_path: Path) -> None:
    data = trace.read_bytes()
    at = data.rindex(b'{"seal": "') + len(b'{"seal": "')
    chosen = random.Random(7)
    places = {0, 4, len(data) - 1, len(data) - 6, at, at + 9, *(chosen.randrange(len(data)) for _ in range(300))}
    for place in sorted(places):
        broken = bytearray(data)
        broken[place] ^= 1 << chosen.randrange(8)
        (tmp_path / "broken.parquet").write_bytes(broken)
        assert state(tmp_path / "broken.parquet") != "whole", place
    for end in range(0, len(data), 97):
        (tmp_path / "broken.parquet").write_bytes(data[:end])
        assert state(tmp_path / "broken.parquet") != "whole", end


@pytest.mark.parametrize("place", ["page", "footer", "end"])
def test_damage_is_said_in_a_sentence(place: str, trace: Path) -> None:
    data = bytearray(trace.read_bytes())
    at = {"page": 1200, "footer": len(data) - 4000, "end": len(data) - 8}[place]
    data[at : at + 3] = b"zzz"
    trace.write_bytes(data)
    with pytest.raises(UnreadableError, match=r"Parquet file (is damaged|cannot be read)"):
        kinetop.open(trace, cache=False)


def test_a_trace_that_speaks_of_seals_is_sealed_all_the_same(tmp_path: Path) -> None:
    name = '{\\"seal\\": \\"' + BLANK + '\\"}'
    text = (
        f'{{"seal": "{BLANK}", "x": {{"seal": "{BLANK}"}}, "traceEvents": [{{"ph": "X", "name": "{name}", "ts": 1, "dur": 1}}]}}'
    )
    (tmp_path / "t.json").write_text(text)
    convert([tmp_path / "t.json"], tmp_path / "t.parquet", cache=False)
    assert state(tmp_path / "t.parquet") == "whole"
    assert kinetop.open(tmp_path / "t.parquet").traces[0].header == {"seal": BLANK, "x": {"seal": BLANK}}
    seal(tmp_path / "t.parquet")
    assert state(tmp_path / "t.parquet") == "whole"


def test_a_damaged_page_of_a_kept_trace_is_imported_anew(hazards: Path) -> None:
    path = hazards / "01_baseline_clean.json"
    kept = kinetop.open(path).traces[0].parquet
    data = bytearray(kept.read_bytes())
    data[1200:1203] = b"zzz"
    kept.write_bytes(data)
    assert figures(path) == (5, 1, 110.0, 20.0, 130.0)
    assert kinetop.summary(kinetop.open(path))["busy_us"].to_list() == [110.0]
    assert state(kept) == "whole"


def test_a_file_without_a_place_for_the_seal_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pl.DataFrame({"a": [1]}).write_parquet(path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="no place for the seal"):
        seal(path)
    assert path.read_bytes() == before
