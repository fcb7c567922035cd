"""Which trace is which rank, which capture window of it, and how far its clock runs ahead."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from .report import Notice
from .trace import Trace, TraceSet

if TYPE_CHECKING:
    from collections.abc import Sequence

_COLLECTIVE = ["process_group", "comms_id", "seq", "collective"]
"""What the ranks that ran one collective agree about."""
SKEW_NS = 20_000
"""Clock offsets below this are taken for the spread of a collective's end, not for skew: ranks leave one within microseconds."""


def as_set(traces: Sequence[Trace], hints: Sequence[int | None], notices: Sequence[Notice] = ()) -> TraceSet:
    """Put opened traces together as ranks of one job.

    Args:
        traces: the traces, in natural order of their names.
        hints: the rank in each one's name, None where there is none.
        notices: findings so far.

    Returns:
        The set, sorted by rank, then by start; ranks, windows and clock offsets filled in.
    """
    said: list[Notice] = list(notices)
    if len(traces) == 1:
        said += _misnamed(traces, hints)
        return TraceSet(tuple(traces), tuple(said))
    ranked = _ranked(list(traces), list(hints), said)
    windowed = _windowed(ranked, said)
    said += _absent(windowed)
    return TraceSet(tuple(_on_one_clock(windowed, said)), tuple(said))


def _says_rank(trace: Trace) -> bool:
    info = trace.header.get("distributedInfo")
    return isinstance(info, dict) and "rank" in info


def _ranked(traces: list[Trace], named: list[int | None], said: list[Notice]) -> list[Trace]:
    """The rank in the trace counts; the one in the name where the trace has none, or where all claim the same."""
    claims = Counter(trace.rank for trace in traces)
    distinct_names = None not in named and len(set(named)) == len(traces)
    if all(not _says_rank(trace) for trace in traces):
        if distinct_names:
            text = f"Ranks {_listed([n for n in named if n is not None])} taken from the file names."
            said.append(Notice("rank-from-name", len(traces), text, level="info"))
            return [replace(trace, rank=rank) for trace, rank in zip(traces, named, strict=True) if rank is not None]
        if len(set(named)) < len(traces) and set(named) == {None}:
            said.append(
                Notice(
                    "rank-from-order",
                    len(traces),
                    f"No trace says its rank; they are numbered 0 to {len(traces) - 1} by name.",
                    level="info",
                )
            )
            return [replace(trace, rank=place) for place, trace in enumerate(traces)]
    elif distinct_names and len(claims) == 1:
        names = _listed([n for n in named if n is not None])
        text = f"All {len(traces)} traces claim rank {traces[0].rank}; ranks {names} taken from the file names."
        said.append(Notice("rank-from-name", len(traces), text))
        return [replace(trace, rank=rank) for trace, rank in zip(traces, named, strict=True) if rank is not None]
    said += _misnamed(traces, named)
    return traces


def _misnamed(traces: Sequence[Trace], named: Sequence[int | None]) -> list[Notice]:
    """Say where a name and the trace in it differ about the rank: a copy under a wrong name, or a rank within its machine.

    Only names that say `rank`: the number after `worker` or `node` may be a process or a machine.
    """
    apart = [
        (trace, rank)
        for trace, rank in zip(traces, named, strict=True)
        if _says_rank(trace) and rank not in (None, trace.rank) and "rank" in trace.path.name.lower()
    ]
    if not apart:
        return []
    trace, rank = apart[0]
    text = f"{trace.path.name} is rank {trace.rank} by what the trace says and rank {rank} by its name; the trace counts"
    more = f" (so for {len(apart)} traces)" if len(apart) > 1 else ""
    return [Notice("rank-name-differs", len(apart), f"{text}{more}.", level="info")]


def _absent(traces: Sequence[Trace]) -> list[Notice]:
    """Say how many ranks of the job are not among several traces of it."""
    here = {trace.rank for trace in traces}
    size = max((trace.world_size or 0 for trace in traces), default=0)
    if len(here) < 2 or len(here) >= size:
        return []
    text = f"{len(here)} of the job's {size} ranks are here ({_listed(sorted(here))}); figures across ranks cover these alone."
    return [Notice("ranks-absent", size - len(here), text, level="info")]


