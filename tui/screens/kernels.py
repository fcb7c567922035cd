"""The kernels: a table that is filtered as one types, grouped at will, and the launches behind each row."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from textual.binding import Binding, BindingType

from ..format import clean
from ..render.kernel import SLOWEST, KernelDetail, draw
from ..widgets.frame_table import FrameTable
from ..widgets.picture import Picture
from .base import ViewScreen
from .pick import PickScreen

if TYPE_CHECKING:
    import polars as pl
    from textual.app import ComposeResult
    from textual.timer import Timer

    from kinetop.analysis.question import Result
    from kinetop.analysis.work import Work

DETAIL = "detail"
REST_S = 0.12
"""The pane follows when the cursor has rested this long: holding a key down must not ask for every row."""
BINS = 96
OPS = 4


class KernelTable(FrameTable, inherit_bindings=False):
    """The table without `g`: here that key groups."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("home", "edge(-1)", "first row", id="table.first", show=False) if binding.id == "table.first" else binding
        for binding in FrameTable.BINDINGS
        if isinstance(binding, Binding)
    ]


class KernelsScreen(ViewScreen):
    """Kernel table and detail pane."""

    NAME = "kernels"
    HELP = (
        "Which kernels took the GPU's time. One row is a kernel name, or what `g` groups by. The share is of the time in which "
        "the devices were busy. The pane below follows the cursor: the distribution of durations, their mean over time, how long "
        "after their launch call the kernels began, the operators that launched them, their shape, the slowest. `enter` lists "
        "the launches."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("g", "group", "group by", id="kernels.group", tooltip="Choose what one row stands for"),
        Binding("c", "copies", "copies", id="kernels.copies", show=False, tooltip="Count copies and memsets too, or not"),
        Binding("d", "detail", "detail", id="kernels.detail", show=False, tooltip="Show or hide the pane below"),
    ]

    def __init__(self, *, where: str | None = None) -> None:
        super().__init__(where=where)
        self.group_by = "name"
        self.copies = "no"
        self._from_elsewhere = where is not None
        """Whether the filter was not typed here: it may name a copy."""
        self._answer_work: Work | None = None
        self._rest: Timer | None = None

    def body(self) -> ComposeResult:
        """Lay out table and pane."""
        yield KernelTable(id="kernels", empty="no kernel matches")
        yield Picture(id="detail", classes="pane", steady=True)

    def fetch(self) -> Result:
        """Ask for the kernels; where a filter from elsewhere names copies only, for the copies too."""
        work = self.work()
        answer = self.question("kernels", work=work, group_by=self.group_by, copies=self.copies)
        if self._from_elsewhere and answer.main.is_empty() and not work.gpu.is_empty():
            self.copies = "yes"
            answer = self.question("kernels", work=work, group_by=self.group_by, copies=self.copies)
        return answer

    def show(self, answer: Result) -> None:
        """Fill the table."""
        table = answer.question.tables[0]
        self._answer_work = answer.work
        shown = self.query_one(KernelTable)
        shown.empty = "no kernel matches; c counts copies and memsets too" if self.copies == "no" else "no kernel or copy matches"
        shown.show(answer.main, table.columns, sort=table.sort)
        self.say_rows(answer)
        if self.group_by != "name":
            self.status = f"by {self.group_by}   {self.status}"

    def filter_from_elsewhere(self, text: str) -> None:
        """Filter as another view asks; where only copies match, they are counted too."""
        self._from_elsewhere = True
        super().filter_from_elsewhere(text)

    def drill(self, row: dict[str, Any]) -> None:
        """List the launches behind a row."""
        from .instances import InstancesScreen

        self.app.push_screen(InstancesScreen(label=row["name"], group_by=self.group_by, where=self.where))

    def failed(self, slot: str, error: Exception) -> None:
        """An error of the pane stays in the pane."""
        if slot == DETAIL:
            from textual.content import Content

            said = Content(f" {clean(f'{type(error).__name__}: {error}', 400)}")
            self.query_one("#detail", Picture).show(lambda _width: [said])
        else:
            super().failed(slot, error)

    def on_frame_table_moved(self, message: FrameTable.Moved) -> None:
        """Let the pane follow when the cursor rests."""
        if self._rest is not None:
            self._rest.stop()
        self._rest = self.set_timer(REST_S, partial(self._follow, message.row))

    def action_group(self) -> None:
        """Choose what one row stands for."""
        from kinetop.analysis.kernels import GROUPS

        self.app.push_screen(PickScreen("group by", GROUPS, self.group_by), self._group)

    def action_copies(self) -> None:
        """Count copies and memsets too, or not."""
        self.copies = "no" if self.copies == "yes" else "yes"
        self.ask()

    def action_detail(self) -> None:
        """Show or hide the pane."""
        pane = self.query_one("#detail", Picture)
        pane.display = not pane.display
        if pane.display:
            self._follow(self.query_one(KernelTable).row)

    def _group(self, choice: str | None) -> None:
        if choice is not None and choice != self.group_by:
            self.group_by = choice
            self.ask()

    def _follow(self, row: dict[str, Any] | None) -> None:
        pane, work = self.query_one("#detail", Picture), self._answer_work
        if row is None or work is None:
            pane.show(None)
        elif pane.display:
            self.run(DETAIL, partial(detail, work, self.group_by, row["name"]), lambda found: pane.show(partial(draw, found)))


