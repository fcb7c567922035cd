"""The terminal app: its views, its keys, the traces it shows."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.screen import Screen

from kinetop.traces.errors import CancelledError

from .keys import Commands
from .messages import ImportEnded
from .opening import open_for
from .options import Options
from .render.plain import PlainText
from .scope import Scope
from .signals import on_ending
from .theme import THEMES, class_colours, colourless, default_theme

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.filter import LineFilter
    from textual.worker import Worker

    from kinetop.traces.trace import TraceSet

    from .screens.importing import ImportingScreen

SCREENS = {"overview": "OverviewScreen", "kernels": "KernelsScreen", "idle": "IdleScreen", "overlap": "OverlapScreen"}
"""Views with a screen of their own, by module of `tui.screens`; any other question gets a table."""
TWINS = frozenset({"summary"})
"""Questions that a view of another name shows."""
BETWEEN = "between"
"""An empty mode, shown for the moment in which the screen of a mode is replaced."""


class KinetopApp(App[int]):
    """See what the GPUs did in the traces under `paths`; without paths, start at the list of recent ones."""

    TITLE = "kinetop"
    CSS_PATH = "app.tcss"
    MODES: ClassVar[dict[str, Any]] = {BETWEEN: Screen}
    COMMAND_PALETTE_BINDING = "question_mark"
    COMMAND_PALETTE_DISPLAY = "?"
    COMMANDS: ClassVar[set[Any]] = {Commands}
    VERTICAL_BREAKPOINTS = [(0, "-short"), (32, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(n), f"view({n})", f"view {n}", id=f"app.view_{n}", show=False) for n in range(1, 10)),
        Binding("v", "views", "all views", id="app.views", show=False, tooltip="Choose among all views"),
        Binding("o", "home", "open another trace", id="app.home", show=False),
        Binding(
            "question_mark",
            "command_palette",
            "commands",
            id="app.commands",
            key_display="?",
            tooltip="Every command and its key",
        ),
        Binding("q", "quit", "quit", id="app.quit"),
        Binding("ctrl+c,ctrl+q", "quit", "quit", id="app.quit_control", show=False, priority=True),
    ]

    def __init__(self, paths: Sequence[Path] = (), options: Options | None = None) -> None:
        self.settings = options or Options()
        # Else Textual turns the terminal's own colours into black on black for NO_COLOR.
        super().__init__(ansi_color=True if colourless() else None)
        self.paths = list(paths)
        self.traces: TraceSet | None = None
        self.opened = ""
        """What the title line calls the opened traces."""
        chosen = self.settings
        self.scope = Scope(rank=chosen.rank, device=chosen.device, step=chosen.step, window=chosen.window)
        self.views: list[str] = []
        """Names of the views, in the order of their number keys."""
        self._made: set[str] = set()
        """Modes that exist."""
        self._drilled: dict[str, str] = {}
        """Views that were drilled into, each with the one where that began."""
        self._import: Worker[None] | None = None
        self._unsurveyed = False
        if os.environ.get("SSH_CONNECTION"):
            self.animation_level = "none"
        for theme in THEMES:
            self.register_theme(theme)
        known = chosen.theme in self.available_themes and not colourless()
        self.theme = chosen.theme if chosen.theme and known else default_theme()

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Give every theme the colours of the classes."""
        return class_colours(self.current_theme)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Turn marks into letters for `--ascii`."""
        filters = super().get_line_filters()
        return [*filters, PlainText()] if self.settings.ascii else filters

    async def run_async(self, **options: Any) -> int | None:
        """Run; ended from outside, end as with `q`: else Textual's thread would read on where the terminal is gone."""
        loop = asyncio.get_running_loop()

        def end(code: int) -> None:
            loop.call_soon_threadsafe(partial(self.exit, return_code=code))

        on_ending(end)
        return await super().run_async(**options)

    def on_mount(self) -> None:
        """Begin with an import, or at home."""
        if self.paths:
            self.open_paths(self.paths)
        else:
            self.go_home()

    # Opening

    def open_paths(self, paths: Sequence[Path]) -> None:
        """Open traces; the views follow when that is done."""
        self.paths = list(paths)
        screen = import_module(".screens.importing", __package__).ImportingScreen(self.paths)
        self._start_mode("importing", lambda: screen)
        # The screen is painted before the worker loads Polars.
        self.call_after_refresh(self._begin_import, screen)

    def cancel_import(self) -> None:
        """Stop the import that goes on."""
        if self._import is not None:
            self._import.cancel()

    def go_home(self) -> None:
        """Go to the recent traces and the file browser."""
        self._start_mode("home", import_module(".screens.home", __package__).HomeScreen)

    def _begin_import(self, screen: ImportingScreen) -> None:
        if screen.cancelling:  # before there was anything to cancel
            screen.post_message(ImportEnded(error=CancelledError("stopped")))
            return
        work = partial(open_for, screen, self.paths, self.settings)
        self._import = self.run_worker(work, thread=True, exclusive=True, group="import", exit_on_error=False)

    def on_import_ended(self, message: ImportEnded) -> None:
        """Show the opened traces."""
        if message.traces is None:
            if isinstance(message.error, CancelledError):
                self.go_home()
            return
        if message.traces is self.traces:
            return
        self.traces = message.traces
        self.opened = self.paths[0].name if len(self.paths) == 1 else f"{len(self.paths)} files"
        from kinetop.analysis.question import all_questions

        others = [name for name in all_questions() if name not in SCREENS and name not in TWINS]
        self.views = [*SCREENS, *others]
        for name in self.views:
            self._forget(name)
        first = self.settings.view if self.settings.view in self.views else "overview"
        self._unsurveyed = True
        self._start_mode(first, partial(self._view, first, where=self.settings.where))

    def survey(self) -> None:
        """Learn more of opened traces, once: when the first view has its answer, which would wait for this otherwise."""
        if self._unsurveyed:
            self._unsurveyed = False
            self.run_worker(self._survey, thread=True, group="survey", exit_on_error=False)

    def _survey(self) -> None:
        """Learn what there is to zoom and step over; runs in a thread."""
        from .survey import remember, survey

        if self.traces is not None:
            extent_ns, steps = survey(self.traces)
            self.call_from_thread(self._surveyed, self.traces, extent_ns, steps)
            if problem := remember(self.paths, self.traces):
                self.call_from_thread(self.notify, problem, markup=False)

    def _surveyed(self, traces: TraceSet, extent_ns: tuple[int, int], steps: tuple[int, ...]) -> None:
        if traces is self.traces:
            self.scope = replace(self.scope, extent_ns=extent_ns, steps=steps)

    # Views

    def open_view(self, name: str, *, where: str | None = None) -> None:
        """Go to a view; with a filter that is a drill-down, and one step back leads to where it began."""
        if where is not None:
            self._drilled[name] = self.current_mode
        if name not in self._made:
            self._start_mode(name, partial(self._view, name, where=where))
            return
        self.switch_mode(name)
        if where is not None:
            while len(self.screen_stack) > 1:  # launches that were left open there
                self.pop_screen()
            self.screen.filter_from_elsewhere(where)  # type: ignore[attr-defined]

    def leave_drill_down(self) -> bool:
        """Go back to the view from which this one was drilled into, and say whether there was one."""
        origin = self._drilled.pop(self.current_mode, None)
        if origin is None:
            return False
        self.switch_mode(origin)
        return True

    def change_scope(self, scope: Scope) -> None:
        """Look at another part; the view in front asks at once, the others when they are shown."""
        from .screens.base import ViewScreen

        changed = scope.options != self.scope.options
        self.scope = scope
        if changed and isinstance(self.screen, ViewScreen):
            self.screen.ask()

    def _view(self, name: str, *, where: str | None = None) -> Screen[None]:
        if name in SCREENS:
            return getattr(import_module(f".screens.{name}", __package__), SCREENS[name])(where=where)  # type: ignore[no-any-return]
        from .screens.table import QuestionScreen

        return QuestionScreen(name, where=where)

    def _start_mode(self, name: str, make: Callable[[], Screen[Any]]) -> None:
        """Show a fresh screen as the mode `name`."""
        if name == self.current_mode:
            self.switch_mode(BETWEEN)  # a mode in front can be neither replaced nor removed
        self._forget(name)
        self._made.add(name)
        self.add_mode(name, make)
        self.switch_mode(name)

    def _forget(self, name: str) -> None:
        if name in self._made and name != self.current_mode:
            self._made.remove(name)
            self.remove_mode(name)

    def label(self, binding: Binding) -> str:
        """Return what a binding does in a few words; the number keys name their views."""
        number = int(binding.key) if binding.action.startswith("view(") else 0
        return f"view {self.views[number - 1]}" if 0 < number <= len(self.views) else binding.description

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the number keys that have a view."""
        return action != "view" or parameters[0] in range(1, len(self.views) + 1)

    # Actions

    def action_view(self, number: int) -> None:
        """Show a view by its number."""
        if 0 < number <= len(self.views):
            self._go_to(self.views[number - 1])

    def _go_to(self, name: str | None) -> None:
        if name is not None:
            self._drilled.clear()
            self.open_view(name)

    def action_views(self) -> None:
        """Choose a view among all."""
        if self.current_mode in self.views:
            from kinetop.analysis.question import all_questions

            from .screens.pick import PickScreen

            about = {name: question.about for name, question in all_questions().items()}
            about["overview"] = about["summary"]
            self.push_screen(PickScreen("view", self.views, self.current_mode, about), self._go_to)

    def action_home(self) -> None:
        """Open another trace."""
        self.go_home()

    def action_press(self, key: str) -> None:
        """Press a key, for the clickable key line."""
        self.simulate_key(key)

    def set_theme(self, name: str) -> None:
        """Show another theme."""
        self.theme = name


def run(paths: Sequence[Path | str], *, options: Options | None = None) -> int:
    """Run the app until the user quits.

    Args:
        paths: what to open; empty starts at the recent traces.
        options: how to open and show them.

    Returns:
        The exit code.
    """
    chosen = options or Options()
    app = KinetopApp([Path(path) for path in paths], chosen)
    return app.run(mouse=chosen.mouse) or app.return_code or 0
