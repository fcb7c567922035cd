"""The names of a worker's events, which it sends once, and the windows that they complete."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .members import UnusableError, integer, label, mapping

if TYPE_CHECKING:
    from array import array

    from .worker.frames import Frame

MAX_NAMES = 1 << 18
"""Names of events that are remembered for later windows."""
STEP_PREFIX = "kinetop.step|"
"""Begins the name of the range around each profiled step."""
_COLUMNS = ("name", "kind", "start_ns", "dur_ns")


@dataclass(frozen=True, eq=False)
class Window:
    """One profiled window of a trial, as the profiler gave it."""

    variant: str
    case_text: str
    number: int
    steps: int
    begin_ns: int
    end_ns: int
    dropped: int
    """Launches of which no kernel was recorded."""
    pid: int
    kinds: tuple[str, ...]
    """Categories, by the numbers in the column `kind`."""
    columns: dict[str, array[Any]]
    """One row an event; see the docs of the worker."""
    names: dict[int, str]
    """Names of its events, by the numbers in the column `name`."""
    shapes: dict[int, str]
    """Shapes of an operator's inputs, by row, where they were recorded."""
    generation: int
    """Which worker it came from, counted from 0: the numbers of a new worker begin anew."""

    def __len__(self) -> int:
        return len(self.columns["name"])


class Names:
    """The names of a worker's events, which it sends once."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._latest: dict[int, str] = {}
        self._generation = -1

    def restart(self) -> None:
        """Forget the names: another worker has started."""
        self._texts.clear()
        self._latest.clear()
        self._generation += 1

    def learn(self, frame: Frame) -> None:
        """Take in the names that come with a window; windows must come in the order sent."""
        self._latest = _numbered(mapping(frame.header, "names"))
        # The name of a step is never used again.
        lasting = [item for item in self._latest.items() if not item[1].startswith(STEP_PREFIX)]
        self._texts.update(lasting[: max(MAX_NAMES - len(self._texts), 0)])

    def window(self, frame: Frame, case_text: str) -> Window:
        """Return the window of the frame that was learned last.

        Args:
            frame: of the kind `window`.
            case_text: what was measured.

        Raises:
            UnusableError: its columns are not those of a window.
        """
        header, columns = frame.header, frame.columns
        if missing := [name for name in _COLUMNS if name not in columns]:
            raise UnusableError(f"a window without {', '.join(missing)}")
        if len({len(values) for values in columns.values()}) > 1:
            raise UnusableError("a window whose columns differ in length")
        found = {number: self._latest.get(number, self._texts.get(number)) for number in set(columns["name"])}
        kinds = header.get("kinds")
        return Window(
            variant=label(header, "variant"),
            case_text=case_text,
            number=integer(header, "window", 0),
            steps=integer(header, "steps", 0),
            begin_ns=integer(header, "begin_ns", 0),
            end_ns=integer(header, "end_ns", 0),
            dropped=max(integer(header, "dropped", 0), 0),
            pid=integer(header, "pid", 0),
            kinds=tuple(kind if isinstance(kind, str) else "?" for kind in kinds) if isinstance(kinds, list) else (),
            columns=columns,
            names={int(number): text for number, text in found.items() if text is not None},
            shapes=_numbered(mapping(header, "shapes")),
            generation=max(self._generation, 0),
        )


def _numbered(members: dict[str, Any]) -> dict[int, str]:
    """An object's texts by number: JSON has no numbers as names."""
    found = ((str(key), text) for key, text in members.items() if isinstance(text, str))
    return {int(key): text for key, text in found if key.isascii() and key.isdigit() and len(key) < 20}
