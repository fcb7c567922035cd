"""When each GPU did nothing, what it waited for, and what the host did meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import polars as pl

from kinetop.traces import schema
from kinetop.traces.nesting import THREAD, innermost
from kinetop.traces.pairs import ranges

from . import intervals
from .breakdown import WINDOW
from .question import Column, Parameter, Table, question
from .work import DEVICE, Work, origin_ns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinetop.traces.trace import TraceSet

CAUSES: dict[str, str] = {
    "host_late": "until the launch call of the next activity returned, less what its thread spent in a synchronising call",
    "launch_latency": "from the return of the launch call, made while the GPU was idle, to the start of the activity",
    "dependency": "the next activity was launched before the gap began: it waited for an event, another stream or its turn",
    "sync": "the thread that launches next sat in a synchronising call",
    "graph": "between two activities of one launch: inside the replay of a graph",
    "no_record": "the trace holds no launch call of the next activity, or nothing follows",
}
"""The parts of a gap, each with its definition; a part of a gap has one cause and the parts sum to the gap."""

_SYNC = r"(?i)synchroni[sz]e|EventWait|QueueFinish|^(cuda|hip|cu|musa)Memcpy(_v\d+|HtoD(_v2)?|DtoH(_v2)?)?$"
"""Host calls that return when the GPU has caught up."""

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
    Column("median_us", "us", "their median", "median", priority=1),
    Column("busy_us", "us", "time in which the stream runs something", "busy", priority=1),
    Column("span_us", "us", "from its first start to its last end", "span", priority=2),
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
    return {"gaps": _told(found, work), "causes": _causes(found, work), "streams": _streams(work, round(min_us * 1000))}


def gaps(work: Work) -> pl.DataFrame:
    """Return the gaps of each device in integer nanoseconds, longest first, each cut into its parts.

    Args:
        work: what the question was asked about.

    Returns:
        part, rank, device, start_ns, end_ns, dur_ns, one `<cause>_ns` for each of `CAUSES` (they sum to dur_ns), cause, and
        next, previous, sync_name, op, frame, annotation, next_stream, process, thread.
    """
    rows = _with_neighbours(_device_gaps(work), work)
    rows = _with_doings(_with_sync(_with_parts(rows), work.trace), work.trace)
    largest = pl.max_horizontal(f"{name}_ns" for name in CAUSES)
    rows = rows.with_columns(
        cause=pl.coalesce(pl.when(pl.col(f"{name}_ns") == largest).then(pl.lit(name.replace("_", " "))) for name in CAUSES)
    )
    if work.scope.where is not None:
        rows = rows.join(work.gpu.select("part", next_id="event_id"), on=["part", "next_id"], how="semi", maintain_order="left")
    return rows.sort("dur_ns", *DEVICE, "start_ns", descending=[True, *[False] * 4])


def _device_gaps(work: Work) -> pl.DataFrame:
    """Complement of the union of all streams in the device's window."""
    pieces = intervals.union(work.all_gpu, DEVICE)
    edges = [work.windows.select(*DEVICE, start_ns=name, end_ns=name) for name in ("window_start_ns", "window_end_ns")]
    rows = pl.concat([edges[0], pieces, edges[1]]).sort(*DEVICE, "start_ns", "end_ns", maintain_order=True)
    rows = rows.select(*DEVICE, start_ns=pl.col("end_ns").shift(1).over(DEVICE), end_ns="start_ns")
    return rows.filter(pl.col("end_ns") > pl.col("start_ns")).with_columns(dur_ns=pl.col("end_ns") - pl.col("start_ns"))


