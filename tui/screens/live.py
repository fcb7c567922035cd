"""The live screen: variants side by side, what the chosen one does, what the machine and the worker say."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import Screen

from ..clipboard import copy
from ..format import clean
from ..render import live, live_machine
from ..widgets.frame_table import FrameTable
from ..widgets.lines import KeyLine, TitleLine
from ..widgets.live_table import LiveTable
from ..widgets.panes import Panes
from ..widgets.picture import Picture

if TYPE_CHECKING:
    import polars as pl
    from textual.app import ComposeResult

    from kinetop.analysis.question import Column
    from kinetop.traces.live.worker.case import Case

    from ..live_app import LiveApp
    from ..live_feed import Feed
    from ..live_now import Now
    from ..messages import Captured, LiveChanged

SHOWN: dict[str, tuple[int, str]] = {
    "variant": (0, ""),
    "backend": (2, ""),
    "median_us": (0, "median"),
    "interval": (1, "95 % interval"),
    "vs_base": (1, "vs base"),
    "useful_tflops": (2, "useful TF/s"),
    "peak_pct": (2, "of peak"),
    "peak_bytes": (2, "memory"),
    "gb_s": (3, "rate"),
    "p90_us": (3, "p90"),
    "kernels": (3, "kernels"),
    "ops": (3, "ops"),
    "error_ok": (3, "right"),
    "energy_mj": (3, "mJ"),
    "cost": (3, "cost/1M"),
    "compile_s": (3, "compile s"),
    "status": (0, "state"),
}
"""Columns on the screen with the order in which they leave it (3 first) and their header; the export has all."""
CAPTURE_STEPS = 3
MIN_LINES = 4
"""Of the table of variants, its header included: room for the reason why there are no rows."""
REPLAYS = "This is a recorded session: nothing is measured here."


class LiveScreen(Screen[None]):
    """Watch variants being measured.

    Args:
        feed: where the frames come from.
    """

    view_name = "live"
    help_text = (
        "Attention variants measured side by side, round after round, with the profiler off; short profiled windows in between "
        "say where the time goes. The table is sorted with `s` and `S`; the row under the cursor is the one shown below it: "
        "its parts of a step (with a baseline, `b`, beside that one's, in µs), its newest samples with the 95 % interval "
        "of the median (underlined where a window was profiled), what was found, and its operators and kernels. `t` goes through "
        "operators, findings and the worker's log. A state is one of cold, preparing, compiling, running, throttled, contended, "
        "failed, unavailable, paused; the reason stands behind it."
    )
    DEFAULT_CSS = """
    LiveScreen {
        #live-main { width: 1fr; }
        #live-side { width: 40; display: none; scrollbar-size: 1 1; border-left: vkey $panel; }
        #machine-line { height: 1; }
        #case { height: 1; background: $surface; }
        #side-findings { margin-top: 1; }
        #parts, #latency, #finding { height: auto; }
        &.-wide #live-side { display: block; }
        &.-wide #machine-line { display: none; }
        LiveTable {
            & > .livetable--good { color: $text-success; }
            & > .livetable--busy { color: $accent; }
            & > .livetable--warn { color: $text-warning; text-style: bold; }
            & > .livetable--bad { color: $text-error; text-style: bold; }
        }
    }
    """
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-wide")]  # noqa: RUF012
    AUTO_FOCUS = "#variants"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("v", "variants", "variants", id="live.variants", tooltip="Choose which variants are measured"),
        Binding("p", "case", "shape", id="live.case", tooltip="Measure another shape, type, mask or mode"),
        Binding("space", "pause", "pause", id="live.pause", tooltip="Stop measuring, or go on"),
        Binding("w", "sweep", "sweep", id="live.sweep", tooltip="Measure over sequence lengths, batches or head sizes"),
        Binding(
            "c", "capture", "trace", id="live.capture", tooltip="Profile the variant deeply and open that in the trace views"
        ),
        Binding("r", "record", "rec", id="live.record", tooltip="Record the session to a file, or end that"),
        Binding("b", "base", "base", id="live.base", tooltip="Compare the others with the variant under the cursor"),
        Binding("t", "pane", "next pane", id="live.pane", show=False, tooltip="Operators, findings, log"),
        Binding("e", "export", "export", id="live.export", tooltip="Write what is shown to a file"),
        Binding("y", "copy_row", "copy", id="live.copy", show=False, tooltip="Copy the row under the cursor"),
        Binding("Y", "copy_table", "copy all", id="live.copy_all", show=False, tooltip="Copy the table, tab-separated"),
        Binding("f1", "help", "help", id="live.help", show=False, tooltip="What this view shows and its keys"),
        Binding("escape", "back", "back", id="live.back", show=False, tooltip="Give the keys back to the variants"),
    ]

    def __init__(self, feed: Feed) -> None:
        super().__init__()
        self.feed = feed
        self._table_lines = MIN_LINES
        self._told: dict[str, str] = {}
        """Problems that were already said."""

    @property
    def live_app(self) -> LiveApp:
        """The app."""
        return cast("LiveApp", self.app)

    @property
    def _awaited(self) -> str:
        """What is said while nothing was heard yet."""
        return "reading the session" if self.feed.replays else "waiting for the worker"

    @property
    def variants(self) -> LiveTable:
        """The table of variants."""
        return self.query_one("#variants", LiveTable)

    def compose(self) -> ComposeResult:
        """Lay out table, details of the chosen row, side column and lines."""
        yield TitleLine()
        yield Picture(id="case")
        with Horizontal():
            with Vertical(id="live-main"):
                yield LiveTable(empty=self._awaited, id="variants")
                yield Picture(id="parts")
                yield Picture(id="latency")
                yield Picture(id="finding")
                yield Panes("ops", "findings", "log")
            with VerticalScroll(id="live-side", can_focus=False):
                yield Picture(id="machine")
                yield Picture(id="side-findings")
        yield Picture(id="machine-line")
        yield KeyLine()

    def on_mount(self) -> None:
        """Draw the frame first; the feed, and with it Polars, starts after that."""
        self.feed.listen(self.post_message)
        self._draw(self.feed.now)
        self.call_after_refresh(self.feed.start)

    # What the feed tells

    def on_live_changed(self, message: LiveChanged) -> None:
        """Show the newest picture."""
        self._draw(message.now)

    def on_captured(self, message: Captured) -> None:
        """Open what was captured."""
        path = message.header.get("path")
        if path and Path(path).is_file():
            self.app.notify(f"Captured to {clean(str(path), 200)}; o leads back to live", markup=False)
            case = self.feed.now.wish.case
            self.live_app.open_capture(Path(path), on_gpu=case is None or case.device != "cpu")
        else:
            self.app.notify(f"There is no file at {clean(str(path), 200)}.", severity="error", markup=False)

    def on_frame_table_moved(self, message: FrameTable.Moved) -> None:
        """Show the details of the variant under the cursor."""
        name = message.row and message.row.get("variant")
        if message.table.id == "variants" and name and name != self.feed.wish.chosen:
            self.feed.choose(chosen=name)
            self.feed.send("focus", variant=name)

    def on_frame_table_picked(self, message: FrameTable.Picked) -> None:
        """Go to the operators of a variant."""
        message.stop()
        if message.table.id == "variants":
            self.query_one(Panes).go("ops")

    def _draw(self, now: Now) -> None:
        title = self.query_one(TitleLine)
        title.parts = (live.machine_text(now.environment), "live" if not self.feed.replays else "replay")
        recording = f"● rec {now.recording_to.name}" if now.recording_to else ""
        title.status = "  ".join(part for part in (live.badge(now, replays=self.feed.replays), recording) if part)
        self._show("case", partial(live.case_line, now))
        why = now.problems.get("table") or now.link.get("why") or now.ended or self._awaited
        self.variants.say_empty(clean(str(why), 300))
        if now.table is not None and now.table is not self.variants.frame:
            self._show_table(now.table, now.columns)
        tall = self.size.height >= 30
        parts = partial(live.parts_lines, now.chosen, now.problems.get("parts", ""), most=2 if tall else 1)
        self._show("parts", parts)
        self._show("latency", partial(live.latency_lines, now.chosen))
        trouble = now.problems.get("findings", "")
        most = 3 if tall else 1
        self._show("finding", partial(live.finding_lines, now.findings, trouble, now.chosen, most=most))
        self._show("machine", partial(live_machine.column, now.telemetry))
        self._show("side-findings", partial(live.findings_page, now.findings, trouble))
        self._show("machine-line", partial(live_machine.line, now.telemetry))
        panes = self.query_one(Panes)
        panes.count("findings", len(now.findings))
        panes.count("log", len(now.problems) + len(now.errors))
        panes.page("findings", partial(live.findings_page, now.findings, trouble))
        panes.page("log", partial(live.log_page, now.log, now.errors, now.problems))
        if now.chosen.ops is not None and now.chosen.ops is not panes.table("ops").frame:
            panes.table("ops").show(now.chosen.ops, now.chosen.ops_columns)
        self._say_problems(now.problems)

    def _show_table(self, frame: pl.DataFrame, columns: tuple[Column, ...]) -> None:
        lines = min(max(MIN_LINES, frame.height + 1), max(MIN_LINES, (self.size.height - 6) // 2))
        if lines != self._table_lines:
            self._table_lines = lines
            self.variants.styles.height = lines
        self.variants.show(frame, shown(columns))

    def _show(self, name: str, drawing: Any) -> None:
        self.query_one(f"#{name}", Picture).show_if_seen(drawing)

    def _say_problems(self, problems: dict[str, str]) -> None:
        for name, text in problems.items():
            if name not in self._told:
                self.app.notify(f"{name}: {text}", severity="warning", markup=False)
        self._told = dict(problems)

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Grey what a recorded session cannot do."""
        return None if action == "capture" and self.feed.replays else super().check_action(action, parameters)

    def action_variants(self) -> None:
        """Choose variants."""
        from .variants import VariantsScreen

        now = self.feed.now
        if not now.variants:
            self.app.notify("The worker has not said yet which variants there are.", markup=False)
            return
        chosen = now.wish.variants or tuple(now.table["variant"].to_list() if now.table is not None else ())
        self.app.push_screen(VariantsScreen(now.variants, chosen), self._take_variants)

    def _take_variants(self, names: tuple[str, ...] | None) -> None:
        if names and names != self.feed.wish.variants:
            self.feed.measure(variants=names)

    def action_case(self) -> None:
        """Choose a case: any with a worker, one of the recorded in a replay."""
        now = self.feed.now
        if self.feed.replays:
            from .pick import PickScreen

            known = {case.text: case for case in now.cases}
            current = now.wish.case.text if now.wish.case else ""
            if known:
                self.app.push_screen(
                    PickScreen("recorded cases", list(known), current), lambda text: self._take_case(known.get(text or ""))
                )
            return
        from .case import CaseScreen

        if now.wish.case is not None:
            self.app.push_screen(CaseScreen(now.wish.case), self._take_case)

    def _take_case(self, case: Case | None) -> None:
        if case is not None and case != self.feed.wish.case:
            self.feed.measure(case=case)

    def action_pause(self) -> None:
        """Stop measuring, or go on."""
        self.feed.pause(not self.feed.wish.paused)

    def action_base(self) -> None:
        """Make the chosen variant the baseline; the same one again lifts that."""
        name = self.feed.now.chosen.variant
        if name:
            self.feed.choose(baseline="" if name == self.feed.wish.baseline else name)

    def action_sweep(self) -> None:
        """Open the sweep."""
        from .sweep import SweepScreen

        if self.feed.now.wish.case is None:
            self.app.notify("There is no case to begin with yet.", markup=False)
        else:
            self.app.push_screen(SweepScreen(self.feed))

    def action_capture(self) -> None:
        """Ask the worker for a deep window of the chosen variant."""
        name = self.feed.now.chosen.variant
        state = self.feed.now.chosen.row.get("state")
        if not name or state in {"FAILED", "UNAVAILABLE"}:
            self.app.notify(f"{name or 'Nothing'} does not run: there is nothing to capture.", markup=False)
            return
        path = Path.cwd() / f"kinetop-{_file_word(name)}-{time.strftime('%H%M%S')}.json.gz"
        self.feed.send("capture", variant=name, path=str(path), steps=CAPTURE_STEPS)
        self.app.notify(f"Capturing {CAPTURE_STEPS} steps of {clean(name, 40)} to {clean(path.name, 80)} …", markup=False)

    def action_record(self) -> None:
        """Begin to record, or end that."""
        if (path := self.feed.now.recording_to) is not None:
            self.feed.record(None)
            self.app.notify(f"Recorded to {clean(str(path), 200)}; kinetop replay shows it", markup=False)
            return
        path = Path.cwd() / f"kinetop-live-{time.strftime('%Y%m%d-%H%M%S')}.parquet"
        self.feed.record(path)
        self.app.notify(f"Recording to {clean(str(path), 200)}; r ends it", markup=False)

    def action_pane(self) -> None:
        """Show the next pane."""
        self.query_one(Panes).next()

    def action_back(self) -> None:
        """Give the keys to the variants."""
        self.variants.focus()

    def tables(self) -> dict[str, pl.DataFrame]:
        """Return what can be exported, by name."""
        now = self.feed.now
        found = {"variants": now.table, "ops": now.chosen.ops}
        return {name: frame for name, frame in found.items() if frame is not None and frame.width}

    def action_export(self) -> None:
        """Write what is shown to a file."""
        from .export import ExportScreen

        if tables := self.tables():
            self.app.push_screen(ExportScreen("live", tables))
        else:
            self.app.notify("There is no table to export yet.", markup=False)

    def action_copy_row(self) -> None:
        """Copy the row under the cursor of the table that has the keys."""
        table = self.focused if isinstance(self.focused, FrameTable) else self.variants
        if table.row is not None:
            values = (table.row[column.name] for column in table.columns)
            self.app.notify(
                copy(self.app, "\t".join("" if value is None else clean(str(value)) for value in values)), markup=False
            )

    def action_copy_table(self) -> None:
        """Copy the table that has the keys."""
        table = self.focused if isinstance(self.focused, FrameTable) else self.variants
        if (frame := table.ordered) is not None:
            self.app.notify(copy(self.app, frame.write_csv(separator="\t")), markup=False)

    def action_help(self) -> None:
        """Show the help of this view."""
        from ..keys import help_page
        from .help import HelpScreen

        self.app.push_screen(HelpScreen("live", help_page(self, self.help_text)))


def shown(columns: tuple[Column, ...]) -> list[Column]:
    """Return the columns of the table on the screen, from those of the trials."""
    from kinetop.analysis.question import Column

    known = {column.name: column for column in columns}
    known["interval"] = Column("interval", "text", "95 % interval of the median, microseconds.")
    known["status"] = Column("status", "text", "State with its reason.")
    return [replace(known[name], priority=priority, label=label) for name, (priority, label) in SHOWN.items() if name in known]


def _file_word(name: str) -> str:
    return "".join(char if char.isalnum() or char in "-_." else "-" for char in name)[:60]
