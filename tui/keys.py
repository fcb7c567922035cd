"""What the keys do, told from the bindings themselves: the command palette and the help pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

from .widgets.frame_table import FrameTable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.binding import ActiveBinding
    from textual.screen import Screen

    from .app import KinetopApp


def commands(screen: Screen[Any]) -> Iterator[tuple[str, str, str]]:
    """Yield key, description and help of every binding that applies on a screen, one entry an action.

    Those of the view come first, then the app's, then those of the table or field that has the focus.
    """
    app = cast("KinetopApp", screen.app)
    keys: dict[str, list[str]] = {}
    first: dict[str, ActiveBinding] = {}
    for active in screen.active_bindings.values():
        binding = active.binding
        if active.enabled and binding.description and binding.id:
            keys.setdefault(binding.action, []).append(app.get_key_display(binding))
            first.setdefault(binding.action, active)
    order: dict[object, int] = {screen: 0, app: 1}
    for action, active in sorted(first.items(), key=lambda item: order.get(item[1].node, 2)):
        shown = ", ".join(dict.fromkeys(keys[action]))
        yield shown, app.label(active.binding), active.tooltip or ""


class Commands(Provider):
    """Every command with its key; choosing one presses the key."""

    async def discover(self) -> Hits:
        """Offer all of them."""
        for key, label, about in commands(self.screen):
            yield DiscoveryHit(f"{key:>14}  {label}", self._presser(key), help=about or None)
        for theme in sorted(self.app.available_themes):
            yield DiscoveryHit(f"{'':>14}  theme {theme}", self._setter(theme))

    async def search(self, query: str) -> Hits:
        """Offer those that match."""
        matcher = self.matcher(query)
        entries = [(f"{key}  {label}", self._presser(key), about) for key, label, about in commands(self.screen)]
        entries += [(f"theme {theme}", self._setter(theme), "") for theme in self.app.available_themes]
        for text, run, about in entries:
            if (score := max(matcher.match(text), matcher.match(about) / 2)) > 0:
                yield Hit(score, matcher.highlight(text), run, help=about or None)

    def _presser(self, shown: str) -> Any:
        keys = {self.app.get_key_display(active.binding): key for key, active in self.screen.active_bindings.items()}
        return lambda: self.app.simulate_key(keys[shown.split(", ", maxsplit=1)[0]])

    def _setter(self, theme: str) -> Any:
        return lambda: cast("KinetopApp", self.app).set_theme(theme)


def help_page(screen: Screen[Any], text: str) -> str:
    """Return the help of a view as Markdown: what it shows, its keys, the definition of every column."""
    lines = [text, "", "## Keys", "", "| key | does |", "|---|---|"]
    lines += [f"| `{key.replace('|', chr(92) + '|')}` | {about or label} |" for key, label, about in commands(screen)]
    for table in screen.query(FrameTable):
        if table.columns:
            lines += ["", f"## Columns of {table.id}", "", "| column | unit | definition |", "|---|---|---|"]
            lines += [f"| {column.name} | {column.unit} | {column.about} |" for column in table.columns]
    return "\n".join(lines)
