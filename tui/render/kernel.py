"""The pane below the kernel table: how long the launches of a row take, when, launched by what, shaped how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from textual.content import Content

from ..format import clean, duration, percent, size
from .bars import histogram, sparkline

if TYPE_CHECKING:
    from collections.abc import Sequence

LABEL_CELLS = 11
SLOWEST = 3


@dataclass(frozen=True)
class KernelDetail:
    """What the pane shows of one row of the kernel table."""

    title: str
    family: str
    rule: str
    count: int
    shortest_us: float
    longest_us: float
    bins: tuple[int, ...]
    """Launches by duration, equal bins from the shortest to the longest."""
    over_time: tuple[float | None, ...]
    """Mean duration in equal parts of time, from the first launch to the last."""
    delay_us: tuple[float, float, float] | None
    """Launch delay: smallest, median, largest."""
    unlinked: int
    """Launches without a launch record."""
    ops: tuple[tuple[str, int], ...]
    """Operators that launched it, the most frequent first."""
    grid: str
    block: str
    """As written; `several` where they differ."""
    occupancy_pct: tuple[float, float] | None
    registers: int | None
    shared_memory_bytes: int | None
    slowest: tuple[tuple[float, float, str], ...]
    """Duration and start in microseconds, and step, of the slowest launches."""


def draw(detail: KernelDetail, width: int) -> list[Content]:
    """Draw the pane."""
    right = "  ".join(part for part in (detail.family, f"rule {detail.rule}" if detail.rule else "") if part)
    right = clean(right, max(0, width // 2))
    name, room = clean(detail.title), max(1, width - 2)
    first = set_cell_size(name, min(room, cell_len(name)))
    rest = clean(name[len(first.rstrip()) :] if cell_len(name) > room else "", max(0, room - cell_len(right) - 2))
    gap = " " * max(1, room - cell_len(rest) - cell_len(right))
    head = [Content.styled(f" {first}", "bold"), Content.assemble(" ", (rest, "bold"), gap, (right, "$muted"))]
    return [*head, _durations(detail, width), _launches(detail, width), _shape(detail, width), _slowest(detail, width)]


def _durations(detail: KernelDetail, width: int) -> Content:
    ends = f"{duration(detail.shortest_us)} to {duration(detail.longest_us)}"
    room = width - LABEL_CELLS - 1 - cell_len(ends) - 2
    spark = room // 2 - len("over time  ") if room >= 60 else 0
    bars = min(48, room - spark - len("   over time  ") if spark else room)
    parts: list[str | tuple[str, str]] = [_label("duration"), (histogram(detail.bins, bars), "$accent"), f"  {ends}"]
    if spark:
        parts += [("   over time  ", "$muted"), (sparkline(detail.over_time, spark), "$accent")]
    return Content.assemble(*parts)


def _launches(detail: KernelDetail, width: int) -> Content:
    parts = []
    if detail.delay_us is not None:
        low, middle, high = detail.delay_us
        parts.append(f"{duration(middle)} before (median)")
        parts += [f"by {name} ({count:,})" for name, count in detail.ops]
        parts += [f"from {duration(low)} to {duration(high)} before"] if high > low else []
    if detail.unlinked:
        parts.append(f"{detail.unlinked:,} not recorded")
    return _line("launched", parts or ["not recorded"], width)


def _shape(detail: KernelDetail, width: int) -> Content:
    parts = [f"grid {detail.grid}" if detail.grid else "", f"block {detail.block}" if detail.block else ""]
    if detail.occupancy_pct is not None:
        low, high = detail.occupancy_pct
        parts.append(f"occupancy {percent(low)}" if low == high else f"occupancy {percent(low)} to {percent(high)}")
    parts.append("" if detail.registers is None else f"{detail.registers} registers")
    parts.append("" if not detail.shared_memory_bytes else f"{size(detail.shared_memory_bytes)} shared memory")
    return _line("shape", [part for part in parts if part] or ["not recorded"], width)


def _slowest(detail: KernelDetail, width: int) -> Content:
    parts = [f"{duration(us)} at {duration(start)}{f' step {step}' if step else ''}" for us, start, step in detail.slowest]
    return _line("slowest", parts, width)


def _label(text: str) -> tuple[str, str]:
    return f" {text:{LABEL_CELLS}}", "$muted"


def _line(label: str, parts: Sequence[str], width: int) -> Content:
    """Put as many parts on the line as fit; the first one is cut rather than left out."""
    room, line = width - LABEL_CELLS - 2, ""
    for part in parts:
        piece = f"{'  ·  ' if line else ''}{clean(part)}"
        if line and cell_len(line) + cell_len(piece) > room:
            break
        line += piece
    return Content.assemble(_label(label), clean(line, max(0, room)))
