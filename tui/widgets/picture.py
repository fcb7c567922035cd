"""Lines that a pure function draws for the width there is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from textual.content import Content
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
        """Show another drawing; None is blank."""
        self.drawing = drawing
        self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002
        """As many lines as the drawing has."""
        return len(self.drawing(width)) if self.drawing is not None else 0

    def render(self) -> Content:
        """Draw."""
        return Content("\n").join(self.drawing(self.size.width)) if self.drawing is not None else Content("")
