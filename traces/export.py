"""From the event table back to the events of a Chrome trace, as they were written."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl

from . import schema
from .reading.header import base_ns
from .reading.rows import is_integer_text
from .store import temporary_name

if TYPE_CHECKING:
    from collections.abc import Iterator
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


def microseconds(value_ns: int) -> int | _Exact:
    """Return nanoseconds as a JSON number of microseconds, exact in its text.

    >>> microseconds(12_000), microseconds(1669783687464181123)
    (12, 1669783687464181.123)
    """
    if value_ns % 1000 == 0:
        return value_ns // 1000
    return _Exact(format((Decimal(value_ns) / 1000).normalize(), "f"))


def events(trace: Trace, where: pl.Expr | None = None) -> Iterator[dict[str, Any]]:
    """Yield the events of a trace in file order, as JSON values.

    Args:
        trace: an opened trace.
        where: yield only those for which this holds.

    Example:
        >>> import kinetop
        >>> trace = kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False).traces[0]
        >>> next(iter(events(trace)))["name"]
        'process_name'
    """
    base = base_ns(trace.header)
    frame = trace.events if where is None else trace.events.filter(where)
    height = frame.select(pl.len()).collect().item()
    for start in range(0, height, BATCH_ROWS):
        batch = frame.slice(start, BATCH_ROWS).collect()
        for row in batch.iter_rows(named=True):
            yield event(row, base)


def event(row: dict[str, Any], base: int) -> dict[str, Any]:
    """Return one row of the event table as the event it came from.

    Args:
        row: the row, by column.
        base: nanoseconds that the trace's times are relative to.
    """
    made: dict[str, Any] = {key: row[column] for column, key in _TEXT.items() if row[column] is not None}
    for column, key in _IDS.items():
        if (text := row[column]) is not None:
            made[key] = int(text) if is_integer_text(text) else text
    if row["ts_ns"] is not None:
        made["ts"] = microseconds(row["ts_ns"] - base)
    if row["dur_ns"] is not None:
        made["dur"] = microseconds(row["dur_ns"])
    args = {
        arg.key: json.loads(row[arg.column]) if arg.kind == "json" else row[arg.column]
        for arg in schema.ARGS
        if row[arg.column] is not None
    }
    left = json.loads(row["args"]) if row["args"] is not None else None
    if args or left is not None:
        made["args"] = {**args, **(left or {})}
    return {**made, **(json.loads(row["extra"]) if row["extra"] is not None else {})}


def write_json(trace: Trace, out: Path, where: pl.Expr | None = None) -> int:
    """Write a trace as Chrome JSON, which Perfetto and HTA open.

    Args:
        trace: an opened trace.
        out: the file to make; it gets its name when it is whole.
        where: write only the events for which this holds.

    Returns:
        How many events were written.
    """
    temporary = temporary_name(out)
    count = 0
    try:
        with temporary.open("w", encoding="utf-8") as file:
            head = json.dumps(trace.header, ensure_ascii=False)
            file.write(head[:-1] + (", " if trace.header else "") + '"traceEvents": [')
            for item in events(trace, where):
                file.write((",\n" if count else "\n") + json.dumps(item, ensure_ascii=False))
                count += 1
            file.write("\n]}\n")
        temporary.replace(out)
    finally:
        temporary.unlink(missing_ok=True)
    return count
