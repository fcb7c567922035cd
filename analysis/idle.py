"""When each GPU did nothing, what it waited for, and what the host did meanwhile."""

from __future__ import annotations

import polars as pl

from . import intervals
from .captures import WINDOW, told
from .gap_reasons import reasons, stream_reasons
from .gaps import CAUSES, gaps
from .question import Column, Parameter, Table, question
from .work import DEVICE, Work, since_first

MOST = 10_000
"""Gaps that get a sentence: nobody reads more, and half a million take seconds to write."""

_PLACE = (
    Column("rank", "id", "rank of the process", priority=0),
    Column("device", "id", "GPU index", priority=0),
)

GAP_COLUMNS = (
    *_PLACE,
    Column("start_us", "us", "when the gap begins, since the first event", "start", priority=1),
    Column("dur_us", "us", "how long nothing runs on the device", "idle", priority=0),
    Column("cause", "text", "the largest part of the gap", priority=0),
    *(Column(f"{name}_us", "us", about, name.replace("_", " "), priority=2) for name, about in CAUSES.items()),
    Column("next", "text", "the activity that ends the gap", priority=1),
    Column("previous", "text", "the activity that ran last before the gap", priority=3),
    Column(
        "sync_name",
        "text",
        "the synchronising call in which the launching thread sat longest during the gap",
        "sync call",
        priority=2,
    ),
    Column(
        "op",
        "text",
        "innermost operator on the launching thread, halfway through the time that the host was late, else through the gap",
    ),
    Column("frame", "text", "innermost Python frame there and then", priority=2),
    Column("annotation", "text", "innermost user annotation there and then", priority=2),
    Column("next_stream", "id", "stream of the activity that ends the gap", "stream", priority=3),
    Column("thread", "text", "thread that launched it", priority=3),
    Column(
        "why", "text", f"the cause in a sentence, of the {MOST:,} longest; unknown where the trace holds no evidence", priority=1
    ),
    WINDOW,
)
"""Columns of the gaps."""

CAUSE_COLUMNS = (
    *_PLACE,
    Column("cause", "text", "what the GPU waited for", priority=0),
    Column("total_us", "us", "sum of this part over all gaps", "total", priority=0),
    Column("idle_pct", "pct", "share of the idle time", "share", priority=0),
    Column("gaps", "count", "gaps that have such a part", priority=1),
    Column("longest_us", "us", "the longest such part", "longest", priority=1),
    Column("about", "text", "the definition", "definition", priority=2),
    WINDOW,
)
"""Columns of the causes."""

STREAM_COLUMNS = (
    *_PLACE,
    Column("stream", "id", "stream", priority=0),
    Column("gaps", "count", "times in which the stream runs nothing, between its first start and its last end", priority=0),
    Column("total_us", "us", "their sum", "idle", priority=0),
    Column("longest_us", "us", "the longest of them", "longest", priority=0),
    Column("longest_start_us", "us", "when the longest begins, since the first event", "longest at", priority=3),
    Column("median_us", "us", "their median", "median", priority=1),
    Column("busy_us", "us", "time in which the stream runs something", "busy", priority=1),
    Column("span_us", "us", "from its first start to its last end", "span", priority=2),
    Column("why", "text", "why the stream stood still in the longest of them; unknown where the trace does not say", priority=1),
    WINDOW,
)
"""Columns of the gaps per stream."""


@question(
    name="idle",
    title="Idle",
    about="When each GPU did nothing, what it waited for, and what the host did meanwhile.",
    tables=(
        Table(
            "gaps",
            GAP_COLUMNS,
            sort="dur_us",
            about="Gaps of a device (no stream runs anything); a filter keeps those before what it names.",
        ),
        Table("causes", CAUSE_COLUMNS, sort="total_us", about="Idle time by cause; the causes of a device sum to its idle time."),
        Table("streams", STREAM_COLUMNS, sort="total_us", about="Gaps of each stream by itself, other streams aside."),
    ),
    parameters=(Parameter("min_us", 0.0, "leave out gaps shorter than this, in microseconds"),),
    order=3,
)
def idle(work: Work, *, min_us: float) -> dict[str, pl.DataFrame]:
    """Return the gaps of each device, their causes, and the gaps of each stream.

    Example:
        >>> import kinetop
        >>> trace = kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False)
        >>> kinetop.idle(trace).select("dur_us", "cause").rows()
        [(15.0, 'dependency'), (5.0, 'dependency')]
    """
    found = gaps(work).filter(pl.col("dur_ns") >= round(min_us * 1000))
    longest = reasons(found.head(MOST), work)
    found = found.with_columns(why=longest.extend_constant(None, found.height - longest.len()))
    return {"gaps": _told(found, work), "causes": _causes(found, work), "streams": _streams(work, round(min_us * 1000))}


def _told(found: pl.DataFrame, work: Work) -> pl.DataFrame:
    """Put the gaps in the form declared: microseconds since the first event, each rank on the first rank's clock."""
    rows = found.with_columns(start_ns=since_first("start_ns", work.trace))
    return told(rows, work, GAP_COLUMNS)


def _causes(found: pl.DataFrame, work: Work) -> pl.DataFrame:
    """Sum the parts by cause."""
    place = list(DEVICE)
    about = {name.replace("_", " "): text for name, text in CAUSES.items()}
    sums = [
        found.filter(pl.col(f"{name}_ns") > 0)
        .group_by(place, maintain_order=True)
        .agg(
            total_ns=pl.col(f"{name}_ns").sum(),
            gaps=pl.len().cast(pl.Int64),
            longest_ns=pl.col(f"{name}_ns").max(),
            cause=pl.lit(name.replace("_", " ")),
        )
        for name in CAUSES
    ]
    rows = (
        pl.concat(sums)
        .with_columns(about=pl.col("cause").replace_strict(about, return_dtype=pl.String))
        .with_columns(idle_pct=(100 * pl.col("total_ns") / pl.col("total_ns").sum().over(place)).round(3))
        .sort("total_ns", *place, descending=[True, False, False, False], maintain_order=True)
    )
    return told(rows, work, CAUSE_COLUMNS)


def _streams(work: Work, min_ns: int) -> pl.DataFrame:
    """Sum the gaps of each stream between its first start and its last end."""
    lane = [*DEVICE, "stream"]
    pieces = intervals.union(work.all_gpu, lane)
    gap = pl.col("start_ns") - pl.col("end_ns").shift(1).over(lane)
    counted = pl.col("gap_ns").filter(pl.col("gap_ns") >= max(min_ns, 1))
    rows = (
        pieces.with_columns(gap_ns=gap)
        .group_by(lane, maintain_order=True)
        .agg(
            gaps=counted.len().cast(pl.Int64),
            total_ns=counted.sum(),
            longest_ns=counted.max().fill_null(0),
            median_ns=counted.median().fill_null(0),
            busy_ns=(pl.col("end_ns") - pl.col("start_ns")).sum(),
            span_ns=pl.col("end_ns").max() - pl.col("start_ns").min(),
        )
        .join(stream_reasons(work), on=lane, how="left", maintain_order="left")
        .with_columns(
            longest_start_ns=pl.when(pl.col("gaps") > 0).then(since_first("longest_start_ns", work.trace)),
            why=pl.when(pl.col("gaps") > 0).then("why"),
        )
        .sort("total_ns", *lane, descending=[True, False, False, False, False])
    )
    return told(rows, work, STREAM_COLUMNS)
