"""Rules about the trace itself: what it lacks, and which conclusions that forbids."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from .facts import whole
from .rule import Found, rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .facts import Facts

UNEXPLAINED_PCT = 10.0
"""Share of the idle time without launch record from which on idle time counts as not explained."""


@rule("low-coverage")
def low_coverage(facts: Facts) -> Iterable[Found]:
    """Find a trace that misses GPU work, or the launches of it."""
    told = facts.coverage
    if told["verdict"] == "trust":
        return
    what = told["why"]
    if told["verdict"] != "no gpu":
        idle, unknown = whole(facts.gaps["dur_ns"].sum()), whole(facts.gaps["no_record_ns"].sum())
        if 100 * unknown > UNEXPLAINED_PCT * idle:
            what += f" {100 * unknown / idle:.0f} % of the idle time cannot be explained."
    place = next(iter(facts.windows)) if len(facts.windows) == 1 else None
    yield Found(
        place=place,
        saving_ns=None,
        what=what,
        view="summary",
        confidence="high",
        why="counted from the trace: " + _counts(facts),
    )


def _counts(facts: Facts) -> str:
    told = facts.coverage
    events = facts.work.trace.events.select(pl.len()).collect().item()
    return f"{told['gpu_events']:,} GPU activities among {events:,} events, {told['unlinked']:,} without a launch record"
