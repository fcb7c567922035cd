"""The view of a question that has no screen of its own: its tables one at a time, its options, a picture where there is one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual.binding import Binding, BindingType

from .. import parameters
from ..devices import without_place
from ..drill import KERNELS, target
from ..pictures import Sized, picture
from ..render import told
from ..widgets.column_table import ColumnTable
from ..widgets.picture import Picture
from ..widgets.tables import Tables
from .base import MAIN, ViewScreen
from .pick import PickScreen

if TYPE_CHECKING:
    import polars as pl
    from textual import events
    from textual.app import ComposeResult
    from textual.timer import Timer

    from kinetop.analysis.question import Column, Parameter, Question, Result, Table

    from ..widgets.frame_table import FrameTable

REST_S = 0.12
"""The lines below the table follow when the cursor has rested this long."""
PICTURE_ROWS = 28
"""A lower screen shows no picture."""
PICTURE_SHARE = 0.35
"""Share of the screen's lines that a picture may take."""
TOLD_LINES, TOLD_LINES_TALL, TOLD_LINES_PROSE = 2, 4, 3
EMPTY = "no rows here"
LEAVES_FIRST = 4
"""Priority of a column without a single value."""


@dataclass(frozen=True)
class Answer:
    """What the view shows."""

    result: Result
    own: dict[str, Any]
    """The question's own options that it was asked with."""
    picture: Sized | None


class QuestionScreen(ViewScreen):
    """One table of a declared question at a time."""

    DEFAULT_CSS = "QuestionScreen #told { height: auto; background: $surface; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("g", "options", "options", id="question.options", show=False, tooltip="Choose the options of the question"),
        Binding("t", "table", "next table", id="question.table", show=False, tooltip="Show the next table"),
        Binding(
            "d", "row", "row", id="question.row", tooltip="Read the row under the cursor in full, with what its columns mean"
        ),
        Binding("c", "picture", "picture", id="question.picture", show=False, tooltip="Show or hide the picture"),
    ]

    def __init__(self, name: str, *, where: str | None = None) -> None:
        super().__init__(where=where)
        self.view_name = name
        self.answer: Answer | None = None
        self.pictured = True
        """Whether the picture is wanted."""
        self._rest: Timer | None = None

    @property
    def asked(self) -> Question:
        """The question."""
        from kinetop.analysis.question import all_questions

        return all_questions()[self.view_name]

    def body(self) -> ComposeResult:
        """Make picture, tables and the lines below."""
        question = self.asked
        self.help_text = help_text(question)
        yield Picture(id="picture")
        yield Tables({table.name: table.none or EMPTY for table in question.tables}, kind=ColumnTable)
        yield Picture(id="told")

    def fetch(self) -> Answer:
        """Ask the question, and prepare its picture."""
        own = dict(self.own)
        result = self.question(self.view_name, **own)
        return Answer(result, own, picture(result))

    def show(self, answer: Answer) -> None:
        """Fill the tables."""
        tables, result = self.query_one(Tables), answer.result
        before = tables.offered if self.answer is not None else None
        self.answer = answer
        found = {table.name: table for table in result.question.tables if table.name in result.tables}
        for name, table in found.items():
            frame, shown = result.tables[name], tables.table(name)
            shown.empty = self._why_empty(table, result)
            shown.show(frame, ordered(without_place(table.columns, frame), frame), sort=table.sort)
        tables.offer({name: tables.table(name).rows for name in found})
        if before is not None and (new := [name for name in found if name not in before]):
            tables.go(new[0])  # an option was chosen that makes it
        tables.keyed = ("g", parameters.line(result.question.parameters, answer.own))
        self._draw_picture()
        self.say_rows(result)
        self.refresh_bindings()

    def failed(self, slot: str, error: Exception) -> None:
        """Take an option back that the question refuses, and say why; the view stays as it was."""
        from kinetop.traces.errors import FilterError

        last = self.answer.own if self.answer is not None else {}
        if slot == MAIN and self.own != last and isinstance(error, (FilterError, ValueError)):
            self.own = dict(last)
            self.notify(str(error), severity="error", markup=False)
        else:
            super().failed(slot, error)

    def drill(self, row: dict[str, Any]) -> None:
        """Open the work that a row is about; where it cannot be filtered by, the row itself."""
        table = self.shown_table
        if self.answer is None or table.frame is None:
            return
        own = {option.name: self.answer.own.get(option.name, option.default) for option in self.asked.parameters}
        found = target(self.view_name, row, table.frame, own)
        if found is None or found[0] not in self.kinetop.views:
            self.action_row()
            return
        view, where = found
        if view == KERNELS and self.where:
            where = f"({self.where}) and {where}"
        self.kinetop.open_view(view, where=where)

    def tables(self) -> dict[str, pl.DataFrame]:
        """Return all tables of the answer for an export, the one shown first."""
        tables = self.query_one(Tables)
        names = sorted(tables.offered, key=lambda name: name != tables.current)
        return {name: frame for name in names if (frame := tables.table(name).ordered) is not None}

    @property
    def shown_table(self) -> ColumnTable:
        """The table on screen."""
        tables = self.query_one(Tables)
        return cast("ColumnTable", tables.table(tables.current))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer what the question has: options, further tables, a picture, a filter."""
        if action == "options" and not self.asked.parameters:
            return False
        if action == "filter" and "where" not in self.asked.common:
            return False
        if action == "table" and self.answer is not None and len(self.answer.result.tables) < 2:
            return False
        if action == "picture" and self.answer is not None and self.answer.picture is None:
            return False
        return super().check_action(action, parameters)

    # Events

    def on_resize(self, event: events.Resize) -> None:  # noqa: ARG002
        """Draw for the new size."""
        self._draw_picture()
        self._tell()

    def on_frame_table_moved(self, message: FrameTable.Moved) -> None:
        """Tell of the row when the cursor rests: a key held down writes the rows only."""
        if message.table.display:
            if self._rest is not None:
                self._rest.stop()
            self._rest = self.set_timer(REST_S, self._tell)

    def on_column_table_column_moved(self, message: ColumnTable.ColumnMoved) -> None:
        """Tell of the column at once."""
        if message.table.display:
            self._tell()

    # Actions

    def action_table(self) -> None:
        """Show the next table."""
        self.query_one(Tables).next()
        self._tell()

    def action_picture(self) -> None:
        """Show or hide the picture."""
        self.pictured = not self.pictured
        self._draw_picture()

    def action_row(self) -> None:
        """Read the row in full."""
        from .row import RowScreen

        table = self.shown_table
        if (row := table.row) is not None:
            self.app.push_screen(RowScreen(f"{self.view_name}: {table.id}", row, table.columns))

    def action_options(self) -> None:
        """Choose an option, then its value; a single option's value at once."""
        options = self.asked.parameters
        if len(options) == 1:
            self._choose(options[0])
            return
        lines = {f"{option.name.replace('_', ' ')}: {self._value(option) or 'not set'}": option for option in options}
        self.app.push_screen(PickScreen("option", list(lines), ""), lambda line: self._choose(lines.get(line or "")))

    def _choose(self, option: Parameter | None) -> None:
        if option is None:
            return
        label = option.name.replace("_", " ")
        if words := parameters.choices(option):
            self.app.push_screen(PickScreen(label, words, self._value(option)), partial(self._take, option))
            return
        from .entry import EntryScreen

        check = partial(parameters.value, option)
        self.app.push_screen(EntryScreen(label, option.about, self._value(option), check), partial(self._take, option))

    def _value(self, option: Parameter) -> str:
        return parameters.text(self.own.get(option.name, option.default))

    def _take(self, option: Parameter, written: str | None) -> None:
        if written is not None and written != self._value(option):
            self.own = {**self.own, option.name: parameters.value(option, written)}
            self.ask()

    # Drawing

    def _draw_picture(self) -> None:
        slot, height = self.query_one("#picture", Picture), self.app.size.height
        drawing = self.answer.picture if self.answer is not None else None
        slot.display = self.pictured and drawing is not None and height >= PICTURE_ROWS
        lines = int(height * PICTURE_SHARE)
        slot.show(partial(_at_height, drawing, lines) if drawing is not None and slot.display else None)

    def _tell(self) -> None:
        table = self.shown_table
        height = TOLD_LINES_TALL if self.app.size.height >= PICTURE_ROWS else TOLD_LINES
        if any(column.prose for column in table.columns):
            height += TOLD_LINES_PROSE
        texts = table.texts_in_full(table.row)
        texts.sort(key=lambda entry: entry[0].name != table.column)
        self.query_one("#told", Picture).show(partial(told.lines, table.declared, texts, height=height))

    def _why_empty(self, table: Table, result: Result) -> str:
        """Say why a table has no rows: the filter, the scope, or what the trace lacks."""
        work = result.work
        if self.where and work.gpu.is_empty() and not work.all_gpu.is_empty():
            return "no GPU work matches the filter"
        narrowed = any(self.options.get(name) is not None for name in ("rank", "device", "step", "window"))
        within = " (in the part that is looked at; 0 shows all)" if narrowed else ""
        return f"{table.none or EMPTY}{within}"


