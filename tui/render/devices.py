"""The devices of the overview: a card each, or a line each where there are many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual.content import Content

from ..format import clean, duration, percent, plural
from .bars import FILLS, sparkline, stacked

if TYPE_CHECKING:
    from collections.abc import Sequence

LABELS = {"compute": "compute", "comm": "exposed comm", "memory": "memory", "idle": "idle"}
"""Classes of the exclusive breakdown, in order."""
MAX_STREAMS = 3
LABEL_CELLS = 12


@dataclass(frozen=True)
class Device:
    """What a card shows."""

    title: str
    """Rank and device, as the user names them."""
    name: str
    """Name of the hardware, empty where the trace does not say."""
    window_us: float
    shares: tuple[tuple[str, float], ...]
    """Class and percent of the window."""
    busy: tuple[float | None, ...] = ()
    """Busy share over the window, 0 to 1."""
    streams: tuple[tuple[str, tuple[float | None, ...]], ...] = ()
    """The same for each stream, the busiest first."""
    coverage_pct: float | None = None
    """Share of GPU time linked to a launch."""
    verdict: str = "trust"
    why: str = ""
    """The reason for the verdict, one sentence."""

    @property
    def trusted(self) -> bool:
        """Whether the figures can be trusted."""
        return self.verdict == "trust"


def cards(devices: Sequence[Device], width: int, *, streams: int = MAX_STREAMS) -> list[Content]:
    """Draw each device as a card: name and verdict, the breakdown as a bar and in words, busy over time.

    Args:
        devices: in order.
        width: cells of a line.
        streams: most streams shown of a device.
    """
    lines: list[Content] = []
    for device in devices:
        bar = max(10, width - 2)
        lines.append(_head(device, width))
        lines.append(Content(" ").append(stacked(device.shares, bar)))
        lines.append(_words(device, width))
        room = width - LABEL_CELLS - 2
        lines.append(_over_time("busy", device.busy, room))
        shown = device.streams[:streams] if len(device.streams) > 1 else ()
        lines += [_over_time(name, values, room) for name, values in shown]
        if len(device.streams) > len(shown) > 0:
            lines.append(
                Content.styled(f" {'':{LABEL_CELLS}}and {plural(len(device.streams) - len(shown), 'stream')} more", "$muted")
            )
    return lines


def rows(devices: Sequence[Device], width: int) -> list[Content]:
    """Draw each device as one line: title, window, breakdown as a bar and in percent, busy over time where there is room."""
    titles = max((cell_len(device.title) for device in devices), default=0)
    windows = max((len(duration(device.window_us)) for device in devices), default=0)
    figures = "".join(f"{label.replace('exposed ', ''):>9}" for label in LABELS.values())
    left = 1 + titles + 2 + windows + 2
    room = width - left - len(figures) - 3
    bar = max(8, room // 2 if room > 60 else room)
    spark = room - bar - 2 if room > 60 else 0
    head = f" {'':{titles}}  {'window':>{windows}}  {'':{bar}}{figures}" + (f"   {'busy':{spark}}" if spark else "")
    lines = [Content.styled(head, "$muted")]
    for device in devices:
        text = Content(" ").append(Content.styled(f"{device.title:{titles}}", "bold"))
        text = text.append(f"  {duration(device.window_us):>{windows}}  ").append(stacked(device.shares, bar))
        text = text.append("".join(f"{percent(share):>9}" for _, share in device.shares))
        if spark:
            text = text.append("   ").append(Content.styled(sparkline(device.busy, spark, low=0, high=1), "$compute"))
        lines.append(text if device.trusted else text.append(Content.styled(" !", "bold $warning")))
    return lines


def _head(device: Device, width: int) -> Content:
    right = clean(
        f"coverage {percent(device.coverage_pct)}  {'✓' if device.trusted else '⚠'} {device.verdict}", max(0, width // 2)
    )
    text = Content(" ").append(Content.styled(device.title, "bold"))
    room = width - text.cell_length - cell_len(right) - 3
    window = f"   window {duration(device.window_us)}"
    text = text.append(clean(f"  {clean(device.name, max(1, room - len(window) - 2))}{window}", max(0, room)))
    gap = max(1, width - 1 - text.cell_length - cell_len(right))
    return text.append(" " * gap).append(Content.styled(right, "$text-success" if device.trusted else "bold $text-warning"))


def _words(device: Device, width: int) -> Content:
    line = Content("")
    for name, share in device.shares:
        entry = Content.assemble((f" {FILLS[name]} ", f"${name}"), f"{LABELS[name]} ", (percent(share), "bold"), "  ")
        if line.cell_length + entry.cell_length <= width + 2:
            line = line.append(entry)
    return line


def _over_time(name: str, values: Sequence[float | None], width: int) -> Content:
    spark = sparkline([0.0 if value is None else value for value in values], width, low=0, high=1)
    return Content.assemble((f" {clean(name, LABEL_CELLS):{LABEL_CELLS}}", "$muted"), (spark, "$compute"))
