"""A small list to choose one thing from."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from textual.app import ComposeResult


class PickScreen(ModalScreen[str | None]):
    """Shows choices; gives back the one chosen, or None.

    Args:
        title: what is chosen.
        choices: the choices.
        current: the one that holds now.
        about: what to say of a choice, beside it.
    """

    DEFAULT_CSS = """
    PickScreen { align: center middle; background: $background 40%; }
    PickScreen OptionList {
        width: auto; min-width: 30; max-width: 92%; height: auto; max-height: 80%; background: $surface;
        text-wrap: nowrap; text-overflow: ellipsis;
    }
    PickScreen OptionList, PickScreen OptionList:focus { border: round $accent; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", "close", id="pick.close"),
        Binding("j", "move('down')", "down", id="pick.down", show=False),
        Binding("k", "move('up')", "up", id="pick.up", show=False),
    ]

    def __init__(self, title: str, choices: Sequence[str], current: str, about: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._title_text = title
        self._choices = list(choices)
        self._current = current
        self._about = about or {}
        self._marked: str | None = None

    def compose(self) -> ComposeResult:
        """Make the list."""
        options = OptionList(*(Option(self._line(choice), id=choice) for choice in self._choices))
        options.border_title = Content(self._title_text)
        yield options

    def _line(self, choice: str, mark: str = " ") -> Content:
        width = max(map(len, self._choices)) if self._about else 0
        return Content(f"{mark}{choice:{width}}  {self._about.get(choice, '')}".rstrip() + " ")

    def on_mount(self) -> None:
        """Begin at the current choice."""
        self.query_one(OptionList).highlighted = self._choices.index(self._current) if self._current in self._choices else 0

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Mark the choice under the cursor as tables mark a row, so that no colour is needed."""
        if self._marked is not None:
            event.option_list.replace_option_prompt(self._marked, self._line(self._marked))
        self._marked = event.option.id or ""
        event.option_list.replace_option_prompt(self._marked, self._line(self._marked, "▌"))

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
