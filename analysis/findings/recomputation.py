"""Rules about forward work that is done twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from kinetop.traces import schema

from .facts import whole
from .rule import Found, rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .facts import Facts

_CHECKPOINT = r"CheckpointFunction|utils/checkpoint\.py"


@rule("recomputation")
def recomputation(facts: Facts) -> Iterable[Found]:
    """Find forward operators that run again inside backward."""
    from ..autograd import autograd
    from ..call_costs import charged

    if not _checkpoints(facts):
        return
    table = autograd(facts.work.trace, charged(facts.work)).sort("recompute_device_ns", descending=True)
    ns, calls = whole(table["recompute_device_ns"].sum()), whole(table["recompute_calls"].sum())
    if not ns or not facts.windows:
        return
    place = next(iter(facts.windows))
    ns //= len(facts.windows)
    yield Found(
        place=place,
        saving_ns=ns,
        what=f"{calls:,} forward operators run again inside backward and take {facts.share(ns, place)} of the GPU's time, most of"
        f" it in {table['name'][0]}.",
        view="ops",
        confidence="medium",
        why="operators of the same name and shapes ran before; what it costs in time it saves in memory",
    )


def _checkpoints(facts: Facts) -> bool:
    """Return whether the trace names activation checkpointing: the sums below cost a second on a large trace."""
    cats = [*schema.OP_CATS, "python_function"]
    names = facts.work.trace.events.filter(pl.col("cat").is_in(cats)).select(pl.col("name").unique()).collect()["name"]
    return bool(names.cast(pl.String).str.contains(_CHECKPOINT).any())
