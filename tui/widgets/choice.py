"""One of a few words on one line, chosen with the left and right arrows."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual import events


class Choice(Widget, can_focus=True):
    """A line `label  one [two] three`.

    Args:
        label: what is chosen.
        words: the choices.
        value: the one that holds now.
    """

    DEFAULT_CSS = """
    Choice { height: 1; &:focus { background: $panel; } }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,l,space", "move(1)", "next choice", id="choice.next", show=False),
        Binding("left,h", "move(-1)", "previous choice", id="choice.previous", show=False),
    ]

    value: reactive[str] = reactive("")
    """The word chosen."""

    class Changed(Message):
        """Another word was chosen."""

    def __init__(self, label: str, words: Sequence[str], value: str, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.label = label
        self.words = list(words)
        self._spots: list[tuple[int, int]] = []
        self.set_reactive(Choice.value, value)

    def watch_value(self) -> None:
        """Tell the form."""
        self.post_message(self.Changed())

    def render(self) -> Content:
        """Show all words, the chosen one in brackets, so that no colour is needed."""
        line = Content.styled(f"{self.label:10}", "bold" if self.has_focus else "$muted")
        self._spots = []
        for word in self.words:
            chosen = word == self.value
            start = line.cell_length
            line = line.append(Content.styled(f"[{word}]" if chosen else f" {word} ", "bold $accent" if chosen else ""))
            self._spots.append((start, line.cell_length))
        return line

    def action_move(self, step: int) -> None:
        """Choose a neighbour."""
        self.value = self.words[(self.words.index(self.value) + step) % len(self.words)]

    def on_click(self, event: events.Click) -> None:
        """Choose the word under the mouse."""
        for word, (start, end) in zip(self.words, self._spots, strict=True):
            if start <= event.x < end:
                self.value = word