def _with_neighbours(rows: pl.DataFrame, work: Work) -> pl.DataFrame:
    """Add the activity before and after each gap, and the launch call of the one after."""
    after = work.trace.activities.select(*DEVICE, next_id="event_id", next="name", next_stream="stream", begin_ns="start_ns")
    before = work.all_gpu.select(*DEVICE, done_ns="end_ns", previous="name")
    rows = _nearest(rows, "end_ns", after, "begin_ns", DEVICE, strategy="forward")
    rows = _nearest(rows, "start_ns", before, "done_ns", DEVICE, strategy="backward")
    calls = work.trace.links.select("part", "event_id", "launch_id", "launch_start_ns", "launch_end_ns", "process", "thread")
    first = (
        calls.with_columns(work.trace.activities["start_ns"])
        .filter(pl.col("launch_id").is_not_null())
        .group_by("part", "launch_id")
        .agg(replay_ns=pl.col("start_ns").min())
    )
    rows = rows.join(calls, left_on=["part", "next_id"], right_on=["part", "event_id"], how="left")
    return _with_likely_thread(rows.join(first, on=["part", "launch_id"], how="left"), work)


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
    others = others.sort(time, maintain_order=True)
    keys = list(by)
    return rows.sort(moment).join_asof(
        others, left_on=moment, right_on=time, by=keys, strategy=strategy, allow_exact_matches=exact, check_sortedness=False
    ).drop(time)  # fmt: skip


