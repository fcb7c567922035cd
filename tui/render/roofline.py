"""A roofline in characters: FLOP rate over intensity, both scales logarithmic, under the limits of the device."""

from __future__ import annotations

from math import ceil, floor, log10
from typing import TYPE_CHECKING, Any

from textual.content import Content

from ..format import ABSENT, clean
from .sweep import LETTERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SLOPE, CEILING = "/", "─"
"""Marks of the two limits: memory bandwidth and FLOP rate."""
COLOURS = ("$accent", "$comm", "$compute", "$memory", "$warning", "$secondary")
NAMED = 12
"""Rows that the legend names at most."""
_SCALE = 9
"""Cells of the vertical scale."""


def chart(rows: Sequence[Mapping[str, Any]], width: int, height: int) -> list[Content]:
    """Draw rows of the roofline table as letters under the limits of their device, a legend below.

    Rows without FLOPs, bytes or time have no place and are not drawn; of several kinds of device the one with the most time is.

    Args:
        rows: intensity, tflops, peak_tflops, peak_gb_s, dtype, op, shape, device_name and device_us, the most important first.
        width: cells of a line.
        height: lines there are, axis and legend among them.
    """
    there = [row for row in rows if (row["intensity"] or 0) > 0 and (row["tflops"] or 0) > 0]
    if not there:
        return []
    device = there[0]["device_name"]
    points = [row for row in there if row["device_name"] == device][: len(LETTERS)]
    named = points[: min(NAMED, height // 3)] if height >= 8 else []
    roofs = _roofs(points)
    box = _Box(points, roofs, max(8, width - _SCALE - 3), max(4, height - 2 - len(named)))
    for limit in roofs:
        box.draw_roof(*limit)
    for at, row in reversed(list(enumerate(points))):
        box.put(row["intensity"], row["tflops"], LETTERS[at], f"bold {COLOURS[at % len(COLOURS)]}")
    lines = [*box.lines(), *(_named(at, row) for at, row in enumerate(named)), _limits(device, points, len(rows) - len(points))]
    return [line.truncate(width, ellipsis=True) for line in lines]


def _roofs(points: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """Return the different limits: FLOP rate and bandwidth."""
    found = {(row["peak_tflops"], row["peak_gb_s"]) for row in points}
    return sorted((tflops, gb_s) for tflops, gb_s in found if tflops and gb_s)


class _Box:
    """The field that is drawn on."""

    def __init__(self, points: Sequence[Mapping[str, Any]], roofs: Sequence[tuple[float, float]], room: int, rows: int) -> None:
        self.room, self.rows = room, rows
        self.x = _ends([*(row["intensity"] for row in points), *(1e3 * tflops / gb_s for tflops, gb_s in roofs)])
        self.y = _ends([*(row["tflops"] for row in points), *(tflops for tflops, _ in roofs)])
        self.cells = [[(" ", "")] * room for _ in range(rows)]

    def put(self, intensity: float, tflops: float, mark: str, style: str) -> None:
        """Draw a mark; what falls outside the field is left out."""
        column, row = _place(intensity, self.x, self.room), _place(tflops, self.y, self.rows)
        if 0 <= column < self.room and 0 <= row < self.rows:
            self.cells[self.rows - 1 - row][column] = (mark, style)

    def draw_roof(self, tflops: float, gb_s: float) -> None:
        """Draw the limits: bandwidth up to the FLOP rate."""
        low, high = self.x
        for column in range(self.room):
            intensity = 10 ** (low + (high - low) * column / max(1, self.room - 1))
            reached = intensity * gb_s / 1e3
            self.put(intensity, min(tflops, reached), SLOPE if reached < tflops else CEILING, "$muted")

    def lines(self) -> list[Content]:
        """Return the field with its two scales."""
        ends = {0: f"{10 ** self.y[1]:.3g}", self.rows - 1: f"{10 ** self.y[0]:.3g}"}
        ends[1] = "TFLOP/s"
        made = [Content.assemble((f" {ends.get(at, ''):>{_SCALE}}│", "$muted"), *line) for at, line in enumerate(self.cells)]
        first, last = f"{10 ** self.x[0]:.3g}", f"{10 ** self.x[1]:.3g} FLOP per byte"
        return [*made, Content.styled(f" {'':{_SCALE}} {first}{last:>{max(0, self.room - len(first))}}", "$muted")]


def _place(value: float, ends: tuple[float, float], cells: int) -> int:
    return round((log10(value) - ends[0]) / (ends[1] - ends[0]) * (cells - 1))


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """Return the decades between which values lie."""
    low, high = floor(log10(min(values))), ceil(log10(max(values)))
    return low, max(high, low + 1)


def _named(at: int, row: Mapping[str, Any]) -> Content:
    share = ABSENT if row["compute_pct"] is None else f"{row['compute_pct']:.1f} % of FLOP peak"
    band = ABSENT if row["bandwidth_pct"] is None else f"{row['bandwidth_pct']:.1f} % of bandwidth"
    text = f" {clean(row['op'], 30)} {clean(row['shape'] or '', 40)}  {row['tflops']:,.3g} TF/s, {share}, {band}"
    return Content.assemble((f" {LETTERS[at]}", f"bold {COLOURS[at % len(COLOURS)]}"), text)


def _limits(device: str | None, points: Sequence[Mapping[str, Any]], left_out: int) -> Content:
    """Say which limits are drawn, and how much is not."""
    roofs = _roofs(points)
    told = ", ".join(f"{tflops:,.4g} TFLOP/s" for tflops, _ in roofs)
    limits = f"limits {told}, {roofs[0][1]:,.0f} GB/s" if roofs else "its limits are not known"
    rest = f"; {left_out:,} rows without a place" if left_out else ""
    return Content.styled(f" {clean(device or 'device not named', 40)}: {limits}{rest}", "$muted")
