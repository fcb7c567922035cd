"""The form in which another case is chosen while the worker runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Label, Static

from kinetop.traces.live.worker.case import DTYPES, MODES, Case

from ..format import clean
from ..render.live import case_words
from ..widgets.choice import Choice

if TYPE_CHECKING:
    from textual.app import ComposeResult

HINT = "B,Hq[/Hkv],S[/Sk],D[/Dv]; decode takes S as the length of the cache"


class CaseScreen(ModalScreen[Case | None]):
    """Shape, type, mask and mode in one form; gives back the case, or None when the user left.

    Args:
        case: what is measured now.
    """

    DEFAULT_CSS = """
    CaseScreen {
        align: center middle;
        #case-form { width: 92%; max-width: 76; height: auto; border: round $accent; padding: 0 1; background: $background; }
        .field { height: 1; }
        .field Label { width: 10; color: $muted; }
        .field Input { width: 1fr; border: none; height: 1; padding: 0; background: $surface; }
        #case-said { height: auto; margin-top: 1; color: $muted; &.-error { color: $text-error; text-style: bold; } }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "close", id="case.leave"),
        Binding("enter", "take", "measure", id="case.take", priority=True),
        Binding("down", "app.focus_next", "next field", id="case.next", show=False),
        Binding("up", "app.focus_previous", "previous field", id="case.previous", show=False),
    ]
    AUTO_FOCUS = "#case-shape"

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case

    def compose(self) -> ComposeResult:
        """Make the fields."""
        case = self.case
        with Vertical(id="case-form") as form:
            form.border_title = "what is measured"
            form.border_subtitle = Content("⏎ measure  ↑ ↓ fields  ← → choices  esc close")
            with Horizontal(classes="field"):
                yield Label("shape")
                yield Input(case.shape_text, id="case-shape", select_on_focus=False)
            yield Choice("dtype", list(DTYPES), case.dtype, id="case-dtype")
            yield Choice("mask", ["causal", "full"], "causal" if case.causal else "full", id="case-mask")
            with Horizontal(classes="field"):
                yield Label("window")
                window = "" if case.window is None else str(case.window)
                yield Input(window, placeholder="all keys", type="integer", id="case-window", select_on_focus=False)
            yield Choice("mode", MODES, case.mode, id="case-mode")
            if case.device.startswith("cuda"):
                yield Choice("graph", ["no", "yes"], "yes" if case.graph else "no", id="case-graph")
            yield Static(id="case-said", markup=False)

    def on_mount(self) -> None:
        """Say what the form holds."""
        self._read()

    def on_input_changed(self) -> None:
        """Check while it is typed."""
        self._read()

    def on_choice_changed(self) -> None:
        """Check what was chosen."""
        self._read()

    def action_take(self) -> None:
        """Give the case back, unless it cannot be."""
        if (case := self._read()) is not None:
            self.dismiss(case)

    def action_leave(self) -> None:
        """Close without a change."""
        self.dismiss(None)

    def _read(self) -> Case | None:
        """Return what the form holds and say it; None with the reason when that is no case."""
        said = self.query_one("#case-said", Static)
        try:
            case = self._case()
        except ValueError as error:
            said.update(Content(clean(str(error), 300)))
            said.set_class(True, "-error")
            return None
        said.update(Content(f"{' '.join(f'{name} {value}'.strip() for name, value in case_words(case))}\n{HINT}"))
        said.set_class(False, "-error")
        return case

    def _case(self) -> Case:
        window = self.query_one("#case-window", Input).value.strip()
        graph = self.query("#case-graph").results(Choice)
        return Case.of(
            self.query_one("#case-shape", Input).value,
            dtype=self.query_one("#case-dtype", Choice).value,
            causal=self.query_one("#case-mask", Choice).value == "causal",
            window=int(window) if window else None,
            mode=self.query_one("#case-mode", Choice).value,
            device=self.case.device,
            graph=any(choice.value == "yes" for choice in graph),
        )
