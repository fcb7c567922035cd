"""What a question is asked about: a trace set narrowed by rank, device, step, window and filter."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from kinetop.traces.errors import FilterError

from . import intervals
from .classify import classified, rules
from .filter import predicate
from .steps import steps, with_step

if TYPE_CHECKING:
    from kinetop.traces.trace import TraceSet

DEVICE = ("part", "rank", "device")
"""What tells devices apart: one rank may have several files, and one file several ranks."""

_NS = {"": 1_000, "ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(ns|us|µs|ms|s)?", re.IGNORECASE)


@dataclass(frozen=True)
class Scope:
    """The user's choice; None means all."""

    where: str | None = None
    """Filter text, see `kinetop.analysis.filter`."""
    window: str | None = None
    """`gpu` (default: first to last GPU activity of each device), `trace`, or `START..END` since the set's first event."""
    step: str | None = None
    """`13`, `12-14` or `last`: profiler steps."""
    rank: int | None = None
    device: int | None = None


@dataclass(frozen=True)
class Work:
    """The GPU activities in scope and the windows they are measured against."""

    trace: TraceSet
    scope: Scope
    gpu: pl.DataFrame
    """Activities in scope, classified: `ACTIVITY_COLUMNS` plus `class`, `family`, `implementation`, `rule`.

    Cut to the window (start_ns, end_ns, dur_ns); sorted by part, device, start_ns.
    """
    windows: pl.DataFrame
    """One row per part, rank and device: part, rank, device, window_start_ns, window_end_ns."""
    all_gpu: pl.DataFrame = field(repr=False)
    """The same before `where` was applied: idle time is a property of the device, not of the filter."""

    @cached_property
    def launches(self) -> pl.DataFrame:
        """`TraceSet.launches` of the activities in scope (`LAUNCH_COLUMNS`)."""
        return self.trace.launches.join(self.gpu.select("part", "event_id"), on=["part", "event_id"], how="semi")


def scoped(
    trace: TraceSet,
    *,
    where: str | None = None,
    window: str | None = None,
    step: str | None = None,
    rank: int | None = None,
    device: int | None = None,
) -> Work:
    """Narrow a trace set to what the user asked about.

    Args:
        trace: the opened set.
        where: filter text, over the columns of `Work.gpu` and `step`, `op`, `api`, `thread`, `delay`.
        window: `gpu`, `trace`, or `START..END` with units (ns, us, ms, s; microseconds without), since the set's first event.
        step: `13`, `12-14` or `last`.
        rank: keep one rank.
        device: keep one device.

    Raises:
        FilterError: a text cannot be understood, or names a step, rank or device that the trace does not hold.

    Example:
        >>> import kinetop
        >>> trace = kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False)
        >>> scoped(trace, where="class = 'comm'").gpu["family"].to_list()
        ['all-reduce']
    """
    activities = _chosen(trace, rank, device)
    if step is not None:
        activities = _in_steps(activities, trace, step)
    windows = _windows(activities, trace, window)
    if window not in (None, "gpu"):
        activities = _cut(activities, windows)
    gpu = activities if where is None else _filtered(activities, trace, where)
    return Work(trace, Scope(where, window, step, rank, device), gpu, windows, activities)


def _classified(trace: TraceSet) -> pl.DataFrame:
    """Return the set's activities, classified; kept with the set, since a filter asks again with every letter (0.1 s of 0.2)."""
    now = rules()
    kept: tuple[object, pl.DataFrame] | None = vars(trace).get("_classified")
    if kept is None or kept[0] != now:
        kept = vars(trace)["_classified"] = (now, classified(trace.activities))
    return kept[1]


def origin_ns(trace: TraceSet) -> int:
    """Return when the first event of a set starts, on the first rank's clock, in nanoseconds; 0 where nothing is timed.

    Example:
        >>> import kinetop
        >>> trace = kinetop.open("tests/data/hazards/75_cpu_only.json", cache=False)
        >>> origin_ns(trace) == trace.events.select("ts_ns").collect()["ts_ns"].drop_nulls().min()
        True
    """
    first = trace.extent.select((pl.col("first_ns") - clock_offset(trace)).min()).item()
    return 0 if first is None else int(first)


