"""`kinetop live` and `kinetop replay` in the terminal: the app of the trace views, with the live screen in front."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from .app import KinetopApp
from .live_feed import Feed
from .screens.live import LiveScreen

if TYPE_CHECKING:
    from pathlib import Path

    from textual.message import Message

    from .live_feed import FeedOptions
    from .options import Options

LIVE = "live"
"""Mode of the live screen."""
HOST_VIEW = "ops"
"""View that a capture without a GPU begins with."""


class LiveApp(KinetopApp):
    """The live screen; what it captures opens in the trace views, and `o` leads back from there."""

    # It begins there: to go there from another screen, Textual would parse all styles twice more before the first frame.
    DEFAULT_MODE = LIVE
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "home", "back to live", id="live.home", tooltip="From the trace views back to live", show=False)
    ]

    def __init__(self, feed: Feed, options: Options | None = None) -> None:
        super().__init__((), options)
        self.feed = feed

    def get_default_screen(self) -> LiveScreen:
        """Make the live screen."""
        return LiveScreen(self.feed)

    def on_mount(self) -> None:
        """Let other modes lead back to the screen in front."""
        self.add_mode(LIVE, self.get_default_screen)

    def go_home(self) -> None:
        """Go to the live screen."""
        self.switch_mode(LIVE)

    def open_capture(self, path: Path, *, on_gpu: bool) -> None:
        """Open what was captured in the trace views; without GPU work the view of operators says most."""
        self.settings = replace(self.settings, view="overview" if on_gpu else HOST_VIEW)
        self.open_paths([path])

    def leave_drill_down(self) -> bool:
        """Go one step back as in the trace views; from the first of them that is the live screen."""
        if super().leave_drill_down():
            return True
        first = self.views[:1] == [self.current_mode] and len(self.screen_stack) == 1
        if first and not getattr(self.screen, "where", None):
            self.go_home()
            return True
        return False

    async def on_unmount(self) -> None:
        """End the worker."""
        await asyncio.to_thread(self.feed.close)

    def until_quit(self) -> int:
        """Run until the user quits and return the exit code; the worker has ended then, however the app did."""
        self.feed.listen(self._settle)
        try:
            return self.run(mouse=self.settings.mouse) or self.return_code or 0
        finally:
            self.feed.close()

    def _settle(self, _message: Message) -> None:
        """Leave what is loaded by the first picture to no later collection: walking all of it stops the screen for 60 ms."""
        self.feed.unlisten(self._settle)
        gc.freeze()


def run_live(feed: FeedOptions, *, options: Options | None = None) -> int:
    """Show the live screen until the user quits; no process is left then.

    Args:
        feed: the worker or the session to watch.
        options: how to show it (ascii, theme, mouse) and how to open captured traces.

    Returns:
        The exit code.
    """
    return LiveApp(Feed(feed), options).until_quit()
