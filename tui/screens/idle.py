"""Why the GPUs waited: the gaps with their causes, and what the host did meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll

from kinetop.analysis.question import Column

from ..devices import device_title, nothing, of_device, share_line, without_place
from ..format import plural
from ..render import gaps
from ..widgets.picture import Picture
from ..widgets.tables import Tables
from .base import ViewScreen, where_name

if TYPE_CHECKING:
    import polars as pl
    from textual.app import ComposeResult
    from textual.timer import Timer

    from kinetop.analysis.question import Result

    from ..widgets.frame_table import FrameTable

BUCKETS = 256
REST_S = 0.12
EMPTY = {"gaps": "no gaps here", "causes": "no idle time", "streams": "no GPU work here"}
SHORT = (
    Column(
        "doing",
        "text",
        "what the launching thread was in: a synchronising call, else operator, Python frame, annotation",
        "the CPU was in",
        0,
    ),
    Column("next_short", "text", "short name of the activity that ends the gap", "next activity", 1),
)
"""Short forms of declared columns."""
FIRST = ("start_us", "rank", "window", "device", "dur_us", "cause", *(column.name for column in SHORT))
"""Columns of the gaps that come first; the parts follow, since the picture below shows them as well."""


@dataclass(frozen=True)
class Answer:
    """What the view shows."""

    result: Result
    devices: tuple[gaps.IdleDevice, ...]
    gaps: pl.DataFrame
    """The gaps, with short forms."""


class IdleScreen(ViewScreen):
    """Devices, gaps, and the gap under the cursor cut into its parts."""

    NAME = "idle"
    HELP = (
        "When each GPU did nothing, and why. A gap is a time in which no stream of the device runs anything; it is cut into "
        "parts that sum to it, and its cause is the largest of them. A filter keeps the gaps before the activities it names. "
        "`c` shows one cause after the other, `t` goes from the gaps to the sums by cause and to the gaps of single streams, "
        "`d` hides the picture of the gap; `enter` on a gap opens the activity that ends it, on a cause its gaps."
    )
    DEFAULT_CSS = """
    IdleScreen {
        #idle-devices { height: auto; max-height: 40%; scrollbar-size: 1 1; }
        #gap { height: auto; border-top: solid $panel; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "cause", "cause", id="idle.cause", tooltip="Show the gaps of the next cause only"),
        Binding("t", "table", "next table", id="idle.table", tooltip="Show gaps, causes or single streams"),
        Binding("d", "pane", "gap", id="idle.pane", show=False, tooltip="Show or hide the gap under the cursor"),
    ]

    AUTO_FOCUS = "#gaps"
    cause: str | None = None
    """The cause shown; None is all."""
    answer: Answer | None = None
    pane: bool = True
    """Whether the gap under the cursor is drawn."""
    _rest: Timer | None = None

    def body(self) -> ComposeResult:
        """Lay out devices, tables and the gap."""
        with VerticalScroll(id="idle-devices", can_focus=False):
            yield Picture(id="idle-cards")
        yield Tables(EMPTY)
        yield Picture(id="gap", steady=True)

    def fetch(self) -> Answer:
        """Ask for the gaps, and for the idle share over time."""
        import polars as pl

        from kinetop.analysis.names import short_names

        work = self.work()
        result = self.question("idle", work=work)
        shorter = result.main.with_columns(
            short_names(result.main["next"]).alias("next_short"), doing=pl.coalesce("sync_name", "op", "frame", "annotation")
        )
        return Answer(result, tuple(idle_devices(result)), shorter)

    def show(self, answer: Answer) -> None:
        """Draw the answer."""
        self.answer = answer
        draw = gaps.cards if len(answer.devices) <= gaps.CARDS else gaps.rows
        self.query_one("#idle-cards", Picture).show(partial(draw, answer.devices) if answer.devices else nothing)
        for table in answer.result.question.tables[1:]:
            frame = answer.result.tables[table.name]
            self.query_one(Tables).table(table.name).show(frame, without_place(table.columns, frame), sort=table.sort)
        self._show_gaps()

    def drill(self, row: dict[str, Any]) -> None:
        """Open the activity that ends a gap, the gaps of a cause, or the work of a stream."""
        if "next" in row:
            if row["next"]:
                self.kinetop.open_view("kernels", where=where_name(row["next"]))
        elif "cause" in row:
            self.cause = row["cause"]
            self._show_gaps()
            self._go_to_gaps()
        else:
            self.kinetop.open_view("kernels", where=f"stream = {row['stream']}")

    def on_frame_table_moved(self, message: FrameTable.Moved) -> None:
        """Draw the gap under the cursor when the cursor rests: a key held down writes the rows only."""
        if message.table.id == "gaps":
            if self._rest is not None:
                self._rest.stop()
            drawing = partial(gaps.gap, message.row) if message.row else None
            self._rest = self.set_timer(REST_S, partial(self.query_one("#gap", Picture).show, drawing))

    def action_cause(self) -> None:
        """Show the gaps of the next cause, after the last one all of them."""
        if self.answer is not None:
            present = self.answer.gaps["cause"].unique().to_list()
            order = [None, *(name for name in gaps.CAUSES if name in present)]
            at = order.index(self.cause) if self.cause in order else -1
            self.cause = order[(at + 1) % len(order)]
            self._show_gaps()
            self._go_to_gaps()

    def action_table(self) -> None:
        """Show the next table."""
        self.query_one(Tables).next()
        self._show_pane()

    def action_pane(self) -> None:
        """Show or hide the gap under the cursor."""
        self.pane = not self.pane
        self._show_pane()

    def _show_pane(self) -> None:
        self.query_one("#gap").display = self.pane and self.query_one(Tables).current == "gaps"

    def _go_to_gaps(self) -> None:
        self.query_one(Tables).go("gaps")
        self._show_pane()

    def _show_gaps(self) -> None:
        if self.answer is None:
            return
        every = self.answer.gaps
        shown = every if self.cause is None else every.filter(every["cause"] == self.cause)
        declared = {column.name: column for column in (*self.answer.result.question.tables[0].columns, *SHORT)}
        for name in ("next", "op"):  # their short forms stand before them
            declared[name] = replace(declared[name], priority=3)
        order = [*FIRST, *(name for name in declared if name not in (*FIRST, "next")), "next"]
        self.query_one(Tables).table("gaps").show(shown, without_place([declared[name] for name in order], every), sort="dur_us")
        self.query_one(Tables).note = "c by cause" if self.cause is None else f"cause: {self.cause}"
        self.status = (
            plural(every.height, "gap")
            if self.cause is None
            else f"{shown.height:,} of {plural(every.height, 'gap')}: {self.cause}"
        )


def idle_devices(result: Result) -> list[gaps.IdleDevice]:
    """Return what is shown of each device.

    Args:
        result: the answer to the idle question.
    """
    from kinetop.analysis.breakdown import busy_share

    work, causes = result.work, result.tables["causes"]
    # Idle is a property of the device: a filter does not make it less busy.
    busy = busy_share(replace(work, gpu=work.all_gpu), BUCKETS)
    found = []
    for window in work.windows.iter_rows(named=True):
        times = dict(of_device(causes, work, window).select("cause", "total_us").iter_rows())
        found.append(
            gaps.IdleDevice(
                title=device_title(work, window),
                window_us=(window["window_end_ns"] - window["window_start_ns"]) / 1000,
                gaps=of_device(result.main, work, window).height,
                parts=tuple((name, times.get(name, 0.0)) for name in gaps.CAUSES),
                share=tuple(1.0 - share for share in share_line(busy, window, BUCKETS)),
            )
        )
    return found
