"""Rules about the time in which a GPU does nothing: what kept it waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from kinetop.traces import schema

from .. import intervals
from ..waits import waits
from ..where import where_name
from ..work import DEVICE
from .facts import Facts, plain, short, time_text, times_text, whole
from .rule import Found, Place, rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SHORT_GAP_NS = 100_000
"""Gaps below this are those of launches that come too slowly; in a longer one the host does something else."""
SHORT_KERNEL_NS = 20_000
EDGE_NS = 1_000_000
"""Below this the edges of the steps are those of any capture."""
_FREES = r"(?i)Free"
_SLOWED = "; the profiler recorded Python stacks, which slows the host: without them the gaps are shorter"


@rule("data-loader")
def data_loader(facts: Facts) -> Iterable[Found]:
    """Find idle time in which the launching thread waited for a batch."""
    for place, rows, ns in _parts(facts, "data_loader"):
        what = f"The GPU idles {facts.share(ns, place)} while the host waits for a batch, {_counted(rows)}."
        why = "in these gaps the thread that launches next is inside the data loader's range"
        yield Found(place=place, saving_ns=ns, what=what, view="idle", where=_evidence(rows), confidence="high", why=why)


@rule("sync")
def sync(facts: Facts) -> Iterable[Found]:
    """Find idle time in and after calls that wait for the GPU."""
    rest = ~pl.col("sync_name").str.contains(_FREES).fill_null(value=False)
    for place, rows, ns in _parts(facts, "sync", "after_sync", test=rest):
        names = (
            rows.drop_nulls("sync_name").group_by("sync_name").agg(pl.col("ns").sum()).sort("ns", "sync_name", descending=True)
        )
        name = names["sync_name"][0] if names.height else "a synchronising call"
        what = f"The GPU idles {facts.share(ns, place)} in and after {short(name)}, which empties its queue, {_counted(rows)}."
        op = _doing(facts, rows, at="sync")
        why = "the launching thread sat in the call, or launched only after it" + (f"; it was {op}" if op else "")
        yield Found(place=place, saving_ns=ns, what=what, view="idle", where=_evidence(rows), confidence="high", why=why)


@rule("host-late")
def host_late(facts: Facts) -> Iterable[Found]:
    """Find long gaps in which the host did something else than launch."""
    long = _without_allocations(facts, facts.gaps.filter(pl.col("dur_ns") >= SHORT_GAP_NS))
    for place, rows, ns in _parts(facts, "host_late", gaps=long):
        doing = _doing(facts, rows, at="late")
        what = f"The GPU idles {facts.share(ns, place)} because the host launches late, {_counted(rows)}"
        what += f"; in the longest it was {doing}." if doing else "."
        sure = bool(doing) and not facts.records_stacks
        doubt = (
            _SLOWED if facts.records_stacks else "; the trace does not say what the host did (no operator, frame or annotation)"
        )
        yield Found(
            place=place,
            saving_ns=ns,
            what=what,
            view="idle",
            where=_evidence(rows),
            confidence="high" if sure else "medium",
            why="the launch call came after the GPU had run dry" + ("" if sure else doubt),
        )


@rule("launch-bound")
def launch_bound(facts: Facts) -> Iterable[Found]:
    """Find many short gaps before short kernels: launching takes longer than running."""
    for place, rows, ns in _parts(facts, "host_late", "launch_latency", test=pl.col("dur_ns") < SHORT_GAP_NS):
        median = whole(facts.kernels.lazy().filter(_at(place)).select(pl.col("dur_ns").median()).collect().item())
        gap = whole(rows["ns"].median())
        small = median < SHORT_KERNEL_NS
        what = (
            f"The GPU idles {facts.share(ns, place)} between launches: {times_text(rows.height, 'short gap')}"
            f" (median {time_text(gap)}) beside kernels of {time_text(median)} at the median."
        )
        why = "kernels are shorter than what a launch takes" if small else "gaps are short, but kernels are not: look at the host"
        why += _SLOWED if facts.records_stacks else ""
        sure = small and not facts.records_stacks
        yield Found(
            place=place,
            saving_ns=ns,
            what=what,
            view="idle",
            where=_evidence(rows),
            confidence="high" if sure else "medium",
            why=why,
        )


@rule("host-collective")
def host_collective(facts: Facts) -> Iterable[Found]:
    """Find idle time in which the launching thread sat in a collective of the host."""
    for place, rows, ns in _parts(facts, "collective"):
        what = f"The GPU idles {facts.share(ns, place)} while the host sits in a collective of its own (gloo, mpi, a barrier)."
        why = "the thread that launches next is inside it"
        yield Found(place=place, saving_ns=ns, what=what, view="idle", where=_evidence(rows), confidence="high", why=why)


@rule("dependency")
def dependency(facts: Facts) -> Iterable[Found]:
    """Find idle time before work that had been launched long before."""
    for place, rows, ns in _parts(facts, "dependency", test=pl.col("ns") >= SHORT_GAP_NS // 10):
        crossed = whole(rows.filter(pl.col("next_stream") != pl.col("previous_stream"))["ns"].sum())
        what = f"The GPU idles {facts.share(ns, place)} although the next activity was launched already, {_counted(rows)}"
        what += f"; {100 * crossed / ns:.0f} % of it where work changes streams." if 20 * crossed > ns else "."
        why = "the launch call returned before the gap began; what it waited for is not in the trace"
        yield Found(place=place, saving_ns=ns, what=what, view="idle", where=_evidence(rows), confidence="low", why=why)


@rule("graph-gaps")
def graph_gaps(facts: Facts) -> Iterable[Found]:
    """Find idle time between the nodes of a graph."""
    replays = pl.col("api").str.contains("(?i)graph").fill_null(value=False)
    for place, rows, ns in _parts(facts, "graph", test=replays):
        what = f"The GPU idles {facts.share(ns, place)} between the activities of single graph launches, {_counted(rows)}."
        why = "both sides of each gap come from one launch call"
        yield Found(place=place, saving_ns=ns, what=what, view="idle", where=_evidence(rows), confidence="high", why=why)


@rule("idle-edges")
def idle_edges(facts: Facts) -> Iterable[Found]:
    """Find time at the start and the end of the marked steps in which the GPU has no work yet, or none any more."""
    if facts.work.scope.window not in (None, "gpu") or facts.steps.is_empty():
        return
    loading = waits(facts.work.trace).filter(pl.col("kind") == "data_loader")
    loading = loading.select("part", start_ns="begun_ns", end_ns="until_ns")
    for place, (start, end) in facts.windows.items():
        mine = facts.steps_of(place)
        if mine.is_empty():
            continue
        first, last = whole(mine["start_ns"].min()), whole(mine["end_ns"].max())
        sides = pl.DataFrame({"start_ns": [min(first, start), end], "end_ns": [start, max(end, last)]})
        left = intervals.subtract(sides, loading.filter(pl.col("part") == place.part))
        ns = whole((left["end_ns"] - left["start_ns"]).sum())
        if ns < EDGE_NS:
            continue
        what = (
            f"Before the first activity of the marked steps {time_text(start - min(first, start))} pass without GPU work,"
            f" behind the last one {time_text(max(end, last) - end)}; the window does not count them."
        )
        why = "it may be the start and the end of the profiler rather than of the job"
        yield Found(place=place, saving_ns=ns, what=what, view="steps", confidence="low", why=why, whole_ns=ns + end - start)


def _parts(
    facts: Facts, *parts: str, test: pl.Expr | None = None, gaps: pl.DataFrame | None = None
) -> Iterator[tuple[Place, pl.DataFrame, int]]:
    """Give each device's gaps that have one of the parts and pass the test, with their sum as `ns`, and the sum of all."""
    told = (facts.gaps if gaps is None else gaps).lazy().select(*_TOLD, ns=pl.sum_horizontal(f"{part}_ns" for part in parts))
    rows = told.filter(pl.col("ns") > 0).collect()  # few gaps have most of the parts, and only these are tested
    for place, mine in facts.places(rows if test is None else rows.filter(test)):
        yield place, mine, whole(mine["ns"].sum())


