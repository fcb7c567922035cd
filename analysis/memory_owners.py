"""Whose memory it is: what was live at the peak, and what each operator allocated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from .allocations import LANE
from .shares import percent

if TYPE_CHECKING:
    from collections.abc import Sequence

OWNER = ("op", "module", "frame")
"""What tells owners apart, beside the allocator."""
_EARLIER = "not recorded"


def order() -> tuple[pl.Expr | str, ...]:
    """Return what the tables are sorted by first: the memory of GPUs before that of the CPU."""
    return "part", pl.col("place") == "cpu", "place", "process"


def live_at_peak(owned: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """Return the allocations that are live at the peak of their allocator.

    Args:
        owned: allocations (see `allocations`); a null n stands for one made before the recording.
        lanes: `LANE`, rank and peak_n, the last event before or at the peak.
    """
    rows = owned.join(lanes.select(*LANE, "peak_n"), on=list(LANE), how="inner")
    made = pl.col("n").is_null() | (pl.col("n") <= pl.col("peak_n"))
    kept = pl.col("freed_n").is_null() | (pl.col("freed_n") > pl.col("peak_n"))
    return rows.filter(made & kept).drop("peak_n")


def holders(live: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """Return what held the peak: bytes and allocations of each owner, and what was not recorded.

    Args:
        live: see `live_at_peak`.
        lanes: `LANE`, rank and peak_bytes.

    Returns:
        `LANE`, rank, `OWNER`, source, bytes, allocations (null for what was not recorded) and pct; the bytes of an allocator sum
        to its peak, so that those not recorded are negative where frees are missing.
    """
    keys = [*LANE, "rank"]
    seen = live.group_by(*LANE, *OWNER).agg(bytes=pl.col("bytes").sum(), allocations=pl.len().cast(pl.Int64))
    seen = seen.join(lanes.select(*keys, "peak_bytes"), on=list(LANE)).with_columns(source=pl.lit("recorded"))
    sums = seen.group_by(LANE).agg(known=pl.col("bytes").sum())
    rest = lanes.select(*keys, "peak_bytes").join(sums, on=list(LANE), how="left")
    rest = rest.with_columns(bytes=pl.col("peak_bytes") - pl.col("known").fill_null(0), source=pl.lit(_EARLIER))
    both = pl.concat([seen, rest.filter(pl.col("bytes") != 0).drop("known")], how="diagonal")
    pct = percent(pl.col("bytes"), pl.col("peak_bytes"))
    down = [False, False, False, False, True, False, False, False]
    return both.with_columns(pct=pct).sort(*order(), "bytes", *OWNER, descending=down, nulls_last=True)


def largest_live(live: pl.DataFrame, lanes: pl.DataFrame, count: int) -> pl.DataFrame:
    """Return the largest allocations live at the peak of each allocator.

    Args:
        live: see `live_at_peak`.
        lanes: `LANE` and rank.
        count: how many of each allocator.
    """
    ranked = live.sort("bytes", "n", descending=[True, False], nulls_last=False).group_by(LANE, maintain_order=True).head(count)
    rows = ranked.drop("rank").join(lanes.select(*LANE, "rank"), on=list(LANE), how="left", maintain_order="left")
    address = pl.Series([None if value is None else hex(value) for value in rows["addr"]], dtype=pl.String)
    rows = rows.with_columns(address=address, allocated_ns="at_ns", lifetime_ns=pl.col("freed_ns") - pl.col("at_ns"))
    return rows.sort(*order(), "bytes", "n", descending=[False, False, False, False, True, False])


def churn(owned: pl.DataFrame, short_ns: int, keys: Sequence[str]) -> pl.DataFrame:
    """Return what was allocated, by keys: how often, how much, how briefly, and what was kept.

    Args:
        owned: allocations made in scope.
        short_ns: a shorter life counts as short.
        keys: columns to group by.

    Returns:
        The keys, allocations, churn_bytes, short_lived, short_lived_bytes, short_lived_pct, lifetime_median_ns and kept_bytes.
    """
    life = pl.col("freed_ns") - pl.col("at_ns")
    short = (life < short_ns).fill_null(value=False)
    return owned.group_by(keys).agg(
        allocations=pl.len().cast(pl.Int64),
        churn_bytes=pl.col("bytes").sum(),
        short_lived=short.sum().cast(pl.Int64),
        short_lived_bytes=pl.col("bytes").filter(short).sum(),
        short_lived_pct=100 * short.mean(),
        lifetime_median_ns=life.median(),
        kept_bytes=pl.col("bytes").filter(pl.col("freed_n").is_null()).sum(),
    )
