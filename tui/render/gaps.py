"""Idle time as lines: each device with the causes of its gaps, and one gap cut into its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from textual.content import Content

from ..format import clean, duration, percent, plural
from .bars import apportion, sparkline, squeeze

CAUSES: dict[str, tuple[str, str]] = {
    "host late": ("█", "$accent"),
    "data loader": ("▌", "$accent"),
    "collective": ("▆", "$accent"),
    "sync": ("▓", "$accent"),
    "after sync": ("▏", "$accent"),
    "launch latency": ("▒", "$secondary"),
    "dependency": ("░", "$secondary"),
    "graph": ("▅", "$secondary"),
    "no record": ("·", "$idle"),
}
"""Fill and colour of each cause, in the order of a bar: the host's part, in the accent, comes first in time as well."""

WHY = {
    "host late": "the next launch came late",
    "data loader": "the launching thread waited for a batch",
    "collective": "the launching thread sat in a collective of the host",
    "sync": "the launching thread sat in a synchronising call",
    "after sync": "a synchronising call had emptied the queue",
    "launch latency": "launched, yet slow to start",
    "dependency": "launched before, it waited for its turn or an event",
    "graph": "between two activities of one graph replay",
    "no record": "the trace holds no launch of what follows",
}
"""What the largest part of a gap means."""
DOING = (("sync_name", "call"), ("op", "op"), ("frame", "frame"), ("annotation", "annotation"))
"""What is known of the launching thread, from the innermost out."""
CARDS = 2
"""With more devices than this, each gets a line instead of a card."""
LABEL_CELLS = 10

Parts = Sequence[tuple[str, float]]
"""Cause and microseconds, in the order of `CAUSES`."""


@dataclass(frozen=True)
class IdleDevice:
    """What is shown of a device."""

    title: str
    window_us: float
    gaps: int
    parts: Parts
    share: tuple[float, ...] = ()
    """Idle share over the window, 0 to 1."""

    @property
    def idle_us(self) -> float:
        """Idle time."""
        return sum(part for _, part in self.parts)

    @property
    def idle_pct(self) -> float:
        """Idle time as a share of the window."""
        return 100 * self.idle_us / self.window_us if self.window_us else 0.0


def bar(parts: Parts, width: int) -> Content:
    """Return parts as one bar of `width` cells; each part above zero keeps a cell."""
    cells = apportion([part for _, part in parts], width)
    return Content.assemble(
        *((CAUSES[name][0] * count, CAUSES[name][1]) for (name, _), count in zip(parts, cells, strict=True) if count)
    )


def legend(parts: Parts, width: int) -> Content:
    """Return parts in words, the largest first, with their shares, and their times where there is room for all."""
    ordered = sorted(((name, part) for name, part in parts if part > 0), key=lambda entry: -entry[1])
    total = sum(part for _, part in ordered)
    line = Content("")
    for timed in (True, False):
        line = Content("")
        for name, part in ordered:
            fill, colour = CAUSES[name]
            time = (f"{duration(part)} ", "bold") if timed else ""
            line = line.append(Content.assemble((f" {fill} ", colour), f"{name} ", time, f"{percent(100 * part / total)} "))
        if line.cell_length <= width:
            return line
    return line.truncate(width, ellipsis=True)


def cards(devices: Sequence[IdleDevice], width: int) -> list[Content]:
    """Draw each device: how long it idled, the causes as a bar and in words, idle over time.

    Args:
        devices: in order.
        width: cells of a line.
    """
    lines = []
    for device in devices:
        head = f"   idle {percent(device.idle_pct)}   {duration(device.idle_us)} of {duration(device.window_us)}"
        head += f" in {plural(device.gaps, 'gap')}"
        lines.append(Content.assemble((f" {device.title}", "bold"), clean(head, max(0, width - cell_len(device.title) - 1))))
        if device.idle_us > 0:
            lines.append(Content(" ").append(bar(device.parts, width - 2)))
            lines.append(legend(device.parts, width))
        lines.append(Content.assemble((f" {'over time':{LABEL_CELLS}}", "$muted"), _over_time(device, width - LABEL_CELLS - 2)))
    return lines


def rows(devices: Sequence[IdleDevice], width: int) -> list[Content]:
    """Draw each device as a line: idle share, causes as a bar, idle over time.

    Args:
        devices: in order.
        width: cells of a line.
    """
    titles = max((cell_len(device.title) for device in devices), default=0)
    most_pct = max((device.idle_pct for device in devices), default=0.0)
    room = width - titles - 14
    half = room // 2 - 1
    lines = [legend(_pooled(devices), width)]
    for device in devices:
        causes = bar(device.parts, max(1, round(half * device.idle_pct / most_pct))) if device.idle_us > 0 else Content("")
        text = Content.assemble((f" {device.title:{titles}}", "bold"), f"  {percent(device.idle_pct):>8}  ", causes)
        lines.append(text.append(" " * (half - causes.cell_length + 2)).append(_over_time(device, room - half - 2)))
    return lines


def gap(row: Mapping[str, Any], width: int) -> list[Content]:
    """Draw one gap: when and how long, its parts as a bar and in words, and what the host did.

    Args:
        row: a row of the idle question's gaps.
        width: cells of a line.
    """
    parts = [(name, float(row.get(f"{name.replace(' ', '_')}_us") or 0.0)) for name in CAUSES]
    why = f" from {duration(row['start_us'])}: {WHY.get(row['cause'], '')}"
    return [
        Content.assemble((f" {duration(row['dur_us'])}", "bold"), why).truncate(width, ellipsis=True),
        Content(" ").append(bar(parts, width - 2)),
        legend(parts, width),
        *(_named(label, text, width) for label, text in told(row)),
    ]


def told(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Say what the host did and between which activities the gap lies, one thing a line.

    Args:
        row: a row of the idle question's gaps.
    """
    doing = [f"{label} {row[name]}" for name, label in DOING if row[name]]
    host = f"thread {row['thread']}:  " + "   ".join(clean(text, 120) for text in doing) if doing else "not recorded what it did"
    ends = f"{row['next']}, stream {row['next_stream']}" if row["next"] else "nothing in this window"
    return [("the host", host), ("after", row["previous"] or "nothing in this window"), ("before", ends)]


def _over_time(device: IdleDevice, width: int) -> Content:
    # A blank, not the lowest mark, where the device was busy throughout.
    cells = [value if value > 0.01 else None for value in (value or 0.0 for value in squeeze(device.share, width))]
    return Content.styled(sparkline(cells, width, low=0, high=1), "$idle")


def _named(label: str, text: str, width: int) -> Content:
    return Content.assemble((f" {label:{LABEL_CELLS}}", "$muted"), clean(text, max(0, width - LABEL_CELLS - 2)))


def _pooled(devices: Sequence[IdleDevice]) -> Parts:
    return [(name, sum(dict(device.parts).get(name, 0.0) for device in devices)) for name in CAUSES]
