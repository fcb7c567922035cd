"""How members of an event map to columns, and the Arrow schema of the event table as it is stored."""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from .. import schema

HEAD_TEXT = {"ph": "ph", "cat": "cat", "name": "name", "bp": "bp", "s": "scope"}
"""Members of an event that are text, with their column."""
HEAD_ID = {"pid": "process", "tid": "thread", "id": "id"}
"""Members that are numbers or text and are kept as text."""
HEAD_TIME = {"ts": "ts_ns", "dur": "dur_ns"}
"""Members that are microseconds."""
ARGS = {arg.key: arg for arg in schema.ARGS}
"""Members of `args` that have a column."""

_INTEGER = r"^(?:0|-?[1-9][0-9]*)$"
EXACT = {
    "int": _INTEGER,
    "uint": _INTEGER,
    "float": r"^-?(?:[0-9]{1,15}|[0-9]+[.eE][0-9.eE+-]*)$",
    "text": r'^"[^\\]*"$',
    "json": r"^[\[{]",
}
"""JSON text that a column of a kind holds exactly."""
NULL_MARK = "~null"
"""What is put behind the name of a member that is null, so that the reader tells it from an absent one."""
NOT_JSON = rf"(?i)(?:^|[\[:,])-?(?:nan|inf)|{NULL_MARK}\""
"""A number in JSON text that JSON does not know, or a null inside a nested value, which is not ours to rename."""

_ARROW = {"int": pa.int64(), "uint": pa.uint64(), "float": pa.float64(), "text": pa.string(), "json": pa.string()}
_DICTIONARY = pa.dictionary(pa.int32(), pa.string())


def arrow_type(column: str) -> pa.DataType:
    """Return the Arrow type of a column of the event table."""
    if column in schema.DICTIONARY_COLUMNS:
        return _DICTIONARY
    return pa.int32() if column in ("rank", "device") else _ARROW[schema.COLUMNS[column]]


def byte_column(data: bytes) -> pl.Series:
    """Return bytes as a column of numbers; nothing is copied, and what is done with it does not hold the interpreter's lock."""
    return pl.Series(pa.Array.from_buffers(pa.uint8(), len(data), [None, pa.py_buffer(data)]))


SCHEMA = pa.schema([pa.field(name, arrow_type(name)) for name in schema.COLUMNS])
"""Arrow schema of the event table as it is stored."""
