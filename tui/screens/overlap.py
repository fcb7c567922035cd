"""How much of the communication is hidden behind compute: lanes over time, and tables by kind and by kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll

from ..devices import device_title, nothing, share_line, without_place
from ..format import plural
from ..render import lanes
from ..widgets.picture import Picture
from ..widgets.tables import Tables
from .base import ViewScreen, where_name

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from kinetop.analysis.question import Result

BUCKETS = 512
EMPTY = {
    "kinds": "no communication here",
    "kernels": "no communication kernel here",
    "beside": "no communication kernel here",
    "devices": "no GPU work here",
}


@dataclass(frozen=True)
class Answer:
    """What the view shows."""

    result: Result
    devices: tuple[lanes.LaneDevice, ...]


class LanePane(VerticalScroll, can_focus=True):
    """The lanes; with the keys on them, the arrows go through time."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "screen.pan(-1)", "earlier", id="lanes.earlier", show=False),
        Binding("right,l", "screen.pan(1)", "later", id="lanes.later", show=False),
    ]


class OverlapScreen(ViewScreen):
    """Lanes of communication and compute, and the tables of the overlap question."""

    NAME = "overlap"
    HELP = (
        "How much of the communication runs beside compute, and how much is exposed: no compute runs meanwhile. The lanes show "
        "for each device how busy compute and communication are over the window. `+` and `-` zoom, `0` shows all, `<` and `>` "
        "move through time, as the left and right arrows do with the keys on the lanes (`tab`). `t` goes through the tables: "
        "kinds of collectives, kernels, what ran beside them, devices. `enter` opens the kernels of a row."
    )
    DEFAULT_CSS = """
    LanePane {
        height: auto; max-height: 50%; scrollbar-size: 1 1;
        &:focus Picture { background: $surface; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("t", "table", "next table", id="overlap.table", tooltip="Kinds, kernels, beside, devices")
    ]
    AUTO_FOCUS = "#kinds"

    def body(self) -> ComposeResult:
        """Lay out lanes and tables."""
        with LanePane():
            yield Picture(id="lanes")
        yield Tables(EMPTY)

    def fetch(self) -> Answer:
        """Ask for the overlap, and for the lanes."""
        work = self.work()
        result = self.question("overlap", work=work)
        return Answer(result, tuple(lane_devices(result)))

    def show(self, answer: Answer) -> None:
        """Draw the answer."""
        draw = lanes.cards if len(answer.devices) <= lanes.CARDS else lanes.rows
        self.query_one("#lanes", Picture).show(partial(draw, answer.devices) if answer.devices else nothing)
        for table in answer.result.question.tables:
            frame = answer.result.tables[table.name]
            self.query_one(Tables).table(table.name).show(frame, without_place(table.columns, frame), sort=table.sort)
        self.say_rows(answer.result)
        self.status = plural(int(answer.result.tables["kernels"]["count"].sum()), "communication kernel")

    def drill(self, row: dict[str, Any]) -> None:
        """Open the kernels of a kind, of a name, or the communication of a device."""
        if row.get("name"):
            where = where_name(row["name"])
        elif "kind" in row:
            where = f"family = '{row['kind']}' and rank = {row['rank']} and device = {row['device']}"
        else:
            where = f"class = 'comm' and rank = {row['rank']} and device = {row['device']}"
        self.kinetop.open_view("kernels", where=where)

    def action_table(self) -> None:
        """Show the next table."""
        self.query_one(Tables).next()


def lane_devices(result: Result) -> list[lanes.LaneDevice]:
    """Return what is shown of each device.

    Args:
        result: the answer to the overlap question.
    """
    import polars as pl

    from kinetop.analysis import intervals
    from kinetop.analysis.breakdown import busy_share
    from kinetop.analysis.work import DEVICE, origin_ns

    work = result.work
    comm = work.gpu.filter(pl.col("class") == "comm")
    compute = work.all_gpu.filter(pl.col("class") == "compute")
    sides = {"compute": compute, "comm": comm, "exposed": intervals.subtract(comm, compute, DEVICE)}
    shares = {name: busy_share(replace(work, gpu=rows), BUCKETS) for name, rows in sides.items()}
    zero = origin_ns(work.trace)
    found = []
    for window, row in zip(work.windows.iter_rows(named=True), result.tables["devices"].iter_rows(named=True), strict=True):
        ahead = zero + work.trace.traces[window["part"]].clock_offset_ns
        found.append(
            lanes.LaneDevice(
                title=device_title(work, window),
                start_us=(window["window_start_ns"] - ahead) / 1000,
                end_us=(window["window_end_ns"] - ahead) / 1000,
                comm_us=row["comm_us"],
                exposed_us=row["exposed_comm_us"],
                lanes={name: share_line(share, window, BUCKETS) for name, share in shares.items()},
            )
        )
    return found
