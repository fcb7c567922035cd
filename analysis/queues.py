"""How many launches each stream has before it: those that have not started, and those that have not finished."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from kinetop.traces.once import once

from .linked import call_number
from .work import DEVICE, Work

if TYPE_CHECKING:
    from collections.abc import Sequence

STREAM = (*DEVICE, "stream")
FULL = 1_020
"""Launches before a stream from which its queue counts as full: CUDA's takes 1,024, and events and waits take places too."""


def depths(work: Work, keys: Sequence[str] = STREAM) -> pl.DataFrame:
    """Return the depth of the launch queues over the window, as stretches in which it stays the same.

    A launch counts once for each stream that it gives work to, from the start of its call until the first of that work starts
    (`waiting`) and until the last of it ends (`unfinished`). All work of the device counts, whatever filter is set; work
    without a launch record cannot.

    Args:
        work: what the question was asked about.
        keys: `STREAM` for single streams, `DEVICE` for all streams of a device together.

    Returns:
        The keys, start_ns, end_ns, waiting and unfinished (i32); the stretches of each group fill its window.

    Example:
        >>> import kinetop
        >>> from kinetop.analysis.work import scoped
        >>> work = scoped(kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False))
        >>> depths(work, DEVICE)["waiting"].max()
        5
    """
    pending = once(work, "_pending", lambda: _pending(work))  # asked for by device and by stream
    zero = pl.lit(0, pl.Int8)
    steps = [
        pending.select(*keys, at_ns=time, waiting=pl.lit(started, pl.Int8), unfinished=pl.lit(ended, pl.Int8))
        for time, started, ended in (("launched_ns", 1, 1), ("begun_ns", -1, 0), ("done_ns", 0, -1))
    ]
    groups = (pending if "stream" in keys else work.windows).select(keys).unique()
    places = groups.join(work.windows, on=list(DEVICE))
    edges = [places.select(*keys, at_ns=name, waiting=zero, unfinished=zero) for name in ("window_start_ns", "window_end_ns")]
    rows = pl.concat([edges[0], *steps, edges[1]]).sort("at_ns")
    if varying := [key for key in keys if groups[key].n_unique() > 1]:
        rows = rows.sort(*varying, maintain_order=True)
    # Each group's steps sum to zero, so one running sum over the whole table serves all groups.
    rows = rows.rename({"at_ns": "start_ns"}).with_columns(
        pl.col("waiting", "unfinished").cast(pl.Int32).cum_sum(),
        end_ns=pl.when(pl.all_horizontal(pl.lit(value=True), *(pl.col(key) == pl.col(key).shift(-1) for key in varying))).then(
            pl.col("start_ns").shift(-1)
        ),
    )
    return rows.filter(pl.col("end_ns") > pl.col("start_ns")).select(*keys, "start_ns", "end_ns", "waiting", "unfinished")


def _pending(work: Work) -> pl.DataFrame:
    """Return each launch on each stream it gives work to, cut to the window: launched_ns, begun_ns, done_ns."""
    trace = work.trace
    rows = trace.activities.select(*STREAM, "start_ns", "end_ns").with_columns(trace.links["launch_id", "launch_start_ns"])
    rows = rows.filter(pl.col("launch_id").is_not_null())
    if rows.select(call_number().is_duplicated().any()).item():
        rows = rows.group_by(*STREAM, "launch_id").agg(
            pl.col("start_ns").min(), pl.col("end_ns").max(), pl.col("launch_start_ns").first()
        )
    rows = rows.join(work.windows, on=list(DEVICE), how="inner")
    launched = pl.col("launch_start_ns")
    moments = {
        "launched_ns": launched,
        "begun_ns": pl.max_horizontal("start_ns", launched),
        "done_ns": pl.max_horizontal("end_ns", launched),
    }
    low, high = pl.col("window_start_ns"), pl.col("window_end_ns")
    return rows.select(*STREAM, **{name: time.clip(low, high) for name, time in moments.items()})


def weighted(rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Return mean (over time) and greatest depth of each group, and how long the queue was empty, or full.

    Args:
        rows: what `depths` gives.
        keys: what it was asked with.

    Returns:
        The keys, waiting_mean, waiting_max, unfinished_mean, unfinished_max, empty_ns, full_ns and total_ns.
    """
    length = pl.col("end_ns") - pl.col("start_ns")
    # The rows of a group stand together: one number tells groups apart faster than their keys do.
    sums = rows.with_columns(group=pl.struct(*keys).rle_id()).group_by("group", maintain_order=True).agg(
        pl.col(*keys).first(),
        *((pl.col(name) * length).sum().truediv(length.sum()).alias(f"{name}_mean") for name in ("waiting", "unfinished")),
        *(pl.col(name).max().cast(pl.Int64).alias(f"{name}_max") for name in ("waiting", "unfinished")),
        empty_ns=length.filter(pl.col("waiting") == 0).sum(),
        full_ns=length.filter(pl.col("waiting") >= FULL).sum(),
        total_ns=length.sum(),
    )  # fmt: skip
    return sums.drop("group")
