"""What can go wrong with a trace, as a tree.

* TraceError               anything below; the message is one sentence for a person, with the file in it
  + UnreadableError        the bytes are not a trace: empty, not JSON, another format, cut off before the first event
    - NotATraceError       well-formed, but something else: an execution trace, a memory snapshot, plain text
  + IncompatibleError      traces that cannot be put together or compared
  + FilterError            a filter or SQL text that cannot be understood; says where
  + CancelledError         the user stopped it; nothing is left behind
  + WorkerError            the process that measures cannot be started, or was lost for good
    - TorchMissingError    there is no torch for it; says what to install
"""

from __future__ import annotations


class TraceError(Exception):
    """Anything that kinetop can say about an input in one sentence."""


class UnreadableError(TraceError):
    """The bytes cannot be read as a trace."""


class NotATraceError(UnreadableError):
    """The file is well-formed but holds something other than a trace."""


class IncompatibleError(TraceError):
    """Traces that cannot be opened or compared together."""


class FilterError(TraceError):
    """A filter that cannot be understood.

    Args:
        message: what is wrong, in a sentence.
        position: offset in the filter text, counted in characters, or None where it is not known.
    """

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position


class CancelledError(TraceError):
    """The work was cancelled by its user."""


class WorkerError(TraceError):
    """The process that measures cannot be started, or was lost for good."""


class TorchMissingError(WorkerError):
    """No interpreter with torch was found."""