_TOLD = (
    *(*DEVICE, "start_ns", "dur_ns", "late_ns", "next", "next_stream", "previous_stream"),
    *("api", "process", "thread", "sync_name"),
)
"""Columns of the gaps that the rules look at, beside the parts: a third of all."""


def _counted(rows: pl.DataFrame) -> str:
    if rows.height == 1:
        return "in one gap"
    longest = whole(rows["ns"].max())
    return f"in {times_text(rows.height, 'gap')}, {time_text(longest)} the longest"


def _evidence(rows: pl.DataFrame) -> str:
    """Return the filter: the activity behind most of the idle time, where there is one."""
    by_next = rows.drop_nulls("next").group_by("next").agg(pl.col("ns").sum()).sort("ns", "next", descending=True)
    most = by_next.filter(2 * pl.col("ns") >= whole(rows["ns"].sum()))
    return where_name(most["next"][0]) if most.height else ""


def _without_allocations(facts: Facts, gaps: pl.DataFrame) -> pl.DataFrame:
    """Take calls that allocate out of the time that the host was late: another rule tells them."""
    if facts.allocations.is_empty() or gaps.is_empty():
        return gaps
    spent = intervals.covered(gaps.select("part", "start_ns", "end_ns"), facts.allocations.drop("name"), ["part"])
    return gaps.with_columns(host_late_ns=(pl.col("host_late_ns") - spent).clip(0))


def _at(place: Place) -> pl.Expr:
    return (pl.col("part") == place.part) & (pl.col("rank") == place.rank) & (pl.col("device") == place.device)


def _doing(facts: Facts, rows: pl.DataFrame, *, at: str) -> str:
    """Return what the launching thread was in during the longest gap: operator, else Python frame, else annotation."""
    row = rows.sort("ns", descending=True).row(0, named=True)
    if row["thread"] is None:
        return ""
    moment = row["start_ns"] if at == "sync" else row["start_ns"] + (row["late_ns"] - row["start_ns"]) // 2
    cats = (*schema.OP_CATS, "python_function", "user_annotation")
    open_then = (
        facts.work.trace.events.filter(
            pl.col("cat").is_in(list(cats)),
            pl.col("part") == row["part"],
            pl.col("ts_ns") <= moment,
            pl.col("ts_ns") + pl.col("dur_ns") > moment,
        )
        .select(pl.col("cat", "name", "process", "thread").cast(pl.String), "ts_ns")
        .filter(pl.col("process") == str(row["process"]), pl.col("thread") == str(row["thread"]))
        .sort("ts_ns")
        .collect()
    )
    for kinds, said in _DOING:
        names = open_then.filter(pl.col("cat").is_in(list(kinds)))["name"].drop_nulls()
        if len(names):
            return said.format(plain(names[-1]))
    return ""


_DOING: tuple[tuple[frozenset[str], str], ...] = (
    (schema.OP_CATS, "in {}"),
    (frozenset({"python_function"}), "in Python, {}"),
    (frozenset({"user_annotation"}), "in no operator, inside {}"),
)
"""Categories in the order in which they say most, and how to put it."""
