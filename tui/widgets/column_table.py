"""A table in which a column has a cursor too, so that its meaning can be told and its texts read in full."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from rich.style import Style
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.reactive import reactive

from ..render.columns import Look, Placed, place
from .frame_table import FrameTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from kinetop.analysis.question import Column

INDENT_CELLS = 2
"""Cells by which each level of a tree moves to the right."""


class ColumnTable(FrameTable, inherit_bindings=False):
    """A `FrameTable` with a column cursor, moved with left and right; `g` is left to the view.

    Rows with a depth are drawn as a tree while they stand in the order in which they came.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("home", "edge(-1)", "first row", id="table.first", show=False) if binding.id == "table.first" else binding
        for binding in FrameTable.BINDINGS
        if isinstance(binding, Binding)
    ]

    column: reactive[str] = reactive("", init=False, repaint=False)
    """Name of the column that the column cursor is on."""

    class ColumnMoved(Message):
        """The column cursor is on another column."""

        def __init__(self, table: ColumnTable) -> None:
            super().__init__()
            self.table = table

        @property
        def control(self) -> ColumnTable:
            """The table."""
            return self.table

    def show(self, frame: pl.DataFrame, columns: Sequence[Column], *, sort: str = "", descending: bool = True) -> None:
        """Show another frame; the column cursor stays where that column is still there."""
        super().show(frame, columns, sort=sort, descending=descending)
        names = [column.name for column in self.columns]
        if self.column not in names:
            self._skip = 0
            self.column = sort if sort in names else names[0] if names else ""

    @property
    def declared(self) -> Column | None:
        """The column under the column cursor."""
        return next((column for column in self.columns if column.name == self.column), None)

    def watch_column(self) -> None:
        """Bring the column into view and tell the view."""
        names = [column.name for column in self.columns]
        if self.column in names:
            if self.column not in {placed.column.name for placed in self._placed}:
                self._skip = max(0, names.index(self.column) - 1)
            self._lay_out()
            self.post_message(self.ColumnMoved(self))

    def action_column(self, step: int) -> None:
        """Move the column cursor; columns that the screen has no room for come into view."""
        names = [column.name for column in self.columns]
        if self.column in names:
            at = min(max(0, names.index(self.column) + step), len(names) - 1)
            if at <= self._skip:
                self._skip = max(0, at - 1)
            self.column = names[at]

    def action_sort(self, step: int) -> None:
        """Sort by the column under the cursor, once more by the next one."""
        if self.column != self.sort_column and self.declared is not None:
            self._sort_first(self.column)
        else:
            super().action_sort(step)
            self.column = self.sort_column

    def _place(self) -> list[Placed]:
        """Lay the columns out; the one under the cursor does not leave."""
        columns = [replace(column, priority=0) if column.name == self.column else column for column in self.columns]
        return place(columns, self._looks, self.size.width - 1, skip=self._skip, left=1, marked=self.sort_column)

    def _header_style(self, placed: Placed, style: Style) -> Style:
        return style + Style(underline=True, bold=True) if placed.column.name == self.column else style

    def _look_at(self, frame: pl.DataFrame) -> dict[str, Look]:
        found = super()._look_at(frame)
        if self._tree and frame.height:
            deepest = frame["depth"].max()
            more = INDENT_CELLS * int(deepest) if isinstance(deepest, int) else 0
            found["name"] = replace(found["name"], width=found["name"].width + more)
        return found

    def _texts(self, placed: Placed, rows: pl.DataFrame) -> list[str]:
        texts = super()._texts(placed, rows)
        if placed.column.name != "name" or not self._tree or self._order is not None:
            return texts
        return [" " * INDENT_CELLS * (depth or 0) + text for depth, text in zip(rows["depth"].to_list(), texts, strict=True)]

    @property
    def _tree(self) -> bool:
        return self.frame is not None and {"depth", "name"} <= set(self.frame.columns)

    def texts_in_full(self, row: dict[str, Any] | None) -> list[tuple[Column, str]]:
        """Return the texts of a row that its cells do not show in full.

        Args:
            row: a row of the frame.
        """
        if row is None:
            return []
        shown = {placed.column.name: placed for placed in self._placed}
        cut = []
        for column in self.columns:
            value = row.get(column.name)
            if not isinstance(value, str) or not value:
                continue
            placed = shown.get(column.name)
            if placed is None or "…" in placed.fit(placed.look.text(value)):
                cut.append((column, value))
        return cut
