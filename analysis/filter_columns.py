"""The columns of a frame as a filter names them: with or without their unit, in any case."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Mapping

NS = {"ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
"""Nanoseconds of each unit that a filter may write."""


class Columns:
    """The columns of a frame as a filter names them."""

    def __init__(self, schema: Mapping[str, pl.DataType], origin_ns: int = 0) -> None:
        self.schema = dict(schema)
        self.origin_ns = origin_ns

    @property
    def searched(self) -> list[str]:
        """Columns that words look at: `name`, else every text column."""
        text = [name for name, kind in self.schema.items() if is_text(kind)]
        return ["name"] if "name" in text else text

    def find(self, name: str, *, exact: bool = False) -> str | None:
        """Return the column that a name stands for: itself, in any case, or the column that carries it with a unit."""
        if name in self.schema or exact:
            return name if name in self.schema else None
        folded = {column.casefold(): column for column in self.schema}
        for suffix in ("", "_ns", "_us", "_ms", "_pct", "_bytes"):
            if (hit := folded.get(name.casefold() + suffix)) is not None:
                return hit
        return None

    def nearest(self, name: str) -> str:
        """Return the end of a sentence that names the likeliest columns."""
        short = {re.sub(r"_(ns|us|ms|pct|bytes)$", "", column): column for column in self.schema}
        known = sorted({*self.schema, *short})
        close = get_close_matches(name.casefold(), known, n=3, cutoff=0.5)
        return f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(sorted(short))}."


def time_unit(column: str) -> str:
    """Return the unit that a column's name ends with, where it is one of time; else an empty text."""
    suffix = column.rpartition("_")[2]
    return suffix if suffix in {"ns", "us", "ms"} and suffix != column else ""


def is_text(kind: pl.DataType) -> bool:
    """Return whether values of a type are texts."""
    return isinstance(kind, (pl.String, pl.Categorical, pl.Enum))
