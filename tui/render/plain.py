"""`--ascii`: every character that a plain terminal may lack becomes a letter of the same width, whatever widget drew it."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.segment import Segment
from textual.filter import LineFilter

if TYPE_CHECKING:
    from textual.color import Color

_PAIRS = (
    ("▁▂▃▄▅▆▇█", ".:-=+*##"),
    ("▓▒░·", "=-:."),
    ("▏▎▍▌▋▊▉", "|||>###"),
    ("…µ–—−×", "~u---x"),  # noqa: RUF001
    ("▼▲▶◀●○✓✗⚠⏎", "v^><*ox!!^"),
    ("─━│┃┌┐└┘├┤┬┴┼╭╮╰╯╴╶╸╺▔▕", "--||+++++++++++++----" + "-|"),
    ("←→↑↓’‘“”•±≥≤²", "<>^v''\"\"*~><2"),  # noqa: RUF001
)
MARKS = {ord(mark): letter for marks, letters in _PAIRS for mark, letter in zip(marks, letters, strict=True)}
"""Bars become `#=-.`, sparklines `.:-=+*#`."""


@lru_cache(4096)
def plain(text: str) -> str:
    """Return a text in ASCII, cell for cell."""
    text = text.translate(MARKS)
    return text if text.isascii() else "".join(char if char.isascii() else "?" * cell_len(char) for char in text)


class PlainText(LineFilter):
    """Applied to each line on its way to the terminal."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002
        """Return the segments in ASCII."""
        return [Segment(plain(text), style, control) for text, style, control in segments]
