"""Which range of a thread was innermost at a moment: exact for nested and for crossing ranges, with no loop over rows."""

from __future__ import annotations

import polars as pl

THREAD = ("part", "process", "thread")
"""What tells threads of a set apart."""


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
    lanes = ranges.select(THREAD).unique().with_row_index("lane")
    times = moments["at_ns"].drop_nulls().sort()
    # Most ranges contain no moment at all; those that may are few enough to sort.
    first, last = (times.search_sorted(ranges[name], side="left") for name in ("start_ns", "end_ns"))
    spans = _sorted(ranges, lanes, first < last)
    points = moments.with_row_index("moment").join(lanes, on=THREAD, how="left", nulls_equal=True, maintain_order="left")
    found = points.select("moment", "lane", "at_ns").sort("at_ns").join_asof(
        spans.select("lane", "at", "start_ns").sort("start_ns", "at"),
        left_on="at_ns", right_on="start_ns", by="lane", check_sortedness=False,
    )  # fmt: skip
    found = _climb(found.select("moment", "at", time="at_ns"), spans.with_columns(outer=_outer(spans)))
    return spans["row"].gather(found.sort("moment")["at"])


def laid_out(ranges: pl.DataFrame) -> pl.DataFrame:
    """Return ranges in order of thread and start, the outer one first, each with the range it lies in.

    Args:
        ranges: part, process, thread, start_ns, end_ns.

    Returns:
        lane (u32, the thread), row (u32, of `ranges`), start_ns, end_ns, at (u32, row of this frame) and outer (u32?, the `at`
        of the range that began last among those that contain the start).
    """
    spans = _sorted(ranges, ranges.select(THREAD).unique().with_row_index("lane"), pl.lit(value=True))
    return spans.with_columns(outer=_outer(spans))


def _sorted(ranges: pl.DataFrame, lanes: pl.DataFrame, kept: pl.Series | pl.Expr) -> pl.DataFrame:
    # Three stable passes, the last key first, take two thirds of the time of one sort by all.
    return (
        ranges.lazy()
        .with_row_index("row")
        .filter(kept)
        .join(lanes.lazy(), on=THREAD, nulls_equal=True, maintain_order="left")
        .select("lane", "row", "start_ns", "end_ns")
        .sort("end_ns", descending=True, maintain_order=True)
        .sort("start_ns", maintain_order=True)
        .sort("lane", maintain_order=True)
        .with_row_index("at")
        .collect()
    )


def _outer(spans: pl.DataFrame) -> pl.Series:
    """Return for each span of the sorted frame the one before it that contains its start and began last."""
    starts, ends = spans["start_ns"], spans["end_ns"]
    outer = spans.select(pl.when(pl.col("lane") == pl.col("lane").shift(1)).then(pl.col("at").shift(1))).to_series()
    rows = spans["at"]
    while True:
        # A candidate that has ended hands over to its own candidate: nothing between the two can contain this start.
        rows = rows.filter((ends.gather(outer.gather(rows)) <= starts.gather(rows)).fill_null(value=False))
        if rows.is_empty():
            return outer
        outer = outer.scatter(rows, outer.gather(outer.gather(rows)))


def _climb(found: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Move each moment's `at` outwards until the span contains its `time`."""
    ends, outer = spans["end_ns"], spans["outer"]
    while True:
        ended = (ends.gather(found["at"]) <= found["time"]).fill_null(value=False)
        if not ended.any():
            return found
        found = found.with_columns(at=pl.when(ended).then(outer.gather(found["at"])).otherwise("at"))
