"""Every launch behind a row of the kernel table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..format import clean, plural
from ..widgets.filter_bar import FilterBar
from ..widgets.frame_table import FrameTable
from .base import ViewScreen

if TYPE_CHECKING:
    import polars as pl
    from textual.app import ComposeResult


class InstancesScreen(ViewScreen):
    """The launches, in order of time.

    Args:
        label: name of the row.
        group_by: how its table is grouped.
        where: filter that held there.
    """

    NAME = "kernels"
    HELP = "Every launch of the row that was opened, in order of time. Sort by duration or launch delay to find the odd ones."

    def __init__(self, *, label: str, group_by: str, where: str | None = None) -> None:
        super().__init__(where=where)
        self.label = label
        self.group_by = group_by
        self.view_name = f"kernels / {clean(label, 60)}"

    def body(self) -> ComposeResult:
        """Lay out the table."""
        yield FrameTable(id="launches", empty="no launch matches")

    def action_back(self) -> None:
        """Go back to the table; its filter holds on."""
        self.app.pop_screen()

    def fetch(self) -> pl.DataFrame:
        """Ask for the launches."""
        from kinetop.analysis.kernels import instances

        return instances(self.work(), group_by=self.group_by, label=self.label)

    def show(self, answer: pl.DataFrame) -> None:
        """Fill the table."""
        from kinetop.analysis.kernels import INSTANCE_COLUMNS

        # The start leads: the name is in the title, and of one rank and device nothing is to be told apart.
        several = {name for name in ("part", "rank", "device", "name") if answer[name].n_unique() > 1}
        hidden = {"part", "rank", "device", "name"} - several
        columns = sorted(
            (column for column in INSTANCE_COLUMNS if column.name not in hidden), key=lambda column: column.name != "start_us"
        )
        self.query_one(FrameTable).show(answer, columns, sort="start_us", descending=False)
        self.status = plural(answer.height, "activity").replace("activitys", "activities")
        self.query_one(FilterBar).say(self.status if self.where else "")
