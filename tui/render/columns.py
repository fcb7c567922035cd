"""Where the columns of a table go: widths, order of leaving a narrow screen, header texts."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, set_cell_size

from ..format import cell

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from kinetop.analysis.question import Column

GAP = 2
FIRST_MIN = 16
TEXT_MAX, TEXT_MAX_FIRST = 28, 48
"""Cells of a text behind the first column, and of one that never leaves."""
TEXT_MIN = 14
SAMPLE_ROWS = 256
UNIT_TEXT = {"us": "µs", "ns": "ns", "pct": "%", "GB/s": "GB/s"}
"""Unit as it stands in a header; a bytes cell carries its own."""


@dataclass(frozen=True, slots=True)
class Look:
    """How the values of a column are written: one unit and one number of decimals for all of them."""

    column: Column
    width: int = 1
    """Cells that the widest value or the header needs, the mark of the sort left out."""
    factor: float = 1.0
    """Value shown = value * factor."""
    unit: str = ""
    """Unit as it stands in the header."""
    decimals: int | None = None
    """None leaves it to `format.cell`."""

    def text(self, value: Any) -> str:
        """Return a value as text."""
        if self.decimals is None or value is None or not isfinite(value):
            return cell(value, self.column.unit)
        return f"{value * self.factor:,.{self.decimals}f}"

    def header(self, mark: str = "") -> str:
        """Return the header: label, unit, sort mark."""
        column = self.column
        label = column.label or column.name.removesuffix(f"_{column.unit}").replace("_", " ")
        parts = [label, "" if label.endswith(self.unit) else self.unit, mark]
        return " ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Placed:
    """A column on the screen."""

    look: Look
    left: int
    width: int
    """Cells it takes, its gap to the next column included."""

    @property
    def column(self) -> Column:
        """The declared column."""
        return self.look.column

    def fit(self, text: str) -> str:
        """Pad or cut a text to the column: texts to the left, numbers to the right."""
        room = self.width - GAP
        if cell_len(text) > room:
            text = set_cell_size(text, room - 1) + "…" if room > 0 else ""
        padding = " " * (room - cell_len(text))
        return (text + padding if is_text(self.column) else padding + text) + " " * GAP


def _text_max(column: Column) -> int:
    """Cells that a column behind the first takes at most; a number is never cut."""
    return (TEXT_MAX if column.priority else TEXT_MAX_FIRST) if is_text(column) else sys.maxsize


def is_text(column: Column) -> bool:
    """Return whether a column is read from the left."""
    return column.unit in {"text", "flag"}


def looks(frame: pl.DataFrame, columns: Sequence[Column]) -> dict[str, Look]:
    """Return how each column is written and how wide that is.

    Numbers are measured by their smallest and largest value, so that none is ever cut; texts by a sample of rows.
    """
    import polars as pl

    step = max(1, frame.height // SAMPLE_ROWS)
    sample = frame.gather_every(step).head(SAMPLE_ROWS)
    found = {}
    for column in columns:
        values, some = frame[column.name], sample[column.name]
        look = Look(column, unit=UNIT_TEXT.get(column.unit, ""))
        if values.dtype.is_numeric() and not is_text(column):
            kept = values.filter(values.is_finite()) if values.dtype.is_float() else values
            ends = [kept.min(), kept.max()]
            if column.unit == "us":
                look = time_look(column, max((abs(float(end)) for end in ends if end is not None), default=0.0))  # type: ignore[arg-type]
            measured = [*ends, *some.to_list()]
        else:
            measured = some.cast(pl.String, strict=False).to_list()
        widest = max((cell_len(look.text(value)) for value in measured if value is not None), default=1)
        found[column.name] = replace(look, width=max(cell_len(look.header()), widest))
    return found


def time_look(column: Column, largest_us: float) -> Look:
    """Return the look of a column of times: the unit that reads best for its largest value, in every row."""
    if largest_us >= 1e8:
        return Look(column, factor=1e-6, unit="s", decimals=3)
    if largest_us >= 1e5:
        return Look(column, factor=1e-3, unit="ms", decimals=3)
    return Look(column, unit="µs", decimals=1 if largest_us >= 1e3 else 3)


def place(
    columns: Sequence[Column], known: Mapping[str, Look], width: int, *, skip: int, left: int, marked: str = ""
) -> list[Placed]:
    """Lay columns out on a line.

    Args:
        columns: all columns, the first of which always stays.
        known: how each one is written, from `looks`.
        width: cells of the line.
        skip: columns after the first that are scrolled out; 0 lets columns leave by priority (3 first, 0 never).
        left: cells before the first column.
        marked: name of the column whose header carries the mark of the sort.

    Returns:
        The columns shown; the first one takes the room that is left over, up to what it needs.
    """
    if not columns:
        return []
    first, rest = columns[0], list(columns[1 + skip :])
    needs = {column.name: known[column.name].width for column in (first, *rest)}
    if marked in needs:
        needs[marked] = max(needs[marked], cell_len(known[marked].header("▼")))
    most = {column.name: min(needs[column.name], _text_max(column)) for column in rest}
    # A text in front takes what room there is; behind a number in front, texts share it.
    shared = [] if is_text(first) else [column.name for column in rest if is_text(column)]
    others = {**most, **{name: min(most[name], TEXT_MIN) for name in shared}}
    floor = min(needs[first.name], max(FIRST_MIN, width // 3)) + GAP
    while rest:
        leaves = rest[-1] if skip else max(reversed(rest), key=lambda column: column.priority)
        # Columns of little weight leave before a text of more weight is cut short.
        asked = most if leaves.priority > 1 and not skip else others
        if floor + sum(asked[column.name] + GAP for column in rest) <= width or (leaves.priority == 0 and not skip):
            break
        rest.remove(leaves)
    room = width - sum(others[column.name] + GAP for column in rest)
    spare = room - needs[first.name] - GAP
    for column in rest:
        more = min(max(0, spare), most[column.name] - others[column.name])
        others[column.name] += more
        spare -= more
    if shared:
        room = needs[first.name] + GAP
    sizes = [
        (first, min(needs[first.name] + GAP, max(room, FIRST_MIN))),
        *((column, others[column.name] + GAP) for column in rest),
    ]
    placed = []
    for column, size in sizes:
        placed.append(Placed(known[column.name], left, size))
        left += size
    return placed
