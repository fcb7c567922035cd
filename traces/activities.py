"""GPU work of a trace set, cleaned: what counts as an activity, on which device, from when to when."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from . import faults, schema
from .merged import claims, merged
from .pairs import ranges
from .report import Notice

if TYPE_CHECKING:
    from .trace import TraceSet

ACTIVITY_COLUMNS: dict[str, str] = {
    "part": "i32, position of the trace in its set",
    "event_id": "u64, row of the event table",
    "rank": "i32, rank of the trace; in a file that merges several processes, of the process",
    "device": "i32, args.device, else the number in the pid",
    "stream": "i64, args.stream, else the number in the tid",
    "kind": "text: kernel, memcpy or memset",
    "name": "text",
    "process": "text, pid as written",
    "start_ns": "i64",
    "end_ns": "i64, start + duration after repair",
    "dur_ns": "i64, never negative; an overrunning end is clipped",
    "raw_dur_ns": "i64?, as written; of a begin, the time to its end",
    "correlation": "i64?",
    "external_id": "i64?",
    "collective": "text?, args' Collective name",
    "bytes": "i64?, of copies and memsets",
    "graph_id": "i64?",
    "grid": "text?, JSON",
    "block": "text?, JSON",
    "occupancy_pct": "f64?",
    "registers_per_thread": "i64?",
    "shared_memory_bytes": "i64?",
    "in_elements": "i64?",
    "dtype": "text?",
    "group_size": "i64?",
    "process_group": "text?",
    "seq": "i64?",
    "fault": "text?: negative-duration, overrun, or null",
}
"""Columns of the activity frame, sorted by part, rank, device, start_ns, event_id; what `faults` leaves out is not in it."""


def activities(traces: TraceSet) -> tuple[pl.DataFrame, tuple[Notice, ...]]:
    """Return the GPU activities of a set and what had to be repaired about them.

    GPU work is chosen by category alone (`schema.GPU_KINDS`). Rows without a place in time are left out and counted.

    Args:
        traces: the set.

    Returns:
        A frame with `ACTIVITY_COLUMNS` and the notices.

    Example:
        >>> import kinetop
        >>> frame, notices = activities(kinetop.open("tests/data/hazards/34_negative_duration.json", cache=False))
        >>> frame["dur_ns"].to_list(), notices[0].message
        ([10000, 40000, 10000, 20000, 0], '2 events had a negative duration (1 kernel); they count as zero length')
    """
    frame = _recorded(traces)
    notices = [*traces.pairs.notices, *faults.impossible_lengths(traces)]
    for repaired in (faults.with_lengths, faults.without_duplicates, faults.without_impossible_times):
        frame, said = repaired(traces, frame)
        notices += said
    frame, said = _with_ranks(frame)
    notices += said
    frame, said = faults.with_ends_clipped(traces, frame.sort(*faults.ORDER))
    notices += said
    notices += _missing(traces, frame)
    return frame.select(*ACTIVITY_COLUMNS), tuple(notices)


def _recorded(traces: TraceSet) -> pl.DataFrame:
    """GPU work as written, with device and stream from pid and tid where args do not say them."""
    same = ("collective", "bytes", "graph_id", "grid", "block", "occupancy_pct", "registers_per_thread", "shared_memory_bytes")
    more = ("in_elements", "dtype", "group_size", "process_group", "seq")
    rows = ranges(
        traces,
        schema.GPU_KINDS,
        "rank", "device", "stream", "correlation", *same, *more,
        pl.col("cat").cast(pl.String), "name", "process", "thread",
        pl.coalesce("external_id", "external_id_legacy").alias("external_id"),
    )  # fmt: skip
    rows = rows.with_columns(
        kind=pl.col("cat").replace_strict(schema.GPU_KINDS, return_dtype=pl.String), has_stream=pl.col("stream").is_not_null()
    )
    if rows["device"].has_nulls():
        rows = rows.with_columns(device=pl.coalesce("device", number("process").cast(pl.Int32, strict=False)).fill_null(0))
    if rows["stream"].has_nulls():
        # A lane named without a number gets a negative one of its own.
        rows = rows.with_columns(
            stream=pl.coalesce("stream", number("thread"), -pl.col("thread").cast(pl.String).rank("dense").cast(pl.Int64))
        )
    return rows.with_columns(pl.col("process", "name").cast(pl.String).fill_null(""))


def number(column: str) -> pl.Expr:
    """Return the last number of a pid or tid written as text: 7 for `7` and for `stream 7`."""
    return pl.col(column).cast(pl.String).str.extract(r"(-?\d+)\s*$").str.to_integer(strict=False)


def _with_ranks(frame: pl.DataFrame) -> faults.Repaired:
    """Give the processes of files that merge several ranks a rank each."""
    gpu = claims(frame)
    found = merged(gpu, gpu.clear())
    if not found.parts:
        return frame, ()
    processes = gpu.sort("part", "first_id").unique(["part", "process"], keep="first", maintain_order=True)
    ranks = found.rank_of(processes)
    made = frame.join(ranks, on=["part", "process"], how="left", maintain_order="left").with_columns(
        rank=pl.coalesce("merged_rank", "rank")
    )
    notices = []
    for part in found.parts:
        mine = processes.filter(pl.col("part") == part)["process"].to_list()
        count = made.filter(pl.col("part") == part)["rank"].n_unique()
        shown = ", ".join(mine[:4]) + (", …" if len(mine) > 4 else "")
        said = f"the file merges {count} processes ({shown}); figures are per process"
        notices.append(Notice("merged-processes", count, said))
    return made, tuple(notices)


def _missing(traces: TraceSet, frame: pl.DataFrame) -> list[Notice]:
    """Say what the trace does not record: streams, correlation ids, GPU work at all."""
    notices = []
    unknown = frame.height - int(frame["has_stream"].sum())
    if unknown:
        said = f"stream is unknown for {unknown} of {faults.counted(frame.height, 'GPU event')}: lane taken from tid"
        notices.append(Notice("unknown-stream", unknown, said, level="info"))
    linkless = frame.group_by("part").agg(rows=pl.len(), none=(pl.col("correlation").fill_null(0) <= 0).all()).filter("none")
    if not linkless.is_empty():
        said = "GPU events have no correlation ids: launch analysis is not possible, time figures are complete"
        notices.append(Notice("no-correlation", int(linkless["rows"].sum()), said))
    empty = sorted(set(range(len(traces.traces))) - set(frame["part"].unique()))
    return notices + (_without_gpu(traces, empty) if empty else [])


def _without_gpu(traces: TraceSet, parts: list[int]) -> list[Notice]:
    """Tell parts that launched work but recorded none from parts that never touched a GPU."""
    names = ranges(traces, schema.LAUNCH_CATS, pl.col("name").cast(pl.String)).filter(pl.col("part").is_in(parts))
    kernel = pl.col("name").str.contains("(?i)launch") & ~pl.col("name").str.contains("HostFunc")
    copy = pl.col("name").str.contains("(?i)memcpy|memset") & ~kernel
    calls = names.filter(kernel | copy)
    lost = calls["part"].n_unique()
    where = "" if len(traces.traces) == 1 else f" in {{}} of {faults.counted(len(traces.traces), 'trace')}"
    notices = []
    if lost:
        said = (
            f"{faults.counted(calls.height, 'kernel launch').replace('launchs', 'launches')} but 0 GPU events{where.format(lost)}"
        )
        what = "GPU activity was not captured; no GPU figures (not '100 % idle')"
        notices.append(Notice("gpu-not-captured", calls.height, f"{said}: {what}"))
    if len(parts) > lost:
        said = f"no GPU events{where.format(len(parts) - lost)}: nothing to show of the GPU"
        notices.append(Notice("no-gpu-events", len(parts) - lost, said, level="info"))
    return notices + _uncategorised(traces, parts)


def _uncategorised(traces: TraceSet, parts: list[int]) -> list[Notice]:
    """Say where ranges of parts without GPU work have no category: what they are cannot be known."""
    ranged = pl.col("part").is_in(parts), pl.col("ph") == "X", pl.col("cat").is_null()
    count = traces.events.filter(*ranged).select(pl.len()).collect().item()
    if not count:
        return []
    have = "range has" if count == 1 else "ranges have"
    said = f"{count} {have} no category (cat), by which GPU work is known; none of them is in the figures"
    return [Notice("no-category", count, said)]
