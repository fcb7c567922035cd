"""What can be wrong with recorded GPU work, and what is done about it: each fault counted and said.

Each function takes the raw activity frame of `kinetop.traces.activities` and gives it back repaired, with its notices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from .pairs import LONGEST_NS
from .report import Notice
from .schema import GPU_KINDS
from .store import filled_columns

if TYPE_CHECKING:
    from .trace import TraceSet

Repaired = tuple[pl.DataFrame, tuple[Notice, ...]]

ORDER = ("part", "rank", "device", "start_ns", "event_id")
"""How activities are sorted."""
_LANE = ("part", "rank", "device", "stream")
_OVERRUN_NS = 100_000
_PAST_END_NS = 1_000_000
_NOTHING_AFTER_NS = 20_000_000


def with_lengths(traces: TraceSet, frame: pl.DataFrame) -> Repaired:
    """Give every activity a duration that is not negative; a negative or missing one counts as zero."""
    raw = pl.col("raw_dur_ns")
    made = frame.with_columns(
        dur_ns=raw.fill_null(0).clip(0, LONGEST_NS), fault=pl.when(raw < 0).then(pl.lit("negative-duration"))
    ).with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    negative, missing = (
        traces.events.select(
            negative=(pl.col("dur_ns") < 0).sum(), missing=((pl.col("ph") == "X") & pl.col("dur_ns").is_null()).sum()
        )
        .collect()
        .row(0)
    )
    notices = []
    for code, count, had, which in (
        ("negative-duration", negative, "a negative", raw < 0),
        ("missing-duration", missing, "no", raw.is_null()),
    ):
        if count:
            kernels = counted(made.filter(which, pl.col("kind") == "kernel").height, "kernel")
            counts = "it counts" if count == 1 else "they count"
            said = f"{counted(count, 'event')} had {had} duration ({kernels}); {counts} as zero length"
            notices.append(Notice(code, count, said))
    return made, tuple(notices)


def impossible_lengths(traces: TraceSet) -> tuple[Notice, ...]:
    """Say which host ranges last impossibly long and count as zero length; see `kinetop.traces.extent`."""
    count = int(traces.extent["too_long"].sum())
    if not count:
        return ()
    last, counts = ("lasts", "it counts") if count == 1 else ("last", "they count")
    said = f"{counted(count, 'host range')} {last} impossibly long, many times as long as the trace; {counts} as zero length"
    return (Notice("impossible-duration", count, said),)


def without_duplicates(traces: TraceSet, frame: pl.DataFrame) -> Repaired:
    """Keep one of the activities whose events agree in every column; the same work written twice is done once."""
    few = ["part", "start_ns", "raw_dur_ns", "stream", "correlation"]  # numbers first: whole rows are compared for few
    at_once = frame.select(*few, "event_id").filter(pl.col("start_ns").is_duplicated())  # few, and found by one number
    again = at_once.filter(at_once.select(few).is_duplicated()).select("part", "event_id")
    if again.is_empty():
        return frame, ()
    # Only columns with values, of GPU rows, whole: a lazy join on all columns took ten times as long.
    filled = set().union(*(filled_columns(trace.parquet) for trace in traces.traces)) - {"event_id", "rank"}
    gpu = traces.events.filter(pl.col("cat").is_in(list(GPU_KINDS))).select("part", "event_id", "rank", *sorted(filled))
    whole = gpu.collect().join(again, on=["part", "event_id"], how="semi").sort("part", "event_id")
    # A begin row carries no duration; its twins agree in everything when the durations found for them did.
    same = [name for name in whole.columns if name != "event_id"]
    once = whole.unique(same, keep="first", maintain_order=True)
    extra = whole.join(once, on=["part", "event_id"], how="anti").select("part", "event_id")
    if extra.is_empty():
        return frame, ()
    count = extra.height
    said = "is an exact duplicate and was" if count == 1 else "are exact duplicates and were"
    notice = Notice("duplicate-events", count, f"{counted(count, 'GPU event')} {said} counted once")
    return frame.join(extra, on=["part", "event_id"], how="anti", maintain_order="left"), (notice,)


def without_impossible_times(traces: TraceSet, frame: pl.DataFrame) -> Repaired:
    """Leave out what is said to have run when the trace did not take place; see `kinetop.traces.extent`."""
    limits = traces.extent.select("part", "first_ns", "last_ns", "zero_ns")
    dated = frame.join(limits, on="part", how="left", maintain_order="left")
    possible = pl.col("start_ns").is_between("first_ns", "last_ns").fill_null(value=False)
    odd = dated.filter(~possible)
    if odd.is_empty():
        return frame, ()
    count = odd.height
    values = odd.select(((pl.col("start_ns") - pl.col("zero_ns")) / 1000).alias("us"))["us"].unique().sort()
    shown = ", ".join(f"{value:.15g}" for value in values.head(3)) + (", …" if values.len() > 3 else "")
    have, are = ("has an impossible timestamp", "is") if count == 1 else ("have impossible timestamps", "are")
    said = f"{counted(count, 'GPU event')} {have} ({shown}) and {are} left out of span, busy and idle"
    return frame.filter(dated.select(possible).to_series()), (Notice("impossible-timestamp", count, said),)


def with_ends_clipped(traces: TraceSet, frame: pl.DataFrame) -> Repaired:
    """Clip the ends of activities that run on absurdly long; frame rows have their rank and are in `ORDER`.

    Work of different launches on one stream runs in order, save for short overlaps (programmatic dependent launch), so
    an end stamp is not believed when it lies 0.1 ms or more past the next launch's start on the stream, in at most 1 % of the
    stream's rows (or 3), and either three launches started meanwhile and it is 10 times as long as any other there, or it
    is 100 times as long. Nor is it believed when it lies past everything else in the trace by more than the trace's length
    (100 times that where nothing follows on the stream). It then ends at the next start, or at the trace's last end.
    """
    limits = traces.extent.select("part", trace_end_ns="end_ns", trace_length_ns=pl.col("end_ns") - pl.col("first_ns"))
    end = pl.col("end_ns")
    late = (end - pl.col("next_ns") >= _OVERRUN_NS) | (end - pl.col("trace_end_ns") > _PAST_END_NS)
    telling = frame.select(*_LANE, "start_ns", "end_ns", "correlation")  # most traces have none: all columns are dear
    if frame.is_empty() or not _placed(telling, limits).select(late.any()).item():
        return frame, ()
    absurd = _placed(frame, limits).with_columns(absurd=_inside() | _past_end())
    count = int(absurd["absurd"].sum())
    if not count:
        return frame, ()
    sound = absurd.filter(~pl.col("absurd")).group_by("part").agg(sound_end_ns=pl.col("end_ns").max())
    absurd = absurd.join(sound, on="part", how="left", maintain_order="left")
    last = pl.max_horizontal("sound_end_ns", "trace_end_ns", "start_ns")
    clipped = pl.when("absurd").then(pl.coalesce("next_ns", last)).otherwise("end_ns")
    made = absurd.with_columns(
        end_ns=clipped,
        dur_ns=clipped - pl.col("start_ns"),
        over_ns=end - clipped,
        fault=pl.when("absurd").then(pl.lit("overrun")).otherwise("fault"),
    )
    return made.select(frame.columns).sort(*ORDER), (_overrun_notice(made.filter("absurd")),)


def _placed(frame: pl.DataFrame, limits: pl.DataFrame) -> pl.DataFrame:
    """Put activities lane after lane, beside what follows on the lane and the limits of their trace."""
    # A sort by lane and time takes five times as long: the rows of each lane are in order already.
    ordered = _with_followers(pl.concat(frame.partition_by(*_LANE, maintain_order=True)))
    return ordered.join(limits, on="part", how="left", maintain_order="left")


def _overrun_notice(made: pl.DataFrame) -> Notice:
    """Say how many activities ran on, and how far."""
    count = made.height
    noun = "kernel" if (made["kind"] == "kernel").all() else "GPU event"
    over = grouped(made.select(pl.col("over_ns").max() / 1000).item())
    followed = made["next_ns"].is_not_null().any()
    verb, its, up_to = ("overruns", "its", "") if count == 1 else ("overrun", "their", "up to ")
    beyond = f"{its} successors on the same stream" if followed else "the end of the trace"
    said = f"{counted(count, noun)} {verb} {beyond} by {up_to}{over} us"
    return Notice("overrun", count, f"{said}; figures use the clipped end, the raw value is shown")


def _with_followers(ordered: pl.DataFrame) -> pl.DataFrame:
    """Add `lane`, and when the next and the third next launch on the lane started (`next_ns`, `third_ns`)."""
    new_lane = pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift(1)) for name in _LANE)
    other = pl.col("correlation").ne_missing(pl.col("correlation").shift(1)) | pl.col("correlation").is_null()
    rows = ordered.with_columns(lane=new_lane.cum_sum(), first=new_lane | other).with_columns(run=pl.col("first").cum_sum() - 1)
    runs = rows.filter("first").select(
        next_ns=pl.when(pl.col("lane").shift(-1) == pl.col("lane")).then(pl.col("start_ns").shift(-1)),
        third_ns=pl.when(pl.col("lane").shift(-3) == pl.col("lane")).then(pl.col("start_ns").shift(-3)),
    )
    return pl.concat([rows.drop("first", "run"), runs[rows["run"]]], how="horizontal")


def _inside() -> pl.Expr:
    """Runs on through later launches of its stream that had to wait for it."""
    dur, over = pl.col("dur_ns"), (pl.col("end_ns") - pl.col("next_ns") >= _OVERRUN_NS).fill_null(value=False)
    calm = pl.when(~over).then(dur).max().over("lane")
    long = ((dur >= 10 * calm) & (pl.col("third_ns") < pl.col("end_ns")).fill_null(value=False)) | (dur >= 100 * calm)
    found = over & long.fill_null(value=False)
    return found & (found.sum().over("lane") <= pl.max_horizontal(pl.lit(3), pl.len().over("lane") // 100))


def _past_end() -> pl.Expr:
    """Ends long after everything else of the trace."""
    past = pl.col("end_ns") - pl.col("trace_end_ns")
    followed = pl.col("next_ns") < pl.col("end_ns")
    limit = pl.when(followed.fill_null(value=False)).then(pl.col("trace_length_ns").clip(_PAST_END_NS))
    return (past > limit.otherwise((100 * pl.col("trace_length_ns")).clip(_NOTHING_AFTER_NS))).fill_null(value=False)


def counted(count: int, noun: str) -> str:
    """Return the count and the noun, in the plural where it is due.

    >>> counted(1, "kernel"), counted(1200, "GPU event")
    ('1 kernel', '1200 GPU events')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def grouped(value: float) -> str:
    """Return a number with its thousands set apart.

    >>> grouped(1999980.0), grouped(2.5)
    ('1 999 980', '2.5')
    """
    whole, _, part = f"{value:,.3f}".replace(",", " ").partition(".")
    return f"{whole}.{part}".rstrip("0").rstrip(".")
