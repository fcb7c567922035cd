"""Bars and sparklines as text: numbers in, characters out. `--ascii` turns them into plain letters on the way to the screen."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from textual.content import Content

if TYPE_CHECKING:
    from collections.abc import Sequence

SPARKS = "▁▂▃▄▅▆▇"
"""Never the full block: lines one below the other stay apart."""
EIGHTHS = " ▏▎▍▌▋▊▉"
FILLS = {"compute": "█", "comm": "▓", "memory": "▒", "idle": "·"}
"""Fill of each class: told apart without colour as well."""


def meter(share: float, width: int) -> str:
    """Return a bar of `width` cells filled to `share` (0 to 1)."""
    eighths = round(min(1.0, max(0.0, share)) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (EIGHTHS[rest] if rest else "")).ljust(width)


def sparkline(values: Sequence[float | None], width: int, *, low: float | None = None, high: float | None = None) -> str:
    """Return values as a line of `width` cells; each cell shows the mean of its values, a blank where there is none.

    Args:
        values: in order; None and NaN are gaps.
        width: cells.
        low: value of the lowest mark; the smallest of the cells when None.
        high: value of the highest mark; the largest of the cells when None.
    """
    cells = squeeze(values, width)
    known = [value for value in cells if value is not None]
    if not known:
        return " " * width
    bottom = min(known) if low is None else low
    span = (max(known) if high is None else high) - bottom
    return "".join(" " if value is None else _spark((value - bottom) / span if span > 0 else 0.5) for value in cells).ljust(width)


def squeeze(values: Sequence[float | None], width: int) -> list[float | None]:
    """Return at most `width` values: neighbours are averaged, gaps left out."""
    count = len(values)
    if width <= 0 or count == 0:
        return []
    if count <= width:
        return [value if value is not None and isfinite(value) else None for value in values]
    cells: list[float | None] = []
    for at in range(width):
        part = [v for v in values[at * count // width : (at + 1) * count // width] if v is not None and isfinite(v)]
        cells.append(sum(part) / len(part) if part else None)
    return cells


def histogram(counts: Sequence[int], width: int) -> str:
    """Return counts of equal bins as columns; an empty bin is blank and a rare one still shows."""
    cells = [int(value) for value in counts] if len(counts) <= width else _pool(counts, width)
    top = max(cells, default=0)
    return "".join(" " if not count else _spark(count / top) for count in cells).ljust(width)


def stacked(shares: Sequence[tuple[str, float]], width: int) -> Content:
    """Return one bar of `width` cells made of the classes' shares (percent), in their fills and colours.

    A class with a share above zero keeps a cell, so that nothing small is hidden.
    """
    cells = apportion([share for _, share in shares], width)
    return Content.assemble(*((FILLS[name] * count, f"${name}") for (name, _), count in zip(shares, cells, strict=True) if count))


def apportion(shares: Sequence[float], width: int) -> list[int]:
    """Return whole cells for shares, `width` in all (largest remainders), at least one for each share above zero."""
    total = sum(max(0.0, share) for share in shares)
    if total <= 0 or width <= 0:
        return [0] * len(shares)
    exact = [max(0.0, share) / total * width for share in shares]
    cells = [max(1, int(value)) if share > 0 else 0 for value, share in zip(exact, shares, strict=True)]
    order = sorted(range(len(shares)), key=lambda at: exact[at] - int(exact[at]), reverse=True)
    while (missing := width - sum(cells)) > 0:
        for at in [at for at in order if exact[at] > 0][:missing]:
            cells[at] += 1
    while sum(cells) > width and max(cells) > 1:
        cells[max(range(len(cells)), key=cells.__getitem__)] -= 1
    return cells


def _spark(share: float) -> str:
    return SPARKS[min(len(SPARKS) - 1, max(0, int(share * len(SPARKS))))]


def _pool(counts: Sequence[int], width: int) -> list[int]:
    size = len(counts)
    return [sum(counts[at * size // width : (at + 1) * size // width]) for at in range(width)]
