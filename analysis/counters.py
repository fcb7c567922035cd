"""What hardware counters say of the kernels: CUPTI ranges joined to the kernels they measured, and counter tracks beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from .captures import RANK, WINDOW, told
from .counter_ranges import matched, measured, measured_by
from .counter_tracks import beside, samples, tracks
from .question import Column, Table, question

if TYPE_CHECKING:
    from .work import Work

_COUNTER = Column("counter", "text", "the counter, as the profiler wrote it", priority=0)
_VALUES = (
    Column("total", "number", "sum of its values", priority=0),
    Column("mean", "number", "mean value of a range", priority=1),
    Column("min", "number", "smallest", priority=3),
    Column("max", "number", "largest", priority=2),
)

KERNEL_COLUMNS = (
    RANK,
    Column("name", "text", "kernel of the range, as the range says; null where it says `__missing__`", priority=0),
    _COUNTER,
    Column("ranges", "count", "ranges that hold the counter", priority=1),
    *_VALUES,
    WINDOW,
)
"""Columns of the main table."""

OP_COLUMNS = (
    RANK,
    Column(
        "op", "text", "innermost operator around the launch of what the range measured; null where that is not known", priority=0
    ),
    _COUNTER,
    Column("ranges", "count", "ranges that hold the counter", priority=1),
    *_VALUES,
    WINDOW,
)
"""Columns of the table by operator."""

FLOP_COLUMNS = (
    RANK,
    Column("name", "text", "kernel", priority=0),
    Column("ranges", "count", "ranges of it that count floating point instructions", priority=1),
    Column("fp64_flops", "count", "FLOPs that double precision instructions did: add + mul + 2 fma", "fp64", priority=1),
    Column("fp32_flops", "count", "the same in single precision", "fp32", priority=0),
    Column("fp16_flops", "count", "the same in half precision; matrix units are not in these counters", "fp16", priority=1),
    WINDOW,
)
"""Columns of the table of executed FLOPs."""

MATCH_COLUMNS = (
    RANK,
    Column("ranges", "count", "CUPTI ranges", priority=0),
    Column("kernels", "count", "kernels in the trace", priority=0),
    Column("launches", "count", "calls in the trace that launch a kernel", priority=0),
    Column("joined", "count", "ranges joined to a kernel or a launch", priority=0),
    Column("rule", "text", "how they were joined", priority=1),
    Column("reason", "text", "why those that were not, were not", priority=1),
    WINDOW,
)
"""Columns of the table that says how ranges were joined."""

TRACK_COLUMNS = (
    RANK,
    Column("process", "text", "process of the track, as written", priority=3),
    Column("track", "text", "name of the counter track", priority=0),
    Column("counter", "text", "series of the track", priority=0),
    Column("samples", "count", "values; each holds until the next", priority=1),
    Column("start_us", "us", "first sample, since the first event", "start", priority=2),
    Column("span_us", "us", "time from the first to the last sample", "span", priority=2),
    Column("mean", "number", "mean over that time; null with one moment only", priority=0),
    Column("min", "number", "smallest", priority=1),
    Column("max", "number", "largest", priority=0),
    Column("last", "number", "last value", priority=2),
    Column(
        "busy_mean", "number", "mean over the time in which a kernel runs, on any device of the rank", "mean busy", priority=1
    ),
    Column("idle_mean", "number", "mean over the time in which none runs", "mean idle", priority=1),
    WINDOW,
)
"""Columns of the table of counter tracks."""

BESIDE_COLUMNS = (
    RANK,
    Column("track", "text", "name of the counter track", priority=1),
    Column("counter", "text", "series of the track", priority=0),
    Column("name", "text", "kernel", priority=0),
    Column("count", "count", "runs of the kernel in scope", priority=1),
    Column("covered_us", "us", "time of these runs in which the counter has a value", "covered", priority=1),
    Column("mean", "number", "mean of the counter over that time; other kernels may run beside it", priority=0),
    WINDOW,
)
"""Columns of the table of counters by kernel."""

_NO_RANGES = "the trace has no CUPTI ranges (cuda_profiler_range)"
_NO_TRACKS = "the trace has no counter tracks (ph C) with numbers in scope"


@question(
    name="counters",
    title="Counters",
    about="What hardware counters say of the kernels.",
    tables=(
        Table("kernels", KERNEL_COLUMNS, about="Counters of CUPTI ranges by the kernel that they name.", none=_NO_RANGES),
        Table("ops", OP_COLUMNS, about="The same by the operator that launched it.", none=_NO_RANGES),
        Table("flops", FLOP_COLUMNS, none="no CUPTI range counts floating point instructions"),
        Table("joined", MATCH_COLUMNS, about="How ranges were joined to what launched them.", none=_NO_RANGES),
        Table("tracks", TRACK_COLUMNS, about="Counter tracks over time.", none=_NO_TRACKS),
        Table(
            "beside", BESIDE_COLUMNS, about="Counter tracks while each kernel runs.", none="no kernel runs beside a counter track"
        ),
    ),
    order=13,
)
def counters(work: Work) -> dict[str, pl.DataFrame]:
    """Return hardware counters by kernel, by operator and over time.

    Example:
        >>> import kinetop
        >>> trace = kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False)
        >>> kinetop.counters(trace).is_empty()
        True
    """
    found, said = matched(work)
    values = measured(found, work.trace)
    sampled = samples(work)
    return {
        "kernels": told(measured_by(values, "name"), work, KERNEL_COLUMNS),
        "ops": told(measured_by(values, "op"), work, OP_COLUMNS),
        "flops": told(_flops(values), work, FLOP_COLUMNS),
        "joined": told(said, work, MATCH_COLUMNS),
        "tracks": told(tracks(sampled, work), work, TRACK_COLUMNS),
        "beside": told(beside(sampled, work), work, BESIDE_COLUMNS),
    }


def _flops(values: pl.DataFrame) -> pl.DataFrame:
    """Sum the instructions of each precision; an instruction that no counter counts leaves its precision unknown."""
    parts = pl.col("counter").str.extract_groups(r"sass_thread_inst_executed_op_([dfh])(add|mul|fma)_pred_on\.sum$")
    rows = values.with_columns(parts.struct.rename_fields(["precision", "instruction"]).alias("__parts")).unnest("__parts")
    rows = rows.drop_nulls("precision").with_columns(
        flops=pl.col("value") * pl.when(pl.col("instruction") == "fma").then(2).otherwise(1)
    )
    sums = rows.group_by("part", "rank", "name", "precision").agg(
        pl.col("flops").sum().cast(pl.Int64, strict=False),
        kinds=pl.col("instruction").n_unique(),
        ranges=pl.struct("part", "event_id").n_unique().cast(pl.Int64),
    )
    each = {
        f"fp{bits}_flops": pl.col("flops").filter((pl.col("precision") == letter) & (pl.col("kinds") == 3)).first()
        for letter, bits in (("d", 64), ("f", 32), ("h", 16))
    }
    made = sums.group_by("part", "rank", "name").agg(pl.col("ranges").max(), **each)
    return made.sort("fp32_flops", "rank", "part", "name", descending=[True, False, False, False], nulls_last=True)
