"""A table over a Polars frame that formats only the rows on screen, so that millions of rows open as fast as ten."""

from __future__ import annotations

from functools import partial
from textwrap import wrap
from typing import TYPE_CHECKING, Any, ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.cache import LRUCache
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ..render.columns import Look, Placed, looks, place

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl
    from rich.style import Style
    from textual import events

    from kinetop.analysis.question import Column

PAGE_ROWS = 128
THREAD_ROWS = 100_000
"""Sorting more rows than this would be felt, so it goes to a thread."""
CLASSES = frozenset({"compute", "comm", "memory", "idle"})
"""Values of a `class` column that have a colour of their own."""


class FrameTable(ScrollView, can_focus=True):
    """Rows of a Polars frame under declared columns; `show` puts a frame in.

    The first column stays in place while the others scroll; columns leave a narrow screen by their priority.
    """

    DEFAULT_CSS = "FrameTable { overflow-x: hidden; overflow-y: auto; scrollbar-size: 1 1; }"
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "frametable--row",
        "frametable--header",
        "frametable--sorted",
        "frametable--cursor",
        "frametable--muted",
        *(f"frametable--{name}" for name in CLASSES),
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", "row down", id="table.down", show=False),
        Binding("up,k", "move(-1)", "row up", id="table.up", show=False),
        Binding("pagedown", "page(1.0)", "page down", id="table.page_down", show=False),
        Binding("pageup", "page(-1.0)", "page up", id="table.page_up", show=False),
        Binding("ctrl+d", "page(0.5)", "half a page down", id="table.half_down", show=False),
        Binding("ctrl+u", "page(-0.5)", "half a page up", id="table.half_up", show=False),
        Binding("home,g", "edge(-1)", "first row", id="table.first", show=False),
        Binding("end,G", "edge(1)", "last row", id="table.last", show=False),
        Binding("right,l", "column(1)", "columns right", id="table.right", show=False),
        Binding("left,h", "column(-1)", "columns left", id="table.left", show=False),
        Binding("enter", "pick", "open", id="table.open", key_display="enter"),
        Binding("s", "sort(1)", "sort", id="table.sort", tooltip="Sort by the next column"),
        Binding("S", "reverse", "reverse the sort", id="table.reverse", show=False),
    ]

    cursor: reactive[int] = reactive(0, repaint=False)
    """Row the cursor is on, counted in the order shown."""

    class Picked(Message):
        """A row was opened with enter or a double click."""

        def __init__(self, table: FrameTable, row: dict[str, Any]) -> None:
            super().__init__()
            self.table = table
            self.row = row

        @property
        def control(self) -> FrameTable:
            """The table."""
            return self.table

    class Moved(Message):
        """The cursor is on another row, or on the same one with other contents."""

        def __init__(self, table: FrameTable, row: dict[str, Any] | None) -> None:
            super().__init__()
            self.table = table
            self.row = row

        @property
        def control(self) -> FrameTable:
            """The table."""
            return self.table

    class Ordered(Message, bubble=False):
        """A sort in a thread is done."""

        def __init__(self, request: int, order: pl.Series) -> None:
            super().__init__()
            self.request = request
            self.order = order

    def __init__(self, *, empty: str = "nothing here", id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.empty = empty
        self.frame: pl.DataFrame | None = None
        self.columns: tuple[Column, ...] = ()
        self.sort_column = ""
        self.descending = True
        self._chosen = False
        self._order: pl.Series | None = None
        self._request = 0
        self._skip = 0
        self._looks: dict[str, Look] = {}
        self._placed: list[Placed] = []
        self._pages: LRUCache[int, list[list[str]]] = LRUCache(16)

    # What a view calls

    def show(self, frame: pl.DataFrame, columns: Sequence[Column], *, sort: str = "", descending: bool = True) -> None:
        """Show another frame.

        The cursor stays on the row with the same first cell where there is one, and a sort the user chose is kept.

        Args:
            frame: the rows.
            columns: declared columns; those the frame lacks are left out.
            sort: column the frame comes sorted by.
            descending: whether it does so from the top down.
        """
        kept = self.key
        self.frame = frame
        self.columns = tuple(column for column in columns if column.name in frame.columns)
        names = {column.name for column in self.columns}
        if not (self._chosen and self.sort_column in names):
            self.sort_column, self.descending, self._chosen = sort, descending, False
        self._looks = self._look_at(frame)
        self._order = None
        self._request += 1
        self._settle(kept)
        if self._chosen:
            self._sort(kept)

    def sort_by(self, column: str, *, descending: bool) -> None:
        """Sort the rows by a column; many rows are sorted in a thread and change place when that is done."""
        self.sort_column, self.descending, self._chosen = column, descending, True
        self._sort(None)

    def find(self, matches: pl.Series, step: int) -> bool:
        """Move the cursor to the next (`step` 1) or previous (-1) row that is true in `matches` (in the frame's own order)."""
        shown = matches if self._order is None else matches.gather(self._order)
        hits = shown.arg_true()
        if not hits.len():
            return False
        if step > 0:
            later = hits.filter(hits > self.cursor)
            self.cursor = later[0] if later.len() else hits[0]
        else:
            earlier = hits.filter(hits < self.cursor)
            self.cursor = earlier[-1] if earlier.len() else hits[-1]
        return True

    @property
    def row(self) -> dict[str, Any] | None:
        """The row under the cursor, by column."""
        if self.frame is None or not 0 <= self.cursor < self.frame.height:
            return None
        return self.frame.row(self._at(self.cursor), named=True)

    @property
    def key(self) -> Any:
        """Value of the first column under the cursor."""
        row = self.row
        return row[self.columns[0].name] if row and self.columns else None

    @property
    def ordered(self) -> pl.DataFrame | None:
        """The declared columns of the frame in the order shown."""
        if self.frame is None:
            return None
        chosen = self.frame.select(column.name for column in self.columns)
        return chosen if self._order is None else chosen[self._order]

    # Keys and mouse

    def action_move(self, rows: int) -> None:
        """Move the cursor by rows."""
        self.cursor += rows

    def action_page(self, pages: float) -> None:
        """Move the cursor by a share of the page."""
        self.cursor += int(max(1, self.size.height - 1) * pages)

    def action_edge(self, side: int) -> None:
        """Move the cursor to the first or the last row."""
        self.cursor = 0 if side < 0 else self.rows - 1

    def action_column(self, step: int) -> None:
        """Scroll by a column; the first one stays."""
        last = max(0, len(self.columns) - 2)
        wanted = min(max(0, self._skip + step), last)
        if step < 0 or len(self._placed) < len(self.columns):
            self._skip = wanted
            self._lay_out()

    def action_pick(self) -> None:
        """Open the row under the cursor."""
        if (row := self.row) is not None:
            self.post_message(self.Picked(self, row))

    def action_sort(self, step: int) -> None:
        """Sort by the next column shown: numbers from the top down, texts from a to z."""
        names = [placed.column.name for placed in self._placed]
        if names:
            at = names.index(self.sort_column) if self.sort_column in names else -1
            self._sort_first(names[(at + step) % len(names)])

    def action_reverse(self) -> None:
        """Turn the sort round."""
        if self.sort_column:
            self.sort_by(self.sort_column, descending=not self.descending)

    def on_click(self, event: events.Click) -> None:
        """Pick a row, or sort by the header clicked."""
        if event.y == 0:
            for placed in self._placed:
                if placed.left <= event.x < placed.left + placed.width:
                    if placed.column.name == self.sort_column:
                        self.action_reverse()
                    else:
                        self._sort_first(placed.column.name)
            return
        row = event.y + self.scroll_offset.y - 1
        if row < self.rows:
            self.cursor = row
            if event.chain > 1:
                self.action_pick()

    # Drawing

    @property
    def rows(self) -> int:
        """Number of rows."""
        return 0 if self.frame is None else self.frame.height

    def validate_cursor(self, cursor: int) -> int:
        """Keep the cursor on a row."""
        return min(max(0, cursor), max(0, self.rows - 1))

    def watch_cursor(self, old: int, new: int) -> None:
        """Repaint the two rows concerned and bring the new one into view."""
        top, page = self.scroll_offset.y, max(1, self.size.height - 1)
        if not top <= new < top + page:
            self.scroll_to(y=new if new < top else new - page + 1, animate=False, force=True)
        width = self.size.width
        self.refresh(Region(0, old - top + 1, width, 1), Region(0, new - top + 1, width, 1))
        self.post_message(self.Moved(self, self.row))

    def on_resize(self) -> None:
        """Lay the columns out for the new width."""
        self._lay_out()

    def notify_style_update(self) -> None:
        """Colours changed."""
        super().notify_style_update()
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Draw the header or one row."""
        width = self.size.width
        if y == 0:
            return self._header_strip(width)
        row = self.scroll_offset.y + y - 1
        base = self._row_style
        if row >= self.rows:
            text = self._empty_line(y - 1, width)
            return Strip(
                [Segment(set_cell_size(text, width), self.get_component_rich_style("frametable--muted") if text else base)]
            )
        on_cursor = row == self.cursor
        if on_cursor and self.has_focus:
            base = self.get_component_rich_style("frametable--cursor")
        return Strip(self._segments(row, width, base, mark="▌" if on_cursor else " "), width)

    @property
    def _row_style(self) -> Style:
        """The table's own style; as a component's, Textual keeps it: worked out anew it takes a sixth of the time of a redraw."""
        return self.get_component_rich_style("frametable--row")

    def _empty_line(self, line: int, width: int) -> str:
        """What stands in place of the first rows where there are none."""
        if self.rows or self.frame is None:
            return ""
        lines = wrap(self.empty, max(1, width - 2))
        return f" {lines[line]}" if line < len(lines) else ""

    def _segments(self, row: int, width: int, base: Style, mark: str) -> list[Segment]:
        """One segment for the whole row; a class cell in its colour makes it three."""
        texts = self._page(row // PAGE_ROWS)[row % PAGE_ROWS]
        parts: list[tuple[str, Style]] = [(mark, base)]
        for text, placed in zip(texts, self._placed, strict=True):
            value = text.strip()
            if placed.column.name == "class" and value in CLASSES and base is self._row_style:
                parts += [(text, base + self.get_component_rich_style(f"frametable--{value}", partial=True)), ("", base)]
            else:
                parts[-1] = (parts[-1][0] + text, base)
        if parts[-1][1] is base:
            used = sum(cell_len(text) for text, _ in parts[:-1])
            parts[-1] = (set_cell_size(parts[-1][0], max(0, width - used)), base)
        return [Segment(text, style) for text, style in parts if text]

    def _header_strip(self, width: int) -> Strip:
        plain = self.get_component_rich_style("frametable--header")
        marked = self.get_component_rich_style("frametable--sorted")
        segments, used = [Segment(" ", plain)], 1
        for placed in self._placed:
            chosen = placed.column.name == self.sort_column
            text = placed.fit(placed.look.header("▼▲"[not self.descending] if chosen else ""))
            segments.append(Segment(text, self._header_style(placed, marked if chosen else plain)))
            used += placed.width
        segments.append(Segment(" " * max(0, width - used), plain))
        return Strip(segments, used + max(0, width - used)).crop(0, width)

    def _header_style(self, placed: Placed, style: Style) -> Style:  # noqa: ARG002
        """Return the style of a column's header."""
        return style

    def _page(self, page: int) -> list[list[str]]:
        """Formatted and padded cells of a page of rows, one list a row."""
        if self.frame is None:
            return []
        if (cells := self._pages.get(page)) is None:
            at = slice(page * PAGE_ROWS, (page + 1) * PAGE_ROWS)
            rows = self.frame[at] if self._order is None else self.frame[self._order[at]]
            columns = [[placed.fit(text) for text in self._texts(placed, rows)] for placed in self._placed]
            cells = [list(row) for row in zip(*columns, strict=True)]
            self._pages[page] = cells
        return cells

    def _texts(self, placed: Placed, rows: pl.DataFrame) -> list[str]:
        """Return the texts of a column of some rows."""
        return [placed.look.text(value) for value in rows[placed.column.name].to_list()]

    # Inside

    def _at(self, row: int) -> int:
        return row if self._order is None else int(self._order[row])

    def _sort_first(self, name: str) -> None:
        column = next(column for column in self.columns if column.name == name)
        self.sort_by(name, descending=column.unit not in {"text", "id"})

    def _sort(self, kept: Any) -> None:
        if self.frame is None:
            return
        self._request += 1
        request, values, descending = self._request, self._sort_values(self.frame), self.descending
        if self.frame.height > THREAD_ROWS:
            work = partial(self._sort_in_thread, request, values, descending)
            self.run_worker(work, thread=True, exclusive=True, group="sort")
        else:
            self._take_order(_order(values, descending), kept)

    def _sort_values(self, frame: pl.DataFrame) -> pl.Series:
        return frame[self.sort_column]

    def _sort_in_thread(self, request: int, values: pl.Series, descending: bool) -> None:  # noqa: FBT001
        self.post_message(self.Ordered(request, _order(values, descending)))

    def on_frame_table_ordered(self, message: FrameTable.Ordered) -> None:
        """Take the order that a thread made, unless the frame or the sort changed meanwhile."""
        if message.request == self._request:
            self._take_order(message.order, None)

    def _take_order(self, order: pl.Series, kept: Any) -> None:
        self._order = order
        self._settle(kept)

    def _settle(self, kept: Any) -> None:
        """Start again at the top, or at the row that was under the cursor before."""
        at = 0
        if kept is not None and self.frame is not None and self.columns and self.frame.height <= THREAD_ROWS:
            keys = self.frame[self.columns[0].name]
            keys = keys if self._order is None else keys[self._order]
            hits = (keys.cast(str) == str(kept)).arg_true()
            at = int(hits[0]) if hits.len() else 0
        self.virtual_size = Size(self.size.width, self.rows + 1)
        self._lay_out()
        if at == 0:
            self.scroll_to(y=0, animate=False, force=True)
        before = self.cursor
        self.cursor = at
        if self.cursor == before:
            self.post_message(self.Moved(self, self.row))

    def _lay_out(self) -> None:
        self._placed = self._place()
        self._pages.clear()
        self.virtual_size = Size(self.size.width, self.rows + 1)
        self._repaint()

    def _place(self) -> list[Placed]:
        return place(self.columns, self._looks, self.size.width - 1, skip=self._skip, left=1, marked=self.sort_column)

    def _look_at(self, frame: pl.DataFrame) -> dict[str, Look]:
        return looks(frame, self.columns)

    def _repaint(self) -> None:
        self.refresh()


def _order(values: pl.Series, descending: bool) -> pl.Series:  # noqa: FBT001
    """Return the permutation that sorts a column, nulls last; texts without regard to case."""
    import polars as pl

    if values.dtype in {pl.Categorical, pl.String} or isinstance(values.dtype, pl.Enum):
        values = values.cast(pl.String).str.to_lowercase()
    return values.arg_sort(descending=descending, nulls_last=True)
