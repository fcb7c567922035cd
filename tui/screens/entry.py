"""One line to type a value into."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Label

from ..format import clean

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import ComposeResult


class EntryScreen(ModalScreen[str | None]):
    """Takes a text; gives it back, or None.

    Args:
        title: what is typed.
        about: what it means.
        value: what holds now.
        check: raises a `ValueError` that says what is wrong with a text.
    """

    DEFAULT_CSS = """
    EntryScreen { align: center middle; background: $background 40%; }
    EntryScreen Vertical {
        width: 76; max-width: 96%; height: auto; border: round $accent; background: $surface; padding: 0 1;
    }
    EntryScreen Input { border: none; height: 1; padding: 0; background: $panel; }
    EntryScreen Label { height: auto; width: 1fr; color: $muted; }
    EntryScreen #wrong { color: $text-error; display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "close", id="entry.close")]

    def __init__(self, title: str, about: str, value: str, check: Callable[[str], object]) -> None:
        super().__init__()
        self._title_text = title
        self._about = about
        self._value = value
        self._check = check

    def compose(self) -> ComposeResult:
        """Make the line."""
        with Vertical() as box:
            box.border_title = Content(self._title_text)
            box.border_subtitle = "enter takes it, empty is the default"
            yield Label(self._about, markup=False)
            field = Input(self._value, compact=True)
            field.cursor_blink = False
            yield field
            yield Label("", markup=False, id="wrong")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Give the text back, or say what is wrong with it."""
        event.stop()
        try:
            self._check(event.value)
        except ValueError as error:
            wrong = self.query_one("#wrong", Label)
            wrong.update(Content(clean(str(error), 200)))
            wrong.display = True
        else:
            self.dismiss(event.value)
