"""A field for a path: tab completes it as a shell does."""

from __future__ import annotations

import os
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input

from ..files import completions


class PathField(Input):
    """A line for one or more paths."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "complete", "complete", id="path.complete"),
        Binding("ctrl+c", "app.quit", show=False, id="path.quit"),
    ]

    class Completions(Message):
        """The ways in which the path can go on, when there is more than one."""

        def __init__(self, field: PathField, texts: list[str]) -> None:
            super().__init__()
            self.field = field
            self.texts = texts

        @property
        def control(self) -> PathField:
            """The field."""
            return self.field

    def __init__(self, value: str = "", *, placeholder: str = "", id: str | None = None) -> None:
        super().__init__(value, placeholder=placeholder, id=id, compact=True, select_on_focus=False)
        self.cursor_blink = False

    def put(self, text: str) -> None:
        """Put a text in, with the cursor behind it."""
        self.value = text
        self.cursor_position = len(text)

    def action_complete(self) -> None:
        """Go on as far as there is one way; with nothing to add, go to the next pane."""
        texts = completions(self.value)
        common = os.path.commonprefix(texts)  # noqa: RUF071 (letters are what a shell completes)
        if not texts or texts == [self.value]:
            self.screen.focus_next()
        elif len(common) > len(self.value):
            self.put(common)
        else:
            self.post_message(self.Completions(self, texts))