def clock_offset(trace: TraceSet) -> pl.Expr:
    """Return how far the clock of `part` runs ahead of the first rank's, in nanoseconds."""
    offsets = {part: one.clock_offset_ns for part, one in enumerate(trace.traces)}
    return pl.col("part").replace_strict(offsets, return_dtype=pl.Int64)


def since_first(name: str, trace: TraceSet) -> pl.Expr:
    """Return the time of a column since the set's first event, each rank on the first rank's clock; rows have `part`."""
    return pl.col(name) - clock_offset(trace) - origin_ns(trace)


def _chosen(trace: TraceSet, rank: int | None, device: int | None) -> pl.DataFrame:
    """Keep one rank, one device, or all."""
    activities = _classified(trace)
    ranks = sorted({one.rank for one in trace.traces} | set(activities["rank"].unique()))
    if rank is not None:
        if rank not in ranks:
            raise FilterError(f"There is no rank {rank}; the trace holds {_named('rank', ranks)}.")
        activities = activities.filter(pl.col("rank") == rank)
    if device is not None:
        devices = sorted(activities["device"].unique())
        if device not in devices:
            raise FilterError(f"There is no device {device}; the trace holds {_named('device', devices)}.")
        activities = activities.filter(pl.col("device") == device)
    return activities


def _in_steps(activities: pl.DataFrame, trace: TraceSet, text: str) -> pl.DataFrame:
    """Keep the work of the steps that `text` names."""
    chosen = chosen_steps(trace, text)
    return with_step(activities, trace).filter(pl.col("step").is_in(chosen)).drop("step")


def chosen_steps(trace: TraceSet, text: str) -> list[int]:
    """Return the numbers of the steps that `text` names.

    Args:
        trace: the opened set.
        text: `13`, `12-14` or `last`.

    Raises:
        FilterError: it names none.
    """
    known = sorted(steps(trace)["step"].unique())
    hit = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", text)
    if not known:
        raise FilterError("The trace marks no steps (no ProfilerStep#N, vLLM or SGLang step annotation), so none can be chosen.")
    if text.strip().lower() == "last":
        low = high = known[-1]
    elif hit:
        low, high = int(hit[1]), int(hit[2] or hit[1])
    else:
        raise FilterError(f"A step is a number, a range such as 12-14, or last; {text!r} is none of them.")
    chosen = [number for number in known if low <= number <= high]
    if not chosen:
        raise FilterError(f"There is no step {text.strip()}; the trace holds {_named('step', known)}.")
    return chosen


def _named(what: str, numbers: list[int]) -> str:
    """Say which there are, runs shortened."""
    if not numbers:
        return f"no {what} with GPU work"
    starts = [n for i, n in enumerate(numbers) if i == 0 or numbers[i - 1] != n - 1]
    ends = [n for i, n in enumerate(numbers) if i == len(numbers) - 1 or numbers[i + 1] != n + 1]
    runs = [str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True)]
    shown = ", ".join(runs[:12]) + (", ..." if len(runs) > 12 else "")
    return f"{what}{'s' if len(numbers) > 1 else ''} {shown}"


def _windows(activities: pl.DataFrame, trace: TraceSet, window: str | None) -> pl.DataFrame:
    """Return the window of each device that has work."""
    spans = (
        activities.group_by(*DEVICE)
        .agg(window_start_ns=pl.col("start_ns").min(), window_end_ns=pl.col("end_ns").max())
        .sort(*DEVICE)
    )
    if window is None or window == "gpu":
        return spans
    if window == "trace":
        ends = trace.extent.select("part", __first="first_ns", __end="end_ns")
        return spans.join(ends, on="part", how="left", maintain_order="left").select(
            *DEVICE,
            window_start_ns=pl.min_horizontal("window_start_ns", "__first"),
            window_end_ns=pl.max_horizontal("window_end_ns", "__end"),
        )
    start, end = _range(window)
    zero = origin_ns(trace) + clock_offset(trace)
    latest = pl.col("window_end_ns").max() if end is None else zero + end
    return spans.with_columns(window_start_ns=zero + start, window_end_ns=pl.max_horizontal(latest, zero + start))


