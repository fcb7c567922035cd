"""The filter line: asks as one types, says how much is left, and where a filter is wrong."""

from __future__ import annotations

from math import inf
from time import monotonic
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Label

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.timer import Timer

DEBOUNCE_S = 0.05
"""Keys that come closer together than this, held or pasted ones, are asked once."""


class FilterBar(Horizontal):
    """A docked line that opens with `/`; enter keeps the filter, escape clears it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "clear", "clear", id="filter.clear", priority=True),
        Binding("enter,down", "keep", "keep", id="filter.keep", priority=True),
    ]

    class Changed(Message):
        """The filter text is another one."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Closed(Message):
        """The bar was left."""

    def __init__(self) -> None:
        super().__init__()
        self.display = False
        self._timer: Timer | None = None
        self._sent = ""
        self._typed_s = -inf
        """When the text changed last."""

    def compose(self) -> ComposeResult:
        """Lay out the line."""
        yield Label("/", markup=False)
        field = Input(placeholder="words, /regex/, !not, dur > 100us and stream = 7", compact=True, select_on_focus=False)
        field.cursor_blink = False
        yield field
        yield Label("", markup=False, id="said")

    @property
    def text(self) -> str:
        """What is typed."""
        return self.query_one(Input).value

    def reveal(self, text: str) -> None:
        """Show the line with a text in it that was asked already."""
        self.display = True
        field = self.query_one(Input)
        self._sent = text
        if field.value.strip() != text:
            field.value = text

    def open(self, text: str = "") -> None:
        """Show the line with a text in it and put the cursor there."""
        self.reveal(text)
        field = self.query_one(Input)
        field.cursor_position = len(text)
        self.screen.set_focus(field)  # at once: focus() waits a turn, and keys typed meanwhile would be commands

    def say(self, text: str, *, error: bool = False) -> None:
        """Show how many rows are left, or what is wrong with the filter."""
        label = self.query_one("#said", Label)
        as_wide = cell_len(text) == label.content_size.width  # the rest of the screen stays where it is
        label.update(Content(text), layout=not as_wide)
        label.set_class(error, "-error")

    def forget_error(self) -> None:
        """Take back what was wrong with an earlier text."""
        if self.query_one("#said").has_class("-error"):
            self.say("")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Ask at once; keys that are held or pasted, when they pause."""
        event.stop()
        if self._timer is not None:
            self._timer.stop()
        before, self._typed_s = self._typed_s, monotonic()
        if self._typed_s - before < DEBOUNCE_S:
            self._timer = self.set_timer(DEBOUNCE_S, self._send)
        else:
            self._send()

    def action_clear(self) -> None:
        """Clear the filter and leave."""
        self.query_one(Input).value = ""
        self._close()

    def action_keep(self) -> None:
        """Leave with the filter as it is."""
        self._close()

    def _close(self) -> None:
        self._send()
        self.display = bool(self._sent)
        if self.query_one(Input).has_focus:
            self.screen.set_focus(None)  # at once, for the same reason; `Closed` then gives it to the body
        self.post_message(self.Closed())

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        if self.text != self._sent:
            self._sent = self.text
            self.post_message(self.Changed(self.text))
