"""Parquet traces that another program wrote or rewrote: every row is read once, and put into the event table's own columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .. import schema
from ..errors import NotATraceError, UnreadableError
from ..report import ImportReport, Notice
from ..seal import state
from ..store import read_metadata
from ..writer import Writer
from .columns import SCHEMA
from .header import rank_of
from .source import detect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_BATCH_ROWS = 1 << 17


def is_parquet(path: Path) -> bool:
    """Whether the file's first bytes are those of Parquet.

    Raises:
        UnreadableError: it cannot be opened.
    """
    try:
        with path.open("rb") as stream:
            return detect(stream.read(4)) == "parquet"
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror or error}.") from error


def import_parquet(
    path: Path, out: Path, *, rank: int, progress: Callable[[int, int, int], None]
) -> tuple[dict[str, Any], ImportReport]:
    """Write a Parquet trace anew.

    Args:
        path: the file.
        out: the file to write.
        rank: the rank, when neither its metadata nor its rows say it.
        progress: called with bytes of the file read, bytes in all, events written.

    Returns:
        Its header and its import report.

    Raises:
        UnreadableError: it is damaged, or holds the rows of several ranks.
        NotATraceError: its columns are not those of the event table.
    """
    said = read_metadata(path)
    if state(path) == "damaged":
        raise UnreadableError(f"{path}: the Parquet file is damaged: its check sum is not that of its bytes.")
    size = path.stat().st_size
    header = said.get("header") or {}
    with Writer(out) as writer:
        writer.source = str(path)
        ranks: set[int] = set()
        rows = 0
        for batch in _batches(path):
            table = _table(batch, path)
            ranks.update(pc.unique(table.column("rank")).drop_null().to_pylist())
            if not rows:
                writer.rank = said.get("rank", rank_of(header, next(iter(ranks), rank)))
            rows += batch.num_rows
            writer.write(table)
            progress(size, size, rows)
        if len(ranks) > 1:
            shown = ", ".join(map(str, sorted(ranks)[:8]))
            raise UnreadableError(f"{path}: it holds the rows of {len(ranks)} ranks ({shown}); put each rank into its own file.")
        report = ImportReport.from_dict(said["report"]) if "report" in said else ImportReport()
        report = ImportReport(rows, report.bytes, [*report.notices, *_notices(path, said)])
        writer.finish(header, report)
    return header, report


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows, every column of them: what cannot be read shows here."""
    try:
        with pq.ParquetFile(path) as file:
            known = [name for name in file.schema_arrow.names if name in schema.COLUMNS]
            yield from file.iter_batches(_BATCH_ROWS, columns=known)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UnreadableError(f"{path}: the Parquet file cannot be read ({str(error).splitlines()[0]}).") from error


def _table(batch: pa.RecordBatch, path: Path) -> pa.Table:
    """Return rows with the event table's columns; those that are not there are null."""
    columns = []
    for field in SCHEMA:
        if field.name not in batch.schema.names:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        column = batch.column(field.name)
        try:
            columns.append(_cast(column, field.type))
        except (pa.ArrowException, ValueError) as error:
            what = f"its column {field.name} is {column.type}, not {_plain(field.type)}"
            raise NotATraceError(f"{path}: this Parquet file is not a trace: {what}.") from error
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _cast(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    made = column.cast(_plain(wanted))
    return made.dictionary_encode() if pa.types.is_dictionary(wanted) else made


def _plain(wanted: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_dictionary(wanted) else wanted


def _notices(path: Path, said: dict[str, Any]) -> list[Notice]:
    """Say what the file does not hold of what a trace has, and what it holds besides."""
    names = pq.read_schema(path).names
    notices = []
    if not said:
        text = "The Parquet file says nothing of the trace's header (device names, base time) and of what its import repaired."
        notices.append(Notice("no-header", 1, text, level="info"))
    if missing := [name for name in schema.COLUMNS if name not in names]:
        text = f"{len(missing)} columns of the event table are not in the Parquet file ({_listed(missing)}); they are empty."
        notices.append(Notice("missing-columns", len(missing), text, level="info"))
    if more := [name for name in names if name not in schema.COLUMNS]:
        text = f"{len(more)} columns of the Parquet file are not of the event table ({_listed(more)}); they are left out."
        notices.append(Notice("unknown-columns", len(more), text, level="info"))
    return notices


def _listed(names: list[str]) -> str:
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
