"""Counter tracks of a trace (ph C): what they held over time, and while kernels ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from . import intervals
from .counter_ranges import numbers, typed_numbers
from .shares import weighted
from .work import Work, host_windows, since_first

if TYPE_CHECKING:
    from collections.abc import Iterator

SERIES = ("part", "rank", "process", "track", "counter")
"""What tells the series of counter tracks apart."""
_ANY = -1


def samples(work: Work) -> pl.DataFrame:
    """Return the values of all counter tracks in scope, and how long each holds.

    A value holds until the next one of its series; the last one has no length.

    Args:
        work: what was asked.

    Returns:
        `SERIES`, device (i32: the GPU that the track names, such as `GPU 0 Counters`, else -1), start_ns, end_ns and value, in
        order of series and time.
    """
    trace, is_counter = work.trace, pl.col("ph") == "C"
    rows = trace.events.filter(is_counter, pl.col("ts_ns").is_not_null()).select(
        "part", "event_id", "rank", pl.col("process", "name").cast(pl.String), "id", "ts_ns", "args"
    )
    if work.scope.rank is not None:
        rows = rows.filter(pl.col("rank") == work.scope.rank)
    found = rows.collect()
    typed = found.drop("args").join(typed_numbers(trace, is_counter), on=["part", "event_id"])
    plain = numbers(found)
    long = pl.concat([plain, typed.select(plain.columns)])
    track = (
        pl.when(pl.col("id").is_null()).then(pl.col("name").fill_null("(unnamed)")).otherwise(pl.format("{} [{}]", "name", "id"))
    )
    named = pl.coalesce(pl.col("name").str.extract(r"(?i)\bgpu[ _:]?(\d{1,4})\b"), pl.lit(str(_ANY))).cast(pl.Int32)
    long = long.with_columns(track=track, device=named).sort(*SERIES, "ts_ns", "event_id", nulls_last=True)
    same = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift(-1)) for name in SERIES)
    held = long.select(
        *SERIES, "device", "value", start_ns="ts_ns", end_ns=pl.when(same).then(pl.col("ts_ns").shift(-1)).otherwise("ts_ns")
    )
    if work.scope.device is not None:
        held = held.filter(pl.col("device").is_in([_ANY, work.scope.device]))
    return _in_scope(held, work)


def _in_scope(held: pl.DataFrame, work: Work) -> pl.DataFrame:
    windows = host_windows(work)
    if windows is None:
        return held
    cut = held.join(windows.select("part", low="start_ns", high="end_ns"), on="part", maintain_order="left")
    return intervals.clip(cut, pl.col("low"), pl.col("high")).drop("low", "high")


def tracks(held: pl.DataFrame, work: Work) -> pl.DataFrame:
    """Return what each series held over time, and while kernels ran or did not.

    Args:
        held: see `samples`.
        work: its kernels, whatever filter is set, are what runs.
    """
    kernels = work.all_gpu.filter(pl.col("kind") == "kernel").select("part", "device", "start_ns", "end_ns")
    cover = pl.concat([kernels, kernels.with_columns(pl.lit(_ANY, pl.Int32).alias("device"))])
    length, value = pl.col("end_ns") - pl.col("start_ns"), pl.col("value")
    rows = held.with_columns(intervals.covered(held, cover, ["part", "device"]).alias("busy_ns"), length_ns=length)
    rows = rows.with_columns(since_ns=since_first("start_ns", work.trace))
    made = rows.group_by(SERIES, maintain_order=True).agg(
        samples=pl.len().cast(pl.Int64),
        start_ns=pl.col("since_ns").first(),
        span_ns=pl.col("length_ns").sum(),
        mean=weighted(value, pl.col("length_ns")),
        min=value.min(),
        max=value.max(),
        last=value.last(),
        busy_mean=weighted(value, pl.col("busy_ns")),
        idle_mean=weighted(value, pl.col("length_ns") - pl.col("busy_ns")),
    )
    return made.sort(SERIES, nulls_last=True)


def beside(held: pl.DataFrame, work: Work) -> pl.DataFrame:
    """Return the mean of each series over the time in which each kernel runs.

    Args:
        held: see `samples`.
        work: its kernels in scope.
    """
    kernels = work.gpu.filter(pl.col("kind") == "kernel").select("part", "device", "name", "start_ns", "end_ns")
    made = list(_integrals(held, kernels))
    keys = {"part": pl.Int32, "rank": pl.Int32, "track": pl.String, "counter": pl.String, "name": pl.String}
    if not made:
        return pl.DataFrame(schema={**keys, "count": pl.Int64, "covered_ns": pl.Int64, "mean": pl.Float64})
    sums = pl.concat(made).group_by(*keys).agg(pl.col("count", "covered_ns", "held").sum())
    rows = sums.filter(pl.col("covered_ns") > 0).with_columns(mean=pl.col("held") / pl.col("covered_ns"))
    order = ["rank", "part", "track", "counter", "covered_ns", "name"]
    return rows.sort(order, descending=[name == "covered_ns" for name in order])


def _integrals(held: pl.DataFrame, kernels: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Return for each series and kernel the time covered and the integral of the value over it, from running integrals."""
    for (part, rank, _, track, counter), series in held.group_by(SERIES, maintain_order=True):
        device = series["device"][0]
        runs = kernels.filter(pl.col("part") == part, (pl.col("device") == device) | (device == _ANY))
        first, last = series["start_ns"][0], series["end_ns"][-1]
        runs = runs.filter(pl.col("end_ns") > first, pl.col("start_ns") < last)
        length = series["end_ns"] - series["start_ns"]
        before = (series["value"] * length).cum_sum() - series["value"] * length
        ends = []
        for name in ("start_ns", "end_ns"):
            at = runs[name].clip(first, last)
            row = series["start_ns"].search_sorted(at, side="right") - 1
            ends.append((at, before.gather(row) + series["value"].gather(row) * (at - series["start_ns"].gather(row))))
        sums = runs.select("name", covered_ns=ends[1][0] - ends[0][0], held=ends[1][1] - ends[0][1])
        made = sums.group_by("name").agg(pl.len().cast(pl.Int64).alias("count"), pl.col("covered_ns", "held").sum())
        owner = {"part": pl.lit(part, pl.Int32), "rank": pl.lit(rank, pl.Int32)}
        yield made.select(pl.all(), **owner, track=pl.lit(track), counter=pl.lit(counter))
