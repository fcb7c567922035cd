"""The base of every view: what a view must give, and what it gets for it.

A view asks something about the opened traces in a thread and shows the answer::

    class IdleScreen(ViewScreen):
        NAME = "idle"                   # its mode, its title, the question it belongs to, the file name of an export
        HELP = "Why the GPUs waited."   # first words of its F1 page; keys and column definitions are added

        def body(self) -> ComposeResult:             # the widgets between title line and footer
            yield FrameTable(id="gaps")

        def fetch(self) -> Result:                   # in a thread: may be slow, may raise, touches no widget
            return self.question("idle", cause="all")

        def show(self, answer: Result) -> None:      # on the UI's side; the newest answer only
            self.query_one(FrameTable).show(answer.main, answer.question.tables[0].columns, sort="dur_us")
            self.status = "96 of 14,203 rows"

The base gives: title line (what is open, which view, scope, filter, `status`), footer, filter bar (`/`), an error shown inside
the view, `e` export, `y` `Y` copy, `F1` help, `[` `]` steps, `+ - 0 < >` zoom of the window. It calls `ask()` when the view is
first shown, when the filter changes and when the scope changed meanwhile. A view that asks for more (a detail pane) calls
`run(slot, work, done)`: `work()` runs in a thread, `done(answer)` on the UI's side, an older answer of a slot is dropped.

Members to use: `self.traces` (TraceSet), `self.where` (filter text or None), `self.options` (dict: where, rank, device, step,
window as `Question.ask` takes them), `self.question(name, **own)` (ask with those options).
Members to override at will: `tables()` (what export and `Y` take: by default every FrameTable that is shown, the focused one
first), `drill(row)` (enter on a table row; `row` is a dict by column), `failed(slot, error)`.
A drill-down pushes another ViewScreen: `self.app.push_screen(...)`; `esc` pops it. `self.app.open_view("kernels", where="nccl")`
goes to a view with a filter.

What the app calls by name, built elsewhere: `home.HomeScreen()` (calls `app.open_paths([Path, ...])`),
`importing.ImportingScreen(paths: list[Path])` (gets `ImportProgress` and `ImportEnded` messages; cancels with
`app.cancel_import()`; after a failure shows the sentence and `esc` calls `app.go_home()`),
`export.ExportScreen(name: str, tables: dict[str, pl.DataFrame])` (a modal) and
`help.HelpScreen(title: str, markdown: str)` (a modal).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Input, Static

from kinetop.analysis.where import where_name as where_name  # noqa: PLC0414 - views import it from here

from ..clipboard import copy
from ..format import clean
from ..messages import Answered
from ..widgets.filter_bar import FilterBar
from ..widgets.frame_table import FrameTable
from ..widgets.lines import KeyLine, TitleLine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import polars as pl
    from textual.app import ComposeResult

    from kinetop.analysis.question import Result
    from kinetop.analysis.work import Work
    from kinetop.traces.trace import TraceSet

    from ..app import KinetopApp

MAIN = "main"
"""Slot of a view's own answer."""


