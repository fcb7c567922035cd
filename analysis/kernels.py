"""Which kernels took the GPU's time, and every launch of one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from kinetop.traces.nesting import innermost
from kinetop.traces.pairs import ranges

from . import intervals
from .names import matching, short_names
from .question import Column, Parameter, Table, as_declared, question
from .steps import with_step
from .work import DEVICE, Work, since_first

if TYPE_CHECKING:
    from collections.abc import Callable

GROUPS = ("name", "short", "family", "implementation", "class", "op", "module", "annotation", "stream", "step", "device")
"""What one row may stand for."""

KERNEL_COLUMNS = (
    Column("name", "text", "what the row stands for: a kernel, or the group chosen with group_by", priority=0),
    Column("count", "count", "launches", priority=1),
    Column("total_us", "us", "sum of durations", "total", priority=0),
    Column(
        "share_pct",
        "pct",
        "total / busy time of the devices in scope; above 100 in sum where kernels overlap",
        "share",
        priority=1,
        free=True,
    ),
    Column("mean_us", "us", "mean duration", "mean", priority=2),
    Column("median_us", "us", "median duration", "median", priority=1),
    Column("p95_us", "us", "95th percentile of the durations, interpolated", "p95", priority=2),
    Column("min_us", "us", "shortest duration", "min", priority=3),
    Column("max_us", "us", "longest duration", "max", priority=3),
    Column("std_us", "us", "sample standard deviation of the durations; null for one launch", "std", priority=3),
    Column("class", "text", "compute, comm or memory; null where the row mixes them", priority=2),
    Column("family", "text", "kind of work; null where the row mixes several", priority=2),
    Column("names", "count", "different kernel names in the row", priority=3),
)
"""Columns of the kernel table."""

INSTANCE_COLUMNS = (
    Column("event_id", "id", "row of the event table", priority=3),
    Column("part", "id", "position of the trace in its set", priority=3),
    Column("rank", "id", "rank of the process", priority=2),
    Column("device", "id", "GPU index", priority=2),
    Column("stream", "id", "stream it ran on", priority=1),
    Column("name", "text", "kernel name", priority=1),
    Column("start_us", "us", "start since the first event of the set", "start", priority=0),
    Column("dur_us", "us", "duration inside the window", "duration", priority=0),
    Column("delay_us", "us", "start - start of the launch call, signed; null without launch record", "launch delay", priority=1),
    Column("step", "id", "profiler step it belongs to", priority=2),
    Column("grid", "text", "launch grid [x, y, z]", priority=2),
    Column("block", "text", "thread block [x, y, z]", priority=2),
    Column("occupancy_pct", "pct", "estimated achieved occupancy", "occupancy", priority=2),
    Column("registers_per_thread", "count", "registers per thread", "registers", priority=3),
    Column("shared_memory_bytes", "bytes", "shared memory", "shared memory", priority=3),
    Column("op", "text", "innermost operator that launched it", priority=1),
)
"""Columns of `instances`."""

OTHERS = "others"
"""Name of the row that pools what `top` leaves out."""


@question(
    name="kernels",
    title="Kernels",
    about="Which kernels took the GPU's time.",
    tables=(
        Table(
            "kernels",
            KERNEL_COLUMNS,
            sort="total_us",
            about="One row per group; statistics are over raw durations, cut to the window.",
        ),
    ),
    parameters=(
        Parameter("group_by", "name", "what one row stands for", choices=GROUPS),
        Parameter("copies", "no", "count copies and memsets too", choices=("no", "yes")),
    ),
    order=2,
)
def kernels(work: Work, *, group_by: str = "name", copies: str = "no", top: int | None = None) -> dict[str, pl.DataFrame]:
    """Return the kernel table; `top` keeps that many rows and pools the rest into `others`.

    Example:
        >>> import kinetop
        >>> trace = kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False)
        >>> kinetop.kernels(trace, group_by="class", top=1).select("name", "count", "total_us").rows()
        [('compute', 4, 85.0), ('others', 1, 40.0)]
    """
    rows = work.gpu if copies == "yes" else work.gpu.filter(pl.col("kind") == "kernel")
    labelled = rows.select("class", "family", "dur_ns", kernel="name").with_columns(labels(rows, work, group_by).alias("name"))
    if top is not None:
        order = labelled.group_by("name").agg(pl.col("dur_ns").sum()).sort(["dur_ns", "name"], descending=[True, False])
        if order.height > top:
            kept = pl.col("name").is_in(order["name"].head(top).implode())
            labelled = labelled.with_columns(pl.when(kept).then("name").alias("name"))
    busy_us = int(intervals.total(work.all_gpu, DEVICE)["total_ns"].sum()) / 1000
    return {"kernels": _statistics(labelled, busy_us)}


def _statistics(labelled: pl.DataFrame, busy_us: float) -> pl.DataFrame:
    """Sum up durations by `name`; a null name is what was left out, and comes last."""
    us = pl.col("dur_ns") / 1000
    # Least and greatest text, and numbers for the names: counting different texts takes three times as long.
    one = {name: pl.when(pl.col(name).min() == pl.col(name).max()).then(pl.col(name).first()) for name in ("class", "family")}
    labelled = labelled.with_columns(pl.col("kernel").cast(pl.Categorical).to_physical())
    made = labelled.group_by("name").agg(
        count=pl.len().cast(pl.Int64),
        total_us=pl.col("dur_ns").sum() / 1000,
        mean_us=us.mean(),
        median_us=us.median(),
        p95_us=us.quantile(0.95, "linear"),
        min_us=us.min(),
        max_us=us.max(),
        std_us=us.std(),
        names=pl.col("kernel").n_unique().cast(pl.Int64),
        **one,
    )
    made = made.sort([pl.col("name").is_null(), "total_us", "name"], descending=[False, True, False])
    share = pl.col("total_us") * (100 / busy_us if busy_us else 0.0)
    made = made.with_columns(pl.col("name").fill_null(OTHERS), share_pct=share)
    return as_declared(made, KERNEL_COLUMNS)


def instances(work: Work, *, group_by: str = "name", label: str | None = None) -> pl.DataFrame:
    """Return every GPU activity in scope, or those of one row of the kernel table, in order of time.

    Args:
        work: the work in scope.
        group_by: how the row's table is grouped.
        label: the row's `name`; None means all.

    Returns:
        A frame with `INSTANCE_COLUMNS`.

    Example:
        >>> import kinetop
        >>> from kinetop.analysis.work import scoped
        >>> work = scoped(kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False))
        >>> instances(work, group_by="family", label="all-reduce").select("start_us", "dur_us", "stream").row(0)
        (130.0, 40.0, 20)
    """
    rows = work.gpu if label is None else work.gpu.filter(labels(work.gpu, work, group_by) == label)
    rows = with_step(rows, work.trace)
    calls = work.trace.launches.select("part", "event_id", "op", "delay_ns")
    rows = rows.join(calls, on=["part", "event_id"], how="left", maintain_order="left")
    times = {"start": since_first("start_ns", work.trace), "dur": pl.col("dur_ns"), "delay": pl.col("delay_ns")}
    made = rows.with_columns((ns / 1000).round(3).alias(f"{name}_us") for name, ns in times.items())
    return made.sort("start_ns", "event_id").select(c.name for c in INSTANCE_COLUMNS)


def labels(rows: pl.DataFrame, work: Work, group_by: str) -> pl.Series:
    """Return the group that each activity belongs to, as text.

    Args:
        rows: activities of `work.gpu`, any of them.
        work: the work in scope.
        group_by: one of `GROUPS`.

    Example:
        >>> import kinetop
        >>> from kinetop.analysis.work import scoped
        >>> work = scoped(kinetop.open("tests/data/hazards/60_two_gpus_one_process.json", cache=False))
        >>> labels(work.gpu, work, "device").unique().sort().to_list()
        ['rank 0 device 0', 'rank 0 device 1']
    """
    return _LABELS[group_by](rows, work).rename("name")


def _column(name: str) -> Callable[[pl.DataFrame, Work], pl.Series]:
    return lambda rows, _: rows[name].fill_null("(unnamed)")


def _by_implementation(rows: pl.DataFrame, _: Work) -> pl.Series:
    return rows.select(pl.concat_str("family", "implementation", separator=" ", ignore_nulls=True)).to_series()


def _by_device(rows: pl.DataFrame, _: Work) -> pl.Series:
    return rows.select(pl.format("rank {} device {}", "rank", "device")).to_series()


def _by_stream(rows: pl.DataFrame, work: Work) -> pl.Series:
    stream = pl.format("stream {}", pl.col("stream").cast(pl.String).fill_null("unknown"))
    several = work.windows.height > 1
    return rows.select(pl.format("rank {} device {} {}", "rank", "device", stream) if several else stream).to_series()


def _by_step(rows: pl.DataFrame, work: Work) -> pl.Series:
    step = with_step(rows.select("part", "event_id", "start_ns"), work.trace)["step"]
    return step.to_frame().select(pl.format("step {}", "step").fill_null("(no step)")).to_series()


def _launched(rows: pl.DataFrame, work: Work) -> pl.DataFrame:
    """Return the launch of each row, in order."""
    return rows.select("part", "event_id").join(work.trace.launches, on=["part", "event_id"], how="left", maintain_order="left")


def _by_op(rows: pl.DataFrame, work: Work) -> pl.Series:
    return _launched(rows, work)["op"].fill_null("(no operator recorded)")


def _by_module(rows: pl.DataFrame, work: Work) -> pl.Series:
    found = _around(rows, work, ["python_function"], "^nn.Module: ")
    return found.str.strip_prefix("nn.Module: ").fill_null("(no module recorded)")


def _by_annotation(rows: pl.DataFrame, work: Work) -> pl.Series:
    return _around(rows, work, ["user_annotation"], None).fill_null("(no annotation)")


def _around(rows: pl.DataFrame, work: Work, cats: list[str], pattern: str | None) -> pl.Series:
    """Return the name of the innermost range of some categories, with a name that matches, in which each row was launched."""
    spans = ranges(work.trace, cats, "process", "thread", "name").filter(pl.col("raw_dur_ns") >= 0)
    if pattern is not None:
        spans = spans.filter(matching(spans["name"], pattern))
    spans = spans.with_columns(pl.col("name").cast(pl.String))
    moments = _launched(rows, work).select("part", "process", "thread", at_ns="launch_start_ns")
    return spans["name"].gather(innermost(moments, spans))


_LABELS: dict[str, Callable[[pl.DataFrame, Work], pl.Series]] = {
    **{name: _column(name) for name in ("name", "family", "class")},
    "short": lambda rows, _: short_names(rows["name"].fill_null("(unnamed)")),
    "implementation": _by_implementation,
    "op": _by_op,
    "module": _by_module,
    "annotation": _by_annotation,
    "stream": _by_stream,
    "step": _by_step,
    "device": _by_device,
}
