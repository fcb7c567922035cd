"""Which range of a thread was innermost at a moment: exact for nested and for crossing ranges, with no loop over rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Sequence

THREAD = ("part", "process", "thread")
"""What tells threads of a set apart."""
_MANY = 4
"""So many ranges a moment are worth a look at which of them may contain any: two searches for each instead of a sort."""


def innermost(moments: pl.DataFrame, ranges: pl.DataFrame) -> pl.Series:
    """Return for each moment the range of its thread that began last among those that contain it.

    A range contains its start and not its end. Of ranges that begin together the shorter is the inner one.

    Args:
        moments: part, process, thread, at_ns.
        ranges: part, process, thread, start_ns, end_ns.

    Returns:
        Row numbers of `ranges` (u32), null where no range contains the moment.

    Example:
        >>> import polars as pl
        >>> thread = {"part": 0, "process": "1", "thread": "1"}
        >>> ranges = pl.DataFrame({**thread, "start_ns": [0, 10, 20], "end_ns": [100, 30, 25]})
        >>> innermost(pl.DataFrame({**thread, "at_ns": [5, 22, 28, 30, 100]}), ranges).to_list()
        [0, 2, 1, 0, None]
    """
    times, spans = moments["at_ns"], ranges.select(*THREAD, "start_ns", "end_ns").with_row_index("row")
    if spans.height > _MANY * times.len():
        spans = _about(times.drop_nulls().sort(), spans)
    if spans.is_empty():
        return pl.repeat(None, len(times), dtype=pl.UInt32, eager=True)
    lane, own = lanes(spans, moments)
    spans, key = _sorted(spans, spans["row"], lane, (own, times))
    place = spans["key"].search_sorted(key, side="right").cast(pl.Int64) - 1
    at = pl.select(pl.when(key.is_not_null() & (place >= 0)).then(place).cast(pl.UInt32)).to_series()
    at = pl.select(pl.when(spans["lane"].gather(at) == own).then(at)).to_series()
    return spans["row"].gather(_climbed(at, times, spans["end_ns"], _outer(spans)))


def _about(times: pl.Series, spans: pl.DataFrame) -> pl.DataFrame:
    """Keep the spans that may contain one of the sorted times, whatever their thread."""
    first, last = (times.search_sorted(spans[name], side="left") for name in ("start_ns", "end_ns"))
    return spans.filter(first < last)


def laid_out(ranges: pl.DataFrame) -> pl.DataFrame:
    """Return ranges in order of thread and start, the outer one first, each with the range it lies in.

    Args:
        ranges: part, process, thread, start_ns, end_ns.

    Returns:
        lane (u32, the thread), row (u32, of `ranges`), start_ns, end_ns, at (u32, row of this frame) and outer (u32?, the `at`
        of the range that began last among those that contain the start).
    """
    rows = pl.int_range(ranges.height, dtype=pl.UInt32, eager=True)
    spans, _ = _sorted(ranges, rows, lanes(ranges)[0])
    return spans.select("lane", "row", "start_ns", "end_ns", "at", outer=_outer(spans))


def lanes(*frames: pl.DataFrame) -> list[pl.Series]:
    """Number the threads of some frames alike (u32 a row), by first appearance.

    Threads are few: their codes put together as one number, and searched in the sorted list of those that there are, take a
    tenth of the time of a join by part, process and thread.

    Args:
        frames: part, process, thread.

    Example:
        >>> import polars as pl
        >>> one, other = ({"part": 0, "process": "1", "thread": threads} for threads in (["main", "9"], ["9", "main"]))
        >>> [numbers.to_list() for numbers in lanes(pl.DataFrame(one), pl.DataFrame(other))]
        [[0, 1], [1, 0]]
    """
    # Codes hold while all of these frames do: Polars forgets texts that nothing holds any more.
    texts = [frame.select(pl.col("process", "thread").cast(pl.Categorical)) for frame in frames]
    made = _numbered([_paired(*text.select(pl.all().to_physical().fill_null(2**32 - 1))) for text in texts])
    parts = [frame["part"].cast(pl.UInt32) for frame in frames]
    if len({end for part in parts for end in (part.min(), part.max())} - {None}) < 2:
        return made
    return _numbered([_paired(part, lane) for part, lane in zip(parts, made, strict=True)])


def _paired(high: pl.Series, low: pl.Series) -> pl.Series:
    return high.cast(pl.UInt64) * 2**32 + low


def _numbered(keys: Sequence[pl.Series]) -> list[pl.Series]:
    # By first appearance: codes of texts differ from process to process, and with them the order of a result's rows would.
    known = pl.concat([key.unique(maintain_order=True) for key in keys]).unique(maintain_order=True)
    order = known.arg_sort()
    return [order.gather(known.gather(order).search_sorted(key)).cast(pl.UInt32) for key in keys]


def _sorted(
    ranges: pl.DataFrame, rows: pl.Series, lane: pl.Series, asked: tuple[pl.Series, pl.Series] | None = None
) -> tuple[pl.DataFrame, pl.Series]:
    """Return ranges in order of thread and start, those that begin together by end, the last one first.

    Args:
        ranges: start_ns, end_ns.
        rows: number of each.
        lane: thread of each.
        asked: threads and moments (null where unknown) to give a key too.

    Returns:
        lane, row, start_ns, end_ns, key (thread and start as one number), reach (thread and end) and at; and the keys asked for.
    """
    starts, times = ranges["start_ns"], pl.Series([], dtype=pl.Int64) if asked is None else asked[1]
    known = [*_ends(starts), *_ends(times)]
    low, high = min(known, default=0), max(known, default=0) + 1
    bits = (high - low).bit_length()
    lanes = [*_ends(lane), *([] if asked is None else _ends(asked[0]))]
    # A day of nanoseconds leaves room for 65,000 threads; stamps of broken traces may lie centuries apart.
    kind = pl.Int64 if max(bits + max(lanes, default=0).bit_length(), high.bit_length()) < 63 else pl.Int128

    def key(lane: pl.Series, time: pl.Series) -> pl.Series:
        later = pl.col("time").cast(kind).clip(upper_bound=high) - low
        both = pl.DataFrame({"lane": lane, "time": time})
        return both.select(pl.col("lane").cast(kind) * pl.lit(2**bits, kind) + later).to_series()

    spans = pl.DataFrame({"lane": lane, "row": rows, "start_ns": starts, "end_ns": ranges["end_ns"], "key": key(lane, starts)})
    if not spans["key"].is_sorted():
        spans = spans.sort("key", maintain_order=True)
    spans = _ties_broken(spans).with_row_index("at")
    spans = spans.with_columns(reach=key(spans["lane"], spans["end_ns"]))
    return spans, spans["key"].clear() if asked is None else key(*asked)


def _ends(values: pl.Series) -> list[int]:
    low, high = values.to_frame("value").select(low=pl.col("value").min(), high=pl.col("value").max()).row(0)
    return [] if low is None else [low, high]


def _ties_broken(spans: pl.DataFrame) -> pl.DataFrame:
    """Put ranges that begin together in order, the longest first: only these few are sorted."""
    same = spans["key"] == spans["key"].shift(1)
    if not same.any():
        return spans
    tied = (same | same.shift(-1)).fill_null(value=False).arg_true()
    among = spans[tied].with_columns(tied=tied).sort("key", "end_ns", descending=[False, True], maintain_order=True)
    order = pl.int_range(spans.height, dtype=pl.UInt32, eager=True).scatter(tied, among["tied"])
    return spans[order]


def _outer(spans: pl.DataFrame) -> pl.Series:
    """Return for each span of the sorted frame the one before it that contains its start and began last."""
    starts, ends = spans["start_ns"], spans["end_ns"]
    # What nothing before it on its thread reaches lies in nothing: told at once, else long rows of such take many rounds.
    within = (pl.col("key") < pl.col("reach").cum_max().shift(1)).fill_null(value=False)
    before = spans.select(
        at=pl.when(within).then(pl.col("at").shift(1)), ended=within & (pl.col("end_ns").shift(1) <= pl.col("start_ns"))
    )
    outer, rows = before["at"], before["ended"].fill_null(value=False).arg_true()
    while not rows.is_empty():
        # A candidate that has ended hands over to its own candidate: nothing between the two can contain this start.
        further = outer.gather(outer.gather(rows))
        outer = outer.scatter(rows, further)
        rows = rows.filter((ends.gather(further) <= starts.gather(rows)).fill_null(value=False))
    return outer


def _climbed(at: pl.Series, times: pl.Series, ends: pl.Series, outer: pl.Series) -> pl.Series:
    """Move each moment's span outwards until it contains the moment."""
    rows = (ends.gather(at) <= times).fill_null(value=False).arg_true()
    while not rows.is_empty():
        further = outer.gather(at.gather(rows))
        at = at.scatter(rows, further)
        rows = rows.filter((ends.gather(further) <= times.gather(rows)).fill_null(value=False))
    return at
