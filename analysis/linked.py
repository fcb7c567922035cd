"""The launch calls of GPU activities, put beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from kinetop.traces.trace import TraceSet


def with_links(rows: pl.DataFrame, trace: TraceSet, *columns: str) -> pl.DataFrame:
    """Return GPU activities with columns of `TraceSet.links` added, in the same order.

    Args:
        rows: part and event_id of activities of the set.
        trace: the set.
        columns: what to add.

    Example:
        >>> import kinetop
        >>> trace = kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False)
        >>> with_links(trace.activities.tail(1), trace, "api")["api"].item()
        'cudaLaunchKernel'
    """
    links, key = trace.links, ["part", "event_id"]
    if rows.height == links.height and all(rows[name].equals(links[name]) for name in key):  # all of them, and in order
        return rows.with_columns(links.select(columns))
    return rows.join(links.select(*key, *columns), on=key, how="left", maintain_order="left")


def call_number() -> pl.Expr:
    """Return a number for the launch call of each row, from its launch_id and part; null where it has none.

    To tell calls apart by one number takes half the time that two columns take.
    """
    return pl.col("launch_id") + pl.col("part").cast(pl.UInt64) * 2**40