def _listed(numbers: Sequence[int]) -> str:
    shown = sorted(numbers)
    return ", ".join(map(str, shown)) if len(shown) <= 8 else f"{shown[0]} to {shown[-1]}"


def _windowed(traces: list[Trace], said: list[Notice]) -> list[Trace]:
    """Number the files of one rank by their start; neither replaces the other."""
    claims = Counter(trace.rank for trace in traces)
    starts = {id(trace): _extent(trace) if claims[trace.rank] > 1 else (0, 0) for trace in traces}
    ordered = sorted(traces, key=lambda trace: (trace.rank, starts[id(trace)][0]))
    made: list[Trace] = []
    for trace in ordered:
        same = [other for other in made if other.rank == trace.rank]
        made.append(replace(trace, window=len(same)))
    for rank, count in sorted(claims.items()):
        if count > 1:
            mine = [starts[id(trace)] for trace in ordered if trace.rank == rank]
            apart = all(before[1] <= after[0] for before, after in itertools.pairwise(mine))
            how = "different time windows" if apart else "their times overlap: are they of one job?"
            said.append(
                Notice(
                    "rank-claimed-twice",
                    count,
                    f"Rank {rank} is claimed by {count} files ({how}); each is kept as a window of its own.",
                )
            )
    return made


def _extent(trace: Trace) -> tuple[int, int]:
    """First and last possible start among timed events, in ns; the profiler's own row about its window (cat Trace) aside."""
    limits = TraceSet((trace,)).extent.row(0, named=True)
    possible = pl.col("ts_ns").is_between(limits["first_ns"], limits["last_ns"])
    first, last = (
        trace.events.filter(pl.col("dur_ns").is_not_null(), pl.col("cat").fill_null("") != "Trace", possible)
        .select(first=pl.col("ts_ns").min(), last=pl.col("ts_ns").max())
        .collect()
        .row(0)
    )
    return (first or 0, last or 0)


def _on_one_clock(traces: list[Trace], said: list[Notice]) -> list[Trace]:
    """Fill in each trace's clock offset from the first rank, of all its windows: a collective ends at one moment on all ranks."""
    if len({trace.rank for trace in traces}) < 2:
        return traces
    ends = [_collective_ends(trace) for trace in traces]
    first = pl.concat([mine for trace, mine in zip(traces, ends, strict=True) if trace.rank == traces[0].rank])
    made = [traces[0]]
    for trace, mine in zip(traces[1:], ends[1:], strict=True):
        both = first.join(mine, on=_COLLECTIVE, nulls_equal=True, suffix="_mine").with_columns(
            apart=pl.col("end_ns_mine") - pl.col("end_ns")
        )
        # Numbers may begin anew in each window: the nearer one is meant.
        both = both.sort(pl.col("apart").abs()).unique(_COLLECTIVE, keep="first")
        apart = both.select(pl.col("apart").median().round().cast(pl.Int64)).item() if both.height else None
        if apart is None or abs(apart) < SKEW_NS or trace.rank == traces[0].rank:
            made.append(trace)
            continue
        direction = "ahead of" if apart > 0 else "behind"
        text = (
            f"Rank {trace.rank} runs {abs(apart) / 1000:,.0f} us {direction} rank {traces[0].rank} "
            f"(from {both.height} matching collectives); times across ranks are corrected."
        )
        said.append(Notice("clock-skew", both.height, text))
        made.append(replace(trace, clock_offset_ns=apart))
    return made


def _collective_ends(trace: Trace) -> pl.DataFrame:
    """When each numbered collective ended: one row per group, number and kind, kernels of the GPU only."""
    return (
        trace.events.filter(pl.col("seq").is_not_null(), pl.col("stream").is_not_null(), pl.col("dur_ns") >= 0)
        .select(
            pl.col("process_group").cast(pl.String),
            "comms_id",
            "seq",
            pl.col("collective").cast(pl.String),
            end_ns=pl.col("ts_ns") + pl.col("dur_ns"),
        )
        .group_by(_COLLECTIVE)
        .agg(pl.col("end_ns").max(), n=pl.col("end_ns").n_unique())
        .filter(pl.col("n") == 1)
        .drop("n")
        .collect()
    )
