"""Where the columns of a table go: widths, order of leaving a narrow screen, header texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size

from ..format import cell

if TYPE_CHECKING:
    import polars as pl

    from kinetop.analysis.question import Column

GAP = 2
FIRST_MIN = 16
TEXT_MAX = 28
SAMPLE_ROWS = 256
UNIT_TEXT = {"us": "µs", "ns": "ns", "pct": "%", "GB/s": "GB/s"}
"""Unit as it stands in a header; a bytes cell carries its own."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A column on the screen."""

    column: Column
    left: int
    width: int
    """Cells it takes, its gap to the next column included."""

    def fit(self, text: str) -> str:
        """Pad or cut a text to the column: texts to the left, numbers to the right."""
        room = self.width - GAP
        if cell_len(text) > room:
            text = set_cell_size(text, room - 1) + "…" if room > 0 else ""
        padding = " " * (room - cell_len(text))
        return (text + padding if is_text(self.column) else padding + text) + " " * GAP


def is_text(column: Column) -> bool:
    """Return whether a column is read from the left."""
    return column.unit in {"text", "flag"}


def header_text(column: Column, mark: str = "") -> str:
    """Return the header of a column: label, unit, sort mark."""
    label = column.label or column.name.removesuffix(f"_{column.unit}").replace("_", " ")
    unit = UNIT_TEXT.get(column.unit, "")
    parts = [label, unit if unit and not label.endswith(unit) else "", mark]
    return " ".join(part for part in parts if part)


def widths(frame: pl.DataFrame, columns: Sequence[Column]) -> dict[str, int]:
    """Return the cells each column needs.

    Numbers are measured by their smallest and largest value, so that none is ever cut; texts by a sample of rows.
    """
    import polars as pl

    step = max(1, frame.height // SAMPLE_ROWS)
    sample = frame.gather_every(step).head(SAMPLE_ROWS)
    found = {}
    for column in columns:
        values = frame[column.name]
        if not is_text(column) and values.dtype.is_numeric():
            kept = values.drop_nans() if values.dtype.is_float() else values
            measured = [kept.min(), kept.max(), *sample[column.name].to_list()]
        else:
            measured = sample[column.name].cast(pl.String, strict=False).to_list()
        widest = max((cell_len(cell(value, column.unit)) for value in measured if value is not None), default=1)
        found[column.name] = max(cell_len(header_text(column, "▼")), widest)
    return found


def place(columns: Sequence[Column], needs: Mapping[str, int], width: int, *, skip: int, left: int) -> list[Placed]:
    """Lay columns out on a line.

    Args:
        columns: all columns, the first of which always stays.
        needs: cells each one needs, from `widths`.
        width: cells of the line.
        skip: columns after the first that are scrolled out; 0 lets columns leave by priority (3 first, 0 never).
        left: cells before the first column.

    Returns:
        The columns shown; the first one takes the room that is left over, up to what it needs.
    """
    if not columns:
        return []
    first, rest = columns[0], list(columns[1 + skip :])
    others = {column.name: min(needs[column.name], TEXT_MAX) if is_text(column) else needs[column.name] for column in rest}
    floor = min(needs[first.name], max(FIRST_MIN, width // 3)) + GAP
    while rest and floor + sum(others[column.name] + GAP for column in rest) > width:
        leaves = rest[-1] if skip else max(reversed(rest), key=lambda column: column.priority)
        if leaves.priority == 0 and not skip:
            break
        rest.remove(leaves)
    room = width - sum(others[column.name] + GAP for column in rest)
    sizes = [(first, min(needs[first.name] + GAP, max(room, FIRST_MIN))), *((column, others[column.name] + GAP) for column in rest)]
    placed = []
    for column, size in sizes:
        placed.append(Placed(column, left, size))
        left += size
    return placed
