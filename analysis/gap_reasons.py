"""Why a GPU or a stream stood still, in one sentence, with the evidence that the trace holds; unknown where it holds none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from .linked import with_links
from .names import short_names
from .work import DEVICE, Work, clock_offset

if TYPE_CHECKING:
    from kinetop.traces.trace import TraceSet

STREAM = [*DEVICE, "stream"]
LONGEST_NAME = 60
"""Characters of a name in a sentence."""
TURN_NS = 30_000
"""On one stream, a longer distance between two activities is more than waiting for one's turn."""
NEAR_NS = 20_000
"""Work that ended this shortly before on another stream is what an activity may have waited for."""


def reasons(rows: pl.DataFrame, work: Work) -> pl.Series:
    """Return a sentence for each gap, about the largest part of it.

    Args:
        rows: what `gaps` gives.
        work: what it was asked about.
    """
    rows = _briefly(rows, "next", "previous")
    rows = rows.with_columns(_plain(name) for name in ("op", "frame", "annotation", "sync_op", *_WAITED))
    rows = _with_wait_on_stream(_with_last_rank(rows, work.trace), work.trace)
    who, took = pl.format("Thread {}", pl.coalesce("thread", pl.lit("?"))), {name: _time(f"{name}_ns") for name in _TIMED}
    sync = pl.format("{}{}", "sync_name", _maybe(" in {}", "sync_op"))
    said = {
        "host late": pl.format("{} took {} more until its next launch had returned{}.", who, took["host_late"], _doing()),
        "data loader": pl.format("{} waited {} for a batch in {}.", who, took["data_loader"], "data_loader_name"),
        "collective": pl.format("{} sat {} in {}{}.", who, took["collective"], "collective_name", _last_rank()),
        "sync": pl.format("{} sat {} in {} and launched nothing meanwhile.", who, took["sync"], sync),
        "after sync": pl.format(
            "{} had waited until the queue was empty; {} took {} more until its next launch had returned{}.",
            *(sync, who.str.replace("T", "t"), took["after_sync"], _doing()),
        ),
        "launch latency": pl.format("{} had returned, and {} started {} later.", "api", "next", took["launch_latency"]),
        "dependency": _dependency(),
        "graph": pl.format("Inside one replay ({}), between {} and {}.", "api", "previous", "next"),
        "no record": pl.when(pl.col("next").is_null())
        .then(pl.lit("Unknown: nothing follows in this window."))
        .otherwise(pl.format("Unknown: the trace holds no launch call of {}.", "next")),
    }
    sentence = pl.coalesce(pl.when(pl.col("cause") == cause).then(text) for cause, text in said.items())
    return rows.select(sentence.alias("why")).to_series()


_WAITED = ("sync_name", "data_loader_name", "collective_name")
_TIMED = ("host_late", "data_loader", "collective", "sync", "after_sync", "launch_latency")


def _dependency() -> pl.Expr:
    """What an activity that had been launched before the gap waited for."""
    launched = pl.format("{} had been launched {} before the gap", "next", _time(pl.col("start_ns") - pl.col("launch_end_ns")))
    event = pl.format("{}; its stream {} waited for an event of stream {}.", launched, "next_stream", "wait_on_stream")
    other = pl.format("{}; {}, which ended last, ran on stream {}.", launched, "previous", "previous_stream")
    turn = pl.format("{}; its turn came after {} on the same stream.", launched, "previous")
    unknown = pl.format("Unknown: {}, and the trace does not say what it waited for.", launched)
    elsewhere = pl.col("previous_stream") != pl.col("next_stream")
    return (
        pl.when(pl.col("wait_on_stream").is_not_null())
        .then(event)
        .when(elsewhere & (pl.col("dur_ns") <= TURN_NS))
        .then(other)
        .when(~elsewhere & (pl.col("dur_ns") <= TURN_NS))
        .then(turn)
        .otherwise(unknown)
    )


def _doing() -> pl.Expr:
    """Where the thread was, from the innermost out."""
    frame = _maybe(" ({})", "frame")
    return pl.coalesce(
        pl.format(", in {}{}", "op", frame),
        pl.format(", in {}", "frame"),
        pl.format(", in {}", "annotation"),
        pl.lit("; the trace does not say with what"),
    )


def _last_rank() -> pl.Expr:
    behind = pl.format("; rank {} came to it last, {} after this one", "last_rank", _time("behind_ns"))
    return pl.when(pl.col("behind_ns") > 0).then(behind).otherwise(pl.lit(""))