def host_windows(work: Work) -> pl.DataFrame | None:
    """Return the stretch of each part that its host's figures are cut to; None where all of the trace counts.

    Args:
        work: the work in scope. Its steps reach from the start of the first one to the end of the last one.

    Returns:
        part, start_ns and end_ns; a part without the steps has no row.

    Example:
        >>> import kinetop
        >>> work = scoped(kinetop.open("tests/data/hazards/69_step_gap_and_overlap.json", cache=False), step="10-11")
        >>> host_windows(work).select((pl.col("end_ns") - pl.col("start_ns")) / 1000).item()
        205.0
    """
    window, step = work.scope.window, work.scope.step
    found = None
    if window not in (None, "gpu", "trace"):
        start, end = _range(window)
        zero = origin_ns(work.trace) + clock_offset(work.trace)
        found = work.trace.extent.select("part", start_ns=zero + start, end_ns="end_ns" if end is None else zero + end)
    if step is None:
        return found
    chosen = steps(work.trace).filter(pl.col("step").is_in(chosen_steps(work.trace, step)))
    spans = chosen.group_by("part").agg(pl.col("start_ns").min(), pl.col("end_ns").max()).sort("part")
    return spans if found is None else intervals.intersect(spans, found, ["part"])


def _range(text: str) -> tuple[int, int | None]:
    """Read `START..END` as nanoseconds since the first event; an open end is None."""
    sides = text.split("..")
    if len(sides) != 2 or not (sides[0].strip() or sides[1].strip()):
        raise FilterError(f"A window is gpu, trace or START..END such as 10ms..12.5ms; {text!r} is none of them.")
    start, end = (_nanoseconds(side.strip(), text) for side in sides)
    if end is not None and end <= (start or 0):
        raise FilterError(f"The window {text!r} ends before it starts.")
    return start or 0, end


def _nanoseconds(side: str, text: str) -> int | None:
    """Read one side of a window; empty means open."""
    if not side:
        return None
    hit = _TIME.fullmatch(side)
    if hit is None:
        raise FilterError(f"{side!r} in the window {text!r} is no time; write a number with ns, us, ms or s.", text.find(side))
    value = int(Decimal(hit[1]) * _NS[(hit[2] or "").lower()])
    if value > 2**61:
        raise FilterError(f"{side!r} in the window {text!r} is longer than any trace.", text.find(side))
    return value


def _cut(activities: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Cut activities to their device's window."""
    rows = activities.join(windows, on=list(DEVICE), how="left", maintain_order="left")
    cut = intervals.clip(rows, pl.col("window_start_ns"), pl.col("window_end_ns"))
    return cut.with_columns(dur_ns=pl.col("end_ns") - pl.col("start_ns")).select(activities.columns)


def _filtered(gpu: pl.DataFrame, trace: TraceSet, where: str) -> pl.DataFrame:
    """Keep what the filter names; columns that cost a join are made only when it names them."""
    launch = {"op": pl.String(), "api": pl.String(), "thread": pl.String(), "delay_ns": pl.Int64()}
    schema = {**gpu.schema, **launch, "step": pl.Int64()}
    keep = predicate(where, schema, origin_ns=origin_ns(trace))
    used = set(keep.meta.root_names())
    rows = gpu
    if launched := sorted(used & set(launch)):
        extra = trace.launches.select("part", "event_id", *launched)
        rows = rows.join(extra, on=["part", "event_id"], how="left", maintain_order="left")
    if "step" in used:
        rows = with_step(rows, trace)
    if any(one.clock_offset_ns for one in trace.traces):  # its times are those shown, on the first rank's clock
        told = rows.with_columns(pl.col("start_ns", "end_ns") - clock_offset(trace))
        return gpu.filter(told.select(keep.fill_null(value=False)).to_series())
    return rows.filter(keep).select(gpu.columns)
