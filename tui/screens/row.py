"""A page with everything a row holds, its texts in full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual.content import Content
from textual.widgets import Static

from ..format import ABSENT, cell, clean
from ..render.columns import UNIT_TEXT
from .help import Page

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from textual.app import ComposeResult

    from kinetop.analysis.question import Column

LABEL_CELLS = 24
TEXT_CELLS = 6_000


class RowScreen(Page):
    """Every column of a row: its value, and what it means.

    Args:
        title: of which table the row is.
        row: its values by column.
        columns: the table's columns.
    """

    DEFAULT_CSS = "RowScreen Static { height: auto; } RowScreen .meaning { padding-left: 2; color: $muted; }"

    def __init__(self, title: str, row: Mapping[str, Any], columns: Sequence[Column]) -> None:
        super().__init__(title)
        self.row = row
        self.columns = columns

    def contents(self) -> ComposeResult:
        """List the columns; those without a value stand last, in one line."""
        known = [column for column in self.columns if cell(self.row[column.name], column.unit) != ABSENT]
        for column in known:
            yield Static(_line(column, self.row[column.name]))
            yield Static(Content(column.about), classes="meaning")
        if absent := [column.name for column in self.columns if column not in known]:
            yield Static(Content(f"without a value: {', '.join(absent)}"), classes="meaning")


def _line(column: Column, value: Any) -> Content:
    unit = UNIT_TEXT.get(column.unit, "")
    written = clean(value, TEXT_CELLS) if isinstance(value, str) else f"{cell(value, column.unit)} {unit}".rstrip()
    return Content.assemble((f"{column.name:{LABEL_CELLS}} ", "bold"), written)
