"""Rules about bytes that are moved: pageable copies, casts, changes of layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from .. import intervals
from ..where import where_name
from ..work import DEVICE
from .facts import Facts, short, time_text, whole
from .rule import Found, rule

if TYPE_CHECKING:
    from collections.abc import Iterable

_PAGEABLE = r"Pageable -> |-> Pageable"
SMALL_BYTES = 4_096
"""Copies below this read single values: the wait for them is a synchronising call's."""
_CAST = r"(?i)(b?float\d+|half|double|int\d*|bool)_copy_kernel|(Load|Store)WithCast"


@rule("pageable-copies")
def pageable_copies(facts: Facts) -> Iterable[Found]:
    """Find copies from or to pageable host memory that no kernel hides."""
    copies = facts.work.gpu.filter(pl.col("kind") == "memcpy").filter(pl.col("name").str.contains(_PAGEABLE))
    copies = copies.filter(pl.col("bytes").fill_null(SMALL_BYTES) >= SMALL_BYTES)
    if copies.is_empty():
        return
    busy = facts.work.all_gpu.filter(pl.col("kind") == "kernel")
    alone = intervals.subtract(copies, busy, DEVICE)
    for place, rows in facts.places(alone):
        mine = copies.filter(pl.col("part") == place.part, pl.col("rank") == place.rank, pl.col("device") == place.device)
        ns, total, moved = (
            whole((rows["end_ns"] - rows["start_ns"]).sum()),
            whole(mine["dur_ns"].sum()),
            whole(mine["bytes"].sum()),
        )
        speed = f", {moved / 1e6:,.1f} MB at {moved / max(1, total):.1f} GB/s" if moved else ""
        yield Found(
            place=place,
            saving_ns=ns,
            what=f"Copies from or to pageable memory take {facts.share(ns, place)} with no kernel beside them: {mine.height:,} of"
            f" them{speed}.",
            view="kernels",
            where="/Pageable/ and kind = 'memcpy'",
            confidence="high",
            why="the profiler names the kind of memory, and such a copy makes the host wait",
        )


@rule("casts")
def casts(facts: Facts) -> Iterable[Found]:
    """Find kernels that do nothing but change the type of elements."""
    return _copies(facts, pl.col("name").str.contains(_CAST), "only change the type of elements")


@rule("layout-copies")
def layout_copies(facts: Facts) -> Iterable[Found]:
    """Find kernels that do nothing but move elements: contiguous(), cat, transposes."""
    return _copies(facts, ~pl.col("name").str.contains(_CAST), "only move elements (contiguous, cat, transpose)")


def _copies(facts: Facts, test: pl.Expr, said: str) -> Iterable[Found]:
    rows = facts.kernels.filter(pl.col("family") == "copy").filter(test)
    for place, mine in facts.places(rows):
        ns = int(intervals.total(mine)["total_ns"][0])
        by_name = mine.group_by("name").agg(pl.col("dur_ns").sum()).sort("dur_ns", "name", descending=True)
        name, most = by_name.row(0)
        yield Found(
            place=place,
            saving_ns=ns,
            what=f"Kernels that {said} take {facts.share(ns, place)}: {mine.height:,} of them, {time_text(most)} in"
            f" {short(name)}.",
            view="kernels",
            where=where_name(name) if by_name.height == 1 else "family = 'copy' and kind = 'kernel'",
            confidence="medium",
            why="told from kernel names; some of the copies may be needed",
        )
