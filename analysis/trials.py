"""The figures of what was measured: one row a trial, a variant on a case."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from kinetop.traces.live.members import clean

from . import stats
from .peaks import Peaks, peaks_of
from .question import Column
from .structure import structure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kinetop.traces.live.recording import Recording, Trial
    from kinetop.traces.live.worker.case import Case

    from .structure import Structure

ENOUGH = 10
"""Samples that must be left before marked ones (throttled, contended) are left out."""
BASE = "eager"
"""The variant that others are compared with where it was measured; else the first."""

CASE_COLUMNS: tuple[Column, ...] = (
    Column("batch", "id", "batch size", priority=3),
    Column("q_heads", "id", "heads of the queries", priority=3),
    Column("kv_heads", "id", "heads of the keys and values", priority=3),
    Column("q_len", "id", "queries", priority=3),
    Column("kv_len", "id", "keys", priority=3),
    Column("qk_dim", "id", "elements of a query and of a key", priority=3),
    Column("v_dim", "id", "elements of a value", priority=3),
    Column("dtype", "text", "element type", priority=3),
    Column("causal", "flag", "whether a query sees only the keys up to its own place", priority=3),
    Column("window", "id", "keys that a query sees; null for all", priority=3),
    Column("mode", "text", "forward, backward (forward and backward together) or decode", priority=3),
    Column("device", "text", "where it ran", priority=3),
    Column("graph", "flag", "whether calls were replayed from a CUDA graph", priority=3),
)
"""The members of a case."""
COLUMNS: tuple[Column, ...] = (
    Column("variant", "text", "name of the variant", priority=0),
    Column("case", "text", "the case in a few words", priority=1),
    *CASE_COLUMNS,
    Column("group", "text", "kind of variant", priority=3),
    Column("exact", "flag", "whether it computes the same function as the reference, masks and all", priority=3),
    Column("backend", "text", "what really ran", priority=2),
    Column("state", "text", "COLD, COMPILING, RUNNING, THROTTLED, CONTENDED, FAILED, UNAVAILABLE or PAUSED", priority=1),
    Column("median_us", "us", "median time of a call, measured with the profiler off", "median", priority=0),
    Column("low_us", "us", "lower end of the median's bootstrap 95 % interval", "low", priority=1),
    Column("high_us", "us", "upper end of the median's bootstrap 95 % interval", "high", priority=1),
    Column(
        "vs_base",
        "ratio",
        "median of the baseline variant on this case over this median: 2 is twice as fast",
        "x base",
        priority=0,
    ),
    Column("p10_us", "us", "a tenth of the calls was faster", "p10", priority=3),
    Column("p90_us", "us", "a tenth of the calls was slower", "p90", priority=2),
    Column("mad_us", "us", "median distance of the calls from their median", "MAD", priority=3),
    Column("useful_tflops", "ratio", "FLOPs that the masks leave over the median, TFLOP/s", "useful TF/s", priority=1),
    Column("executed_tflops", "ratio", "FLOPs that the variant computes over the median, TFLOP/s", "executed TF/s", priority=2),
    Column(
        "peak_pct",
        "pct",
        "useful rate as a share of the device's dense peak for the dtype; decode: gb_s as a share of its memory bandwidth",
        "of peak",
        priority=2,
    ),
    Column("gb_s", "GB/s", "least bytes to move (what must be read and written, once) over the median", "traffic", priority=2),
    Column("kv_gb_s", "GB/s", "decode: bytes of all keys and values over the median", "KV", priority=2),
    Column("peak_bytes", "bytes", "most memory held during a call above what was held before", "peak memory", priority=2),
    Column("max_abs_error", "ratio", "largest absolute difference from the higher-precision reference", "max error", priority=3),
    Column("error_bound", "ratio", "largest difference that counts as right", "bound", priority=3),
    Column(
        "error_ok",
        "flag",
        "whether the result is right: error within the bound, no NaN; null where not compared",
        "right",
        priority=1,
    ),
    Column("kernels", "count", "GPU kernels, copies and memsets in a step; null where no GPU work was seen", priority=2),
    Column("ops", "count", "framework operators in a step, those inside others too", priority=3),
    Column("copies", "count", "copies in a step: aten::copy_ operators or GPU copies, whichever are more", priority=2),
    Column(
        "scores",
        "count",
        "allocations in a step as large as all scores (batch x q_heads x q_len x kv_len) or larger",
        "score allocs",
        priority=3,
    ),
    Column("compile_s", "ratio", "seconds that compiling and tuning took", "compile s", priority=3),
    Column("first_call_us", "us", "time of the first call", "first call", priority=3),
    Column("energy_mj", "ratio", "energy of a call in millijoules, from the device's counter", "mJ", priority=3),
    Column("cost", "ratio", "price of a million calls at the price per hour given", "cost of 1M", priority=3),
    Column("n", "count", "samples that the figures are made from", priority=2),
    Column("throttled_pct", "pct", "samples taken while the device was throttled", "throttled", priority=3),
    Column("contended_pct", "pct", "samples taken while something else used the device", "contended", priority=3),
    Column("why", "text", "why it did not run, or what to know about its state", priority=1),
)
"""Columns of `table`; times in microseconds."""


class Kept:
    """Figures kept while nothing, or few samples, came in: a screen that is drawn often does not make them all anew.

    Args:
        share: of the samples that must be new before an interval is made again.
    """

    def __init__(self, share: float = 0.1) -> None:
        self._share = share
        self._intervals: dict[Any, tuple[int, int, tuple[float, float]]] = {}
        self._structures: dict[Any, tuple[int, Any, Structure]] = {}

    def structure(self, trial: Trial, make: Callable[[], Structure]) -> Structure:
        """Return what a step of a trial does, a former one until there is another window."""
        key = trial.variant, trial.case.text
        count, newest, found = self._structures.get(key, (0, None, None))
        if found is None or count != len(trial.windows) or newest is not trial.windows[-1]:
            found = make()
            self._structures[key] = len(trial.windows), trial.windows[-1], found
        return found

    def interval(
        self, key: Any, seen: int, us: pl.Series, median_us: float, make: Callable[[], tuple[float, float]]
    ) -> tuple[float, float]:
        """Return the interval of a trial's median, a former one where it still does.

        Args:
            key: of the trial.
            seen: samples that were ever taken of it.
            us: those that the figures are made from.
            median_us: their median; an interval that does not hold it is out of date.
            make: draws it.
        """
        before, count, (low, high) = self._intervals.get(key, (0, 0, (0.0, 0.0)))
        fits = 0 <= seen - before < self._share * len(us) and count <= len(us) and low <= median_us <= high
        if not fits:
            low, high = make()
            self._intervals[key] = seen, len(us), (low, high)
        return low, high


def table(recording: Recording, **options: Any) -> pl.DataFrame:
    """Return the figures of every trial, in the order in which they were first heard of.

    Args:
        recording: what was measured so far.
        options: those of `rows`.

    Returns:
        A frame with `COLUMNS`.

    Example:
        >>> from kinetop.traces.live.recording import Recording
        >>> table(Recording()).height
        0
    """
    return framed(rows(recording, **options))


def rows(
    recording: Recording,
    *,
    base: str | None = None,
    price_per_hour: float | None = None,
    peaks: Peaks | None = None,
    resamples: int = stats.RESAMPLES,
    seed: int = 0,
    former: Kept | None = None,
) -> list[dict[str, Any]]:
    """Return the figures of every trial as objects: `COLUMNS`, and `structure` where a step was profiled.

    Args:
        recording: what was measured so far.
        base: variant that `vs_base` compares with; `BASE`, else the first with samples.
        price_per_hour: price of an hour of the device, for `cost`.
        peaks: limits of the device; by its name where None.
        resamples: resamples of each interval; a screen that is drawn often takes fewer.
        seed: of the resamples.
        former: figures of the same recording that were made before; all are made anew where None.
    """
    every = _grouped(recording.samples())
    limits = peaks if peaks is not None else peaks_of(recording.environment.get("device_name"))
    made = []
    for trial in recording.trials.values():
        key = clean(trial.variant), clean(trial.case.text)
        row = facts(trial, recording.variants.get(trial.variant, {}))
        if (samples := every.get(key)) is not None:
            known = None if former is None else partial(former.interval, key, trial.seen)
            row |= times(samples, resamples=resamples, seed=seed, known=known)
            row |= rates(row, trial, limits, price_per_hour)
        if trial.windows:
            make = partial(_structure, recording, trial)
            row |= counts(make() if former is None else former.structure(trial, make), trial.case)
        made.append(row)
    return against(made, base)


def _structure(recording: Recording, trial: Trial) -> Structure:
    return structure(recording.events(trial.variant, trial.case.text), trial.case)


def _grouped(frame: pl.DataFrame) -> dict[tuple[str, str], pl.DataFrame]:
    """Return the rows of each trial, by its key in a recording."""
    keyed = frame.with_columns(pl.col("variant", "case").cast(pl.String))
    return {(str(key[0]), str(key[1])): rows for key, rows in keyed.group_by("variant", "case", maintain_order=True)}


def kept(samples: pl.DataFrame) -> pl.DataFrame:
    """Return the samples that figures are made from: marked ones are left out when `ENOUGH` others remain.

    Args:
        samples: ns, throttled, contended; one row a sample, in the order taken.
    """
    clean = samples.filter(~(pl.col("throttled") | pl.col("contended")))
    return clean if clean.height >= ENOUGH else samples


def times(
    samples: pl.DataFrame,
    *,
    resamples: int = stats.RESAMPLES,
    seed: int = 0,
    known: Callable[[pl.Series, float, Callable[[], tuple[float, float]]], tuple[float, float]] | None = None,
) -> dict[str, Any]:
    """Return the columns about time of one trial.

    Args:
        samples: ns, throttled, contended; one row a sample, in the order taken, at least one.
        resamples: resamples of the interval.
        seed: of the resamples.
        known: gives the interval, maybe without drawing it; see `Kept`.
    """
    us = kept(samples)["ns"] / 1000
    draw, median_us = partial(stats.bootstrap_interval, us, resamples=resamples, seed=seed), stats.median(us)
    low, high = draw() if known is None else known(us, median_us, draw)
    found = {
        "median_us": median_us,
        "low_us": low,
        "high_us": high,
        "p10_us": stats.percentile(us, 10),
        "p90_us": stats.percentile(us, 90),
        "mad_us": stats.mad(us),
    }
    shares = {f"{mark}_pct": 100 * samples[mark].sum() / samples.height for mark in ("throttled", "contended")}
    return {name: round(value, 3) for name, value in (found | shares).items()} | {"n": len(us)}


def facts(trial: Trial, declared: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that a trial was told of: its case, state, preparation and error.

    Args:
        trial: the trial.
        declared: what the worker says of the variant.
    """
    said, case = trial.prepared or {}, trial.case
    error = said.get("error") or {}
    return {
        "variant": clean(trial.variant),
        "case": clean(case.text),
        **case.to_dict(),
        "group": declared.get("group"),
        "exact": declared.get("exact", True),
        "backend": clean(trial.backend) or None,
        "state": trial.state,
        "why": clean(trial.why) or None,
        "peak_bytes": said.get("peak_bytes"),
        "max_abs_error": finite(error.get("max_abs")),
        "error_bound": finite(error.get("bound")),
        "error_ok": error.get("ok"),
        "compile_s": trial.compile_s,
        "first_call_us": said.get("first_call_us"),
        "energy_mj": trial.energy_mj / trial.energy_samples if trial.energy_samples else None,
        "n": 0,
    }