def _with_likely_thread(rows: pl.DataFrame, work: Work) -> pl.DataFrame:
    """Where the launch is not in the trace, look at the thread that launches most on the device."""
    threads = work.trace.links.with_columns(work.trace.activities.select("rank", "device")).filter(
        pl.col("launch_id").is_not_null()
    )
    most = threads.group_by(*DEVICE, "process", "thread").len().sort("len", "thread", descending=[True, False])
    most = most.unique(DEVICE, keep="first", maintain_order=True).select(
        *DEVICE, likely_process="process", likely_thread="thread"
    )
    known = pl.col("launch_id").is_not_null()
    return rows.join(most, on=list(DEVICE), how="left").with_columns(
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


def _with_sync(rows: pl.DataFrame, trace: TraceSet) -> pl.DataFrame:
    """Take the time in synchronising calls out of the time that the host was late, and name the call that took most."""
    met = _met(rows.with_row_index("gap"), _sync_calls(trace))
    start, until = pl.col("start_ns"), pl.col("until_ns")
    waited = pl.min_horizontal("late_ns", until) - pl.max_horizontal(start, "begun_ns")
    overlap = pl.min_horizontal("end_ns", until) - pl.max_horizontal(start, "begun_ns")
    by_gap = (
        met.with_columns(waited=waited.clip(0), overlap=overlap)
        .group_by("gap")
        .agg(sync_ns=pl.col("waited").sum(), sync_name=pl.col("sync_name").get(pl.col("overlap").arg_max()))
    )
    rows = rows.with_row_index("gap").join(by_gap, on="gap", how="left", maintain_order="left").drop("gap")
    rows = rows.with_columns(pl.col("sync_ns").fill_null(0))
    return rows.with_columns(host_late_ns=pl.col("host_late_ns") - pl.col("sync_ns"))


def _sync_calls(trace: TraceSet) -> pl.DataFrame:
    """Synchronising calls of each thread, disjoint: of nested ones the outer."""
    calls = ranges(trace, schema.LAUNCH_CATS, "process", "thread", "name")
    calls = calls.filter(pl.col("name").cast(pl.String).str.contains(_SYNC))
    calls = calls.with_columns(pl.col("process", "thread", "name").cast(pl.String)).sort(*THREAD, "start_ns", "event_id")
    calls = calls.with_columns(reach=pl.col("end_ns").cum_max().shift(1).over(THREAD))
    calls = calls.select(*THREAD, sync_name="name", begun_ns=pl.max_horizontal("start_ns", "reach"), until_ns="end_ns")
    return calls.filter(pl.col("until_ns") > pl.col("begun_ns"))


def _met(gap: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Return each gap with each call of its thread that overlaps it; both are disjoint, so the pairs are few."""
    calls = calls.with_row_index("call")
    begun = calls.select(*THREAD, "begun_ns", call="call")
    ended = calls.select(*THREAD, "until_ns", first="call")
    pairs = _nearest(gap, "end_ns", begun, "begun_ns", THREAD, strategy="backward", exact=False)
    pairs = _nearest(pairs, "start_ns", ended, "until_ns", THREAD, strategy="forward", exact=False)
    pairs = pairs.filter(pl.col("first") <= pl.col("call"))
    pairs = pairs.with_columns(call=pl.int_ranges("first", pl.col("call") + 1, dtype=pl.UInt32)).explode("call")
    return pairs.join(calls.select("call", "begun_ns", "until_ns", "sync_name"), on="call")


def _with_doings(rows: pl.DataFrame, trace: TraceSet) -> pl.DataFrame:
    """Add what the launching thread was in, halfway through the time that the host was late, else through the gap."""
    late = pl.col("late_ns") > pl.col("start_ns")
    middle = pl.col("start_ns") + (pl.when(late).then("late_ns").otherwise("end_ns") - pl.col("start_ns")) // 2
    moments = rows.select("part", pl.col("process", "thread").cast(pl.Categorical), at_ns=middle)
    found = {}
    for column, cats in (("op", schema.OP_CATS), ("frame", {"python_function"}), ("annotation", {"user_annotation"})):
        spans = ranges(trace, cats, "process", "thread", "name")
        found[column] = spans["name"].gather(innermost(moments, spans)).cast(pl.String).alias(column)
    return rows.with_columns(**found)


def _told(found: pl.DataFrame, work: Work) -> pl.DataFrame:
    """Put the gaps in the form declared: microseconds since the first event, each rank on the first rank's clock."""
    offsets = {part: one.clock_offset_ns for part, one in enumerate(work.trace.traces)}
    ahead = pl.col("part").replace_strict(offsets, return_dtype=pl.Int64)
    rows = found.with_columns(start_ns=pl.col("start_ns") - ahead - origin_ns(work.trace))
    return _declared(rows.with_columns(_us(name) for name in ("start", "dur", *CAUSES)), work, GAP_COLUMNS)


def _declared(rows: pl.DataFrame, work: Work, columns: tuple[Column, ...]) -> pl.DataFrame:
    """Keep the columns declared; the capture window only where a rank has several files."""
    captures = {part: one.window + 1 for part, one in enumerate(work.trace.traces)}
    several = work.windows.group_by("rank").agg(pl.col("part").n_unique())["part"].max()
    names = [column.name for column in columns if column is not WINDOW or (isinstance(several, int) and several > 1)]
    return rows.with_columns(window=pl.col("part").replace_strict(captures, return_dtype=pl.Int64)).select(names)


def _us(name: str) -> pl.Expr:
    """Microseconds of a column in nanoseconds."""
    return (pl.col(f"{name}_ns") / 1000).round(3).alias(f"{name}_us")


def _causes(found: pl.DataFrame, work: Work) -> pl.DataFrame:
    """Sum the parts by cause."""
    place = ["part", "rank", "device"]
    long = found.select(*place, *(pl.col(f"{name}_ns").alias(name.replace("_", " ")) for name in CAUSES))
    long = long.unpivot(index=place, variable_name="cause", value_name="ns").filter(pl.col("ns") > 0)
    about = {name.replace("_", " "): text for name, text in CAUSES.items()}
    rows = (
        long.group_by(*place, "cause", maintain_order=True)
        .agg(total_ns=pl.col("ns").sum(), gaps=pl.len().cast(pl.Int64), longest_ns=pl.col("ns").max())
        .with_columns(_us("total"), _us("longest"), about=pl.col("cause").replace_strict(about, return_dtype=pl.String))
        .with_columns(idle_pct=(100 * pl.col("total_ns") / pl.col("total_ns").sum().over(place)).round(3))
        .sort("total_ns", *place, descending=[True, False, False, False], maintain_order=True)
    )
    return _declared(rows, work, CAUSE_COLUMNS)


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
        .with_columns(_us(name) for name in ("total", "longest", "median", "busy", "span"))
        .sort("total_ns", *lane, descending=[True, False, False, False, False])
    )
    return _declared(rows, work, STREAM_COLUMNS)
