"""A place for one of several panes: a table, or a page of text; a line above names them all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from .live_table import LiveTable
from .picture import Drawing, Picture

if TYPE_CHECKING:
    from textual.app import ComposeResult


class Page(VerticalScroll, can_focus=True):
    """Text that scrolls with the arrows."""


class Panes(Vertical):
    """Panes by name: the first is a table, the others are pages.

    Args:
        table: name of the table.
        pages: names of the pages.
    """

    DEFAULT_CSS = """
    Panes { height: 1fr; min-height: 3; #panes-line { height: 1; } Page { height: 1fr; scrollbar-size: 1 1; } }
    """

    def __init__(self, table: str, *pages: str) -> None:
        super().__init__()
        self.names = (table, *pages)
        self.current = table
        self._counts: dict[str, int] = {}

    def compose(self) -> ComposeResult:
        """Make line, table and pages."""
        yield Static(id="panes-line")
        yield LiveTable(empty="no window of it was profiled yet", id=self.names[0])
        for name in self.names[1:]:
            with Page(id=f"{name}-page"):
                yield Picture(id=name)

    def on_mount(self) -> None:
        """Show the first pane."""
        self._switch()

    def table(self, name: str) -> LiveTable:
        """Return the table."""
        return self.query_one(f"#{name}", LiveTable)

    def page(self, name: str, drawing: Drawing) -> None:
        """Put text into a page."""
        self.query_one(f"#{name}", Picture).show_if_seen(drawing)

    def count(self, name: str, count: int) -> None:
        """Say behind a name how many there are."""
        if self._counts.get(name, 0) != count:
            self._counts[name] = count
            self._draw_line()

    def go(self, name: str) -> None:
        """Show a pane and give it the keys."""
        self.current = name
        self._switch()
        self._holder(name).focus()

    def next(self) -> None:
        """Show the next pane; the keys stay where they are unless they were in the one that goes."""
        inside = self.screen.focused is not None and self in self.screen.focused.ancestors
        self.current = self.names[(self.names.index(self.current) + 1) % len(self.names)]
        self._switch()
        if inside:
            self._holder(self.current).focus()

    def _holder(self, name: str) -> LiveTable | Page:
        return self.table(name) if name == self.names[0] else self.query_one(f"#{name}-page", Page)

    def _switch(self) -> None:
        for name in self.names:
            self._holder(name).display = name == self.current
        self._draw_line()

    def _draw_line(self) -> None:
        line = Content("")
        for name in self.names:
            style = "bold $accent underline" if name == self.current else "$muted"
            text = f"{name} {self._counts[name]}" if self._counts.get(name) else name
            line = line.append(Content.assemble(" ", (text, style), " "))
        self.query_one("#panes-line", Static).update(line.append(Content.assemble("  ", ("t", "bold"), (" next", "$muted"))))
