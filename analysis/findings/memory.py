"""Rules about memory that the step asks the driver for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from .. import intervals
from .facts import Facts, time_text, times_text, whole
from .rule import Found, rule

if TYPE_CHECKING:
    from collections.abc import Iterable


@rule("device-allocations")
def device_allocations(facts: Facts) -> Iterable[Found]:
    """Find idle time in which the host asks the driver for memory or gives it back."""
    calls = facts.allocations
    if calls.is_empty():
        return
    for place, gaps in facts.places(facts.gaps):
        mine = calls.filter(pl.col("part") == place.part)
        met = intervals.intersect(mine, gaps)
        inside = mine.filter(intervals.covered(mine, gaps.select("start_ns", "end_ns")) > 0)
        ns = whole((met["end_ns"] - met["start_ns"]).sum())
        if not ns:
            continue
        names = inside.group_by("name").len().sort("len", "name", descending=True)
        said = ", ".join(f"{times_text(count, 'call')} of {name}" for name, count in names.head(2).iter_rows())
        took = time_text(whole((inside["end_ns"] - inside["start_ns"]).sum()))
        yield Found(
            place=place,
            saving_ns=ns,
            what=f"The GPU idles {facts.share(ns, place)} while the host asks the driver for memory or frees it: {said} take"
            f" {took}.",
            view="idle",
            confidence="medium",
            why="the calls lie in idle gaps; other threads may have made the GPU wait as well",
        )