def rates(row: Mapping[str, Any], trial: Trial, limits: Peaks, price_per_hour: float | None = None) -> dict[str, Any]:
    """Return the columns that follow from the median: FLOP rates, bandwidth, share of the peak and cost.

    Args:
        row: median_us of the trial.
        trial: the trial.
        limits: of the device.
        price_per_hour: price of an hour of the device.
    """
    said, case, seconds = trial.prepared or {}, trial.case, row["median_us"] / 1e6
    if not seconds:
        return {}
    useful = _per(said.get("flops_useful"), seconds * 1e12)
    moved = _per(said.get("bytes_min"), seconds * 1e9)
    decode = case.mode == "decode"
    kv_bytes = case.batch * case.kv_heads * case.kv_len * (case.qk_dim + case.v_dim) * case.element_bytes
    reached, limit = (moved, limits.gb_s) if decode else (useful, limits.tflops.get(case.dtype))
    return {
        "useful_tflops": useful,
        "executed_tflops": _per(said.get("flops_executed"), seconds * 1e12),
        "gb_s": moved,
        "kv_gb_s": _per(kv_bytes, seconds * 1e9) if decode else None,
        "peak_pct": None if reached is None or not limit else 100 * reached / limit,
        "cost": None if price_per_hour is None else price_per_hour * seconds / 3600 * 1e6,
    }