def _at_height(drawing: Sized, height: int, width: int) -> Any:
    return drawing(width, height)


def ordered(columns: list[Column], frame: pl.DataFrame) -> list[Column]:
    """Return columns as the view shows them: a tree's names lead, columns without a single value leave first.

    Args:
        columns: declared columns.
        frame: the rows.
    """
    names = [column.name for column in columns]
    if {"depth", "name"} <= set(names):
        columns = sorted(columns, key=lambda column: column.name != "name")
    unknown = {name for name in names if name in frame.columns and 0 < frame.height == frame[name].null_count()}
    return [
        replace(column, priority=LEAVES_FIRST) if column.name in unknown and column.priority else column for column in columns
    ]


def help_text(question: Question) -> str:
    """Return the first words of the view's help: the question, its tables, its options.

    Args:
        question: the question.
    """
    keys = "`left` and `right` go from column to column; below the table stands what the column means. `enter` opens the work "
    keys += "that a row is about, `d` reads the row in full."
    tables = [f"- {table.name}: {table.about}" for table in question.tables if table.about]
    options = [
        f"- {option.name}: {option.about}" + (f" ({', '.join(option.choices)})" if option.choices else "")
        for option in question.parameters
    ]
    parts = [f"{question.about} {keys}", "Tables:" if tables else "", "\n".join(tables)]
    parts += ["Options, set with `g`:", "\n".join(options)] if options else []
    return "\n\n".join(part for part in parts if part)
