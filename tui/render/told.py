"""The lines under a table: what the column under the cursor means, and texts that its cells cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content

from ..format import clean
from .columns import UNIT_TEXT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinetop.analysis.question import Column


def lines(column: Column | None, texts: Sequence[tuple[Column, str]], width: int, height: int) -> list[Content]:
    """Draw the definition of a column, then texts in full, as far as there are lines.

    Args:
        column: the column under the cursor.
        texts: columns whose cells cut their text, with the text, the most important first.
        width: cells of a line.
        height: lines there are; as many are always drawn, so that the table above keeps its size.
    """
    drawn = []
    if column is not None:
        unit = UNIT_TEXT.get(column.unit, "")
        head = f"{column.name} ({unit})" if unit and not column.name.endswith(column.unit) else column.name
        drawn.append(Content.assemble((f" {head}  ", "bold $accent"), (column.about, "$muted")).truncate(width, ellipsis=True))
    for of, text in texts:
        label = f" {of.name}  "
        room = max(1, width - len(label) - 1)
        shown = clean(text, room * max(1, height - len(drawn)))
        pieces = Content(shown).wrap(room) if room > 8 else [Content(shown).truncate(room)]
        for at, piece in enumerate(pieces[: max(0, height - len(drawn))]):
            drawn.append(Content.assemble((label if at == 0 else " " * len(label), "$muted"), piece))
    return [*drawn, *[Content("")] * (height - len(drawn))][:height]
