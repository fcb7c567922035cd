"""A sweep in characters: a heat map of times by variant and size, and curves on logarithmic scales."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual.content import Content

from ..format import ABSENT, clean, duration, size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BEST = "●"
SHADES = ((1.05, "·"), (1.5, "░"), (3.0, "▒"), (10.0, "▓"), (float("inf"), "█"))
"""Mark of a time by how many times the best of its column it is."""
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
WORDS = {"UNAVAILABLE": "not here", "RUNNING": ABSENT}
"""What stands where there is no value, by state."""
NAME_CELLS = 22
AXIS_CELLS = 10


@dataclass(frozen=True)
class Grid:
    """A figure by variant and size."""

    label: str
    unit: str
    """`us` or `bytes`."""
    sizes: tuple[int, ...]
    rows: tuple[str, ...]
    """Variants."""
    values: Mapping[tuple[str, int], float]
    states: Mapping[tuple[str, int], str]
    """Why there is no value, in one word."""
    best: Mapping[int, str]
    """Variant to choose at each size."""


def heat_map(grid: Grid, width: int) -> list[Content]:
    """Return one line a variant and one column a size; columns that do not fit leave from the small end."""
    texts = {size_: [_cell(grid, row, size_) for row in grid.rows] for size_ in grid.sizes}
    widths = {size_: max([len(f"{size_:,}"), *(cell_len(text) for text in texts[size_])]) + 4 for size_ in grid.sizes}
    shown = list(grid.sizes)
    name_cells = min(NAME_CELLS, max([len(grid.label), *map(cell_len, grid.rows)], default=0) + 1)
    while len(shown) > 1 and name_cells + 3 + sum(widths[size_] for size_ in shown) > width:
        shown.pop(0)
    head = Content.styled(f"   {grid.label:{name_cells}}" + "".join(f"{size_:>{widths[size_]},}" for size_ in shown), "$muted")
    lines = [head]
    absent = [row for row in grid.rows if all(grid.states.get((row, size_)) == WORDS["UNAVAILABLE"] for size_ in grid.sizes)]
    for at, row in enumerate(grid.rows):
        if row in absent:
            continue
        name = clean(row, name_cells - 1)
        line = Content.assemble((f" {LETTERS[at % len(LETTERS)]} ", "$muted"), name, " " * (name_cells - cell_len(name)))
        for size_ in shown:
            mark, style = _shade(grid, row, size_)
            line = line.append(Content.assemble((f"{texts[size_][at]:>{widths[size_] - 2}} ", style), (mark, style)))
        lines.append(line)
    if absent:
        lines.append(Content.styled(clean(f"   {WORDS['UNAVAILABLE']}: {', '.join(absent)}", width), "$muted"))
    legend = f"   {BEST} best   {SHADES[0][1]} to 1.05x of it   ░ 1.5x   ▒ 3x   ▓ 10x   █ more"
    return [line.truncate(width) for line in (*lines, Content.styled(legend, "$muted"))]


def curves(grid: Grid, width: int, *, height: int = 8) -> list[Content]:
    """Return the variants' curves, each drawn with its letter; both scales are logarithmic."""
    known = {key: value for key, value in grid.values.items() if value > 0}
    if len(grid.sizes) < 2 or not known:
        return []
    low, high = min(known.values()), max(known.values())
    room = max(10, width - AXIS_CELLS - 2)
    cells = [[" "] * room for _ in range(height)]
    span = log(grid.sizes[-1] / grid.sizes[0]) or 1.0
    for at, row in reversed(list(enumerate(grid.rows))):
        points = [
            (log(size_ / grid.sizes[0]) / span * (room - 1), _level(known[row, size_], low, high) * (height - 1))
            for size_ in grid.sizes
            if (row, size_) in known
        ]
        for (x0, y0), (x1, y1) in zip(points, [*points[1:], points[-1:][0] if points else (0, 0)], strict=False):
            for x in range(round(x0), round(x1) + 1):
                y = y0 if x1 <= x0 else y0 + (y1 - y0) * min(1.0, max(0.0, (x - x0) / (x1 - x0)))
                end = x in {round(x0), round(x1)}
                cell = cells[height - 1 - round(y)]
                if end or cell[x] == " ":
                    cell[x] = LETTERS[at % len(LETTERS)] if end or x % 3 == 0 else "·"
    ends = {0: _text(high, grid.unit), height - 1: _text(low, grid.unit)}
    lines = [
        Content.assemble((f" {ends.get(y, ''):>{AXIS_CELLS - 1}}│", "$muted"), "".join(line)) for y, line in enumerate(cells)
    ]
    first, last = f"{grid.sizes[0]:,}", f"{grid.sizes[-1]:,}"
    axis = f"{first}{last:>{max(0, room - len(first))}}"
    return [*lines, Content.styled(f" {'':{AXIS_CELLS - 1}} {axis}", "$muted")]


def progress_line(done: int, total: int, told: str, width: int) -> Content:
    """Return how far a sweep is, with what it is at."""
    room = 20
    cells = round(room * done / total) if total else 0
    bar = Content.assemble(" ", ("█" * cells, "$accent"), ("·" * (room - cells), "$muted"))
    return bar.append(f"  {done} of {total}  {clean(told, max(0, width - room - 16))}")


def _cell(grid: Grid, row: str, size_: int) -> str:
    value = grid.values.get((row, size_))
    return _text(value, grid.unit) if value is not None else grid.states.get((row, size_), ABSENT)


def _text(value: float, unit: str) -> str:
    if unit == "bytes":
        return size(value)
    number, name = duration(value).split(" ")
    return f"{number[:5].rstrip('.')} {name}" if "." in number[:6] else f"{number.split('.')[0]} {name}"


def _shade(grid: Grid, row: str, size_: int) -> tuple[str, str]:
    value = grid.values.get((row, size_))
    if value is None:
        return " ", "$text-error" if grid.states.get((row, size_)) == "failed" else "$muted"
    if grid.best.get(size_) == row:
        return BEST, "bold $text-success"
    least = min(value_ for (_, at), value_ in grid.values.items() if at == size_)
    times = value / least if least > 0 else 1.0
    return next(mark for limit, mark in SHADES if times <= limit), ""


def _level(value: float, low: float, high: float) -> float:
    return log(value / low) / log(high / low) if high > low else 0.5


def grid_of(rows: Sequence[Mapping[str, object]], member: str, figure: str, best: Mapping[str, str], label: str) -> Grid:
    """Return a grid from the rows of a table of trials.

    Args:
        rows: trials.
        member: member of the case that is swept.
        figure: column shown: `median_us` or `peak_bytes`.
        best: variant to choose by text of the case.
        label: what the figure is called.
    """
    values = {(str(row["variant"]), int(str(row[member]))): float(str(row[figure])) for row in rows if row[figure] is not None}
    states = {
        (str(row["variant"]), int(str(row[member]))): WORDS.get(str(row["state"]), str(row["state"]).lower())
        for row in rows
        if row[figure] is None
    }
    return Grid(
        label=label,
        unit="bytes" if figure.endswith("_bytes") else "us",
        sizes=tuple(sorted({int(str(row[member])) for row in rows})),
        rows=tuple(dict.fromkeys(str(row["variant"]) for row in rows)),
        values=values,
        states=states,
        best={int(str(row[member])): best[str(row["case"])] for row in rows if str(row["case"]) in best},
    )
