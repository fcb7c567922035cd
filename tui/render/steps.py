"""Steps as bars: how the wall time of each was spent, as long as the step was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual.content import Content

from ..format import clean, duration
from .bars import apportion

if TYPE_CHECKING:
    from collections.abc import Sequence

PARTS: dict[str, tuple[str, str, str]] = {
    "kernel": ("█", "$compute", "kernel"),
    "communication": ("▓", "$comm", "comm"),
    "memcpy": ("▒", "$memory", "memcpy"),
    "memset": ("▏", "$memory", "memset"),
    "runtime": ("▅", "$accent", "runtime"),
    "data_loader": ("▆", "$warning", "data loader"),
    "cpu_op": ("░", "$secondary", "cpu op"),
    "other": ("·", "$idle", "other"),
}
"""Fill, colour and name of each part of a step, in the order of a bar; told apart without colour and in ASCII as well."""
TIGHT = 3
"""Lines that many steps side by side need at least."""


@dataclass(frozen=True)
class Step:
    """What is shown of a step."""

    label: str
    wall_us: float
    parts: tuple[float, ...]
    """Microseconds of each of `PARTS`."""
    partial: bool = False


def bars(steps: Sequence[Step], width: int, height: int) -> list[Content]:
    """Draw steps: a line each where they fit, else a column each.

    Args:
        steps: in order.
        width: cells of a line.
        height: lines there are, the legend among them.
    """
    if not steps:
        return []
    lines = _lines(steps, width) if len(steps) < height else _columns(steps, width, height - 2)
    return [*lines, _legend(steps, width)]


def _lines(steps: Sequence[Step], width: int) -> list[Content]:
    longest = max(step.wall_us for step in steps)
    labels = max(cell_len(step.label) for step in steps)
    times = max(len(duration(step.wall_us)) for step in steps) + 1
    room = max(8, width - labels - times - 4)
    lines = []
    for step in steps:
        cells = apportion(step.parts, max(1, round(room * step.wall_us / longest)) if longest > 0 else 0)
        bar = Content.assemble(*((fill * n, style) for n, (fill, style, _) in zip(cells, PARTS.values(), strict=True) if n))
        time = duration(step.wall_us) + ("~" if step.partial else " ")
        lines.append(Content.assemble((f" {step.label:{labels}}", "bold"), (f" {time:>{times}} ", "$muted"), bar))
    return lines


def _columns(steps: Sequence[Step], width: int, height: int) -> list[Content]:
    longest = max(step.wall_us for step in steps)
    scale = duration(longest)
    shown = steps[: max(1, width - len(scale) - 3)]
    height = max(TIGHT, height)
    stacks = [_stack(step, longest, height) for step in shown]
    lines = []
    for y in range(height):
        label = scale if y == 0 else "0" if y == height - 1 else ""
        marks = [stack[height - 1 - y] if height - 1 - y < len(stack) else None for stack in stacks]
        cells = [
            (mark, style) if (mark, style) != ("", "") else (" ", "") for mark, style in (mark or ("", "") for mark in marks)
        ]
        lines.append(Content.assemble((f" {label:>{len(scale)}} ", "$muted"), *cells))
    ends = f"{shown[0].label} to {shown[-1].label}"
    rest = f"; {len(steps) - len(shown):,} more do not fit" if len(steps) > len(shown) else ""
    return [*lines, Content.styled(f" {'':{len(scale)}} {clean(ends + rest, max(1, width - len(scale) - 2))}", "$muted")]


def _stack(step: Step, longest: float, height: int) -> list[tuple[str, str]]:
    cells = apportion(step.parts, max(1, round(height * step.wall_us / longest)) if longest > 0 else 0)
    return [(fill, style) for n, (fill, style, _) in zip(cells, PARTS.values(), strict=True) for _ in range(n)]


def _legend(steps: Sequence[Step], width: int) -> Content:
    """Name the parts that occur; `~` where a step is partial."""
    line = Content(" ")
    for at, (fill, style, name) in enumerate(PARTS.values()):
        if any(step.parts[at] > 0 for step in steps):
            line = line.append(Content.assemble((fill, style), f" {name}  "))
    if any(step.partial for step in steps):
        line = line.append(Content.styled("~ partial", "$muted"))
    return line.truncate(width, ellipsis=True)
