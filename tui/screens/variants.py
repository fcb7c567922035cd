"""The list in which variants are chosen: those that cannot run here stand in it with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from ..format import clean
from ..widgets.live_table import LiveTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult


class VariantsScreen(ModalScreen[tuple[str, ...] | None]):
    """Mark variants with space; gives back the names in the order of the list, or None when the user left.

    Args:
        variants: what the worker says of each, by name.
        chosen: names that are measured now.
    """

    DEFAULT_CSS = """
    VariantsScreen {
        align: center middle;
        #choose { width: 96%; max-width: 120; height: 90%; border: round $accent; background: $background; }
        #choose-about { height: 2; color: $muted; padding: 0 1; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "close", id="choose.leave"),
        Binding("enter", "take", "measure these", id="choose.take", priority=True),
        Binding("space", "mark", "mark", id="choose.mark"),
        Binding("a", "all", "all that run", id="choose.all", tooltip="Mark every variant that can run here"),
        Binding("n", "none", "none", id="choose.none"),
    ]

    def __init__(self, variants: dict[str, dict[str, Any]], chosen: Sequence[str]) -> None:
        super().__init__()
        self.variants = variants
        self.chosen = {*chosen}

    def compose(self) -> ComposeResult:
        """Make list and line."""
        with Vertical(id="choose") as box:
            box.border_title = "variants"
            box.border_subtitle = Content("space mark  a all that run  n none  ⏎ measure these  esc close")
            yield LiveTable(empty="the worker knows none", id="choose-list")
            yield Static(id="choose-about", markup=False)

    def on_mount(self) -> None:
        """Fill the list and begin at the first one that is measured."""
        self._fill()
        table = self.query_one(LiveTable)
        table.cursor = next((at for at, name in enumerate(self.variants) if name in self.chosen), 0)
        table.focus()

    def on_frame_table_moved(self, message: LiveTable.Moved) -> None:
        """Say what the variant under the cursor does."""
        message.stop()
        told = self.variants.get(str(message.row["variant"])) if message.row else None
        if told is not None:
            text = f"{told.get('about') or told.get('title') or ''}"
            why = told.get("why_not")
            self.query_one("#choose-about", Static).update(Content(clean(f"{text}  Not here: {why}" if why else text, 400)))

    def action_mark(self) -> None:
        """Turn the mark of a row round; one that cannot run here may be marked too and is shown with its reason."""
        if (row := self.query_one(LiveTable).row) is not None:
            self.chosen ^= {str(row["variant"])}
            self._fill()

    def action_all(self) -> None:
        """Mark all that can run."""
        self.chosen = {name for name, told in self.variants.items() if told.get("available", True)}
        self._fill()

    def action_none(self) -> None:
        """Take every mark away."""
        self.chosen = set()
        self._fill()

    def action_take(self) -> None:
        """Give the marked names back."""
        names = tuple(name for name in self.variants if name in self.chosen)
        if names:
            self.dismiss(names)
        else:
            self.query_one("#choose-about", Static).update(Content("mark at least one with space"))

    def action_leave(self) -> None:
        """Close without a change."""
        self.dismiss(None)

    def _fill(self) -> None:
        import polars as pl

        from kinetop.analysis.question import Column

        columns = [
            Column("variant", "text", "Name.", priority=0),
            Column("on", "text", "Whether it is measured.", label="on", priority=0),
            Column("group", "text", "Kind.", priority=2),
            Column("status", "text", "Whether it can run here.", label="here", priority=0),
        ]
        rows = [
            {
                "variant": name,
                "on": "●" if name in self.chosen else "·",
                "group": str(told.get("group") or ""),
                "status": "yes" if told.get("available", True) else f"unavailable: {told.get('why_not') or 'no reason given'}",
            }
            for name, told in self.variants.items()
        ]
        self.query_one(LiveTable).show(
            pl.DataFrame(rows, schema=dict.fromkeys(("variant", "on", "group", "status"), pl.String)), columns
        )
