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
        kind: the widget that shows a table.
    """

    DEFAULT_CSS = "Tables { height: 1fr; #tables-line { height: 1; } }"

    current: reactive[str] = reactive("", init=False)
    """Name of the table shown."""
    note: reactive[str] = reactive("")
    """Text at the end of the line."""
    keyed: reactive[tuple[str, str]] = reactive(("", ""))
    """A key, and what it changes."""

    def __init__(self, empty: Mapping[str, str], *, kind: type[FrameTable] = FrameTable, id: str | None = None) -> None:
        super().__init__(id=id)
        self.empty = dict(empty)
        self.offered = list(self.empty)
        """Names of the tables one can go to."""
        self._kind = kind
        self._rows: dict[str, int] = {}

    def compose(self) -> ComposeResult:
        """Make line and tables."""
        yield Static(id="tables-line")
        for name, text in self.empty.items():
            yield self._kind(id=name, empty=text)

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

    def offer(self, rows: Mapping[str, int]) -> None:
        """Leave only these tables to go to, and say how many rows each has.

        Where the table shown is not among them, the first one takes its place.
        """
        held = self.table(self.current).has_focus
        self.offered, self._rows = list(rows), dict(rows)
        if self.offered and self.current not in self.offered:
            self.current = self.offered[0]
            if held:
                self.table(self.current).focus()
        self._draw_line()

    def next(self) -> None:
        """Show the next table."""
        at = self.offered.index(self.current)
        self.go(self.offered[(at + 1) % len(self.offered)])

    def watch_current(self) -> None:
        """Show one table, hide the others."""
        for name in self.empty:
            self.table(name).display = name == self.current
        self._draw_line()

    def watch_keyed(self) -> None:
        """Draw the line anew."""
        self.watch_note()

    def watch_note(self) -> None:
        """Draw the line anew."""
        if self.is_mounted:
            self._draw_line()

    def _draw_line(self) -> None:
        line = Content("")
        for name in self.offered:
            style = "bold $accent underline" if name == self.current else "$muted"
            count = f" {self._rows[name]:,}" if name in self._rows else ""
            line = line.append(Content.assemble(" ", (name, style), (f"{count} ", "$muted")))
        if len(self.offered) > 1:
            line = line.append(Content.assemble("  ", ("t", "bold"), (" next", "$muted")))
        key, text = self.keyed
        if text:
            line = line.append(Content.assemble("   ", (key, "bold"), f" {text}"))
        line = line.append(f"   {self.note}")
        self.query_one("#tables-line", Static).update(line)
