"""What ran in one profiled step of a variant: operators by their own time, kernels by their duration."""

from __future__ import annotations

import polars as pl

from kinetop.traces.calls import tree
from kinetop.traces.schema import GPU_KINDS, OP_CATS

from .question import Column, as_declared

COLUMNS: tuple[Column, ...] = (
    Column("name", "text", "Operator or kernel.", priority=0),
    Column("on", "text", "Where it ran: cpu, or gpu.", priority=1),
    Column("count", "count", "Times in a step, mean of the steps seen.", priority=1),
    Column(
        "self_us",
        "us",
        "Time in a step: of an operator without those it calls, of GPU work its duration.",
        label="self",
        priority=0,
    ),
    Column("total_us", "us", "Time in a step, with the operators it calls.", label="total", priority=2),
    Column("share_pct", "pct", "Share of the step's own times on the same side, CPU or GPU.", label="share", priority=1),
)
"""Columns of `step_ops`."""
_BY_STEP = ("window", "step")


def step_ops(events: pl.DataFrame) -> pl.DataFrame:
    """Return operators and kernels of a variant's steps, GPU work first, then by own time.

    Args:
        events: windows of one trial, as `Recording.events` gives them.

    Returns:
        A frame with `COLUMNS`; times are means of a step.
    """
    inside = events.filter(pl.col("step").is_not_null(), pl.col("ph") == "X")
    steps = inside.select(_BY_STEP).unique().height
    spans = inside.with_columns(start_ns="ts_ns", end_ns=pl.col("ts_ns") + pl.col("dur_ns"))
    host = tree(spans.filter(pl.col("cat").is_in(OP_CATS)).with_columns(part=pl.lit(0, pl.Int32)))
    gpu = spans.filter(pl.col("cat").is_in(GPU_KINDS)).with_columns(self_ns="dur_ns")
    sides = [
        rows.group_by("name").agg(
            on=pl.lit(side).first(),
            count=pl.len() / max(1, steps),
            self_us=pl.col("self_ns").sum() / 1000 / max(1, steps),
            total_us=pl.col("dur_ns").sum() / 1000 / max(1, steps),
        )
        for side, rows in (("gpu", gpu), ("cpu", host))
    ]
    shared = [side.with_columns(share_pct=100 * pl.col("self_us") / pl.col("self_us").sum()) for side in sides]
    made = pl.concat(shared).sort(pl.col("on") == "cpu", "self_us", descending=[False, True])
    return as_declared(made, COLUMNS)
