"""Points in a field of characters, both scales logarithmic."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log10
from typing import TYPE_CHECKING

from textual.content import Content

from ..format import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
COLOURS = ("$accent", "$comm", "$compute", "$memory", "$warning", "$secondary")


@dataclass(frozen=True)
class Cloud:
    """Points of one kind, drawn with the same letter."""

    label: str
    points: tuple[tuple[float, float], ...]
    """Both above zero."""


def field(
    clouds: Sequence[Cloud],
    width: int,
    height: int,
    *,
    x_text: Callable[[float], str],
    y_text: Callable[[float], str],
    about: str,
) -> list[Content]:
    """Draw points; where several fall on a cell, the first kind is seen.

    Args:
        clouds: kinds of points, the most important first.
        width: cells of a line.
        height: lines there are, axis and legend among them.
        x_text: writes a value of the horizontal scale.
        y_text: writes a value of the vertical scale.
        about: what the scales are.
    """
    points = [point for cloud in clouds for point in cloud.points]
    if not points:
        return []
    low_y, high_y = _ends([y for _, y in points])
    low_x, high_x = _ends([x for x, _ in points])
    rows, scale = max(3, height - 2), [y_text(10**high_y), y_text(10**low_y)]
    left = max(map(len, scale))
    room = max(8, width - left - 4)
    cells: list[list[tuple[str, str]]] = [[(" ", "")] * room for _ in range(rows)]
    for at, cloud in reversed(list(enumerate(clouds))):
        for x, y in cloud.points:
            column = round((log10(x) - low_x) / (high_x - low_x) * (room - 1))
            row = round((log10(y) - low_y) / (high_y - low_y) * (rows - 1))
            cells[rows - 1 - row][column] = (LETTERS[at % len(LETTERS)], f"bold {COLOURS[at % len(COLOURS)]}")
    lines = []
    for y, line in enumerate(cells):
        label = scale[0] if y == 0 else scale[1] if y == rows - 1 else ""
        lines.append(Content.assemble((f" {label:>{left}} │", "$muted"), *line))
    first, last = x_text(10**low_x), x_text(10**high_x)
    axis = f"{first}{clean(about, max(1, room - len(first) - len(last) - 2)):^{max(1, room - len(first) - len(last))}}{last}"
    return [*lines, Content.styled(f" {'':{left}}  {axis}", "$muted"), legend(clouds, width)]


def legend(clouds: Sequence[Cloud], width: int) -> Content:
    """Return which letter stands for what.

    Args:
        clouds: kinds of points.
        width: cells of the line.
    """
    parts = []
    for at, cloud in enumerate(clouds):
        parts += [(f" {LETTERS[at % len(LETTERS)]}", f"bold {COLOURS[at % len(COLOURS)]}"), (f" {clean(cloud.label, 40)} ", "")]
    return Content.assemble(*parts).truncate(width, ellipsis=True)


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """Return the exponents between which values lie: whole decades where they span several."""
    low, high = log10(min(values)), log10(max(values))
    if high - low > 1:
        return floor(low), ceil(high)
    return (low - 0.1, high + 0.1) if high - low < 0.2 else (low, high)
