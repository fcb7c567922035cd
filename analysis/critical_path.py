"""The critical path of a step: the chain of host work, launches and GPU work that its length hangs on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from .binding import Hops, hops
from .captures import RANK, WINDOW, told
from .hta_bridge import first_kept_ns
from .hta_path import hta_path
from .question import Column, Parameter, Table, question
from .shares import percent
from .steps import steps
from .work import Work, chosen_steps, scoped, since_first

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinetop.traces.trace import TraceSet

KINDS: dict[str, str] = {
    "host": "the host works towards the next launch on the path, or towards the end of the step",
    "launch_delay": "from the start of a launch call to the start of its GPU work, which found its stream empty",
    "compute": "kernels that are not communication",
    "comm": "communication kernels",
    "memory": "copies and memsets",
    "kernel_gap": "between two activities of a stream, of which the second was launched before the first ended",
    "stream_wait": "from the end of work on another stream that was waited for to the start of what waited: events, where the "
    "trace records them, else work that ended up to 10 us before",
    "sync_return": "from the end of GPU work to the return of the host call that waited for it",
    "unknown": "before GPU work that has no launch record and nothing before it on its stream",
}
"""What a stretch of the path is."""

BREAKDOWN_COLUMNS = (
    RANK,
    Column("step", "id", "number of the step; null: the whole trace, which marks none", priority=0),
    Column("kind", "text", "; ".join(f"{kind}: {about}" for kind, about in KINDS.items()), priority=0),
    Column(
        "time_us", "us", "length of its stretches; they sum to the step, from its start to the end of its last work", priority=0
    ),
    Column("share_pct", "pct", "share of the path; sums to 100", priority=0),
    Column("stretches", "count", "how many there are", priority=1),
    Column("longest_us", "us", "the longest of them", priority=2),
    WINDOW,
)
PATH_COLUMNS = (
    RANK,
    Column("step", "id", "number of the step", priority=1),
    Column("start_us", "us", "since the first event", "start", priority=0),
    Column("dur_us", "us", "length of the stretch", "time", priority=0),
    Column("kind", "text", "what it is, as in the breakdown", priority=0),
    Column("name", "text", "the GPU work, or the call of the host that it leads to", priority=0),
    Column("op", "text", "operator that launches that work", priority=1),
    Column("device", "id", "GPU index", priority=3),
    Column("stream", "id", "stream of the work", priority=2),
    WINDOW,
)


@question(
    name="critical_path",
    title="Critical path",
    about="The chain of host work, launches and GPU work that the length of a step hangs on.",
    tables=(
        Table(
            "breakdown",
            BREAKDOWN_COLUMNS,
            about="Of the steps named by --step; else, for each file, of the complete step of middle length.",
            none="nothing in the trace has a place in time",
        ),
        Table("path", PATH_COLUMNS, about="Every stretch in order of time.", none="nothing in the trace has a place in time"),
    ),
    parameters=(
        Parameter(
            "by", "kinetop", "whose rules: ours, or those of HolisticTraceAnalysis (extra hta)", choices=("kinetop", "hta")
        ),
    ),
    order=17,
    common=("step", "rank", "device", "top"),
)
def critical_path(work: Work, *, by: str) -> dict[str, pl.DataFrame]:
    """Return the path as a breakdown and stretch by stretch.

    Example:
        >>> import kinetop
        >>> trace = kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False)
        >>> kinetop.critical_path(trace).select("kind", "time_us").rows()  # nothing waits for the GPU, which is done before
        [('host', 390.0)]
    """
    if by == "hta":
        path = pl.concat([_by_hta(work.trace, part, step) for part, step, _, _ in _windows(work)])
    else:
        path = _named(_path(work), work.trace)
    length = pl.col("end_ns") - pl.col("start_ns")
    rows = path.with_columns(dur_ns=length, start_ns=since_first("start_ns", work.trace))
    return {"breakdown": told(_breakdown(rows), work, BREAKDOWN_COLUMNS), "path": told(rows, work, PATH_COLUMNS)}


def _by_hta(trace: TraceSet, part: int, step: int | None) -> pl.DataFrame:
    """Return the path that HTA finds, in the columns that `_named` gives."""
    named = steps(trace).filter(pl.col("part") == part, pl.col("step").eq_missing(step))["name"]
    path = hta_path(type(trace)((trace.traces[part],)), named[0] if len(named) else None)
    first_ns = first_kept_ns(trace.traces[part])
    none = {"op": pl.lit(None, pl.String), "device": pl.lit(None, pl.Int32)}
    return path.with_columns(
        part=pl.lit(part, pl.Int32),
        rank=pl.lit(trace.traces[part].rank, pl.Int32),
        step=pl.lit(step, pl.Int64),
        start_ns=first_ns + (pl.col("start_us") * 1000).round().cast(pl.Int64),
        end_ns=first_ns + ((pl.col("start_us") + pl.col("dur_us")) * 1000).round().cast(pl.Int64),
        **none,
    )


def _path(work: Work) -> pl.DataFrame:
    """Return the stretches of each window's path."""
    scope = work.scope
    known = hops(work.trace, scoped(work.trace, rank=scope.rank, device=scope.device).all_gpu)
    made = [
        _stretches(known, part, start_ns, end_ns).with_columns(
            part=pl.lit(part, pl.Int32),
            rank=pl.lit(work.trace.traces[part].rank, pl.Int32),
            step=pl.lit(step, pl.Int64),
        )
        for part, step, start_ns, end_ns in _windows(work)
    ]
    empty = _stretches(known.cleared(), 0, 0, 0).with_columns(
        part=pl.lit(0, pl.Int32), rank=pl.lit(0, pl.Int32), step=pl.lit(0, pl.Int64)
    )
    return pl.concat([empty, *made])


