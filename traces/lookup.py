"""Rows found by a number of their own, as ids are."""

from __future__ import annotations

import polars as pl

_SPARSE = 16
"""Up to so many numbers for each row that is known, a table of all numbers is smaller and faster than a join."""


def rows_of(asked: pl.Series, known: pl.Series) -> pl.Series:
    """Return the row at which each number stands, null where it does not.

    Args:
        asked: integers.
        known: integers, each but once, none null.

    Example:
        >>> import polars as pl
        >>> rows_of(pl.Series([7, 5, 6, None]), pl.Series([5, 7])).to_list()
        [1, 0, None, None]
    """
    if known.is_empty():
        return pl.repeat(None, len(asked), dtype=pl.UInt32, eager=True)
    low, high = known.to_frame("known").select(low=pl.col("known").min(), high=pl.col("known").max()).row(0)
    rows = pl.int_range(len(known), dtype=pl.UInt32, eager=True)
    if high - low >= _SPARSE * len(known):
        # Tens of thousands of ids in a range of billions, as some tracers draw them.
        numbered = pl.DataFrame({"number": known, "row": rows})
        return asked.to_frame("number").join(numbered, on="number", how="left", maintain_order="left")["row"]
    table = pl.repeat(None, high - low + 1, dtype=pl.UInt32, eager=True).scatter((known - low).cast(pl.UInt32), rows)
    inside = pl.col("asked").is_between(low, high)
    return table.gather(asked.to_frame("asked").select(pl.when(inside).then(pl.col("asked") - low).cast(pl.UInt32)).to_series())
