"""How the memory that an allocator holds is used, from the blocks of a memory snapshot."""

from __future__ import annotations

import polars as pl

from .captures import RANK, WINDOW
from .question import Column
from .shares import percent

SEGMENT_COLUMNS = (
    RANK,
    Column("place", "text", "where the memory is", priority=0),
    Column("pool", "text", "small or large: small allocations have segments of their own", priority=0),
    Column("segments", "count", "stretches of memory held from the driver", priority=1),
    Column("reserved_bytes", "bytes", "their size", "reserved", priority=0),
    Column("allocated_bytes", "bytes", "of it, in use", "in use", priority=0),
    Column("awaiting_bytes", "bytes", "of it, freed, and another stream may still use it", "awaiting", priority=2),
    Column(
        "split_bytes", "bytes", "of it, free between blocks in use: only smaller allocations can have it", "split", priority=0
    ),
    Column("unused_bytes", "bytes", "of it, in segments that nothing uses: empty_cache() gives it back", "unused", priority=1),
    Column("largest_free_bytes", "bytes", "largest free block", "largest free", priority=1),
    Column("rounding_bytes", "bytes", "in use beyond what was asked for; null where the snapshot does not say", "rounding", 2),
    Column("fragmentation_pct", "pct", "split / reserved", "fragmented", priority=0),
    WINDOW,
)
"""Columns of the table of segments; in use, awaiting, split and unused sum to reserved."""


def segments(blocks: pl.DataFrame) -> pl.DataFrame:
    """Return how the segments of each pool are used.

    Args:
        blocks: part, rank, place, addr, bytes, and args (JSON text: segment, pool, state, requested), a row for each block.
    """
    about = {"segment": pl.Int64, "pool": pl.String, "state": pl.String, "requested": pl.Int64}
    rows = blocks.with_columns(pl.col("args").str.json_decode(pl.Struct(about)).alias("about")).unnest("about")
    used = pl.col("state").is_in(["active_allocated", "active_awaiting_free", "active_pending_free"])
    rows = rows.with_columns(used=used, touched=used.any().over("part", "place", "segment"))
    size, live, free = pl.col("bytes"), pl.col("state") == "active_allocated", ~pl.col("used")
    asked = live & pl.col("requested").is_not_null()
    made = rows.group_by("part", "rank", "place", "pool").agg(
        segments=pl.struct("part", "segment").n_unique().cast(pl.Int64),
        reserved_bytes=size.sum(),
        allocated_bytes=size.filter(live).sum(),
        awaiting_bytes=size.filter(pl.col("used") & ~live).sum(),
        split_bytes=size.filter(free & pl.col("touched")).sum(),
        unused_bytes=size.filter(free & ~pl.col("touched")).sum(),
        largest_free_bytes=size.filter(free).max(),
        rounding_bytes=pl.when(asked.any()).then((size - pl.col("requested")).filter(asked).sum()),
    )
    pct = percent(pl.col("split_bytes"), pl.col("reserved_bytes"))
    return made.with_columns(fragmentation_pct=pct).sort("rank", "part", "place", "pool")
