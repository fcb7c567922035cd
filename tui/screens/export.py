"""The dialog that writes what a view shows to a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Static

from ..files import expanded
from ..format import cell, clean, plural
from ..output import write_frame
from ..widgets.path_field import PathField

if TYPE_CHECKING:
    import polars as pl
    from textual.app import ComposeResult
    from textual.widgets import Input

FORMATS: dict[str, Literal["csv", "json", "parquet", "md"]] = {".csv": "csv", ".json": "json", ".parquet": "parquet", ".md": "md"}
"""Format by suffix."""
HINT = "the suffix says the format: .csv .json .parquet .md"


class ExportScreen(ModalScreen[Path | None]):
    """Ask for a path and write a table there; gives back the path, or None when the user left.

    Args:
        name: the view's name; the default file is called after it.
        tables: what can be written, rows and columns as shown; the first is offered.
    """

    DEFAULT_CSS = """
    ExportScreen {
        align: center middle;
        #export { width: 92%; max-width: 90; height: auto; border: round $accent; padding: 0 1; }
        #export-said { height: auto; color: $muted; }
        #export-said.-error { color: $text-error; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "close", id="export.leave"),
        Binding("down", "other_table(1)", "next table", id="export.next", priority=True),
        Binding("up", "other_table(-1)", "previous table", id="export.previous", priority=True),
    ]

    class Written(Message):
        """The file was written, or could not be."""

        def __init__(self, path: Path, error: Exception | None = None) -> None:
            super().__init__()
            self.path = path
            self.error = error

    def __init__(self, name: str, tables: dict[str, pl.DataFrame]) -> None:
        super().__init__()
        self.view_name = name
        self.tables = tables
        self.chosen = next(iter(tables))
        self.writing = False
        self._confirmed = ""

    def compose(self) -> ComposeResult:
        """Lay out what is written, where, and what there is to say."""
        with Vertical(id="export") as box:
            box.border_title = "export"
            box.border_subtitle = "⏎ write  tab complete  esc close"
            yield Static(id="export-what", markup=False)
            yield PathField(self._default_path(), id="export-path")
            yield Static(id="export-said", markup=False)

    def on_mount(self) -> None:
        """Put the cursor behind the path."""
        field = self.query_one(PathField)
        field.put(field.value)
        field.focus()
        self._say(HINT)
        self._show_what()

    def action_leave(self) -> None:
        """Close without writing."""
        self.dismiss(None)

    def action_other_table(self, step: int) -> None:
        """Write another table of the view; the file name follows unless the user changed it."""
        names, field = list(self.tables), self.query_one(PathField)
        suffix = Path(field.value).suffix
        untouched = field.value == self._default_path(suffix)
        self.chosen = names[(names.index(self.chosen) + step) % len(names)]
        if untouched:
            field.put(self._default_path(suffix))
        self._show_what()

    def on_input_changed(self) -> None:
        """A question about another path no longer stands."""
        self._confirmed = ""
        self._say(HINT)

    def on_path_field_completions(self, event: PathField.Completions) -> None:
        """Show how the path can go on."""
        self._say("   ".join(clean(Path(text).name, 40) for text in event.texts[:12]))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Check the path, ask before a file is lost, then write in a thread."""
        path = expanded(event.value.strip())
        if path.suffix.lower() not in FORMATS:
            self._say(f"{path.suffix or 'no suffix'} is no format: use .csv, .json, .parquet or .md", error=True)
        elif not path.parent.is_dir():
            self._say(f"there is no folder {clean(str(path.parent))}", error=True)
        elif path.is_dir():
            self._say("this is a folder", error=True)
        elif path.exists() and self._confirmed != event.value:
            self._confirmed = event.value
            self._say(f"this file exists ({cell(path.stat().st_size, 'bytes')}); ⏎ again overwrites it", error=True)
        elif not self.writing:
            self.writing = True
            self._say("writing …")
            self.run_worker(lambda: self._write(self.tables[self.chosen], path), thread=True)

    def on_export_screen_written(self, message: Written) -> None:
        """Say what was written, or why not."""
        self.writing = False
        if message.error is not None:
            reason = getattr(message.error, "strerror", None) or str(message.error)
            self._say(f"{clean(str(message.path))} cannot be written: {clean(reason)}", error=True)
            return
        size = cell(message.path.stat().st_size, "bytes")
        self.app.notify(f"Wrote {self._extent()} to {clean(str(message.path))} ({size})", markup=False)
        self.dismiss(message.path)

    def _write(self, frame: pl.DataFrame, path: Path) -> None:
        # Written beside and renamed: a full disk leaves the older file as it was, and no half one.
        part = path.with_name(f".{path.name}.part")
        try:
            write_frame(frame, part, FORMATS[path.suffix.lower()])
            part.replace(path)
        except Exception as error:  # the dialog shows any failure; the app lives
            part.unlink(missing_ok=True)
            self.post_message(self.Written(path, error))
        else:
            self.post_message(self.Written(path))

    def _default_path(self, suffix: str = ".csv") -> str:
        table = f"-{self.chosen}" if self.chosen != self.view_name else ""
        return f"kinetop-{self.view_name}{table}{suffix}"

    def _extent(self) -> str:
        frame = self.tables[self.chosen]
        return f"{plural(frame.height, 'row')}, {plural(frame.width, 'column')}"

    def _show_what(self) -> None:
        more = f"   ↑ ↓ other tables ({len(self.tables)})" if len(self.tables) > 1 else ""
        self.query_one("#export-what", Static).update(
            Content.assemble((clean(self.chosen), "bold"), f"   {self._extent()}, as shown", (more, "$muted"))
        )

    def _say(self, text: str, *, error: bool = False) -> None:
        said = self.query_one("#export-said", Static)
        said.update(Content(text))
        said.set_class(error, "-error")