def _with_last_rank(rows: pl.DataFrame, trace: TraceSet) -> pl.DataFrame:
    """For a gap in a collective of the host, add the rank that came to that collective last, and how much later."""
    none = (pl.lit(None, pl.Int32).alias("last_rank"), pl.lit(None, pl.Int64).alias("behind_ns"))
    inside = rows.with_row_index("gap").filter(pl.col("cause") == "collective")
    if inside.is_empty() or len(trace.traces) < 2:
        return rows.with_columns(none)
    from .waits import collective_calls

    ranks = {part: one.rank for part, one in enumerate(trace.traces)}
    calls = collective_calls(trace).sort("part", "start_ns").with_columns(
        nth=pl.int_range(pl.len()).over("part", "name"),
        came_ns=pl.col("start_ns") - clock_offset(trace),
        came_rank=pl.col("part").replace_strict(ranks, return_dtype=pl.Int32),
    )  # fmt: skip
    last = calls.sort("came_ns").group_by("name", "nth").agg(
        last_rank=pl.col("came_rank").last(), last_ns=pl.col("came_ns").last()
    )  # fmt: skip
    calls = calls.join(last, on=["name", "nth"]).sort("start_ns")
    met = inside.sort("end_ns").join_asof(
        calls.select(*("part", "process", "thread"), "start_ns", "last_rank", behind_ns=pl.col("last_ns") - pl.col("came_ns")),
        left_on="end_ns", right_on="start_ns", by=["part", "process", "thread"], check_sortedness=False, suffix="_of_call",
    )  # fmt: skip
    found = rows.with_row_index("gap").join(
        met.select("gap", "last_rank", "behind_ns"), on="gap", how="left", maintain_order="left"
    )
    return found.drop("gap")


def _with_wait_on_stream(rows: pl.DataFrame, trace: TraceSet) -> pl.DataFrame:
    """Add the stream whose event the next activity's stream was told to wait for since its launch before."""
    orders = trace.events.filter(pl.col("cat") == "cuda_sync", pl.col("wait_on_stream") >= 0, pl.col("stream") >= 0)
    told = orders.select("part", "wait_on_stream", next_stream="stream", told_ns="ts_ns").collect().sort("told_ns")
    if told.is_empty():
        return rows.with_columns(wait_on_stream=pl.lit(None, pl.Int64))
    launched = trace.activities.select("part", next_stream="stream").with_columns(trace.links.select(before_ns="launch_start_ns"))
    asked = rows.with_row_index("gap").select("gap", "part", "next_stream", "launch_start_ns").sort("launch_start_ns")
    found = _latest(_latest(asked, told, "told_ns"), launched.drop_nulls().sort("before_ns"), "before_ns", exact=False)
    found = found.sort("gap")
    # An older order was heeded by the launch before.
    fresh = pl.col("told_ns") >= pl.col("before_ns").fill_null(0)
    return rows.with_columns(found.select(pl.when(fresh).then("wait_on_stream").alias("wait_on_stream")).to_series())


def _latest(asked: pl.DataFrame, others: pl.DataFrame, time: str, *, exact: bool = True) -> pl.DataFrame:
    """Add the latest of `others` on the stream before each launch."""
    return asked.join_asof(
        others,
        left_on="launch_start_ns",
        right_on=time,
        by=["part", "next_stream"],
        allow_exact_matches=exact,
        check_sortedness=False,
    )


def stream_reasons(work: Work) -> pl.DataFrame:
    """Return the longest gap of each stream and why the stream stood still in it.

    Args:
        work: what the question was asked about.

    Returns:
        part, rank, device, stream, longest_start_ns, why; streams without a gap have no row.
    """
    every = work.all_gpu.select(*STREAM, "event_id", "start_ns", "end_ns", next="name")
    # In order of device and time as they are, so that those of one stream come to stand together.
    every = every.filter(pl.col("end_ns") > pl.col("start_ns")).sort("stream", maintain_order=True)
    every = every.with_columns(lane=pl.struct(STREAM).rle_id())
    every = every.with_columns(gap_ns=pl.col("start_ns") - pl.col("end_ns").cum_max().over("lane").shift(1).over("lane"))
    longest = every.group_by("lane", maintain_order=True).agg(
        pl.all().get(pl.col("gap_ns").arg_max(), null_on_oob=True)
    ).filter(pl.col("gap_ns") > 0)  # fmt: skip
    rows = longest.drop("lane", "end_ns").with_columns(begin_ns=pl.col("start_ns") - pl.col("gap_ns"))
    rows = with_links(rows, work.trace, "launch_id", "launch_end_ns", "api")
    rows = _briefly(_with_starter(_with_other(rows, work), work), "next", "other")
    return rows.select(*STREAM, longest_start_ns="begin_ns", why=_stream_sentence())