def _windows(work: Work) -> Iterator[tuple[int, int | None, int, int]]:
    """Yield part, step, start and end of each step to look at; the whole of a trace that marks none."""
    rank, trace = work.scope.rank, work.trace
    held = set(work.all_gpu["part"].unique())
    parts = [part for part, one in enumerate(trace.traces) if rank in (None, one.rank) or part in held]
    found = steps(trace).with_columns(wall=pl.col("end_ns") - pl.col("start_ns"))
    if work.scope.step is not None:
        found = found.filter(pl.col("step").is_in(chosen_steps(trace, work.scope.step)))
    spans = {part: (first, end) for part, first, end in trace.extent.select("part", "first_ns", "end_ns").iter_rows()}
    for part in parts:
        mine = found.filter(pl.col("part") == part).sort("start_ns")
        if work.scope.step is None and not mine.is_empty():
            complete = mine.head(max(1, mine.height - 1)).sort("wall", maintain_order=True)
            mine = complete[(complete.height - 1) // 2]
        for step, start_ns, end_ns in mine.select("step", "start_ns", "end_ns").iter_rows():
            yield part, step, start_ns, end_ns
        if mine.is_empty() and work.scope.step is None and None not in spans.get(part, (None,)):
            yield part, None, *spans[part]


def _stretches(known: Hops, part: int, start_ns: int, host_end_ns: int) -> pl.DataFrame:
    """Return kind, start_ns, end_ns and the activity (row) of each stretch of the path of one window, in order of time.

    The path is followed backwards from the end: each activity to what it started after, each host call that waited to the
    activity that it waited for, until the start of the window.
    """
    work = known.work
    moment = pl.coalesce("launch_ns", "start_ns")
    own = work.filter((pl.col("part") == part) & (moment >= start_ns) & (moment < max(host_end_ns, start_ns + 1)))
    last = own.sort("end_ns", "row").tail(1)
    end_ns = max(host_end_ns, *last["end_ns"], start_ns)
    if not last.is_empty() and last["end_ns"].item() >= host_end_ns:
        head, until_ns = last["row"].item(), None
    else:
        head, until_ns = known.waited_before(part, host_end_ns)
    rows = work[known.orbit(head, start_ns)]
    marks = _marks(rows, start_ns, end_ns, until_ns)
    clipped = marks.with_columns(pl.col("start_ns", "end_ns").clip(start_ns, end_ns))
    return clipped.filter(pl.col("end_ns") > pl.col("start_ns")).sort("start_ns", "end_ns")


def _marks(rows: pl.DataFrame, start_ns: int, end_ns: int, until_ns: int | None) -> pl.DataFrame:
    """Cut the time of a window at the moments of its path.

    Args:
        rows: the activities of the path in order of time.
        start_ns: start of the window.
        end_ns: its end.
        until_ns: when the host call returned that waited for the last activity; None where the path ends with the GPU.
    """
    rows = rows.with_columns(
        before=pl.col("end_ns").shift(1).fill_null(start_ns).clip(start_ns, pl.col("start_ns")),
        first=pl.int_range(pl.len()) == 0,
    )
    launched = pl.col("via") == "launch"
    returned = pl.when(launched).then(pl.when("first").then(start_ns).otherwise(pl.coalesce("until_ns", "before")))
    called = pl.when(launched).then(pl.max_horizontal("launch_ns", returned))
    arrival = pl.when(launched & ~pl.col("first")).then(pl.lit("sync_return")).otherwise("via")
    upto = pl.col("start_ns").shift(-1).fill_null(end_ns)
    tail = rows.tail(1).select("row", kind=pl.lit("sync_return"), start_ns="end_ns", end_ns=pl.lit(until_ns, pl.Int64))
    after = rows.tail(1).select(
        pl.lit(None, pl.UInt32).alias("row"), kind=pl.lit("host"), start_ns=pl.lit(until_ns, pl.Int64), end_ns=pl.lit(end_ns)
    )
    alone = pl.DataFrame({"row": [None], "kind": ["host"], "start_ns": [start_ns], "end_ns": [end_ns]}, schema=dict(tail.schema))
    cuts = [
        rows.filter(~launched | ~pl.col("first")).select(
            "row", kind=arrival, start_ns="before", end_ns=pl.when(launched).then(returned).otherwise("start_ns")
        ),
        rows.filter(launched).select("row", kind=pl.lit("host"), start_ns=returned, end_ns=called),
        rows.filter(launched).select("row", kind=pl.lit("launch_delay"), start_ns=called, end_ns="start_ns"),
        rows.select("row", kind="class", start_ns="start_ns", end_ns=pl.min_horizontal("end_ns", upto)),
        *([] if until_ns is None else [tail, after]),
        *([alone] if rows.is_empty() else []),
    ]
    return pl.concat([cut.cast({"kind": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64}) for cut in cuts]).join(
        rows.select("row", "event_id", "name", "api", "device", "stream"), on="row", how="left", maintain_order="left"
    )


def _named(path: pl.DataFrame, trace: TraceSet) -> pl.DataFrame:
    """Name each stretch by the GPU work, or the call of the host that it leads to, and add the operator that launched it."""
    ops = trace.launches.select("part", "event_id", "op")
    on_host = pl.col("kind").is_in(["host", "launch_delay"])
    named = path.join(ops, on=["part", "event_id"], how="left", maintain_order="left")
    return named.with_columns(name=pl.when(on_host).then(pl.coalesce("api", "name")).otherwise("name"))


def _breakdown(path: pl.DataFrame) -> pl.DataFrame:
    """Sum the stretches of each kind."""
    length = pl.col("dur_ns")
    made = path.group_by("part", "rank", "step", "kind").agg(
        time_ns=length.sum(), stretches=pl.len().cast(pl.Int64), longest_ns=length.max()
    )
    whole = pl.col("time_ns").sum().over("part", "step")
    order = pl.col("kind").replace_strict({kind: number for number, kind in enumerate(KINDS)})
    return made.with_columns(share_pct=percent(pl.col("time_ns"), whole)).sort("part", "step", order)
