"""A small list to choose one thing from."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult


class PickScreen(ModalScreen[str | None]):
    """Shows choices; gives back the one chosen, or None.

    Args:
        title: what is chosen.
        choices: the choices.
        current: the one that holds now.
    """

    DEFAULT_CSS = """
    PickScreen { align: center middle; background: $background 40%; }
    PickScreen OptionList {
        width: auto; min-width: 30; height: auto; max-height: 80%; border: round $accent; background: $surface;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", "close", id="pick.close"),
        Binding("j", "move('down')", "down", id="pick.down", show=False),
        Binding("k", "move('up')", "up", id="pick.up", show=False),
    ]

    def __init__(self, title: str, choices: Sequence[str], current: str) -> None:
        super().__init__()
        self._title_text = title
        self._choices = list(choices)
        self._current = current

    def compose(self) -> ComposeResult:
        """Make the list."""
        options = OptionList(*(Option(Content(f" {choice} "), id=choice) for choice in self._choices))
        options.border_title = Content(self._title_text)
        yield options

    def on_mount(self) -> None:
        """Begin at the current choice."""
        self.query_one(OptionList).highlighted = self._choices.index(self._current) if self._current in self._choices else 0

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Give the choice back."""
        self.dismiss(event.option.id)

    def action_move(self, way: str) -> None:
        """Move by a letter key."""
        options = self.query_one(OptionList)
        if way == "down":
            options.action_cursor_down()
        else:
            options.action_cursor_up()