def _stream_sentence() -> pl.Expr:
    launched = pl.format("{} was launched {} before it started", "next", _time(pl.col("start_ns") - pl.col("launch_end_ns")))
    starter = pl.when(pl.col("behind_ns") > 0).then(
        pl.format("; rank {} started that {} after this one", "last_rank", _time("behind_ns"))
    )
    waited = pl.format(
        "{} and waited: {} of stream {} ended {} before{}.",
        *(launched, "other", "other_stream", _time("since_ns"), starter.otherwise(pl.lit(""))),
    )
    late = pl.format("{} was launched only {} after the gap began.", "next", _time(pl.col("launch_end_ns") - pl.col("begin_ns")))
    return (
        pl.when(pl.col("launch_id").is_null())
        .then(pl.format("Unknown: the trace holds no launch call of {}.", "next"))
        .when((pl.col("start_ns") - pl.col("launch_end_ns") < NEAR_NS) & (pl.col("launch_end_ns") > pl.col("begin_ns")))
        .then(late)
        .when(pl.col("since_ns") <= NEAR_NS)
        .then(waited)
        .otherwise(pl.format("Unknown: {}, and the trace does not say what it waited for.", launched))
    )


def _with_other(rows: pl.DataFrame, work: Work) -> pl.DataFrame:
    """Add the work of another stream that ended last before each row starts."""
    other = work.all_gpu.select(
        *DEVICE, other="name", other_id="event_id", other_stream="stream", other_start_ns="start_ns", ended_ns="end_ns"
    ).sort("ended_ns")
    if work.windows.height > 1:
        other = other.sort(*DEVICE, maintain_order=True)
    # What ended last on another stream stands before the run of work on one's own; -1 where none does on this device.
    there = pl.all_horizontal(pl.col(name) == pl.col(name).shift(1) for name in DEVICE).fill_null(value=False)
    own_run = there & (pl.col("other_stream") == pl.col("other_stream").shift(1))
    at = pl.int_range(pl.len(), dtype=pl.Int64)
    first = pl.when(there).then(at - 1).otherwise(-1)
    other = other.with_columns(at=at, before=pl.when(~own_run).then(first).forward_fill())
    latest = other.select(*DEVICE, "at", "before", "ended_ns", latest_stream="other_stream")
    if work.windows.height > 1:
        latest = latest.sort("ended_ns")
    found = rows.sort("start_ns").join_asof(
        latest, left_on="start_ns", right_on="ended_ns", by=list(DEVICE), check_sortedness=False
    )  # fmt: skip
    own = pl.col("latest_stream") == pl.col("stream")
    found = found.with_columns(at=pl.when(own).then("before").otherwise("at")).drop("before", "latest_stream", "ended_ns")
    found = found.join(other.drop(*DEVICE, "before"), on="at", how="left", maintain_order="left").drop("at")
    return found.with_columns(since_ns=pl.col("start_ns") - pl.col("ended_ns"))


def _with_starter(rows: pl.DataFrame, work: Work) -> pl.DataFrame:
    """Where that other work is a collective, add which rank started it last, and how much later."""
    same = ["process_group", "seq", "collective"]
    calls = work.trace.activities.filter(pl.col("seq").is_not_null()).select(
        "part", "rank", *same, other_id="event_id",
        came_ns=pl.col("start_ns") - clock_offset(work.trace),
    )  # fmt: skip
    last = calls.sort("came_ns").group_by(same).agg(last_rank=pl.col("rank").last(), last_ns=pl.col("came_ns").last())
    calls = calls.join(last, on=same, nulls_equal=True).select(
        "part", "other_id", "last_rank", behind_ns=pl.col("last_ns") - pl.col("came_ns")
    )
    return rows.join(calls, on=["part", "other_id"], how="left", maintain_order="left")


def _briefly(rows: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Put short names in place of those of kernels."""
    rows = rows.with_columns(short_names(rows[name]).alias(name) for name in columns)
    return rows.with_columns(_plain(name) for name in columns)


def _plain(name: str) -> pl.Expr:
    """Cut a name and take out of it what would not print."""
    text = pl.col(name).str.replace_all(r"[\x00-\x1f\x7f-\x9f]+", " ")
    long = text.str.len_chars() > LONGEST_NAME
    return pl.when(long).then(pl.format("{}…", text.str.slice(0, LONGEST_NAME - 1))).otherwise(text).alias(name)


def _maybe(text: str, column: str) -> pl.Expr:
    return pl.when(pl.col(column).is_not_null()).then(pl.format(text, column)).otherwise(pl.lit(""))


def _time(ns: str | pl.Expr) -> pl.Expr:
    """Write a time: microseconds, or milliseconds from one on."""
    value = pl.col(ns) if isinstance(ns, str) else ns
    short = pl.format("{} us", (value / 1000).round(1))
    return pl.when(value.abs() < 1_000_000).then(short).otherwise(pl.format("{} ms", (value / 1_000_000).round(2)))
