"""The overview: each device, where its time went, what to look at, what the import had to say, and the kernels that took most."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from ..devices import device_title
from ..format import clean, plural
from ..render.devices import Device, cards, rows
from ..widgets.frame_table import FrameTable
from ..widgets.links import Links
from ..widgets.picture import Picture
from .base import ViewScreen, where_name

if TYPE_CHECKING:
    import polars as pl
    from textual.app import ComposeResult

    from kinetop.analysis.question import Result
    from kinetop.analysis.work import Work
    from kinetop.traces.report import Notice

BUCKETS = 256
FINDINGS = 3
"""How many of the findings are shown; their view has them all."""
CARDS = 2
"""With more devices than this, each gets a line instead of a card."""
SHARES = (("compute", "compute_pct"), ("comm", "exposed_comm_pct"), ("memory", "exposed_memory_pct"), ("idle", "idle_pct"))


class OverviewScreen(ViewScreen):
    """Devices, notes and top kernels."""

    NAME = "overview"
    HELP = (
        "Where the time of each GPU went. The bar counts every moment of the window once: compute, then communication with no "
        "compute beside it, then copies with neither, then idle; the four shares sum to 100 %. Below it, how busy the device and "
        "its busiest streams were over the window. The verdict says whether the figures can be trusted. `enter` on a kernel "
        "opens it among the kernels; `f` goes to what to look at (the findings with the largest share), where `enter` opens the "
        "evidence; `w` reads the notes on the trace."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "f", "look", "what to look at", id="overview.look", show=False, tooltip="Go to the findings, or back to the kernels"
        ),
        Binding("w", "notes", "notes", id="overview.notes", tooltip="All notes on this trace"),
    ]

    AUTO_FOCUS = "#kernels"

    def __init__(self, *, where: str | None = None) -> None:
        super().__init__(where=where)
        self._notices: tuple[Notice, ...] = ()

    def body(self) -> ComposeResult:
        """Lay out cards, notes and table."""
        with VerticalScroll(id="devices", can_focus=False):
            yield Picture(id="cards")
        yield Static(" What to look at", id="look-caption", markup=False)
        yield Links(id="look")
        yield Static(id="notes", markup=False)
        yield Static(" Top kernels", id="caption", markup=False)
        yield FrameTable(id="kernels", empty="no kernel in this scope")

    def fetch(self) -> Result:
        """Ask for the kernels; the rest follows, since it takes longer."""
        return self.question("kernels", work=self.work())

    def show(self, answer: Result) -> None:
        """Fill the table, and ask for the devices."""
        table = answer.question.tables[0]
        self.query_one(FrameTable).show(answer.main, table.columns, sort=table.sort)
        self.say_rows(answer)
        self.run("devices", partial(self._measured, answer.work), partial(self._show_devices, answer.work))

    def _measured(self, work: Work) -> tuple[Device, ...]:
        return tuple(devices(self.question("summary", work=work)))

    def _show_devices(self, work: Work, found: tuple[Device, ...]) -> None:
        """Draw the cards, and ask for what to look at."""
        draw = cards if len(found) <= CARDS else rows
        nothing = [Content(" No GPU work here: the trace holds no kernels or copies in this scope.")]
        self.query_one("#cards", Picture).show(partial(draw, found) if found else lambda _width: nothing)
        self._say_notes(found)
        self.run("look", partial(self.question, "findings", work=work), self._show_findings)

    def drill(self, row: dict[str, Any]) -> None:
        """Open the kernel under the cursor among the kernels."""
        if row.get("name"):
            self.kinetop.open_view("kernels", where=where_name(row["name"]))

    def on_links_opened(self, message: Links.Opened) -> None:
        """Open the evidence of a finding."""
        view, where = message.target
        self.kinetop.open_view(view if view in self.kinetop.views else "overview", where=where or None)

    def action_look(self) -> None:
        """Go to the findings, or back."""
        look = self.query_one(Links)
        if look.display:
            self.set_focus(self.query_one(FrameTable) if look.has_focus else look)

    def action_notes(self) -> None:
        """Read all notes."""
        from .help import NoticesScreen

        self.app.push_screen(NoticesScreen(self._notices))

    def _show_findings(self, answer: Result) -> None:
        """Show the first findings; without any, say so."""
        top = answer.main.head(FINDINGS)
        self.query_one(Links).show(
            [
                (Content.assemble((f" {number}  ", "$muted"), clean(row["what"], 400)), (row["view"], row["where"]))
                for number, row in enumerate(top.iter_rows(named=True), 1)
            ]
        )
        said = "" if top.height else "   nothing stands out"
        self.query_one("#look-caption", Static).update(Content.assemble(" What to look at", (said, "not bold $muted")))

    def _say_notes(self, shown: tuple[Device, ...]) -> None:
        """Put the first note on a line: what stands against the figures first, then what the import repaired."""
        from kinetop.traces.report import Notice

        doubts = [Notice("coverage", 1, f"{device.title}: {device.why}") for device in shown if not device.trusted]
        told = sorted(self.traces.warnings, key=lambda notice: notice.level != "warning")
        self._notices = (*doubts, *told)
        line = self.query_one("#notes", Static)
        line.display = bool(self._notices)
        if self._notices:
            said = f" {plural(len(self._notices), 'note')} "
            text = clean(self._notices[0].message, 400)
            line.update(Content.assemble((said, "bold $text-warning"), ("w reads all  ", "$muted"), text))


def devices(summary: Result) -> list[Device]:
    """Return what the cards show, from the summary."""
    import polars as pl

    from kinetop.analysis.breakdown import busy_share
    from kinetop.analysis.coverage import coverage

    work = summary.work
    busy = busy_share(work, BUCKETS, streams=True)
    found = []
    for at, row in enumerate(summary.tables["breakdown"].iter_rows(named=True)):
        window = work.windows.row(at, named=True)
        here = [pl.col(name) == window[name] for name in ("part", "rank", "device")]
        mine = busy.filter(here)
        told = coverage(replace(work, gpu=work.gpu.filter(here)))
        properties = work.trace.traces[window["part"]].devices.get(row["device"], {})
        found.append(
            Device(
                title=device_title(work, window),
                name=_told(str(properties.get("name", "")), work, window["part"]),
                window_us=row["window_us"],
                shares=tuple((name, row[column] or 0.0) for name, column in SHARES),
                busy=_line(mine.filter(pl.col("stream").is_null())),
                streams=_streams(mine),
                coverage_pct=told["linked_pct"],
                verdict=told["verdict"],
                why=told["why"],
            )
        )
    return found


def _told(model: str, work: Work, part: int) -> str:
    """What a device is; where its rank has several files, which one: `#2` alone says little."""
    trace = work.trace.traces[part]
    if [one.rank for one in work.trace.traces].count(trace.rank) > 1:
        model = trace.path.name.partition(".pt.trace")[0].partition(".json")[0]
    return clean(model, 40)


def _streams(busy: pl.DataFrame) -> tuple[tuple[str, tuple[float | None, ...]], ...]:
    """The streams of one device, the busiest first."""
    import polars as pl

    of_stream = busy.filter(busy["stream"].is_not_null())
    order = of_stream.group_by("stream").agg(pl.col("busy_ns").sum()).sort("busy_ns", "stream", descending=[True, False])
    return tuple((f"stream {stream}", _line(of_stream.filter(pl.col("stream") == stream))) for stream in order["stream"])


def _line(busy: pl.DataFrame) -> tuple[float | None, ...]:
    """Busy share by bucket; a bucket without a row is idle."""
    values = [0.0] * BUCKETS
    for bucket, share in busy.select("bucket", "share").iter_rows():
        if 0 <= bucket < BUCKETS:
            values[bucket] = share
    return tuple(values)
