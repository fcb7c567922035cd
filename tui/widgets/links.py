"""A few lines, each of which leads somewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.content import Content


class Links(OptionList):
    """Lines to choose among; enter opens one. Without lines it is not there."""

    DEFAULT_CSS = """
    Links {
        height: auto; max-height: 3; border: none; padding: 0; background: $background; scrollbar-size: 0 0;
        text-wrap: nowrap; text-overflow: ellipsis;
        &:focus { border: none; background: $background; }
        & > .option-list--option { padding: 0; }
        & > .option-list--option-highlighted { background: $background; color: $foreground; text-style: none; }
        & > .option-list--option-hover { background: $background; }
        &:focus > .option-list--option-highlighted { background: $panel; text-style: bold; }
        &:focus:ansi > .option-list--option-highlighted { text-style: bold underline; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", "line down", id="links.down", show=False),
        Binding("k", "cursor_up", "line up", id="links.up", show=False),
    ]

    class Opened(Message):
        """A line was opened."""

        def __init__(self, target: Any) -> None:
            super().__init__()
            self.target = target

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False, compact=True)
        self.targets: list[Any] = []
        self.display = False

    def show(self, lines: Sequence[tuple[Content, Any]]) -> None:
        """Show other lines, each with what is handed on when it is opened.

        Args:
            lines: text and target of each.
        """
        self.targets = [target for _, target in lines]
        self.display = bool(lines)
        self.set_options(Option(text) for text, _ in lines)
        self.highlighted = 0 if lines else None

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Hand the line's target on."""
        event.stop()
        self.post_message(self.Opened(self.targets[event.option_index]))
