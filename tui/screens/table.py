"""The view of a question that has no screen of its own: its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.containers import Vertical
from textual.widgets import Label

from ..widgets.frame_table import FrameTable
from .base import ViewScreen

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from kinetop.analysis.question import Result


class QuestionScreen(ViewScreen):
    """Every table of a declared question, one below the other."""

    def __init__(self, name: str, *, where: str | None = None) -> None:
        super().__init__(where=where)
        self.view_name = name

    def body(self) -> ComposeResult:
        """Make a table for each of the question's."""
        from kinetop.analysis.question import all_questions

        question = all_questions()[self.view_name]
        self.help_text = question.about
        for at, table in enumerate(question.tables):
            with Vertical(classes="panel"):
                if at or table.about:
                    yield Label(table.about or table.name, markup=False, classes="caption")
                yield FrameTable(id=table.name, **({"empty": table.none} if table.none else {}))

    def fetch(self) -> Result:
        """Ask it."""
        return self.question(self.view_name)

    def show(self, answer: Result) -> None:
        """Fill the tables."""
        for table in answer.question.tables:
            shown = self.query_one(f"#{table.name}", FrameTable)
            if (frame := answer.tables.get(table.name)) is not None:
                shown.show(frame, table.columns, sort=table.sort)
            if shown.parent is not None:
                shown.parent.display = frame is not None  # a table that only another option makes
        self.say_rows(answer)
