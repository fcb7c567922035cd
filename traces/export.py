"""From the event table back to the events of a Chrome trace, as they were written."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from itertools import chain
from typing import IO, TYPE_CHECKING, Any

import polars as pl

from . import schema
from .reading.header import base_ns
from .reading.rows import dumps, is_integer_text
from .store import temporary_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from .trace import Trace

BATCH_ROWS = 50_000
"""Rows turned into Python values at a time."""

_TEXT = {"ph": "ph", "cat": "cat", "name": "name", "bp": "bp", "scope": "s"}
_IDS = {"process": "pid", "thread": "tid", "id": "id"}


class _Exact(float):
    """A number that prints as the text it was made from."""

    def __new__(cls, text: str) -> _Exact:
        made = super().__new__(cls, text)
        made._text = text  # type: ignore[attr-defined]
        return made

    def __repr__(self) -> str:
        return self._text  # type: ignore[attr-defined, no-any-return]


def microseconds(value_ns: int) -> str:
    """Return nanoseconds as the text of a number of microseconds, exact to the last digit.

    >>> microseconds(12_000), microseconds(1669783687464181123), microseconds(-500)
    ('12', '1669783687464181.123', '-0.5')
    """
    if value_ns % 1000 == 0:
        return str(value_ns // 1000)
    return format((Decimal(value_ns) / 1000).normalize(), "f")


def events(trace: Trace, where: pl.Expr | None = None) -> Iterator[dict[str, Any]]:
    """Yield the events of a trace in file order, as JSON values; fractions print with the digits they were read with.

    Args:
        trace: an opened trace.
        where: yield only those for which this holds.

    Example:
        >>> import kinetop
        >>> trace = kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False).traces[0]
        >>> next(iter(events(trace)))["name"]
        'process_name'
    """
    for text in _texts(trace, where):
        yield json.loads(text, parse_float=_Exact)


def _texts(trace: Trace, where: pl.Expr | None) -> Iterator[str]:
    base = base_ns(trace.header)
    frame = trace.events if where is None else trace.events.filter(where)
    height = frame.select(pl.len()).collect().item()
    for start in range(0, height, BATCH_ROWS):
        batch = frame.slice(start, BATCH_ROWS).collect()
        for row in batch.iter_rows(named=True):
            yield event_text(row, base)


def event_text(row: dict[str, Any], base: int) -> str:
    """Return one row of the event table as the JSON text of the event it came from.

    Args:
        row: the row, by column.
        base: nanoseconds that the trace's times are relative to.
    """
    made = {key: dumps(row[column]) for column, key in _TEXT.items() if row[column] is not None}
    for column, key in _IDS.items():
        if (text := row[column]) is not None:
            made[key] = text if is_integer_text(text) else dumps(text)
    if row["ts_ns"] is not None:
        made["ts"] = microseconds(row["ts_ns"] - base)
    if row["dur_ns"] is not None:
        made["dur"] = microseconds(row["dur_ns"])
    args = {
        arg.key: row[arg.column] if arg.kind == "json" else dumps(row[arg.column])
        for arg in schema.ARGS
        if row[arg.column] is not None
    }
    if args or row["args"] is not None:
        made["args"] = _object(args, row["args"])
    return _object(made, row["extra"])


def _object(members: dict[str, str], left: str | None) -> str:
    """Join members and the object text of those that have no column, whose values count where both have one."""
    twice = _keys(left) if left and any(f"{dumps(key)}:" in left for key in members) else frozenset()
    parts = [f"{dumps(key)}: {text}" for key, text in members.items() if key not in twice]
    return "{" + ", ".join([*parts, left[1:-1]] if left and left != "{}" else parts) + "}"


def _keys(text: str) -> frozenset[str]:
    """Return the members of an object."""
    try:
        return frozenset(json.loads(text))
    except (ValueError, RecursionError):  # a number or a nesting beyond Python's limits; DuckDB has none
        import duckdb

        found = duckdb.execute("SELECT json_keys(?)", [text]).fetchall()
        return frozenset(found[0][0])


def counter_text(name: str, process: str, at_ns: int, values: dict[str, float], base: int) -> str:
    """Return a counter event as JSON text.

    Args:
        name: name of the track.
        process: pid that it is shown under.
        at_ns: from when on the values hold.
        values: by the name of the line.
        base: nanoseconds that the trace's times are relative to.

    >>> counter_text("queue", "0", 1500, {"launches": 3.0}, 0)
    '{"ph": "C", "name": "queue", "pid": 0, "tid": 0, "ts": 1.5, "args": {"launches": 3.0}}'
    """
    pid = process if is_integer_text(process) else dumps(process)
    ts, args = microseconds(at_ns - base), json.dumps(values)
    return f'{{"ph": "C", "name": {dumps(name)}, "pid": {pid}, "tid": 0, "ts": {ts}, "args": {args}}}'


def write_json(trace: Trace, out: Path, where: pl.Expr | None = None, more: Iterable[str] = ()) -> int:
    """Write a trace as Chrome JSON, which Perfetto and HTA open.

    Args:
        trace: an opened trace.
        out: the file to make; it gets its name when it is whole, and is compressed where that ends in `.gz`.
        where: write only the events for which this holds.
        more: further events, JSON texts, that come after those of the trace.

    Returns:
        How many events were written.
    """
    temporary = temporary_name(out)
    count = 0
    try:
        with _create(temporary, compress=out.suffix == ".gz") as file:
            head = json.dumps(trace.header, ensure_ascii=False)
            file.write(head[:-1] + (", " if trace.header else "") + '"traceEvents": [')
            for text in chain(_texts(trace, where), more):
                file.write((",\n" if count else "\n") + text)
                count += 1
            file.write("\n]}\n")
        temporary.replace(out)
    finally:
        temporary.unlink(missing_ok=True)
    return count


def _create(path: Path, *, compress: bool) -> IO[str]:
    if compress:
        return gzip.open(path, "wt", compresslevel=6, encoding="utf-8")
    return path.open("w", encoding="utf-8")
