"""Figures over time: a line of marks each, or an area under a curve."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual.content import Content

from ..format import cell, clean, duration
from .bars import SPARKS, sparkline, squeeze
from .columns import UNIT_TEXT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinetop.analysis.question import Unit

AREA, ABOVE = "█", "░"
"""Below the curve, and between it and the one above it."""
LABEL_CELLS = 28


@dataclass(frozen=True)
class Curve:
    """A figure by equal buckets of time."""

    label: str
    unit: Unit
    values: tuple[float | None, ...]
    style: str = "$accent"
    top: float | None = None
    """Highest value of the scale; the highest of the values where None."""
    above: tuple[float | None, ...] = ()
    """A second curve, above the first, of an area."""


def lines(curves: Sequence[Curve], start_us: float, end_us: float, width: int, height: int) -> list[Content]:
    """Draw each curve as a line of marks from 0 to its highest value, times below.

    Args:
        curves: in order.
        start_us: when the first bucket begins.
        end_us: when the last one ends.
        width: cells of a line.
        height: lines there are; curves that do not fit are counted.
    """
    shown = curves if len(curves) < height else curves[: max(1, height - 2)]
    labels = min(LABEL_CELLS, max((cell_len(curve.label) for curve in shown), default=0))
    tops = {curve: _written(_top(curve), curve.unit) for curve in shown}
    right = max((len(text) for text in tops.values()), default=0)
    room = max(8, width - labels - right - 9)
    drawn = []
    for curve in shown:
        name = clean(curve.label, labels)
        cells = [value or None for value in squeeze(curve.values, room)]  # a blank, not the lowest mark, where there is nothing
        marks = sparkline(cells, room, low=0, high=_top(curve) or 1)
        drawn.append(
            Content.assemble(
                (f" {name}{' ' * (labels - cell_len(name))} ", "$muted"),
                (marks, curve.style),
                (f" 0 to {tops[curve]:>{right}}", ""),
            )
        )
    if len(shown) < len(curves):
        drawn.append(Content.styled(f" {'':{labels}} and {len(curves) - len(shown):,} more", "$muted"))
    return [line.truncate(width) for line in (*drawn, _axis(labels, start_us, end_us, room))] if drawn else []


def area(curve: Curve, start_us: float, end_us: float, width: int, height: int) -> list[Content]:
    """Draw a curve as an area, a second one above it, with a scale and times.

    Args:
        curve: what is drawn.
        start_us: when the first bucket begins.
        end_us: when the last one ends.
        width: cells of a line.
        height: lines there are.
    """
    top = _top(curve)
    if not top:
        return []
    rows, written = max(2, height - 2), _written(top, curve.unit)
    room = max(8, width - len(written) - 3)
    below, above = _stretched(curve.values, room), _stretched(curve.above, room) if curve.above else [None] * room
    drawn = [Content.assemble((f" {curve.label}", "bold"))]
    for y in range(rows):
        level = rows - 1 - y
        cells = [_mark(low, high, level, rows, top, curve.style) for low, high in zip(below, above, strict=True)]
        label = written if y == 0 else "0" if level == 0 else ""
        drawn.append(Content.assemble((f" {label:>{len(written)}} ", "$muted"), *cells))
    return [*drawn, _axis(len(written), start_us, end_us, room)]


def _mark(low: float | None, high: float | None, level: int, rows: int, top: float, style: str) -> tuple[str, str]:
    """Return the mark of a cell: full, partly full, between the curves, or blank."""
    share = 0.0 if low is None else low / top * rows - level
    if share >= 1:
        return AREA, style
    if share > 0:
        return SPARKS[min(len(SPARKS) - 1, int(share * len(SPARKS)))], style
    return (ABOVE, "$muted") if high is not None and high / top * rows - level >= 0.5 else (" ", "")


def _stretched(values: Sequence[float | None], width: int) -> list[float | None]:
    """Return `width` values: neighbours pooled where there are more, repeated where there are fewer."""
    cells = squeeze(values, width)
    return [cells[at * len(cells) // width] for at in range(width)] if cells else [None] * width


def _top(curve: Curve) -> float:
    if curve.top is not None:
        return curve.top
    return max((value for value in (*curve.values, *curve.above) if value is not None and isfinite(value)), default=0.0)


def _written(value: float, unit: Unit) -> str:
    return f"{cell(value, unit)} {UNIT_TEXT.get(unit, '')}".rstrip()


def _axis(left: int, start_us: float, end_us: float, room: int) -> Content:
    start, end = duration(start_us), duration(end_us)
    text = f"{start}{end:>{room - len(start)}}" if len(start) + len(end) < room else clean(start, room)
    return Content.styled(f" {'':{left}} {text}", "$muted")
