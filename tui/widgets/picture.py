"""Lines that a pure function draws for the width there is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from textual.content import Content
from textual.geometry import Region
from textual.widget import Widget

if TYPE_CHECKING:
    from textual.geometry import Size

Drawing = Callable[[int], Sequence[Content]]
"""Width in cells to lines."""


class Picture(Widget):
    """Shows what a function of `tui.render` draws; it draws again when the width changes."""

    DEFAULT_CSS = "Picture { height: auto; }"

    def __init__(self, drawing: Drawing | None = None, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.drawing = drawing

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
        if changed := [Region(0, y, width, 1) for y, (old, new) in enumerate(pairs) if not new.is_same(old)]:
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
        return self.drawing(width) if self.drawing is not None else ()
