"""Several tables in one place: one is shown, a line above names them all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.containers import Vertical
from textual.content import Content
from textual.reactive import reactive
from textual.widgets import Static

from .frame_table import FrameTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from textual.app import ComposeResult


class Tables(Vertical):
    """Tables by name, of which one is shown.

    Args:
        empty: for each table, in order, what it says when it has no rows.
    """

    DEFAULT_CSS = "Tables { height: 1fr; #tables-line { height: 1; } }"

    current: reactive[str] = reactive("", init=False)
    """Name of the table shown."""
    note: reactive[str] = reactive("")
    """Text at the end of the line."""

    def __init__(self, empty: Mapping[str, str], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.empty = dict(empty)

    def compose(self) -> ComposeResult:
        """Make line and tables."""
        yield Static(id="tables-line")
        for name, text in self.empty.items():
            yield FrameTable(id=name, empty=text)

    def on_mount(self) -> None:
        """Show the first table."""
        self.current = next(iter(self.empty))

    def table(self, name: str) -> FrameTable:
        """Return a table by its name."""
        return self.query_one(f"#{name}", FrameTable)

    def go(self, name: str) -> None:
        """Show a table and give it the keys."""
        self.current = name
        self.table(name).focus()

    def next(self) -> None:
        """Show the next table."""
        names = list(self.empty)
        self.go(names[(names.index(self.current) + 1) % len(names)])

    def watch_current(self) -> None:
        """Show one table, hide the others."""
        for name in self.empty:
            self.table(name).display = name == self.current
        self._draw_line()

    def watch_note(self) -> None:
        """Draw the line anew."""
        if self.is_mounted:
            self._draw_line()

    def _draw_line(self) -> None:
        line = Content("")
        for name in self.empty:
            style = "bold $accent underline" if name == self.current else "$muted"
            line = line.append(Content.assemble(" ", (name, style), " "))
        line = line.append(Content.assemble("  ", ("t", "bold"), (" next", "$muted"), f"   {self.note}"))
        self.query_one("#tables-line", Static).update(line)
