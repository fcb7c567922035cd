"""Gaps of each GPU, cut into parts by what the next activity waited for, and what the host did meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import polars as pl

from kinetop.traces import schema
from kinetop.traces.nesting import innermost, lanes
from kinetop.traces.pairs import ranges

from . import intervals
from .linked import call_number
from .waits import KINDS, waits
from .work import DEVICE, Work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinetop.traces.trace import TraceSet

CAUSES: dict[str, str] = {
    "host_late": "until the launch call of the next activity returned, less the waits of its thread and what followed from them",
    "data_loader": "the thread that launches next waited for a batch",
    "collective": "the thread that launches next sat in a collective of the host (gloo, mpi, a barrier)",
    "sync": "the thread that launches next sat in a synchronising call",
    "after_sync": "that call emptied the queue: from its return until the next launch call returned",
    "launch_latency": "from the return of the launch call, made while the GPU was idle, to the start of the activity",
    "dependency": "the next activity was launched before the gap began: it waited for an event, another stream or its turn",
    "graph": "between two activities of one launch: inside the replay of a graph",
    "no_record": "the trace holds no launch call of the next activity, or nothing follows",
}
"""The parts of a gap, each with its definition; a part of a gap has one cause and the parts sum to the gap."""


def gaps(work: Work) -> pl.DataFrame:
    """Return the gaps of each device in integer nanoseconds, longest first, each cut into its parts.

    Args:
        work: what the question was asked about.

    Returns:
        What `cut_gaps` gives, longest first, with cause (the largest part) and op, frame and annotation: what the launching
        thread was in.
    """
    largest = pl.max_horizontal(f"{name}_ns" for name in CAUSES)
    cause = pl.coalesce(pl.when(pl.col(f"{name}_ns") == largest).then(pl.lit(name.replace("_", " "))) for name in CAUSES)
    rows = cut_gaps(work).with_columns(cause=cause)
    rows = rows.sort("dur_ns", *DEVICE, "start_ns", descending=[True, *[False] * 4])
    return _with_doings(rows, work.trace)


def cut_gaps(work: Work) -> pl.DataFrame:
    """Return the gaps of each device, each cut into its parts; the order and what the host did meanwhile cost more.

    Args:
        work: what the question was asked about.

    Returns:
        part, rank, device, start_ns, end_ns, dur_ns, one `<cause>_ns` for each of `CAUSES` (they sum to dur_ns), late_ns
        (where the time that the host was late ends), next, previous and their streams, next_id, api, launch_start_ns,
        launch_end_ns, process, thread, and for each kind of wait the name of the longest one: sync_name, ...
    """
    rows = _with_parts(_with_neighbours(_device_gaps(work), work))
    rows = _with_waits(rows, waits(work.trace))
    if work.scope.where is not None:
        rows = rows.join(work.gpu.select("part", next_id="event_id"), on=["part", "next_id"], how="semi", maintain_order="left")
    return rows


def _device_gaps(work: Work) -> pl.DataFrame:
    """Complement of the union of all streams in the device's window."""
    pieces = intervals.union(work.all_gpu, DEVICE)
    edges = [work.windows.select(*DEVICE, start_ns=name, end_ns=name) for name in ("window_start_ns", "window_end_ns")]
    rows = pl.concat([edges[0], pieces, edges[1]]).sort(*DEVICE, "start_ns", "end_ns", maintain_order=True)
    rows = rows.select(*DEVICE, start_ns=pl.col("end_ns").shift(1).over(DEVICE), end_ns="start_ns")
    return rows.filter(pl.col("end_ns") > pl.col("start_ns")).with_columns(dur_ns=pl.col("end_ns") - pl.col("start_ns"))


