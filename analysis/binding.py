"""What each GPU activity started after: the work before it on its stream, work on another one, or its launch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl

from kinetop.traces import schema
from kinetop.traces.pairs import ranges

from .linked import with_links
from .waits import sync_calls

if TYPE_CHECKING:
    from kinetop.traces.trace import TraceSet

WAKE_NS = 10_000
"""Where the trace records no events, work that starts this soon after work on another stream ended may have waited for it."""
_LANE = ("part", "rank", "device", "stream")


@dataclass(frozen=True)
class Hops:
    """Each GPU activity with the one that the chain of causes leads back to."""

    work: pl.DataFrame
    """Activities in order of part and time: row, those of `Work.gpu`, launch_ns, process, api, via, before and until_ns.

    `via` says what it started after: kernel_gap (the work before it on its stream), stream_wait (work on another stream),
    launch (its own launch call), unknown (there is no record). `before` is the row that this leads to: for a launch, the work
    that the launching process had last waited for, in a call that returned at `until_ns`.
    """
    waited: pl.DataFrame
    """Host calls that waited for GPU work: part, process, until_ns, awaited (row)."""

    def orbit(self, head: int | None, start_ns: int) -> pl.Series:
        """Return the rows that a chain meets on its way back, in order of time; it stops at work that began before `start_ns`.

        Args:
            head: row it begins at; None for no work at all.
            start_ns: start of the window.
        """
        met = pl.Series([] if head is None else [head], dtype=pl.UInt32)
        further = self.work.select(pl.when(pl.col("start_ns") > start_ns).then("before")).to_series()
        while True:
            # Each round doubles the distance looked at.
            more = pl.concat([met, further.gather(met).drop_nulls()]).unique()
            if len(more) == len(met):
                return met.sort()
            met, further = more, further.gather(further)

    def waited_before(self, part: int, at_ns: int) -> tuple[int | None, int | None]:
        """Return the work that the host had last waited for at a moment, and when the call that did so returned."""
        calls = self.waited.filter(pl.col("part") == part, pl.col("until_ns") <= at_ns).sort("until_ns").tail(1)
        return (calls["awaited"].item(), calls["until_ns"].item()) if calls.height else (None, None)

    def cleared(self) -> Hops:
        """Return the same without rows."""
        return replace(self, work=self.work.clear(), waited=self.waited.clear())


def hops(trace: TraceSet, gpu: pl.DataFrame) -> Hops:
    """Return what each activity started after.

    Of the work before it on its stream, the work on other streams that it had to wait for (an event, where the trace records
    them in `cuda_sync` rows, else what ended up to `WAKE_NS` before its start) and its launch, that which came last. A launch
    call that began before the other two ended was not what held it up.

    Args:
        trace: the opened set.
        gpu: classified activities, such as `Work.all_gpu`.

    Example:
        >>> import kinetop
        >>> from kinetop.analysis.work import scoped
        >>> trace = kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False)
        >>> hops(trace, scoped(trace).all_gpu).work["via"].unique().sort().to_list()
        ['kernel_gap', 'launch']
    """
    work = (
        with_links(gpu.drop("process"), trace, "launch_start_ns", "launch_end_ns", "process", "api")
        .sort("part", "start_ns", "end_ns", "event_id")
        .with_row_index("row")
        .with_columns(launch_ns=pl.min_horizontal("launch_start_ns", "start_ns"))
    )
    work = work.with_columns(launch_ns=pl.when(pl.col("launch_start_ns").is_not_null()).then("launch_ns"))
    waited = _waited(trace, work)
    work = _with_event(_with_previous(work), trace)
    launch, previous, other = (pl.col(name) for name in ("launch_ns", "previous_end_ns", "event_end_ns"))
    is_other = other >= pl.max_horizontal(launch, previous, other)
    is_previous = previous > launch.fill_null(-(2**63))
    via = (
        pl.when(is_other)
        .then(pl.lit("stream_wait"))
        .when(is_previous)
        .then(pl.lit("kernel_gap"))
        .when(launch.is_not_null())
        .then(pl.lit("launch"))
        .otherwise(pl.lit("unknown"))
    )
    work = _with_wait(work.with_columns(via=via), waited)
    leads = {"stream_wait": "event_row", "kernel_gap": "previous_row", "launch": "awaited"}
    before = pl.coalesce(*(pl.when(pl.col("via") == name).then(column) for name, column in leads.items()))
    return Hops(work.with_columns(before=pl.when(before < pl.col("row")).then(before)), waited)


def _with_previous(work: pl.DataFrame) -> pl.DataFrame:
    """Add the activity of the same stream that ended last among those that began before."""
    reach = pl.col("end_ns").cum_max()
    holder = pl.when(pl.col("end_ns") == reach).then("row").forward_fill()
    return work.with_columns(previous_end_ns=reach.shift(1).over(_LANE), previous_row=holder.shift(1).over(_LANE))


def _with_event(work: pl.DataFrame, trace: TraceSet) -> pl.DataFrame:
    """Add the work of another stream that an activity had to wait for, of several the one that ended last."""
    waits = _event_waits(trace)
    launched = work.filter(pl.col("launch_ns").is_not_null()).select("part", "device", "stream", "launch_ns", "row", "end_ns")
    launched = launched.sort("launch_ns")
    lane = ["part", "device", "stream"]
    found = waits.sort("wait_ns").join_asof(
        launched.rename({"row": "waiting", "end_ns": "_"}),
        left_on="wait_ns", right_on="launch_ns", by=lane, strategy="forward", check_sortedness=False,
    )  # fmt: skip
    found = found.drop("launch_ns").sort("record_ns").join_asof(
        launched.rename({"row": "event_row", "end_ns": "event_end_ns"}),
        left_on="record_ns", right_on="launch_ns", by_left=["part", "device", "on_stream"], by_right=lane, check_sortedness=False,
    )  # fmt: skip
    latest = found.drop_nulls(["waiting", "event_row"]).sort("event_end_ns").unique("waiting", keep="last")
    known = latest.select("waiting", "event_row", "event_end_ns")
    silent = work.filter(~pl.col("part").is_in(waits["part"].unique().implode()))
    known = pl.concat([known, _guessed(silent)])
    made = work.join(known, left_on="row", right_on="waiting", how="left", maintain_order="left")
    ended = pl.when(pl.col("event_end_ns").is_not_null()).then(pl.min_horizontal("event_end_ns", "start_ns"))
    return made.with_columns(event_end_ns=ended)


def _guessed(work: pl.DataFrame) -> pl.DataFrame:
    """Return what activities waited for by the look of it, where the trace records no events.

    Launched, and with its stream free, an activity that starts just after the end of work on another stream waited for that.
    Whatever ended on the device later than all before it on its own stream is on another one.
    """
    device = ["part", "rank", "device"]
    free = pl.max_horizontal("previous_end_ns", "launch_ns")
    waiting = work.filter(pl.col("start_ns") > free).select(*device, "start_ns", waiting="row", free=free).sort("start_ns")
    done = work.filter(pl.col("end_ns") > pl.col("start_ns"))
    done = done.select(*device, "end_ns", event_row="row", event_end_ns="end_ns").sort("end_ns")
    found = waiting.join_asof(done, left_on="start_ns", right_on="end_ns", by=device, tolerance=WAKE_NS, check_sortedness=False)
    return found.filter(pl.col("event_end_ns") > pl.col("free")).select("waiting", "event_row", "event_end_ns")


def _event_waits(trace: TraceSet) -> pl.DataFrame:
    """Return the waits of a stream for an event of another: part, device, stream, on_stream, wait_ns, record_ns (of calls)."""
    rows = ranges(
        trace,
        schema.SYNC_CATS,
        "correlation",
        "stream",
        "device",
        "wait_on_stream",
        "wait_on_correlation",
        pl.col("name").cast(pl.String),
    ).filter(pl.col("name") == "Stream Wait Event", pl.col("stream") != pl.col("wait_on_stream"))
    asked = pl.concat([rows["correlation"], rows["wait_on_correlation"]]).unique()
    calls = ranges(trace, schema.LAUNCH_CATS, "correlation").filter(pl.col("correlation").is_in(asked.drop_nulls().implode()))
    calls = calls.unique(["part", "correlation"], keep="first").select("part", "correlation", "start_ns")
    found = rows.drop("start_ns").join(calls.rename({"start_ns": "wait_ns"}), on=["part", "correlation"], how="inner")
    found = found.join(
        calls.rename({"start_ns": "record_ns", "correlation": "wait_on_correlation"}),
        on=["part", "wait_on_correlation"],
        how="left",
    )
    return found.select(
        "part",
        pl.col("device").fill_null(0),
        "stream",
        "wait_ns",
        on_stream="wait_on_stream",
        record_ns=pl.coalesce("record_ns", "wait_ns"),
    )


def _waited(trace: TraceSet, work: pl.DataFrame) -> pl.DataFrame:
    """Return the host calls that waited: synchronising ones in which work ended, and copies that ended within their own call."""
    ends = work.select("part", "end_ns", awaited="row").sort("end_ns")
    calls = sync_calls(trace).select("part", "process", begun_ns="start_ns", until_ns="end_ns").sort("until_ns")
    calls = calls.join_asof(ends, left_on="until_ns", right_on="end_ns", by="part", check_sortedness=False)
    calls = calls.filter(pl.col("end_ns") > pl.col("begun_ns")).select("part", "process", "until_ns", "awaited")
    own = pl.col("end_ns").is_between("launch_start_ns", "launch_end_ns")
    copies = work.filter((pl.col("kind") != "kernel") & own).select("part", "process", until_ns="launch_end_ns", awaited="row")
    return pl.concat([calls.cast({"process": pl.String}), copies.cast({"process": pl.String})]).sort("until_ns")


def _with_wait(work: pl.DataFrame, waited: pl.DataFrame) -> pl.DataFrame:
    """Add what the launching process had last waited for when it began to launch."""
    known = work.filter(pl.col("launch_ns").is_not_null()).select("row", "part", "process", "launch_ns").sort("launch_ns")
    found = known.join_asof(
        waited, left_on="launch_ns", right_on="until_ns", by=["part", "process"], check_sortedness=False
    ).select("row", "awaited", "until_ns")
    return work.join(found, on="row", how="left", maintain_order="left")
