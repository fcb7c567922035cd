"""Lines that a pure function draws for the width there is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from operator import eq
from typing import TYPE_CHECKING

from textual.content import Content
from textual.geometry import Region
from textual.widget import Widget

if TYPE_CHECKING:
    from textual.geometry import Size

Drawing = Callable[[int], Sequence[Content]]
"""Width in cells to lines."""


class Picture(Widget):
    """Shows what a function of `tui.render` draws; it draws again when the width changes.

    Args:
        drawing: what to draw first.
        steady: never shrink. A pane that follows the cursor would else move the table above it, and write the whole screen.
    """

    DEFAULT_CSS = "Picture { height: auto; }"

    def __init__(
        self,
        drawing: Drawing | None = None,
        *,
        id: str | None = None,
        classes: str | None = None,
        steady: bool = False,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self.drawing = drawing
        self.steady = steady
        self._most: dict[int, int] = {}
        """Lines that a steady picture had, by width."""

    def show(self, drawing: Drawing | None) -> None:
        """Show another drawing; None is blank. Only lines that changed are sent to the terminal."""
        width, height = self.size
        before, self.drawing = self._lines(width), drawing
        if not self.display:
            return
        lines = self._lines(width)
        if len(lines) != height or len(lines) != len(before):
            self.refresh(layout=True)
            return
        pairs = zip(before, lines, strict=True)
        if changed := [_changed(old, new, y, width) for y, (old, new) in enumerate(pairs) if not new.is_same(old)]:
            self.refresh(*changed)

    def show_if_seen(self, drawing: Drawing) -> None:
        """Show another drawing, at no cost while something above is hidden: it is drawn when that comes into view."""
        if all(node.display for node in self.ancestors_with_self if isinstance(node, Widget)):
            self.show(drawing)
        else:
            self.drawing = drawing

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002
        """As many lines as the drawing has."""
        return len(self._lines(width))

    def render(self) -> Content:
        """Draw."""
        return Content("\n").join(self._lines(self.size.width))

    def _lines(self, width: int) -> Sequence[Content]:
        lines = self.drawing(width) if self.drawing is not None else ()
        if not self.steady:
            return lines
        most = self._most[width] = max(len(lines), self._most.get(width, 0))
        return [*lines, *(Content("") for _ in range(most - len(lines)))]


def _changed(old: Content, new: Content, y: int, width: int) -> Region:
    """Return where a line differs from the one before: what both begin and end with is on the screen already."""
    before, after = _marks(old), _marks(new)
    start = _alike(before, after)
    end = 0
    if old.cell_length == new.cell_length:
        end = min(_alike(before[::-1], after[::-1]), len(after) - start)
    left, right = new[:start].cell_length, new[len(after) - end :].cell_length if end else 0
    longest = max(old.cell_length, new.cell_length)
    return Region(left, y, max(1, min(width, longest) - left - right), 1)


def _alike(one: Sequence[object], other: Sequence[object]) -> int:
    """Return how many items both begin with."""
    return sum(takewhile(bool, map(eq, one, other)))


def _marks(line: Content) -> list[tuple[str, tuple[str, ...]]]:
    """Return each character with its styles."""
    styles: list[tuple[str, ...]] = [()] * len(line.plain)
    for span in line.spans:
        for at in range(span.start, min(span.end, len(styles))):
            styles[at] = (*styles[at], str(span.style))
    return list(zip(line.plain, styles, strict=True))