class ViewScreen(Screen[None]):
    """A view of the opened traces; see the module's text."""

    NAME: ClassVar[str] = ""
    HELP: ClassVar[str] = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        # At once, before the table in focus hands it up: what is typed right after belongs to the filter.
        Binding(
            "slash", "filter", "filter", id="view.filter", key_display="/", tooltip="Filter the rows as you type", priority=True
        ),
        Binding("n", "next_hit(1)", "next hit", id="view.next", show=False, tooltip="Next row that the last filter matches"),
        Binding("N", "next_hit(-1)", "previous hit", id="view.previous", show=False, tooltip="Previous row that it matches"),
        Binding("e", "export", "export", id="view.export", tooltip="Write what is shown to a file"),
        Binding("y", "copy_row", "copy", id="view.copy", tooltip="Copy the row under the cursor"),
        Binding("Y", "copy_view", "copy all", id="view.copy_all", show=False, tooltip="Copy the table shown, tab-separated"),
        Binding("f1", "help", "help", id="view.help", show=False, tooltip="What this view shows and its keys"),
        Binding("escape", "back", "back", id="view.back", show=False, tooltip="One step back"),
        Binding("r", "ask", "ask again", id="view.ask", show=False, tooltip="Compute this view again"),
        Binding("left_square_bracket", "step(-1)", "previous step", id="scope.previous", show=False, key_display="["),
        Binding("right_square_bracket", "step(1)", "next step", id="scope.next", show=False, key_display="]"),
        Binding("plus", "zoom(0.5)", "zoom in", id="scope.zoom_in", show=False, key_display="+", tooltip="Half the window"),
        Binding("minus", "zoom(2.0)", "zoom out", id="scope.zoom_out", show=False, key_display="-", tooltip="Twice the window"),
        Binding("0", "zoom(0.0)", "whole window", id="scope.whole", show=False, tooltip="All steps, the whole window"),
        Binding("less_than_sign", "pan(-1)", "earlier", id="scope.earlier", show=False, key_display="<"),
        Binding("greater_than_sign", "pan(1)", "later", id="scope.later", show=False, key_display=">"),
    ]

    def __init__(self, *, where: str | None = None, own: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.view_name = self.NAME
        self.help_text = self.HELP
        self.where = where or None
        self.own = own or {}
        """The question's own options."""
        self._requests: dict[str, int] = {}
        """Number of each slot's newest request."""
        self._in_work: set[str] = set()
        """Slots whose thread is at work."""
        self._waiting: dict[str, Callable[[], None]] = {}
        """What each such slot does next."""
        self._asked_scope: dict[str, Any] | None = None
        self._last_filter = where or ""

    # What a subclass gives

    def body(self) -> ComposeResult:
        """Yield the widgets between title line and footer."""
        raise NotImplementedError

    def fetch(self) -> Any:
        """Return what the view shows; runs in a thread."""
        raise NotImplementedError

    def show(self, answer: Any) -> None:
        """Put the newest answer into the widgets."""
        raise NotImplementedError

    def drill(self, row: dict[str, Any]) -> None:
        """Open a row; a view without a deeper level does nothing."""

    def failed(self, slot: str, error: Exception) -> None:  # noqa: ARG002
        """Show an error: a filter's in its bar, with the view left as it was; any other in place of the body."""
        from kinetop.traces.errors import FilterError

        if isinstance(error, FilterError) and self.where:
            at = "" if error.position is None else f"at {error.position + 1}: "
            bar = self.query_one(FilterBar)
            bar.reveal(self.where)
            bar.say(f"{at}{clean(str(error))}", error=True)
        else:
            self._show_error(error)

    # What it gets

    @property
    def kinetop(self) -> KinetopApp:
        """The app."""
        return cast("KinetopApp", self.app)

    @property
    def traces(self) -> TraceSet:
        """The opened traces."""
        if self.kinetop.traces is None:
            raise RuntimeError("no trace is open")
        return self.kinetop.traces

    @property
    def options(self) -> dict[str, Any]:
        """Common options of a question: where, rank, device, step, window."""
        return {"where": self.where, **self.kinetop.scope.options}

    @property
    def status(self) -> str:
        """Text at the right end of the title line."""
        return self.query_one(TitleLine).status

    @status.setter
    def status(self, text: str) -> None:
        self.query_one(TitleLine).status = text

    def question(self, name: str, *, work: Work | None = None, **own: Any) -> Result:
        """Ask a declared question in the view's scope; call it in a thread.

        Args:
            name: the question.
            work: what to ask about; given by a view that asks several questions about the same.
            own: the question's own options.
        """
        from kinetop.analysis.question import Result, all_questions

        asked = all_questions()[name]
        if work is None:
            return asked.ask(self.traces, **self.options, **own)
        return Result(asked, asked.function(work, **{p.name: own.get(p.name, p.default) for p in asked.parameters}), work)

    def work(self) -> Work:
        """Return what the view's scope and filter leave; call it in a thread."""
        from kinetop.analysis.work import scoped

        return scoped(self.traces, **self.options)

    def say_rows(self, answer: Result) -> None:
        """Say in the title line, and beside the filter, how many of the GPU's activities the filter keeps."""
        kept, every = answer.work.gpu.height, answer.work.all_gpu.height
        self.status = f"{kept:,} of {every:,} activities" if self.where else f"{every:,} activities"
        self.query_one(FilterBar).say(f"{kept:,} of {every:,}" if self.where else "")

    def ask(self) -> None:
        """Ask the view's question again."""
        self._asked_scope = self.kinetop.scope.options
        self._title()
        self.run(MAIN, self.fetch, self._answer)

    def run(self, slot: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Run `work` in a thread and `done` with its answer here, unless a newer request took the slot meanwhile.

        A slot has one thread at a time, since none can be stopped: what comes meanwhile waits, the newest takes its place.
        """
        request = self._requests[slot] = self._requests.get(slot, 0) + 1

        def ask() -> None:
            try:
                message = Answered(slot, request, done, answer=work())
            except Exception as error:  # shown inside the view: one bad view must not end the app
                message = Answered(slot, request, done, error=error)
            self.post_message(message)

        def begin() -> None:
            self._in_work.add(slot)
            self.run_worker(ask, thread=True, group=slot, exit_on_error=False)

        if slot in self._in_work:
            self._waiting[slot] = begin
        else:
            begin()

    @property
    def table(self) -> FrameTable | None:
        """The table that keys go to: the focused one, else the first on screen."""
        shown = sorted((table for table in self.query(FrameTable) if table.display), key=lambda table: not table.has_focus)
        return shown[0] if shown else None

    def tables(self) -> dict[str, pl.DataFrame]:
        """Return what export and copy take, by name: the tables on screen, the focused one first."""
        shown = sorted(self.query(FrameTable), key=lambda table: not table.has_focus)
        return {table.id or self.view_name: frame for table in shown if table.display and (frame := table.ordered) is not None}

    # The screen

    def compose(self) -> ComposeResult:
        """Lay out title line, body, filter bar and footer."""
        yield TitleLine()
        with Vertical(id="body"):
            yield from self.body()
        yield Static(id="error", markup=False)
        yield FilterBar()
        yield KeyLine()

    def on_mount(self) -> None:
        """Take the focus to the first table."""
        self.query_one("#error").display = False
        if self.where:
            self.query_one(FilterBar).reveal(self.where)

    def on_screen_resume(self) -> None:
        """Ask when first shown, or when the scope changed meanwhile."""
        if self.kinetop.traces is not None and self._asked_scope != self.kinetop.scope.options:
            self.ask()

    def on_answered(self, message: Answered) -> None:
        """Take the newest answer of a slot, drop an older one."""
        message.stop()
        self.kinetop.survey()
        self._in_work.discard(message.slot)
        if begin := self._waiting.pop(message.slot, None):
            begin()
        if message.request != self._requests.get(message.slot):
            return
        error = message.error
        if error is None:
            try:
                message.done(message.answer)
            except Exception as caught:  # a view that cannot draw an answer shows why
                error = caught
        if error is not None:
            self.log.error(f"{self.view_name}, {message.slot}: {error!r}")
            self.failed(message.slot, error)

    def on_filter_bar_changed(self, message: FilterBar.Changed) -> None:
        """Ask with the new filter."""
        self.filter_by(message.text)

    def on_filter_bar_closed(self) -> None:
        """Give the keys back to the body."""
        tables = [table for table in self.query(FrameTable) if table.display]
        if tables:
            self.set_focus(tables[0])
        else:
            self.set_focus(None)

    def on_frame_table_picked(self, message: FrameTable.Picked) -> None:
        """Drill into a row."""
        message.stop()
        self.drill(message.row)

    def filter_by(self, text: str | None) -> None:
        """Ask with another filter text."""
        text = (text or "").strip()
        self.where = text or None
        self._last_filter = text or self._last_filter
        self.ask()

    def filter_from_elsewhere(self, text: str) -> None:
        """Ask with a filter that was not typed here, and show it in the filter line."""
        bar = self.query_one(FilterBar)
        bar.reveal(text)
        bar.display = bool(text)
        self.filter_by(text)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Let a text field have its own slash."""
        return not (action == "filter" and isinstance(self.focused, Input)) and super().check_action(action, parameters)

    # Actions

    def action_filter(self) -> None:
        """Open the filter bar."""
        self.query_one(FilterBar).open(self.where or "")

    def action_next_hit(self, step: int) -> None:
        """Go to the next row whose name matches the last filter."""
        table = self.table
        if table is None or table.frame is None:
            return
        if not self._last_filter:
            self.notify("There is no filter yet: / starts one.", markup=False)
        elif not table.find(matching(table.frame, self._last_filter), step):
            self.notify(f"No row here matches {clean(self._last_filter, 60)}.", markup=False)

    def action_ask(self) -> None:
        """Ask again."""
        self.ask()

    def action_back(self) -> None:
        """Go one step back: leave a drill-down with its filter, clear the filter, go to the first view."""
        left = self.kinetop.leave_drill_down()
        if self.where:
            self.query_one(FilterBar).action_clear()
        elif left:
            return
        elif len(self.app.screen_stack) > 1:
            self.app.pop_screen()
        elif self.kinetop.views:
            self.kinetop.action_view(1)

    def action_export(self) -> None:
        """Open the export dialog for what is shown."""
        from .export import ExportScreen

        if tables := self.tables():
            self.app.push_screen(ExportScreen(self.view_name, tables))
        else:
            self.notify("There is no table to export yet.", markup=False)

    def action_copy_row(self) -> None:
        """Copy the row under the cursor."""
        table = self.table
        if table is not None and table.row is not None:
            self.notify(copy(self.app, "\t".join(_plain(table.row[column.name]) for column in table.columns)), markup=False)

    def action_copy_view(self) -> None:
        """Copy the table."""
        for frame in list(self.tables().values())[:1]:
            self.notify(copy(self.app, "".join(f"{line}\n" for line in _lines(frame))), markup=False)

    def action_help(self) -> None:
        """Show the help of this view."""
        from ..keys import help_page
        from .help import HelpScreen

        self.app.push_screen(HelpScreen(self.view_name, help_page(self, self.help_text)))

    def action_step(self, step: int) -> None:
        """Go to another profiler step."""
        if not self.kinetop.scope.steps:
            self.notify("This trace has no profiler steps.", markup=False)
        self.kinetop.change_scope(self.kinetop.scope.stepped(step))

    def action_zoom(self, factor: float) -> None:
        """Change the window that all views look at."""
        self.kinetop.change_scope(self.kinetop.scope.zoomed(factor))

    def action_pan(self, move: int) -> None:
        """Move that window."""
        self.kinetop.change_scope(self.kinetop.scope.panned(move))

    # Inside

    def _answer(self, answer: Any) -> None:
        self.query_one("#error").display = False
        self.query_one("#body").display = True
        self.query_one(FilterBar).forget_error()
        self.show(answer)

    def _show_error(self, error: Exception) -> None:
        text = clean(f"{type(error).__name__}: {error}", 4_000)
        box = self.query_one("#error", Static)
        box.update(
            Content.assemble(
                ("This view could not be computed.", "bold $error"), "\n\n", text, "\n\nr asks again; the other views go on."
            )
        )
        box.display = True
        self.query_one("#body").display = False

    def _title(self) -> None:
        where = f"/ {self.where}" if self.where else ""
        self.query_one(TitleLine).parts = (self.kinetop.opened, self.view_name, self.kinetop.scope.text, where)


def matching(frame: pl.DataFrame, where: str) -> pl.Series:
    """Return which rows of a table a filter matches; all false where the table lacks what the filter asks for."""
    import polars as pl

    from kinetop.analysis.filter import predicate
    from kinetop.traces.errors import FilterError

    try:
        return frame.select(hit=predicate(where, frame.schema)).to_series().fill_null(value=False)
    except FilterError:
        return pl.zeros(frame.height, pl.Boolean, eager=True)


def _plain(value: Any) -> str:
    return "" if value is None else clean(str(value))


def _lines(frame: pl.DataFrame) -> Iterator[str]:
    yield "\t".join(frame.columns)
    for row in frame.iter_rows():
        yield "\t".join(_plain(value) for value in row)