def _with_neighbours(rows: pl.DataFrame, work: Work) -> pl.DataFrame:
    """Add the activity before and after each gap, and the launch call of the one after."""
    every, links = work.trace.activities, work.trace.links
    after = every.select(
        *DEVICE, next_id="event_id", next="name", next_stream="stream", begin_ns="start_ns", row=pl.int_range(pl.len())
    )
    before = work.all_gpu.select(*DEVICE, done_ns="end_ns", previous="name", previous_stream="stream")
    rows = _nearest(rows, "end_ns", after, "begin_ns", DEVICE, strategy="forward")
    rows = _nearest(rows, "start_ns", before, "done_ns", DEVICE, strategy="backward")
    launch = ("launch_id", "api", "launch_start_ns", "launch_end_ns", "process", "thread")
    rows = rows.with_columns(links[name].gather(rows["row"]) for name in launch)
    rows = rows.with_columns(_first_of_launch(every, links).gather(rows["row"])).drop("row")
    return _with_likely_thread(rows, work)


def _first_of_launch(every: pl.DataFrame, links: pl.DataFrame) -> pl.Series:
    """Return when the first activity of each activity's launch starts."""
    rows = links.select(call=call_number(), replay_ns=every["start_ns"])
    if not rows["call"].drop_nulls().is_duplicated().any():
        return rows["replay_ns"]
    return rows.select(pl.col("replay_ns").min().over("call")).to_series()


def _nearest(
    rows: pl.DataFrame,
    moment: str,
    others: pl.DataFrame,
    time: str,
    by: Sequence[str],
    *,
    strategy: Literal["backward", "forward"],
    exact: bool = True,
) -> pl.DataFrame:
    """Add to each row the one of `others` whose `time` is nearest to its `moment`, before or after it; if need be at it."""
    keys = [key for key in by if not _same(rows[key], others[key])]
    others = others.sort(time, maintain_order=True).drop(key for key in by if key not in keys)
    return rows.sort(moment).join_asof(
        others, left_on=moment, right_on=time, by=keys or None,
        strategy=strategy, allow_exact_matches=exact, check_sortedness=False,
    ).drop(time)  # fmt: skip


def _same(left: pl.Series, right: pl.Series) -> bool:
    """Say whether both columns hold one and the same value throughout, as they do in a trace of one device."""
    if left.is_empty() or right.is_empty() or left.has_nulls() or right.has_nulls():
        return False
    return bool(left.min() == left.max() == right.min() == right.max())


def _with_likely_thread(rows: pl.DataFrame, work: Work) -> pl.DataFrame:
    """Where the launch is not in the trace, look at the thread that launches most on the device."""
    if not rows["launch_id"].has_nulls():
        return rows
    threads = work.trace.links.with_columns(work.trace.activities.select("rank", "device")).filter(
        pl.col("launch_id").is_not_null()
    )
    most = threads.group_by(*DEVICE, "process", "thread").len().sort("len", "thread", descending=[True, False])
    most = most.unique(DEVICE, keep="first", maintain_order=True).select(
        *DEVICE, likely_process="process", likely_thread="thread"
    )
    known = pl.col("launch_id").is_not_null()
    return rows.join(most, on=list(DEVICE), how="left", maintain_order="left").with_columns(
        process=pl.when(known).then("process").otherwise("likely_process"),
        thread=pl.when(known).then("thread").otherwise("likely_thread"),
    )


def _with_parts(rows: pl.DataFrame) -> pl.DataFrame:
    """Cut each gap into its parts; `late_ns` is where the time that the host was late ends."""
    start, end = pl.col("start_ns"), pl.col("end_ns")
    recorded = pl.col("launch_id").is_not_null()
    replay = recorded & (pl.col("replay_ns") < start)
    returned = pl.col("launch_end_ns")
    rows = rows.with_columns(
        late_ns=pl.when(recorded & ~replay).then(pl.min_horizontal(pl.max_horizontal(returned, start), end)).otherwise(start)
    )
    rest = end - pl.col("late_ns")
    why = (
        pl.when(~recorded)
        .then(pl.lit("no_record"))
        .when(replay)
        .then(pl.lit("graph"))
        .when(returned > start)
        .then(pl.lit("launch_latency"))
        .otherwise(pl.lit("dependency"))
    )
    parts = {
        f"{name}_ns": pl.when(why == name).then(rest).otherwise(0)
        for name in ("launch_latency", "dependency", "graph", "no_record")
    }
    return rows.with_columns(host_late_ns=pl.col("late_ns") - start, **parts)