def _per(amount: float | None, seconds: float) -> float | None:
    return None if amount is None else amount / seconds


def counts(seen: Structure, case: Case) -> dict[str, Any]:
    """Return the columns about what ran in a step.

    Args:
        seen: counts of a step.
        case: what was computed.
    """
    if not seen.steps:
        return {}
    copies = seen.copies
    on_device = sum(count for name, count in seen.kernels.items() if name.startswith("Memcpy"))
    return {
        "structure": seen,
        "kernels": sum(seen.kernels.values()) or None,
        "ops": sum(seen.ops.values()),
        "copies": max(copies.get("aten::copy_", 0), on_device),
        "scores": seen.scores(case),
    }


def against(rows: list[dict[str, Any]], base: str | None) -> list[dict[str, Any]]:
    """Fill in `vs_base`: on each case against the variant named, else `BASE`, else the first that was measured."""
    for case in {row["case"] for row in rows}:
        timed = [row for row in rows if row["case"] == case and row.get("median_us")]
        named = [row for name in (base, BASE) for row in timed if row["variant"] == name]
        for row in timed:
            row["vs_base"] = (named or timed)[0]["median_us"] / row["median_us"]
    return rows


def framed(rows: Iterable[Mapping[str, Any]], columns: Sequence[Column] = COLUMNS) -> pl.DataFrame:
    """Return rows as a frame with the columns declared, what is missing as null."""
    by_unit: dict[str, Any] = {"text": pl.String, "flag": pl.Boolean, "id": pl.Int64, "count": pl.Int64, "bytes": pl.Int64}
    kinds = {column.name: by_unit.get(column.unit, pl.Float64) for column in columns}
    return pl.DataFrame([{name: row.get(name) for name in kinds} for row in rows], schema=kinds, orient="row")


def finite(value: float | None) -> float | None:
    """Return a number, or None for what is none."""
    return value if value is not None and math.isfinite(value) else None
