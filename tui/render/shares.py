"""Shares of a whole as bars, one a line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual.content import Content

from ..format import clean, percent
from .bars import meter

if TYPE_CHECKING:
    from collections.abc import Sequence

LABEL_CELLS = 28


@dataclass(frozen=True)
class Share:
    """One part of the whole."""

    label: str
    pct: float
    told: str = ""
    """What is said behind the bar."""


def bars(shares: Sequence[Share], width: int, height: int) -> list[Content]:
    """Draw each share as a bar, a full line being 100 %.

    Args:
        shares: the largest first.
        width: cells of a line.
        height: lines there are; shares that do not fit are counted.
    """
    shown = shares if len(shares) <= height else shares[: max(1, height - 1)]
    labels = min(LABEL_CELLS, max((cell_len(share.label) for share in shown), default=0))
    told = min(width // 3, max((cell_len(share.told) for share in shown), default=0))
    room = max(8, width - labels - told - 14)
    lines = []
    for share in shown:
        name = clean(share.label, labels)
        bar = meter(share.pct / 100, room)
        bar = bar if bar.strip() or share.pct <= 0 else "▏".ljust(room)
        lines.append(
            Content.assemble(
                (f" {name}{' ' * (labels - cell_len(name))} ", "bold"),
                (bar, "$accent"),
                f" {percent(share.pct):>8}  ",
                (clean(share.told, max(1, told)) if share.told else "", "$muted"),
            )
        )
    if len(shown) < len(shares):
        lines.append(Content.styled(f" and {len(shares) - len(shown):,} more", "$muted"))
    return lines
