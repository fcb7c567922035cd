"""A table whose figures change several times a second: only the cells that differ are sent to the terminal."""

from __future__ import annotations

from dataclasses import replace
from textwrap import wrap
from typing import TYPE_CHECKING, Any, ClassVar

from rich.cells import set_cell_size
from rich.segment import Segment
from textual.geometry import Region
from textual.strip import Strip

from .frame_table import PAGE_ROWS, FrameTable

if TYPE_CHECKING:
    import polars as pl
    from rich.style import Style

    from ..render.columns import Look, Placed

STATUS_CELLS = 16
SMALL = 10.0
"""A column of ratios that are all below this is written with three decimals."""
STATUS = "status"
"""Column that is coloured by its first word."""
INTERVAL, INTERVAL_FROM = "interval", "low_us"
"""Column of texts that sorts by the figure it begins with."""
TONES = {
    "running": "good",
    "cold": "muted",
    "paused": "muted",
    "unavailable": "muted",
    "compiling": "busy",
    "throttled": "warn",
    "contended": "warn",
    "failed": "bad",
}
"""How each state is coloured."""


class LiveTable(FrameTable):
    """Rows that change in place; columns grow but never shrink, so that the figures stand still."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"livetable--{tone}" for tone in ("good", "busy", "warn", "bad")}

    def __init__(self, *, empty: str = "nothing here", id: str | None = None, classes: str | None = None) -> None:
        super().__init__(empty=empty, id=id, classes=classes)
        self._seen: tuple[Any, list[list[str]]] = (None, [])
        """Layout and cells as they were sent last."""

    def say_empty(self, text: str) -> None:
        """Say why there are no rows."""
        if text != self.empty:
            self.empty = text
            if not self.rows:
                self.refresh()

    def render_line(self, y: int) -> Strip:
        """Draw a line; why there are no rows is said before there is a frame, too."""
        if y and not self.rows:
            width = self.size.width
            lines = wrap(self.empty, max(10, width - 2))
            text = lines[y - 1] if y <= len(lines) else ""
            return Strip([Segment(set_cell_size(f" {text}", width), self.get_component_rich_style("frametable--muted"))])
        return super().render_line(y)

    def _look_at(self, frame: pl.DataFrame) -> dict[str, Look]:
        before, found = self._looks, {name: _readable(look, frame) for name, look in super()._look_at(frame).items()}
        return {
            name: replace(look, width=max(look.width, before[name].width))
            if name in before and (look.unit, look.decimals) == (before[name].unit, before[name].decimals)
            else look
            for name, look in found.items()
        }

    def _place(self) -> list[Placed]:
        """Give the state what room is left: its reason may be long, and figures matter more."""
        placed = super()._place()
        if placed and placed[-1].column.name == STATUS:
            last = placed[-1]
            placed[-1] = replace(last, width=max(last.width, self.size.width - last.left))
        return placed

    def _sort_values(self, frame: pl.DataFrame) -> pl.Series:
        return super()._sort_values(frame) if self.sort_column != INTERVAL else frame[INTERVAL_FROM]

    def _repaint(self) -> None:
        top, height = self.scroll_offset.y, self.size.height
        layout = (self.size, top, self.rows, self.sort_column, self.descending, tuple(self._placed))
        lines = [self._page(row // PAGE_ROWS)[row % PAGE_ROWS] for row in range(top, min(self.rows, top + height - 1))]
        before, old = self._seen
        self._seen = layout, lines
        if layout != before or len(lines) != len(old):
            self.refresh()
            return
        changed = [
            Region(placed.left, y, placed.width, 1)
            for y, pair in enumerate(zip(old, lines, strict=True), start=1)
            for placed, was, now in zip(self._placed, *pair, strict=True)
            if was != now
        ]
        if changed:
            self.refresh(*changed)

    def _segments(self, row: int, width: int, base: Style, mark: str) -> list[Segment]:
        segments = super()._segments(row, width, base, mark)
        texts = self._page(row // PAGE_ROWS)[row % PAGE_ROWS]
        at = next((at for at, placed in enumerate(self._placed) if placed.column.name == STATUS), None)
        if at is None or not segments:
            return segments
        text = texts[at]
        tone = TONES.get(text.split(":")[0].split(" ")[0].strip())
        if tone is None:
            return segments
        name = "frametable--muted" if tone == "muted" else f"livetable--{tone}"
        style = base + self.get_component_rich_style(name, partial=True)
        whole = "".join(segment.text for segment in segments)
        start = len(mark) + sum(map(len, texts[:at]))
        parts = [(whole[:start], base), (whole[start : start + len(text)], style), (whole[start + len(text) :], base)]
        return [Segment(part, own) for part, own in parts if part]


def _readable(look: Look, frame: pl.DataFrame) -> Look:
    """Cut the state to what it needs at least, and give small ratios the digits they live by."""
    column = look.column
    if column.name == STATUS:
        return replace(look, width=min(look.width, STATUS_CELLS))
    if column.unit != "ratio":
        return look
    largest = frame[column.name].max()
    small = isinstance(largest, float) and largest < SMALL
    return replace(look, decimals=3, width=max(look.width, len(look.header()), 5)) if small else look
