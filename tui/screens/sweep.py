"""The sweep: variants over sequence length, batch, head size or heads, and which to choose for which shape."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Input, Label, Static

from ..format import clean, plural
from ..live_sweep import Sweep, SweepNow
from ..render import sweep as drawing
from ..render.live import machine_text
from ..widgets.lines import KeyLine, TitleLine
from ..widgets.picture import Picture
from ..widgets.tables import Tables

if TYPE_CHECKING:
    import polars as pl
    from textual.app import ComposeResult

    from kinetop.analysis.sweep import Axis

    from ..live_feed import Feed
    from ..live_now import Now
    from ..messages import LiveChanged

HINT = "seq, batch, dim or heads = FIRST:LAST:xFACTOR, FIRST:LAST:+STEP or SIZE,SIZE"
EMPTY = {
    "best": "no case has been measured yet",
    "crossovers": "the same variant is best everywhere so far",
    "frontier": "no variant has run at two sizes yet",
}
FIGURES = {"time": "median_us", "memory": "peak_bytes"}
FIGURE_NAMES = {"time": "median", "memory": "peak memory"}


class SweepScreen(Screen[None]):
    """Measure a grid of cases with the live worker.

    Args:
        feed: the worker, or a recorded session whose cases are laid out.
    """

    view_name = "sweep"
    help_text = (
        "The variants of the live screen over a range of sizes. Write what is swept, such as `seq=512:8192:x2`, and press "
        "`enter`. The heat map shows each median with a mark for how far it is from the best of its column; the curves have "
        "logarithmic scales, one letter a variant. `m` changes between time and memory. `t` goes through the variant to choose "
        "for each shape, the crossovers and how far each variant goes. `d` writes the table that a program can dispatch on. "
        "`esc` ends a sweep that runs, and leads back to live when none does."
    )
    DEFAULT_CSS = """
    SweepScreen {
        #sweep-form { height: 1; background: $surface; }
        #sweep-form Label { padding: 0 1; color: $muted; }
        #sweep-form Input { width: 1fr; border: none; height: 1; padding: 0; background: $surface; }
        #sweep-said { height: auto; color: $muted; &.-error { color: $text-error; text-style: bold; } }
        #heat, #curves { height: auto; }
        #curves { margin-top: 1; }
        &.-short #curves { display: none; }
        Tables { min-height: 4; }
    }
    """
    AUTO_FOCUS = "#sweep-axis"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "axis", "axis", id="sweep.axis", tooltip="Write another range of sizes"),
        Binding("m", "figure", "time/memory", id="sweep.figure", tooltip="Change between time and memory"),
        Binding("x", "stop", "stop", id="sweep.stop", tooltip="End the sweep; what was measured stays"),
        Binding("t", "table", "next table", id="sweep.table", show=False, tooltip="Best, crossovers, frontier"),
        Binding("d", "dispatch", "dispatch table", id="sweep.dispatch", tooltip="Write the table a program can dispatch on"),
        Binding("e", "export", "export", id="sweep.export", tooltip="Write the figures to a file"),
        Binding("f1", "help", "help", id="sweep.help", show=False, tooltip="What this view shows and its keys"),
        Binding("escape", "back", "back", id="sweep.back", key_display="esc"),
    ]

    def __init__(self, feed: Feed) -> None:
        super().__init__()
        self.feed = feed
        self.figure = "time"

    def compose(self) -> ComposeResult:
        """Lay out form, heat map, curves and tables."""
        yield TitleLine()
        with Horizontal(id="sweep-form"):
            yield Label("sweep")
            yield Input(self._first_axis(), id="sweep-axis", select_on_focus=False)
        yield Static(HINT, id="sweep-said", markup=False)
        yield Picture(id="heat")
        yield Picture(id="curves")
        yield Tables(EMPTY)
        yield KeyLine()

    def on_mount(self) -> None:
        """Show what there is already."""
        self.feed.listen(self.post_message)
        self._draw(self.feed.now)
        if self.feed.sweep is not None:
            self._to_tables()
        elif self.feed.replays:
            self._begin(self._first_axis())

    def on_unmount(self) -> None:
        """Listen no more."""
        self.feed.unlisten(self.post_message)

    def on_live_changed(self, message: LiveChanged) -> None:
        """Show the newest picture."""
        self._draw(message.now)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Begin."""
        self._begin(event.value)

    # Keys

    def action_axis(self) -> None:
        """Go to the range."""
        self.query_one("#sweep-axis").focus()

    def action_figure(self) -> None:
        """Show time, or memory."""
        self.figure = "memory" if self.figure == "time" else "time"
        self._draw(self.feed.now)

    def action_stop(self) -> None:
        """End the sweep."""
        self.feed.end_sweep()

    def action_table(self) -> None:
        """Show the next table."""
        self.query_one(Tables).next()

    def action_back(self) -> None:
        """Leave the range line, else end the sweep, else go back to live."""
        if isinstance(self.focused, Input) and self.feed.sweep is not None:
            self._to_tables()
        elif self.feed.sweep is not None and self.feed.sweep.running:
            self.feed.end_sweep()
        else:
            self.dismiss()

    def action_dispatch(self) -> None:
        """Write the table that a program can dispatch on."""
        choice = self.feed.now.sweep and self.feed.now.sweep.choice
        if not choice or not choice.dispatch["entries"]:
            self.app.notify("There is nothing to choose from yet.", markup=False)
            return
        path = Path.cwd() / "kinetop-dispatch.json"
        try:
            path.write_text(json.dumps(choice.dispatch, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            self.app.notify(f"{clean(str(path))} cannot be written: {error.strerror}", severity="error", markup=False)
        else:
            entries = plural(len(choice.dispatch["entries"]), "shape")
            self.app.notify(f"Wrote {entries} to {clean(str(path), 200)}", markup=False)

    def action_export(self) -> None:
        """Write the figures to a file."""
        from .export import ExportScreen

        if tables := self.tables():
            self.app.push_screen(ExportScreen("sweep", tables))
        else:
            self.app.notify("There is no table to export yet.", markup=False)

    def action_help(self) -> None:
        """Show the help of this view."""
        from ..keys import help_page
        from .help import HelpScreen

        self.app.push_screen(HelpScreen("sweep", help_page(self, self.help_text)))

    def tables(self) -> dict[str, pl.DataFrame]:
        """Return what can be exported, by name."""
        swept = self.feed.now.sweep
        found: dict[str, pl.DataFrame | None] = {"trials": swept.table if swept else None}
        if swept and swept.choice:
            found |= {"best": swept.choice.best, "crossovers": swept.choice.crossovers, "frontier": swept.choice.frontier}
        return {name: frame for name, frame in found.items() if frame is not None and frame.height}

    # Inside

    def _first_axis(self) -> str:
        swept, case = self.feed.sweep, self.feed.now.wish.case
        if swept is not None:
            return f"{swept.axis.name}={','.join(map(str, swept.axis.values))}"
        if self.feed.replays and len(sizes := sorted({each.kv_len for each in self.feed.now.cases})) > 1:
            return f"seq={','.join(map(str, sizes))}"
        return "seq=128:1024:x2" if case is not None and case.device == "cpu" else "seq=512:16384:x2"

    def _begin(self, text: str) -> None:
        """Begin a sweep, or say why it cannot be."""
        from kinetop.analysis.sweep import axis, spread

        now, said = self.feed.now, self.query_one("#sweep-said", Static)
        names = now.wish.variants or tuple(now.table["variant"].to_list() if now.table is not None else ())
        try:
            along = axis(text)
            cases = spread([now.wish.case], [along]) if now.wish.case is not None else []
        except ValueError as error:
            said.update(Content(clean(str(error), 200)))
            said.set_class(True, "-error")
            return
        said.set_class(False, "-error")
        self.feed.end_sweep()
        self.feed.run_sweep(Sweep(along, cases, names))
        self._to_tables()

    def _to_tables(self) -> None:
        tables = self.query_one(Tables)
        tables.table(tables.current).focus()

    def _draw(self, now: Now) -> None:
        title = self.query_one(TitleLine)
        title.parts = (machine_text(now.environment), "sweep")
        swept = now.sweep
        if swept is None:
            return
        self._say(swept)
        if swept.choice is None or swept.table is None:
            return
        grid = self._grid(swept, swept.axis)
        self.query_one("#heat", Picture).show(partial(drawing.heat_map, grid))
        room = self.size.height - len(grid.rows) - 14
        self.query_one("#curves", Picture).show(partial(drawing.curves, grid, height=max(5, min(12, room))))
        from kinetop.analysis import sweep as columns

        tables = self.query_one(Tables)
        tables.table("best").show(swept.choice.best, columns.BEST_COLUMNS)
        tables.table("crossovers").show(swept.choice.crossovers, columns.CROSSOVER_COLUMNS)
        tables.table("frontier").show(swept.choice.frontier, columns.FRONTIER_COLUMNS)

    def _grid(self, swept: SweepNow, axis: Axis) -> drawing.Grid:
        from kinetop.analysis.sweep import AXES

        if swept.table is None or swept.choice is None:
            raise RuntimeError("nothing was measured yet")
        best = dict(swept.choice.best.select("case", "variant").iter_rows())
        figure = FIGURES[self.figure]
        return drawing.grid_of(swept.table.to_dicts(), AXES[axis.name][0], figure, best, FIGURE_NAMES[self.figure])

    def _say(self, swept: SweepNow) -> None:
        said, total = self.query_one("#sweep-said", Static), len(swept.cases)
        if said.has_class("-error"):
            return
        if swept.problem:
            line = Content.styled(clean(f" {swept.problem}", 300), "$text-error")
        elif self.feed.replays:
            shown = swept.table["case"].n_unique() if swept.table is not None else 0
            line = Content(f" {plural(shown, 'case')} of the session along {swept.axis.name}")
        elif swept.running:
            line = drawing.progress_line(swept.done, total, swept.cases[swept.done].text, self.size.width)
        else:
            word = "stopped after" if swept.cancelled else "measured"
            line = Content(f" {word} {swept.done} of {plural(total, 'case')}; live goes on")
        if str(said.render()) != line.plain:
            said.update(line)
