"""What threads tell screens; posting a message is the one thing a thread may do to the terminal's side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.message_pump import MessagePump

    from kinetop.traces.trace import TraceSet

    from .live_now import Now


class Answered(Message):
    """A query of a view ended; `request` tells whether it is still the newest of its slot."""

    def __init__(
        self, slot: str, request: int, done: Callable[[Any], None], answer: Any = None, error: Exception | None = None
    ) -> None:
        super().__init__()
        self.slot = slot
        self.request = request
        self.done = done
        self.answer = answer
        self.error = error


class ImportProgress(Message):
    """How far an import is: `bytes`, `total_bytes`, `events`, `file`; sent to the importing screen at most ten times a second."""

    def __init__(self, state: dict[str, Any]) -> None:
        super().__init__()
        self.state = state

    def can_replace(self, message: Message | MessagePump) -> bool:
        """A newer state makes one that still waits needless."""
        return isinstance(message, ImportProgress)


class ImportEnded(Message):
    """An import ended: with the opened traces, or with an error (`CancelledError` when the user stopped it)."""

    def __init__(self, traces: TraceSet | None = None, error: Exception | None = None) -> None:
        super().__init__()
        self.traces = traces
        self.error = error


class LiveChanged(Message):
    """There is a newer picture of what is measured; a screen that is late sees the newest one only."""

    def __init__(self, now: Now) -> None:
        super().__init__()
        self.now = now

    def can_replace(self, message: Message | MessagePump) -> bool:
        """A newer picture makes one that still waits needless."""
        return isinstance(message, LiveChanged)


class Captured(Message):
    """The worker wrote a deep window."""

    def __init__(self, header: dict[str, Any], body: bytes) -> None:
        super().__init__()
        self.header = header
        self.body = body
