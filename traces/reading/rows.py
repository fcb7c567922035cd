"""Events as Python values to rows of the event table: exact, one by one, for what the fast path refuses."""

from __future__ import annotations

import json
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from math import isfinite
from typing import TYPE_CHECKING, Any

import polars as pl

from .. import schema

if TYPE_CHECKING:
    from collections.abc import Iterable

DTYPES: dict[str, pl.DataType] = {
    "int": pl.Int64(),
    "uint": pl.UInt64(),
    "float": pl.Float64(),
    "text": pl.String(),
    "json": pl.String(),
}
"""Polars type of each kind of column."""

FRAME_SCHEMA: dict[str, pl.DataType] = {
    name: pl.Int32() if name in ("rank", "device") else DTYPES[kind] for name, kind in schema.COLUMNS.items()
}
"""Polars schema of the event table, before text columns become dictionaries."""

_HEAD = {"ph": "ph", "cat": "cat", "name": "name", "pid": "process", "tid": "thread", "id": "id", "bp": "bp", "s": "scope"}
_ARGS = {arg.key: (arg.column, arg.kind) for arg in schema.ARGS}
_ID_KEYS = ("pid", "tid", "id")
_INT64 = range(-(2**63), 2**63)
_UINT64 = range(2**64)
_INT32 = range(-(2**31), 2**31)
_EXACT = 2**53
_MOST_DIGITS = 20
"""No column holds an integer with more."""


class Number(float):
    """A JSON number with a fraction or exponent that remembers its text."""

    text: str

    def __new__(cls, text: str) -> Number:
        """Make one from its text."""
        made = super().__new__(cls, text)
        made.text = text
        return made


def nanoseconds(value: Any) -> int | None:
    """Return microseconds (number or numeric text) as integer nanoseconds, from the decimal text.

    >>> nanoseconds(Number("1669783687464181.123"))
    1669783687464181123
    >>> nanoseconds("12.5"), nanoseconds("soon")
    (12500, None)
    """
    if type(value) is int:
        result = value * 1000
        return result if result in _INT64 else None
    text = value.text if isinstance(value, Number) else value
    if not isinstance(text, str):
        return None
    try:
        number = Decimal(text.strip())
        # Halves go away from zero, as in the reader of the fast path; what is far too large is not spelled out.
        result = int(number.scaleb(3).to_integral_value(ROUND_HALF_UP)) if number.adjusted() < _MOST_DIGITS else 2**63
    except (InvalidOperation, ValueError, OverflowError):
        return None
    return result if result in _INT64 else None


def fits(kind: schema.Kind, value: Any) -> bool:
    """Whether a column of this kind holds the value exactly as written."""
    if kind == "int":
        return type(value) is int and value in _INT64
    if kind == "uint":
        return type(value) is int and value in _UINT64
    if kind == "float":
        return (isinstance(value, float) and isfinite(value)) or (type(value) is int and abs(value) < _EXACT)
    return isinstance(value, str) if kind == "text" else isinstance(value, (list, dict))


def coerced(kind: schema.Kind, value: Any) -> Any:
    """Return the nearest value a column of this kind can hold for analysis, or None.

    >>> coerced("int", "256"), coerced("int", "0x0"), coerced("text", 5)
    (256, None, '5')
    """
    if kind == "text":
        return value if isinstance(value, str) else None if value is None else dumps(value)
    if kind == "json" or isinstance(value, bool):
        return None
    try:
        number = Decimal(value.text if isinstance(value, Number) else value)
        if number.adjusted() > _MOST_DIGITS:
            return None
        made = float(number) if kind == "float" else int(number)
        return made if (kind == "float" or made == number) and fits(kind, made) else None
    except (InvalidOperation, TypeError, ValueError, OverflowError):
        return None


def dumps(value: Any) -> str:
    """Return JSON text with no spaces, non-ASCII as it is."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _id_text(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value)


def row(event: dict[str, Any]) -> dict[str, Any]:
    """Return one event as a row: typed columns, and in `args` and `extra` what they cannot hold."""
    made: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for key, value in event.items():
        if key in ("ts", "dur"):
            ns = nanoseconds(value)
            made[f"{key}_ns"] = ns
            if ns is None or isinstance(value, str):
                extra[key] = value
        elif key == "args" and isinstance(value, dict):
            _args_into(made, value)
        elif key in _HEAD:
            _head_into(made, extra, key, value)
        else:
            extra[key] = value
    if extra:
        made["extra"] = dumps(extra)
    return made


def _head_into(made: dict[str, Any], extra: dict[str, Any], key: str, value: Any) -> None:
    """File a top-level member; ids are numbers or text, and which it was must survive."""
    if key in _ID_KEYS:
        made[_HEAD[key]] = _id_text(value)
        if not (type(value) is int or (isinstance(value, str) and not is_integer_text(value))):
            extra[key] = value
    elif isinstance(value, str):
        made[_HEAD[key]] = value
    else:
        made[_HEAD[key]] = None if value is None else dumps(value)
        extra[key] = value


def is_integer_text(text: str) -> bool:
    """Whether the text is how JSON writes some integer, so that it could be mistaken for one."""
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and (digits == "0" or digits[0] != "0") and text != "-0"


def _args_into(made: dict[str, Any], args: dict[str, Any]) -> None:
    left: dict[str, Any] = {}
    for key, value in args.items():
        known = _ARGS.get(key)
        if known is None:
            left[key] = value
            continue
        column, kind = known
        if fits(kind, value) and (column != "device" or value in _INT32):
            made[column] = dumps(value) if kind == "json" else value
        else:
            left[key] = value
            made[column] = coerced(kind, value) if column != "device" else None
    if left or not args:
        made["args"] = dumps(left)


def frame(events: Iterable[dict[str, Any]]) -> pl.DataFrame:
    """Return events as a frame with every column of the event table except `event_id` and `rank` filled.

    >>> made = frame([{"ph": "X", "name": "gemm", "ts": 5, "dur": 2, "args": {"stream": 7, "odd": [1]}}])
    >>> made.select("ts_ns", "stream", "args").row(0)
    (5000, 7, '{"odd":[1]}')
    """
    rows = [row(event) for event in events]
    return pl.from_dicts(rows, schema=FRAME_SCHEMA) if rows else pl.DataFrame(schema=FRAME_SCHEMA)
