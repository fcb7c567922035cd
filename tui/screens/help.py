"""Pages over a view: its help, and what the import had to say."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Markdown, Static

from ..format import clean, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult

    from kinetop.traces.report import Notice

CLOSE_TEXT = "esc closes, ↑ ↓ scroll"


class Page(ModalScreen[None]):
    """A page with a title that scrolls and is left with escape."""

    DEFAULT_CSS = """
    Page {
        align: center middle;
        #page {
            width: 92%; max-width: 110; height: auto; max-height: 90%; padding: 0 1;
            border: round $accent; border-title-color: $text;
        }
        Markdown { padding: 0; margin: 0; }
        MarkdownHeader { margin: 0; padding: 0; content-align: left middle; color: $accent; text-style: bold; }
        MarkdownTableContent { grid-gutter: 0 1; keyline: none; & > .cell, & > .header { padding: 0; } }
        .message { margin: 0 0 1 2; height: auto; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,f1,enter", "leave", "close", id="page.leave"),
        Binding("j", "scroll(1)", show=False, id="page.down"),
        Binding("k", "scroll(-1)", show=False, id="page.up"),
        Binding("g", "edge(-1)", show=False, id="page.first"),
        Binding("G", "edge(1)", show=False, id="page.last"),
    ]

    def __init__(self, title: str) -> None:
        super().__init__()
        self._page_title = title

    def compose(self) -> ComposeResult:
        """Put the contents in a frame."""
        with VerticalScroll(id="page") as page:
            page.border_title = Content(clean(self._page_title, 60))
            page.border_subtitle = CLOSE_TEXT
            yield from self.contents()

    def contents(self) -> ComposeResult:
        """Make what the page holds."""
        raise NotImplementedError

    def on_mount(self) -> None:
        """Let the arrows scroll the page."""
        self.query_one("#page").focus()

    def action_leave(self) -> None:
        """Close the page."""
        self.dismiss()

    def action_scroll(self, lines: int) -> None:
        """Scroll by lines."""
        self.query_one("#page").scroll_relative(y=lines, animate=False)

    def action_edge(self, side: int) -> None:
        """Scroll to the top or the bottom."""
        page = self.query_one("#page")
        page.scroll_home(animate=False) if side < 0 else page.scroll_end(animate=False)


class HelpScreen(Page):
    """The help of a view.

    Args:
        title: the view's title.
        markdown: text, keys and column definitions.
    """

    def __init__(self, title: str, markdown: str) -> None:
        super().__init__(title)
        self.markdown = markdown

    def contents(self) -> ComposeResult:
        """Render the text."""
        yield Markdown(self.markdown, open_links=False)


class NoticesScreen(Page):
    """Everything that an import repaired, dropped or noticed.

    Args:
        notices: findings, in the order met.
    """

    def __init__(self, notices: Sequence[Notice]) -> None:
        super().__init__(f"notes on this trace: {len(notices)}")
        self.notices = notices

    def contents(self) -> ComposeResult:
        """List warnings first, then what is only good to know."""
        if not self.notices:
            yield Static(Content("Nothing was repaired, dropped or noticed."))
        for notice in sorted(self.notices, key=lambda notice: notice.level != "warning"):
            yield Static(headline(notice))
            yield Static(Content(clean(notice.message)), classes="message")


def headline(notice: Notice) -> Content:
    """Return what a notice is about: its code, how often, where first.

    Args:
        notice: a finding of the import.
    """
    mark, style = ("⚠", "bold $text-warning") if notice.level == "warning" else ("·", "bold")
    at = f"   first at byte {notice.offset:,}" if notice.offset is not None else ""
    head = f"{clean(notice.code)}, {plural(notice.count, 'time')}"
    return Content.assemble((f"{mark} ", style), (head, style), (at, "$muted"))
