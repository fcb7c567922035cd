"""Communication against compute as lanes over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual.content import Content

from ..format import clean, duration, percent
from .bars import sparkline, squeeze

if TYPE_CHECKING:
    from collections.abc import Sequence

LANES = (("compute", "$compute"), ("comm", "$comm"), ("exposed", "bold $comm"))
"""Lanes of a device: compute, communication, communication with no compute beside it."""
CARDS = 2
"""With more devices than this, each gets two lines and no heading."""
LABEL_CELLS = 9


@dataclass(frozen=True)
class LaneDevice:
    """What is shown of a device."""

    title: str
    start_us: float
    """Start of its window since the first event."""
    end_us: float
    comm_us: float
    exposed_us: float
    lanes: dict[str, tuple[float, ...]]
    """For each of `LANES` the busy share over the window, 0 to 1."""

    @property
    def exposed_pct(self) -> float | None:
        """Exposed communication as a share of communication."""
        return 100 * self.exposed_us / self.comm_us if self.comm_us > 0 else None


def cards(devices: Sequence[LaneDevice], width: int) -> list[Content]:
    """Draw each device: what of its communication is exposed, and the lanes over its window.

    Args:
        devices: in order.
        width: cells of a line.
    """
    lines = []
    room = max(1, width - LABEL_CELLS - 3)
    for device in devices:
        said = f"   comm {duration(device.comm_us)}, exposed {duration(device.exposed_us)} ({percent(device.exposed_pct)})"
        if device.comm_us <= 0:
            said = "   no communication"
        lines.append(Content.assemble((f" {device.title}", "bold"), clean(said, max(0, width - cell_len(device.title) - 1))))
        lines += [_lane(name, device.lanes[name], colour, room) for name, colour in LANES]
        lines.append(_axis(device, room))
    return lines


def rows(devices: Sequence[LaneDevice], width: int) -> list[Content]:
    """Draw each device as two lanes, compute above communication.

    Args:
        devices: in order.
        width: cells of a line.
    """
    labels = [(device.title, f"exposed {percent(device.exposed_pct)}") for device in devices]
    left = max((cell_len(text) for pair in labels for text in pair), default=0)
    room = max(1, width - left - LABEL_CELLS - 4)
    lines = []
    for device, pair in zip(devices, labels, strict=True):
        for text, style, (name, colour) in zip(pair, ("bold", "$muted"), LANES[:2], strict=True):
            lines.append(Content.assemble((f" {text:{left}} ", style), _lane(name, device.lanes[name], colour, room)))
    return lines


def _lane(name: str, share: Sequence[float], colour: str, width: int) -> Content:
    # A blank, not the lowest mark, where nothing ran.
    cells = [value if value else None for value in squeeze(share, width)]
    return Content.assemble((f" {name:{LABEL_CELLS}} ", "$muted"), (sparkline(cells, width, low=0, high=1), colour))


def _axis(device: LaneDevice, width: int) -> Content:
    """Times below the lanes: start, middle, end of the window."""
    start, end = duration(device.start_us), duration(device.end_us)
    middle = duration((device.start_us + device.end_us) / 2)
    gap = width - len(start) - len(end)
    text = f"{start}{middle:^{gap}}{end}" if gap > len(middle) + 2 else start
    return Content.styled(f" {'':{LABEL_CELLS}} {text}", "$muted")