def detail(work: Work, group_by: str, label: str) -> KernelDetail:
    """Return what the pane shows of a row of the kernel table.

    Args:
        work: the work the table is of.
        group_by: how it is grouped.
        label: the row's name.
    """
    import polars as pl

    from kinetop.analysis.kernels import instances

    rows = instances(work, group_by=group_by, label=label)
    kinds = work.gpu.join(rows.select("part", "event_id"), on=["part", "event_id"], how="semi")
    delays = rows["delay_us"].drop_nulls()
    ops = rows["op"].drop_nulls().value_counts(sort=True).head(OPS)
    slow = rows.sort("dur_us", descending=True).head(SLOWEST)
    return KernelDetail(
        title=label,
        family=_one(kinds["family"]),
        rule=_one(kinds["rule"]),
        count=rows.height,
        shortest_us=_number(rows["dur_us"].min()),
        longest_us=_number(rows["dur_us"].max()),
        bins=_bins(rows["dur_us"]),
        over_time=_over_time(rows),
        delay_us=None if delays.is_empty() else (_number(delays.min()), _number(delays.median()), _number(delays.max())),
        unlinked=rows["delay_us"].null_count(),
        ops=tuple((str(name), int(count)) for name, count in ops.iter_rows()),
        grid=_one(rows["grid"]),
        block=_one(rows["block"]),
        occupancy_pct=_ends(rows["occupancy_pct"]),
        registers=_same(rows["registers_per_thread"]),
        shared_memory_bytes=_same(rows["shared_memory_bytes"]),
        slowest=tuple(slow.select("dur_us", "start_us", pl.col("step").cast(pl.String).fill_null("")).iter_rows()),
    )


def _number(value: Any) -> float:
    return 0.0 if value is None else float(value)


def _one(values: pl.Series) -> str:
    """The text of all rows, or that there are several."""
    texts = values.drop_nulls().unique()
    return "" if texts.is_empty() else str(texts[0]) if texts.len() == 1 else f"{texts.len():,} different"


def _same(values: pl.Series) -> int | None:
    numbers = values.drop_nulls().unique()
    return int(numbers[0]) if numbers.len() == 1 else None


def _ends(values: pl.Series) -> tuple[float, float] | None:
    known = values.drop_nulls()
    return None if known.is_empty() else (_number(known.min()), _number(known.max()))


def _bins(durations: pl.Series) -> tuple[int, ...]:
    """Count durations in equal bins between the shortest and the longest."""
    low, high = _number(durations.min()), _number(durations.max())
    if durations.is_empty() or high <= low:
        return (durations.len(),)
    at = ((durations - low) / (high - low) * BINS).floor().clip(0, BINS - 1).cast(int)
    counts = dict(at.value_counts().iter_rows())
    return tuple(counts.get(n, 0) for n in range(BINS))


def _over_time(rows: pl.DataFrame) -> tuple[float | None, ...]:
    """Mean duration in equal parts of the time between the first launch and the last."""
    import polars as pl

    start = pl.col("start_us")
    length = _number(rows["start_us"].max()) - _number(rows["start_us"].min())
    if rows.height < 2 or length <= 0:
        return tuple(rows["dur_us"].to_list())
    at = ((start - start.min()) / length * BINS).floor().clip(0, BINS - 1).cast(pl.Int32)
    means = dict(rows.group_by(at.alias("at")).agg(pl.col("dur_us").mean()).iter_rows())
    return tuple(means.get(n) for n in range(BINS))
