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
`importing.ImportingScreen(paths: list[Path])` (gets `ImportProgress` and `ImportEnded` messages; cancels with `app.cancel_import()`;
after a failure shows the sentence and `esc` calls `app.go_home()`), `export.ExportScreen(name: str, tables: dict[str, pl.DataFrame])`
(a modal) and `help.HelpScreen(title: str, markdown: str)` (a modal).
"""