def _with_waits(rows: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
    """Take what its thread waited out of the time that the host was late, and name the longest wait of each kind."""
    rows = rows.with_row_index("gap")
    start, begun, until = pl.col("start_ns"), pl.col("begun_ns"), pl.col("until_ns")
    met = _met(rows, found).with_columns(
        waited=(pl.min_horizontal("late_ns", until) - pl.max_horizontal(start, begun)).clip(0),
        overlap=pl.min_horizontal("end_ns", until) - pl.max_horizontal(start, begun),
        # The host was ahead by as long as the call lasted; that is what it gave up.
        lead=pl.when((begun <= start) & (until > start)).then(until - begun),
    )
    of = {kind: pl.col("kind") == kind for kind in KINDS}
    by_gap = met.group_by("gap").agg(
        *(pl.col("waited").filter(test).sum().alias(f"{kind}_ns") for kind, test in of.items()),
        *(
            pl.col("wait_name").filter(test).get(pl.col("overlap").filter(test).arg_max(), null_on_oob=True).alias(f"{kind}_name")
            for kind, test in of.items()
        ),
        sync_at_ns=begun.filter(of["sync"]).get(pl.col("overlap").filter(of["sync"]).arg_max(), null_on_oob=True),
        lead_ns=pl.col("lead").filter(of["sync"]).max(),
    )
    rows = rows.join(by_gap, on="gap", how="left", maintain_order="left").drop("gap")
    rows = rows.with_columns(pl.col(*(f"{kind}_ns" for kind in KINDS), "lead_ns").fill_null(0))
    rows = rows.with_columns(host_late_ns=pl.col("host_late_ns") - pl.sum_horizontal(f"{kind}_ns" for kind in KINDS))
    given_up = pl.min_horizontal("host_late_ns", "lead_ns")
    return rows.with_columns(host_late_ns=pl.col("host_late_ns") - given_up, after_sync_ns=given_up)


def _met(gap: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Return each gap with each call of its thread that overlaps it; both are disjoint, so the pairs are few."""
    gap = gap.drop_nulls(["process", "thread"])
    own, theirs = lanes(gap, calls)
    calls = calls.with_row_index("call").with_columns(lane=theirs)
    begun = calls.select("lane", "begun_ns", call="call")
    ended = calls.select("lane", "until_ns", first="call")
    pairs = gap.select("gap", "start_ns", "end_ns", "late_ns", lane=own)
    pairs = _nearest(pairs, "end_ns", begun, "begun_ns", ["lane"], strategy="backward", exact=False)
    pairs = _nearest(pairs, "start_ns", ended, "until_ns", ["lane"], strategy="forward", exact=False)
    pairs = pairs.filter(pl.col("first") <= pl.col("call"))
    pairs = pairs.with_columns(call=pl.int_ranges("first", pl.col("call") + 1, dtype=pl.UInt32)).explode("call")
    return pairs.join(calls.select("call", "kind", "wait_name", "begun_ns", "until_ns"), on="call")


def _with_doings(rows: pl.DataFrame, trace: TraceSet) -> pl.DataFrame:
    """Add what the launching thread was in: halfway through the time that the host was late, else through the gap.

    `sync_op` is the operator around the synchronising call that took longest.
    """
    late = pl.col("late_ns") > pl.col("start_ns")
    middle = pl.col("start_ns") + (pl.when(late).then("late_ns").otherwise("end_ns") - pl.col("start_ns")) // 2
    thread = [pl.col("part"), pl.col("process", "thread").cast(pl.Categorical)]
    moments = rows.select(*thread, at_ns=middle)
    found = {}
    for column, cats in (("op", schema.OP_CATS), ("frame", {"python_function"}), ("annotation", {"user_annotation"})):
        spans = ranges(trace, cats, "process", "thread", "name")
        asked = pl.concat([moments, rows.select(*thread, at_ns="sync_at_ns")]) if column == "op" else moments
        names = spans["name"].gather(innermost(asked, spans)).cast(pl.String)
        found[column] = names.head(rows.height).alias(column)
        if column == "op":
            found["sync_op"] = names.tail(rows.height).alias("sync_op")
    return rows.with_columns(**found)
