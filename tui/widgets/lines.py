"""The first and the last line of every view: what is shown, and which keys apply."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from ..format import clean

if TYPE_CHECKING:
    from textual import events
    from textual.screen import Screen


_FIRST, _FIRST_WIDE, _WIDE = 3, 5, 100
"""Views that are always named, and on a screen of at least `_WIDE` cells; the others are when they are in front."""
_NUMBERED = 9
"""Views that have a number key."""

Entry = tuple[str, str, str, str]
"""Key, label, action, style."""


class TitleLine(Widget):
    """What is open, which view, its scope and filter; to the right how much of it is shown."""

    parts: reactive[tuple[str, ...]] = reactive(())
    """Texts from left to right; the second is the name of the view."""
    status: reactive[str] = reactive("")
    """Text at the right end."""

    def render(self) -> Content:
        """Put the texts on one line; the left side gives way."""
        width = self.size.width
        right = clean(self.status, max(0, width - 20))
        room = width - cell_len(right) - 2
        line = Content(" ").append(Content.styled("kinetop", "bold $accent"))
        for at, part in enumerate(self.parts):
            left = room - line.cell_length - 2
            if part and left > 3:
                line = line.append("  ").append(Content.styled(clean(part, left), "bold" if at == 1 else ""))
        gap = max(1, width - 1 - line.cell_length - cell_len(right))
        return line.append(" " * gap).append(Content.styled(right, "$muted"))


class KeyLine(Widget):
    """The views by number, then the keys that apply now, as many as fit; each can be clicked."""

    def __init__(self) -> None:
        super().__init__()
        self._spots: list[tuple[int, int, str]] = []
        """Where each entry lies, and its action."""

    def on_mount(self) -> None:
        """Draw again when the keys change."""
        self.screen.bindings_updated_signal.subscribe(self, self._changed)

    def _changed(self, _screen: Screen[object]) -> None:
        self.refresh()

    def render(self) -> Content:
        """Put views and keys on one line; the keys that apply everywhere stand last and never leave."""
        here, everywhere = self._keys()
        room = self.size.width - sum(_entry(*entry).cell_length for entry in everywhere)
        line, self._spots = Content(""), []
        for entry, limit in [
            *((entry, room) for entry in (*self._views(), *here)),
            *((entry, self.size.width) for entry in everywhere),
        ]:
            text = _entry(*entry)
            if line.cell_length + text.cell_length <= limit:
                self._spots.append((line.cell_length, line.cell_length + text.cell_length, entry[2]))
                line = line.append(text)
        return line

    async def on_click(self, event: events.Click) -> None:
        """Do what the entry under the mouse says."""
        for start, end, action in self._spots:
            if start <= event.x < end:
                await self.run_action(action)

    def _views(self) -> list[Entry]:
        names = getattr(self.app, "views", ())
        current = self.app.current_mode
        if current not in names:
            return []
        first = _FIRST_WIDE if self.size.width >= _WIDE else _FIRST
        if current not in names[:first]:
            first -= 1  # its own name takes that room
        shown = [
            (str(n) if n <= _NUMBERED else "", name, f"app.view({n})", "bold underline" if name == current else "")
            for n, name in enumerate(names, start=1)
            if n <= first or name == current
        ]
        return [*shown, ("v", "views", "app.views", "$muted")]

    def _keys(self) -> tuple[list[Entry], list[Entry]]:
        """Keys of the view and of what has the focus, and keys of the app."""
        found: dict[str, tuple[object, Entry]] = {}
        for active in self.screen.active_bindings.values():
            binding = active.binding
            if binding.show and active.enabled and binding.action not in found:
                entry = (self.app.get_key_display(binding), binding.description, f"app.press('{binding.key}')", "$muted")
                found[binding.action] = (active.node, entry)
        here = sorted(
            (node is not self.screen, at, entry) for at, (node, entry) in enumerate(found.values()) if node is not self.app
        )
        return [entry for _, _, entry in here], [entry for node, entry in found.values() if node is self.app]


def _entry(key: str, label: str, _action: str, style: str) -> Content:
    return Content.assemble(" ", (key, "bold $accent"), " ", (label, style), " ")
