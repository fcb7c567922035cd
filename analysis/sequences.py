"""Which kernels follow each other again and again under one call, and what making one kernel of them could save."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from kinetop.traces import calls as host
from kinetop.traces import schema
from kinetop.traces.errors import FilterError
from kinetop.traces.nesting import THREAD, innermost
from kinetop.traces.pairs import ranges

from .captures import RANK, WINDOW, told
from .linked import with_links
from .names import short_names
from .question import Column, Parameter, Table, question

if TYPE_CHECKING:
    from kinetop.traces.trace import TraceSet

    from .work import Work

NO_CALL = "(no operator)"
"""Stands for the stream where no call encloses the launch."""
_JOIN = " | "
_FEWEST, _MOST = 2, 12
"""Limits of a run's length."""

_COSTS = (
    Column("gpu_us", "us", "durations of its kernels, added up", priority=1),
    Column(
        "gap_us", "us", "from the end of each kernel to the start of the one launched after it, where that is later", priority=1
    ),
    Column("launch_us", "us", "host time in the launch calls of its kernels but the first; graph replays share one", priority=2),
    Column(
        "save_us",
        "us",
        "gap + launch: what one kernel in place of them could save at most. Where the GPU waits for launches the two are "
        "partly the same time, and memory traffic between the kernels is not in it",
        priority=0,
    ),
)
SEQUENCE_COLUMNS = (
    RANK,
    Column("call", "text", f"the outermost operator, or call that --op names, around the launches; {NO_CALL}: there is none"),
    Column("sequence", "text", "short names of all kernels that one such call launched, in order of launch", priority=0),
    Column("length", "count", "kernels in it", priority=0),
    Column("times", "count", "calls that launched just these", priority=0),
    *_COSTS,
    WINDOW,
)
RUN_COLUMNS = (
    RANK,
    Column("run", "text", "short names of kernels launched one after the other under one call", priority=0),
    Column("times", "count", "how often; occurrences that share a kernel with an earlier one of their own are not counted"),
    *_COSTS,
    WINDOW,
)


@question(
    name="sequences",
    title="Sequences",
    about="Which kernels follow each other again and again under one call, and what fusing them could save.",
    parameters=(
        Parameter("op", None, "text in the name of the call that holds a sequence: an operator, annotation or nn.Module"),
        Parameter("min_length", 2, "kernels that a sequence has at least, and a run exactly (2 to 12)"),
    ),
    tables=(
        Table(
            "sequences",
            SEQUENCE_COLUMNS,
            sort="save_us",
            about="All that a call launched; sequences that occur twice or more often.",
            none="no call launched as many kernels as another one in the same order",
        ),
        Table(
            "runs",
            RUN_COLUMNS,
            sort="save_us",
            about="Runs of min_length kernels anywhere in a call; of different runs a kernel may be in several.",
            none="no run of kernels occurs twice",
        ),
    ),
    order=15,
)
def sequences(work: Work, *, op: str | None, min_length: int) -> dict[str, pl.DataFrame]:
    """Return the sequences and runs that repeat.

    Example:
        >>> import kinetop
        >>> trace = kinetop.open("tests/data/hazards/60_two_gpus_one_process.json", cache=False)
        >>> kinetop.sequences(trace, min_length=2).columns[:4]
        ['rank', 'call', 'sequence', 'length']
    """
    if not _FEWEST <= min_length <= _MOST:
        raise FilterError(f"A sequence has {_FEWEST} to {_MOST} kernels at least, not {min_length}.")
    launched = _launched(work, op)
    names = launched["name"].unique().sort()
    labels = short_names(names)
    coded = pl.DataFrame({"name": names, "label": labels, "code": labels.rank("dense").cast(pl.UInt32)})
    rows = launched.join(coded.select("name", "code"), on="name", how="left", maintain_order="left")
    known = coded.select("code", "label").unique("code")
    return {
        "sequences": _told(_sequences(rows, known, min_length), work, SEQUENCE_COLUMNS),
        "runs": _told(_runs(rows, known, min_length), work, RUN_COLUMNS),
    }


def _launched(work: Work, op: str | None) -> pl.DataFrame:
    """Return the kernels in scope in order of their call and launch.

    Returns:
        part, rank, call (name), group (number of the call, or of the stream), name, start_ns, end_ns, gap_ns (since the kernel
        before it in its group) and launch_ns (length of its launch call; 0 where that launched the kernel before it too).
    """
    gpu = work.gpu.select(
        "part", "event_id", "kind", "rank", "device", "stream", "start_ns", "end_ns", pl.col("name").fill_null("(unnamed)")
    )
    launch = ("process", "thread", "launch_id", "launch_start_ns", "launch_end_ns")
    rows = with_links(gpu, work.trace, *launch).filter(pl.col("kind") == "kernel").drop("kind")
    around = _calls(work.trace, op)
    found = innermost(rows.select(*THREAD, at_ns="launch_start_ns"), around)
    rows = rows.with_columns(at=found, call=around["name"].gather(found).cast(pl.String).fill_null(NO_CALL))
    if op is not None:
        rows = rows.filter(pl.col("at").is_not_null())
    lane = pl.struct("part", "rank", "device", "stream").rank("dense") + around.height
    rows = rows.with_columns(order=pl.coalesce("launch_start_ns", "start_ns"), group=pl.col("at").cast(pl.Int64))
    if rows["group"].has_nulls():
        rows = rows.with_columns(group=pl.coalesce("group", lane.cast(pl.Int64)))
    rows = rows.sort("group", "order", "start_ns", "event_id")
    same = pl.col("group") == pl.col("group").shift(1)
    gap = pl.col("start_ns") - pl.col("end_ns").shift(1)
    repeated = (same & (pl.col("launch_id") == pl.col("launch_id").shift(1))).fill_null(value=False)
    length = pl.when(~repeated).then(pl.col("launch_end_ns") - pl.col("launch_start_ns")).fill_null(0)
    return rows.select(
        "part", "rank", "call", "group", "name", "start_ns", "end_ns",
        gap_ns=pl.when(same).then(gap.clip(0)).fill_null(0), launch_ns=length.fill_null(0),
    )  # fmt: skip


