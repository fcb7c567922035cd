"""Where one chooses what to open: a path, a recent trace, or a file of a folder."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Label, Static
from textual.worker import get_current_worker

from kinetop.analysis.question import Column

from ..files import KIND_TEXT, OPENABLE, Entry, kind_of, listing, named_paths
from ..format import clean, plural
from ..recent import RecentTrace, RecentTraces
from ..widgets.frame_table import FrameTable
from ..widgets.lines import KeyLine, TitleLine
from ..widgets.path_field import PathField

if TYPE_CHECKING:
    import polars as pl
    from textual import events
    from textual.app import ComposeResult
    from textual.widgets import Input

    from ..app import KinetopApp

RECENT_COLUMNS = (
    Column("name", "text", "File or folder that was opened.", label="recent", priority=0),
    Column("folder", "text", "Where it lies.", priority=3),
    Column("bytes", "bytes", "Size on disk.", label="size", priority=1),
    Column("events", "count", "Events in it.", priority=2),
    Column("ranks", "count", "Ranks in it.", priority=2),
    Column("opened", "text", "When it was opened last.", priority=1),
)
FILE_COLUMNS = (
    Column("name", "text", "Name in the folder.", priority=0),
    Column("holds", "text", "What it is, told from its first 64 kB.", priority=1),
    Column("bytes", "bytes", "Size on disk.", label="size", priority=1),
    Column("changed", "text", "When it was written last.", priority=2),
)
NO_RECENT = "none yet: type or paste a path (p), or open a trace below (enter)"
NEWS_S = 0.5
"""A long listing is shown as far as it got, this often."""


class HomeScreen(Screen[None]):
    """A path field, recent traces and a file browser.

    Args:
        folder: where the browser begins; None means the current folder.
    """

    app: KinetopApp
    AUTO_FOCUS = "#files"
    DEFAULT_CSS = """
    HomeScreen {
        #open { height: 1; padding: 0 1; }
        #open Label { width: 6; color: $muted; }
        PathField { width: 1fr; }
        #hint { height: auto; max-height: 3; padding: 0 1 0 7; color: $muted; }
        #recent { height: 3; }
        #where { height: 1; margin-top: 1; padding: 0 1; }
        #files { height: 1fr; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "o", "open_folder", "open folder as one", id="home.folder", tooltip="Open the folder's traces as ranks of one job"
        ),
        Binding("p", "path", "path", id="home.path", tooltip="Type or paste a path"),
        Binding("slash", "path('/')", show=False, id="home.path_root"),
        Binding("tilde", "path('~')", show=False, id="home.path_home"),
        Binding("u,backspace", "up", "up", id="home.up"),
        Binding("a", "all", "all files", id="home.all"),
        Binding("x", "forget", "forget", id="home.forget", tooltip="Take the trace off the recent ones"),
        Binding("escape", "leave_field", show=False, id="home.leave_field"),
        Binding("q", "app.quit", "quit", id="home.quit"),
    ]

    class Listed(Message):
        """The files of a folder, looked into so far."""

        def __init__(self, folder: Path, entries: list[Entry], error: OSError | None = None) -> None:
            super().__init__()
            self.folder = folder
            self.entries = entries
            self.error = error

    class Remembered(Message):
        """The recent traces were read."""

        def __init__(self, entries: list[RecentTrace], problem: str | None) -> None:
            super().__init__()
            self.entries = entries
            self.problem = problem

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__()
        self.folder = (folder or Path()).absolute()
        self.entries: list[Entry] = []
        self.recent: list[RecentTrace] = []
        self.error: OSError | None = None
        self.show_all = False
        self._came_from = ""

    def compose(self) -> ComposeResult:
        """Lay out field, recent traces and files."""
        title = TitleLine()
        title.parts = ("home",)
        title.status = "enter opens, tab goes on"
        yield title
        with Horizontal(id="open"):
            yield Label("open", markup=False)
            yield PathField(placeholder="a trace, a folder of ranks, or a Parquet trace; tab completes", id="path")
        yield Static(id="hint", markup=False)
        yield FrameTable(empty=NO_RECENT, id="recent")
        yield Static(id="where", markup=False)
        yield FrameTable(id="files")
        yield KeyLine()

    def on_mount(self) -> None:
        """Draw first, then read the folder in a thread: Polars takes its time to load."""
        self._say_where()
        self._go(self.folder)

    def on_screen_resume(self) -> None:
        """Read the recent traces, also when coming back from a trace."""
        self.run_worker(self._remember, thread=True, group="recent")

    def on_resize(self) -> None:
        """Share the height between the two lists."""
        shown = max(1, min(len(self.recent), self.size.height // 3))
        self.query_one("#recent").styles.height = shown + 1
        self._say_where()

    # What is read in threads

    def _remember(self) -> None:
        recent = RecentTraces()
        self.post_message(self.Remembered(recent.entries(), recent.problem()))

    def _list(self) -> None:
        worker, folder = get_current_worker(), self.folder
        try:
            entries = listing(folder)
        except OSError as error:
            self.post_message(self.Listed(folder, [], error))
            return
        said_s = time.monotonic()
        for at, entry in enumerate(entries):
            if worker.is_cancelled:
                return
            if entry.kind is None:
                entries[at] = replace(entry, kind=kind_of(entry.path))
            if time.monotonic() - said_s > NEWS_S:
                said_s = time.monotonic()
                self.post_message(self.Listed(folder, list(entries)))
        self.post_message(self.Listed(folder, entries))

    def on_home_screen_remembered(self, message: Remembered) -> None:
        """Show the recent traces; where there are any, they are the likely choice."""
        first, self.recent = not self.recent, message.entries
        table = self.query_one("#recent", FrameTable)
        table.show(recent_frame(self.recent), RECENT_COLUMNS, sort="opened")
        self.on_resize()
        if first and self.recent and self.focused is self.query_one("#files"):
            table.focus()
        if message.problem:
            self.app.notify(message.problem, severity="warning", markup=False)

    def on_home_screen_listed(self, message: Listed) -> None:
        """Show the files, unless the user went on to another folder."""
        if message.folder == self.folder:
            self.entries = message.entries
            self.error = message.error
            self._say_where()
            self._show_files()

    # Keys

    def action_path(self, text: str = "") -> None:
        """Put the cursor into the path field."""
        field = self.query_one(PathField)
        if text:
            field.put(text)
        field.focus()

    def action_leave_field(self) -> None:
        """Go from the path field back to the files."""
        self.query_one("#files").focus()

    def action_open_folder(self) -> None:
        """Open the traces of the folder under the cursor, else of the one shown, as one set."""
        entry = self._entry() if self.focused is self.query_one("#files") else None
        self.app.open_paths([entry.path if entry and entry.kind == "folder" else self.folder])

    def action_up(self) -> None:
        """Go to the folder above."""
        self._go(self.folder.parent)

    def action_all(self) -> None:
        """Show or hide files that are no traces."""
        self.show_all = not self.show_all
        self._say_where()
        self._show_files()

    def action_forget(self) -> None:
        """Take the recent trace under the cursor off the list."""
        row = self.query_one("#recent", FrameTable).row
        if row is not None:
            recent = RecentTraces()
            recent.remove(self.recent[row["at"]].paths)
            self.post_message(self.Remembered(recent.entries(), recent.problem()))

    def on_frame_table_picked(self, event: FrameTable.Picked) -> None:
        """Open a recent trace or a file, or go into a folder."""
        at = event.row["at"]
        if event.table.id == "recent":
            self.app.open_paths([Path(path) for path in self.recent[at].paths])
        elif at < 0:
            self.action_up()
        elif self.entries[at].kind == "folder":
            self._go(self.entries[at].path)
        else:
            self.app.open_paths([self.entries[at].path])

    def on_paste(self, event: events.Paste) -> None:
        """Take a dropped or pasted path into the field, wherever the cursor is."""
        event.stop()
        self.action_path(" ".join(event.text.split("\n")).strip())

    def on_path_field_completions(self, event: PathField.Completions) -> None:
        """Show how the path can go on."""
        self._hint("   ".join(clean(Path(text).name, 40) for text in event.texts[:20]))

    def on_input_changed(self) -> None:
        """What was said about an older text no longer holds."""
        self._hint("")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Open what the field names; a folder is gone into, so that one sees what it holds."""
        try:
            paths = named_paths(event.value)
        except ValueError as error:
            self._hint(f"{error}: a quote is open")
            return
        missing = [path for path in paths if not path.exists()]
        if missing:
            self._hint(f"there is no {clean(str(missing[0]))}")
        elif len(paths) == 1 and paths[0].is_dir():
            self._go(paths[0].absolute())
            self.query_one("#files").focus()
            self._hint("o opens the traces of this folder as one set")
        elif paths:
            self.app.open_paths(paths)

    # Inside

    def _go(self, folder: Path) -> None:
        self._came_from = self.folder.name if folder == self.folder.parent else ""
        self.folder, self.entries, self.error = folder, [], None
        self.run_worker(self._list, thread=True, exclusive=True, group="listing")

    def _entry(self) -> Entry | None:
        row = self.query_one("#files", FrameTable).row
        return self.entries[row["at"]] if row and row["at"] >= 0 else None

    def _show_files(self) -> None:
        frame = file_frame(self.entries, show_all=self.show_all, top=self.folder == self.folder.parent)
        table = self.query_one("#files", FrameTable)
        table.show(frame, FILE_COLUMNS)
        if self._came_from and table.find(frame["name"] == f"{printable(self._came_from)}/", 1):
            self._came_from = ""

    def _say_where(self) -> None:
        traces = sum(entry.kind in OPENABLE for entry in self.entries)
        others = sum(entry.kind not in {*OPENABLE, "folder"} for entry in self.entries)
        counts = plural(traces, "trace")
        if others:
            counts += f", {plural(others, 'other file')} {'shown' if self.show_all else 'hidden'}"
        if self.error is not None:
            counts = f"cannot be read: {self.error.strerror or self.error}"
        path = tail(clean(short_path(self.folder)), self.size.width - cell_len(counts) - 5)
        self.query_one("#where", Static).update(Content.assemble((path, "bold"), "   ", (counts, "$muted")))

    def _hint(self, text: str) -> None:
        self.query_one("#hint", Static).update(Content(text))


def short_path(path: Path) -> str:
    """Return a path with `~` for the home folder.

    Args:
        path: an absolute path.
    """
    home = Path.home()
    return str(Path("~") / path.relative_to(home)) if path.is_relative_to(home) else str(path)


def tail(text: str, width: int) -> str:
    """Return a text cut at its beginning, since the end of a path says most.

    Args:
        text: what is written.
        width: cells it may take.
    """
    while cell_len(text) > max(1, width):
        text = "…" + text[2:]
    return text


def printable(name: str) -> str:
    """Return a file name as valid text: bytes that are not UTF-8 become a replacement sign.

    Args:
        name: a name as the system gives it.
    """
    return os.fsencode(name).decode("utf-8", "replace")


def when(seconds: float) -> str:
    """Return a point of time in local time; its texts sort like the times.

    Args:
        seconds: since 1970.
    """
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")


def recent_frame(entries: list[RecentTrace]) -> pl.DataFrame:
    """Return the recent traces as `RECENT_COLUMNS` and `at`, the position in the list.

    Args:
        entries: newest first.
    """
    import polars as pl

    rows = []
    for at, entry in enumerate(entries):
        path = Path(entry.paths[0])
        more = f" and {len(entry.paths) - 1} more" if len(entry.paths) > 1 else ""
        name, folder = printable(path.name or str(path)), printable(str(path.parent))
        rows.append((name + more, folder, entry.bytes, entry.events, entry.ranks, when(entry.opened_s), at))
    names = [*(column.name for column in RECENT_COLUMNS), "at"]
    types = [pl.String, pl.String, pl.Int64, pl.Int64, pl.Int64, pl.String, pl.Int64]
    return pl.DataFrame(rows, schema=dict(zip(names, types, strict=True)), orient="row")


def file_frame(entries: list[Entry], *, show_all: bool, top: bool) -> pl.DataFrame:
    """Return a folder's entries as `FILE_COLUMNS` and `at`, the position in the list; -1 stands for the folder above.

    Args:
        entries: what lies in the folder.
        show_all: keep files that are no traces.
        top: there is no folder above.
    """
    import polars as pl

    rows: list[tuple[str, str, int | None, str, int]] = [] if top else [("..", "", None, "", -1)]
    for at, entry in enumerate(entries):
        if show_all or entry.kind == "folder" or entry.kind in OPENABLE:
            slash = "/" if entry.kind == "folder" else ""
            holds = KIND_TEXT[entry.kind] if entry.kind else "…"
            rows.append((printable(entry.path.name) + slash, holds, entry.bytes, when(entry.modified_s), at))
    names = [*(column.name for column in FILE_COLUMNS), "at"]
    types = [pl.String, pl.String, pl.Int64, pl.String, pl.Int64]
    return pl.DataFrame(rows, schema=dict(zip(names, types, strict=True)), orient="row")
