"""Rules about steps that take longer than the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from .. import intervals
from .facts import Facts, time_text, whole
from .rule import Found, rule

if TYPE_CHECKING:
    from collections.abc import Iterable

FEWEST = 4
"""Steps that are needed to tell what is usual."""
SLOW, SLOWER_PCT = 3.0, 10
"""A step is slow above the median by this many robust standard deviations and by this share of it."""


@rule("slow-steps")
def slow_steps(facts: Facts) -> Iterable[Found]:
    """Find steps that take much longer than the median one."""
    for place in facts.windows:
        mine = facts.steps_of(place).with_columns(wall_ns=pl.col("end_ns") - pl.col("start_ns"))
        if mine.height < FEWEST:
            continue
        median = whole(mine["wall_ns"].median())
        spread = 1.4826 * whole((mine["wall_ns"] - median).abs().median())
        slow = mine.filter(pl.col("wall_ns") > max(median + SLOW * spread, median * (1 + SLOWER_PCT / 100)))
        if slow.is_empty():
            continue
        worst = slow.sort("wall_ns", descending=True).row(0, named=True)
        ns = whole((slow["wall_ns"] - median).sum())
        gaps = facts.gaps.filter(pl.col("part") == place.part, pl.col("rank") == place.rank, pl.col("device") == place.device)
        idle = int(intervals.covered(slow.tail(1), gaps.select("start_ns", "end_ns"))[0]) if gaps.height else 0
        first = "the first step, " if worst["step"] == mine["step"][0] else ""
        what = (
            f"Steps that take longer than the others, {slow.height} of {mine.height}, cost {time_text(ns)} in sum; most of all"
            f" step {worst['step']} ({first}{worst['wall_ns'] / median:.1f}x the median of {time_text(median)})."
        )
        if slow.height == 1 and idle > (worst["wall_ns"] - median) / 2:
            what += f" The GPU idles {time_text(idle)} of it."
        yield Found(
            place=place,
            saving_ns=ns,
            what=what,
            view="steps",
            confidence="medium",
            why="step ranges of the host; "
            + ("first steps warm up, which later ones do not pay" if first else "the others agree"),
        )