def _calls(trace: TraceSet, op: str | None) -> pl.DataFrame:
    """Return the host ranges that may hold a sequence, of nested ones the outermost."""
    cats = schema.OP_CATS if op is None else host.KINDS
    found = ranges(trace, sorted(cats), "process", "thread", "name")
    if op is not None:
        names = found["name"].unique()
        wanted = names.filter(names.cast(pl.String).str.contains(f"(?i){re.escape(op)}").fill_null(value=False))
        found = found.filter(pl.col("name").is_in(wanted.implode()))
    found = found.sort("start_ns", "end_ns", descending=[False, True])
    reach = pl.col("end_ns").cum_max().shift(1).over(THREAD)
    outer = found.filter((pl.col("start_ns") >= reach).fill_null(value=True))
    return outer.with_columns(pl.col("process", "thread").cast(pl.String))


def _sequences(rows: pl.DataFrame, known: pl.DataFrame, least: int) -> pl.DataFrame:
    """Return what whole calls launched, by the codes of their kernels."""
    inner = pl.int_range(pl.len()) > 0
    calls = (
        rows.group_by("group", maintain_order=True)
        .agg(
            pl.col("part", "rank", "call").first(),
            codes=pl.col("code"),
            length=pl.len().cast(pl.Int64),
            gpu=(pl.col("end_ns") - pl.col("start_ns")).sum(),
            gap=pl.col("gap_ns").sum(),
            launch=pl.col("launch_ns").filter(inner).sum(),
        )
        .filter(pl.col("length") >= least)
    )
    # Texts of codes are told apart exactly, and group faster than lists.
    calls = calls.with_columns(key=pl.col("codes").cast(pl.List(pl.String)).list.join(","))
    found = (
        calls.group_by("part", "rank", "call", "key", maintain_order=True)
        .agg(
            pl.col("codes", "length").first(),
            pl.col("gpu", "gap", "launch").sum(),
            times=pl.len().cast(pl.Int64),
        )
        .filter(pl.col("times") > 1)
    )
    text = (
        found.select("key", "codes")
        .unique("key")
        .explode("codes", empty_as_null=True)
        .join(known, left_on="codes", right_on="code", how="left", maintain_order="left")
        .group_by("key", maintain_order=True)
        .agg(sequence=pl.col("label").str.join(_JOIN))
    )
    return found.join(text, on="key", how="left", maintain_order="left")


def _runs(rows: pl.DataFrame, known: pl.DataFrame, length: int) -> pl.DataFrame:
    """Return the runs of `length` kernels within a call that occur twice or more often."""
    codes = [f"code_{at}" for at in range(length)]
    far = range(1, length)
    runs = (
        rows.with_row_index("at")
        .with_columns(
            *(pl.col("code").shift(-at).alias(name) for at, name in enumerate(codes)),
            whole=pl.col("group").shift(1 - length) == pl.col("group"),
            gpu=pl.sum_horizontal((pl.col("end_ns") - pl.col("start_ns")).shift(-at) for at in range(length)),
            gap=pl.sum_horizontal(pl.col("gap_ns").shift(-at) for at in far),
            launch=pl.sum_horizontal(pl.col("launch_ns").shift(-at) for at in far),
        )
        .filter("whole")
    )
    runs = runs.with_columns(times=pl.len().over("part", "rank", *codes)).filter(pl.col("times") > 1)
    runs = _apart(runs, ["group", *codes], length)
    found = (
        runs.group_by("part", "rank", *codes, maintain_order=True)
        .agg(pl.col("gpu", "gap", "launch").sum(), times=pl.len().cast(pl.Int64))
        .filter(pl.col("times") > 1)
    )
    for name in codes:
        found = found.join(known.rename({"code": name, "label": f"{name}_label"}), on=name, how="left", maintain_order="left")
    return found.with_columns(run=pl.concat_str((f"{name}_label" for name in codes), separator=_JOIN))


def _apart(runs: pl.DataFrame, keys: list[str], length: int) -> pl.DataFrame:
    """Keep of equal runs that share a kernel the first, then the next one behind it, and so on.

    Args:
        runs: at (position of the first kernel) and keys.
        keys: columns in which equal runs of one call are the same.
        length: kernels in a run.
    """
    rows = runs.sort(*keys, "at").with_row_index("row")
    first = pl.col("at").min().over(keys)
    following = rows.select(*keys, "row", beyond=pl.col("at") + length).join_asof(
        rows.select(*keys, "at", following="row"),
        left_on="beyond",
        right_on="at",
        by=keys,
        strategy="forward",
        check_sortedness=False,
    )["following"]
    kept = rows.filter(pl.col("at") == first)["row"]
    while True:
        # Each round doubles the distance looked at.
        more = pl.concat([kept, following.gather(kept).drop_nulls()]).unique()
        if len(more) == len(kept):
            return rows[kept.sort()]
        kept, following = more, following.gather(following)


def _told(found: pl.DataFrame, work: Work, columns: tuple[Column, ...]) -> pl.DataFrame:
    """Put the rows in the form declared, the greatest saving first."""
    times = {f"{name}_ns": pl.col(name) for name in ("gpu", "gap", "launch")}
    made = found.with_columns(**times, save_ns=pl.col("gap") + pl.col("launch"))
    return told(made.sort("save_ns", "times", descending=True, maintain_order=True), work, columns)
