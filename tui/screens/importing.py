"""What is seen while traces are read: how far, how fast, how long still; and one sentence when it does not work."""

from __future__ import annotations

import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from kinetop.traces.errors import CancelledError, TraceError

from ..format import clean, plural, size
from ..render.bars import meter
from ..widgets.lines import KeyLine, TitleLine

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from ..app import KinetopApp
    from ..messages import ImportEnded, ImportProgress

REDRAW_S = 0.25
"""The bar moves at most this often: each redraw goes over the wire."""
SETTLING_S = 1.0
"""Before this, a speed says nothing about the time left."""
WIDEST = 100


class ImportingScreen(Screen[None]):
    """Progress of an import, and its failure.

    Args:
        paths: what is being opened.
    """

    app: KinetopApp
    DEFAULT_CSS = "#importing { height: 1fr; padding: 1 2; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "cancel", id="importing.cancel"),
        Binding("escape", "home", "home", id="importing.home"),
        Binding("r", "retry", "try again", id="importing.retry"),
        Binding("q", "app.quit", "quit", id="importing.quit"),
    ]

    def __init__(self, paths: list[Path]) -> None:
        super().__init__()
        self.paths = paths
        self.error: Exception | None = None
        self.cancelling = False
        self._state: dict[str, Any] = {}
        self._began_s = time.monotonic()

    def compose(self) -> ComposeResult:
        """Make the title, the block below it and the keys."""
        title = TitleLine()
        title.parts = ("opening", named(self.paths))
        yield title
        yield Static(id="importing")
        yield KeyLine()

    def on_mount(self) -> None:
        """Begin to draw."""
        self._draw()
        self._ticks = self.set_interval(REDRAW_S, self._draw)

    def on_resize(self) -> None:
        """Fit the bar to the new width."""
        self._draw()

    def on_import_progress(self, message: ImportProgress) -> None:
        """Keep the newest state; the next tick draws it, so that no number of messages makes a queue."""
        self._state = message.state

    def on_import_ended(self, message: ImportEnded) -> None:
        """Stop drawing, and say what went wrong, if anything."""
        self._ticks.stop()
        if message.error is not None and not isinstance(message.error, CancelledError):
            self.error = message.error
            self.query_one("#importing", Static).update(failure(message.error))
            self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 (Textual's signature)
        """Offer to cancel while it goes on, and ways out after a failure."""
        if action == "cancel":
            return self.error is None
        return action not in {"home", "retry"} or self.error is not None

    def action_cancel(self) -> None:
        """Cancel the import; the app goes home when it has ended."""
        if not self.cancelling:
            self.cancelling = True
            self._draw()
            self.app.cancel_import()

    def action_home(self) -> None:
        """Go home after a failure."""
        self.app.go_home()

    def action_retry(self) -> None:
        """Open the same paths once more."""
        self.app.open_paths(self.paths)

    def _draw(self) -> None:
        if self.error is None:
            width = max(10, min(self.size.width - 4, WIDEST))
            elapsed_s = time.monotonic() - self._began_s
            lines = progress(self._state, elapsed_s, width, cancelling=self.cancelling)
            self.query_one("#importing", Static).update(Content("\n").join(lines))


def named(paths: list[Path]) -> str:
    """Return what to call paths in a title: the name of one, the number of several.

    Args:
        paths: what is opened.
    """
    return clean(paths[0].name or str(paths[0])) if len(paths) == 1 else f"{len(paths)} files"


def progress(state: dict[str, Any], elapsed_s: float, width: int, *, cancelling: bool = False) -> list[Content]:
    """Return the lines that say how far an import is.

    Args:
        state: `file`, `bytes` and `total_bytes` of the file on disk, `events`; empty before the first news.
        elapsed_s: seconds since the import began.
        width: cells of a line.
        cancelling: the user asked to stop.
    """
    done, total, events = state.get("bytes") or 0, state.get("total_bytes") or 0, state.get("events") or 0
    figures = [f"{size(done)} of {size(total)}" if total else size(done), plural(events, "event")]
    if elapsed_s > SETTLING_S and done:
        speed = done / elapsed_s
        figures.append(f"{size(speed)}/s")
        if total > done:
            figures.append(f"{roughly((total - done) / speed)} left")
    share = min(1.0, done / total) if total else 0.0
    return [
        Content.styled(clean(str(state.get("file") or "reading …"), width), "bold"),
        Content.assemble((meter(share, width - 7), "$accent on $panel"), f"{share * 100:5.0f} %"),
        Content("   ".join(figures)),
        Content.styled("cancelling; nothing is kept" if cancelling else "", "$muted"),
    ]


def roughly(seconds: float) -> str:
    """Return a rough time as a person says it.

    Args:
        seconds: how long.
    """
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def failure(error: Exception) -> Content:
    """Return what to say about an import that failed: the sentence of the error; of a fault of kinetop's own also where.

    Args:
        error: what was raised.
    """
    head = Content.styled("This cannot be opened.", "bold $text-error")
    if isinstance(error, (TraceError, OSError)):
        return Content.assemble(head, "\n\n", clean(str(error)))
    if isinstance(error, MemoryError):
        return Content.assemble(
            head, "\n\n", "There is not enough memory. Close other programs, or convert the file elsewhere first."
        )
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    where = [f"{Path(frame.filename).name}, line {frame.lineno}, {frame.name}" for frame in frames]
    return Content.assemble(
        head,
        "\n\nkinetop itself failed; for a report, this is where:\n\n",
        ("\n".join([*where, clean(f"{type(error).__name__}: {error}")]), "$muted"),
    )
