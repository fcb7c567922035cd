"""Frames as rows of the event table, and back.

Each frame is one instant of the category `kinetop_frame` whose `args` hold all of it: `frame`, its header, and `body`, what
followed the header, in base64. What analyses and viewers can show follows it as rows of its own: a window its events, samples
complete events of the category `kinetop_sample`, telemetry a counter.
"""

from __future__ import annotations

import base64
import binascii
import json
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from ..errors import UnreadableError
from ..reading.columns import SCHEMA
from . import windows
from .journal import packed, sizes
from .members import MARKS, UnusableError, clean, is_number, texts, time_ns, words
from .names import Names
from .worker.case import Case
from .worker.frames import Frame, FrameError, Reader, pack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .names import Window

FRAME_CAT = "kinetop_frame"
SAMPLE_CAT = "kinetop_sample"
TELEMETRY_NAME = "telemetry"
PROCESS = "kinetop"
"""Process of all rows that are no profiler's."""
_HEAD_BYTES = 12
_SMALL = {
    "order": pl.Int64(),
    **{
        name: windows.EVENT_COLUMNS[name]
        for name in ("ph", "cat", "name", "process", "thread", "ts_ns", "dur_ns", "scope", "args")
    },
}
"""Columns of the rows that are no window's, and the number of the frame that each came with."""


def unpacked(args: str) -> Frame:
    """Return the frame that a row's `args` hold.

    Args:
        args: as `Rows` wrote them.

    Raises:
        UnreadableError: they hold none.
    """
    try:
        said = json.loads(args)
        header = dict(said["frame"])
        if "body" not in said and "columns" not in header:
            return Frame(header)
        (made,) = Reader().feed(pack(header, body=base64.b64decode(said.get("body", ""), validate=True)))
        return made
    except (FrameError, binascii.Error, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UnreadableError(f"a frame cannot be read ({error})") from error


class Rows:
    """Gathers frames, in the order sent, and gives them as tables."""

    def __init__(self) -> None:
        self.weight = 0
        """Bytes, about, of what is gathered and was not given yet."""
        self.unusable = 0
        """Frames that cannot be sent, which are left out, and windows that are no events, which are kept as frames only."""
        self._names = Names()
        self._windows: list[tuple[int, Window]] = []
        self._small: dict[str, list[Any]] = {name: [] for name in _SMALL}
        self._number = 0
        self._last_ns = 0

    def add(self, frame: Frame) -> None:
        """Gather a frame."""
        self._number += 1
        self._last_ns = time_ns(frame.header) or self._last_ns
        try:
            self._instant(frame)
            self._shown(frame)
        except UnusableError:
            self.unusable += 1

    def _shown(self, frame: Frame) -> None:
        if frame.kind == "hello":
            self._names.restart()
        elif frame.kind == "samples":
            self._samples(frame)
        elif frame.kind == "telemetry":
            self._telemetry(frame)
        elif frame.kind == "window":
            self._window(frame)

    def table(self) -> pa.Table:
        """Return what was gathered as a table with the event table's Arrow schema, and begin anew."""
        made = windows.rows([window for _, window in self._windows])
        order = pl.Series([number for number, _ in self._windows], dtype=pl.Int64).gather(made["at"])
        small = pl.DataFrame(self._small, schema=_SMALL)
        both = pl.concat([small, made.drop("at", "step").with_columns(order=order)], how="diagonal")
        rows = both.sort("order", maintain_order=True).to_arrow()
        for column in self._small.values():
            column.clear()
        self._windows.clear()
        self.weight = 0
        columns = []
        for field in SCHEMA:
            if field.name not in rows.column_names:
                columns.append(pa.nulls(rows.num_rows, field.type))
            elif pa.types.is_dictionary(field.type):
                columns.append(rows.column(field.name).cast(pa.string()).dictionary_encode())
            else:
                columns.append(rows.column(field.name).cast(field.type))
        return pa.Table.from_arrays(columns, schema=SCHEMA)

    def _instant(self, frame: Frame) -> None:
        data = packed(frame)
        body_at = _HEAD_BYTES + sizes(data)[0]
        header, body = data[_HEAD_BYTES:body_at].decode(), data[body_at:]
        tail = f',"body":"{base64.b64encode(body).decode()}"' if body else ""
        args = f'{{"frame":{header}{tail}}}'
        self._put(ph="i", cat=FRAME_CAT, name=words(frame.kind) or "frame", thread="frames", scope="p", args=args)
        self.weight += len(args)

    def _put(self, *, count: int = 1, **values: Any) -> None:
        """Append rows; a list has a value for each, anything else is the same in all."""
        given = {"order": self._number, "process": PROCESS, "ts_ns": self._last_ns, **values}
        for name, column in self._small.items():
            value = given.get(name)
            if isinstance(value, list):
                column.extend(value)
            else:
                column.extend([clean(value) if isinstance(value, str) else value] * count)
        self.weight += 100 * count

    def _samples(self, frame: Frame) -> None:
        """One complete event a sample: they end, one after another, when the frame was sent; when each began is not known."""
        values = frame.columns.get("ns")
        durations = [ns for ns in values if ns > 0] if values is not None and values.typecode == "q" else []
        before = self._last_ns - sum(durations)
        if not durations or before < 0:
            return
        header, variant = frame.header, words(frame.header.get("variant"))
        number = header["round"] if is_number(header.get("round")) else None
        marks = sorted(MARKS.intersection(texts(header.get("marks"))))
        said = {"case": _case_text(header.get("case")), "round": number, "marks": marks}
        starts = list(accumulate(durations[:-1], initial=before))
        shown = {"cat": SAMPLE_CAT, "name": variant, "thread": variant, "args": json.dumps(said)}
        self._put(ph="X", ts_ns=starts, dur_ns=durations, count=len(durations), **shown)

    def _telemetry(self, frame: Frame) -> None:
        figures: dict[str, float] = {}
        for key, value in frame.header.items():
            if key not in ("t_ns", "seq"):
                listed = value if isinstance(value, list) else []
                figures |= (
                    {key: value} if is_number(value) else {f"{key} {n}": one for n, one in enumerate(listed) if is_number(one)}
                )
        if figures:
            self._put(ph="C", name=TELEMETRY_NAME, args=json.dumps(figures))

    def _window(self, frame: Frame) -> None:
        self._names.learn(frame)
        window = self._names.window(frame, "")
        self._windows.append((self._number, window))
        self.weight += 200 * len(window)


def _case_text(said: Any) -> str:
    """A case in a few words, however the frame gives it."""
    if not isinstance(said, dict):
        return words(said)
    try:
        return words(Case.from_dict(said).text)
    except (TypeError, ValueError):
        return ""


def frames_of(table: pa.Table | pa.RecordBatch) -> Iterator[Frame]:
    """Yield the frames of rows with at least `cat` and `args`, in their order.

    Raises:
        UnreadableError: the args of one hold none.
    """
    import pyarrow.compute as pc

    mine = pc.equal(table.column("cat").cast(pa.string()), FRAME_CAT)
    for args in table.column("args").filter(mine):
        yield unpacked(args.as_py() or "")
