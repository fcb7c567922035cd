"""Rules about communication: what no compute hides, and which rank the others wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from .. import intervals
from ..where import where_name
from ..work import DEVICE
from .facts import Facts, short, time_text, times_text, whole
from .rule import Found, Place, rule

if TYPE_CHECKING:
    from collections.abc import Iterable

KINDS = {
    "exposed-all-reduce": ("all-reduce",),
    "exposed-gather": ("all-gather", "reduce-scatter"),
    "exposed-all-to-all": ("all-to-all",),
    "exposed-other-comm": ("broadcast", "send-recv", "other-comm"),
}
"""Families of collectives by the rule that looks at them."""
FEW = 4
"""Kernels from which on one that makes up most of the time is an exception."""
_KINDS = {"other-comm": "Other communication"}
PERSISTENT = 0.6
"""Share of the waiting that one rank must cause to be named."""
EXPLAINED = 0.3
"""Share of the waiting that a kernel's excess must make up to be named as the reason."""


def _exposed(code: str) -> None:
    @rule(code)
    def find(facts: Facts) -> Iterable[Found]:
        return _of_kinds(facts, KINDS[code])


for _code in KINDS:
    _exposed(_code)


def _of_kinds(facts: Facts, families: tuple[str, ...]) -> Iterable[Found]:
    """Find communication of some families with no compute beside it, less the wait for a rank that came last."""
    comm = facts.comm.filter(pl.col("family").is_in(list(families)))
    if comm.is_empty():
        return
    pieces = intervals.subtract(comm, facts.compute, DEVICE)
    matched = not _late(facts).filter(pl.col("family").is_in(list(families))).is_empty()
    several = facts.work.windows["rank"].n_unique() > 1
    exposed = {place: whole((rows["end_ns"] - rows["start_ns"]).sum()) for place, rows in facts.places(pieces)}
    for place, rows in facts.places(pieces):
        mine, every = comm.filter(_at(place)), exposed[place]
        # The rank that comes last waits for none: what is exposed on the others beyond that is waiting for it.
        waiting = every - min(exposed.get(each, 0) for each in facts.windows) if matched else 0
        own = int(intervals.total(mine, DEVICE)["total_ns"][0])
        most = mine.group_by("family").agg(pl.col("dur_ns").sum()).sort("dur_ns", descending=True)["family"][0]
        ns = every - waiting
        what = (
            f"{_KINDS.get(most, most.capitalize())} runs {facts.share(ns, place)} with no compute beside it, of {time_text(own)}"
        )
        what += f" in {times_text(mine.height, 'kernel')}{_before(facts, place, rows)}."
        if waiting > every // 20:
            what += f" Another {time_text(waiting)} is waiting for a later rank."
        yield Found(
            place=place,
            saving_ns=ns,
            what=what,
            view="overlap",
            where=" or ".join(f"family = '{family}'" for family in sorted(mine["family"].unique())),
            **_trust(rows, mine.height, matched=matched, several=several),
        )


def _trust(pieces: pl.DataFrame, kernels: int, *, matched: bool, several: bool) -> dict[str, Any]:
    """Return the confidence and its reason."""
    length = pieces["end_ns"] - pieces["start_ns"]
    longest, total = whole(length.max()), whole(length.sum())
    if kernels >= FEW and 2 * longest > total:
        why = f"one stretch makes up {100 * longest / total:.0f} % of it: it may be the first call of a group, which sets it up"
        return {"confidence": "low", "why": why}
    if matched:
        return {"confidence": "high", "why": "nothing runs beside it; waiting for a later rank is taken out"}
    lacks = "collectives of the ranks could not be matched" if several else "only one rank is open"
    return {"confidence": "medium", "why": f"part of it may be waiting for a later rank: {lacks}"}


def _before(facts: Facts, place: Place, pieces: pl.DataFrame) -> str:
    """Say where the longest exposed piece stands."""
    longest = pieces.sort(pl.col("end_ns") - pl.col("start_ns"), descending=True).row(0, named=True)
    after = facts.work.all_gpu.lazy().select(*DEVICE, "start_ns", "class", "family", "name").filter(
        _at(place), pl.col("start_ns") >= longest["end_ns"], pl.col("class") == "compute"
    ).head(1).collect()  # fmt: skip
    length = time_text(longest["end_ns"] - longest["start_ns"])
    if after.is_empty():
        return f"; the longest stretch is {length}, with no compute after it"
    following = after.row(0, named=True)
    if following["family"] == "optimizer":
        return f"; the longest stretch, {length}, is the end of backward: the optimizer waits for it"
    return f"; the longest stretch, {length}, stands before {short(following['name'])}"


@rule("straggler")
def straggler(facts: Facts) -> Iterable[Found]:
    """Find a rank that the others wait for in collectives, and what it does longer than they do."""
    rows = _late(facts)
    total = whole(rows["wait_ns"].sum())
    if not total:
        return
    blamed = rows.group_by("late").agg(pl.col("wait_ns").sum()).sort("wait_ns", "late", descending=True).row(0, named=True)
    late, share = int(blamed["late"]), blamed["wait_ns"] / total
    alone = (
        intervals.total(intervals.subtract(facts.comm, facts.compute, DEVICE), DEVICE)
        .group_by("rank")
        .agg(pl.col("total_ns").mean())
    )
    exposed = {rank: ns for rank, ns in alone.iter_rows() if rank in set(rows["rank"])}
    others = [ns - exposed.get(late, 0) for rank, ns in exposed.items() if rank != late]
    if share < PERSISTENT or not others or (ns := int(sum(others) / len(others))) <= 0:
        return
    place = next(place for place in facts.windows if place.rank == late)
    who = "the other rank waits" if len(others) == 1 else f"the {len(others)} other ranks wait"
    reason, where, sure = _reason(facts, late, ns)
    yield Found(
        place=place,
        saving_ns=ns,
        what=f"Rank {late} comes last to its collectives: {who} {facts.share(ns, place)} longer in them than it does,"
        f" with nothing else to run; {reason}.",
        view="kernels",
        where=where,
        confidence="high" if sure else "medium",
        why=f"collectives end together, so the rank with the shortest kernel came last: this one for {100 * share:.0f} % of the"
        " waiting" + ("" if sure else "; nothing that the ranks both run explains it"),
    )


def _reason(facts: Facts, late: int, ns: int) -> tuple[str, str, bool]:
    """Return what a rank does longer than the others do, the filter that shows it, and whether that explains the wait."""
    compute = facts.work.all_gpu.filter(pl.col("class") == "compute")
    by_rank = compute.group_by("rank", "name").agg(pl.col("dur_ns").sum())
    mine, theirs = by_rank.filter(pl.col("rank") == late), by_rank.filter(pl.col("rank") != late)
    usual = theirs.group_by("name").agg(usual_ns=pl.col("dur_ns").sum() / max(1, theirs["rank"].n_unique()))
    excess = mine.join(usual, on="name", how="left").with_columns(pl.col("usual_ns").fill_null(0))
    excess = excess.with_columns(more=pl.col("dur_ns") - pl.col("usual_ns")).sort("more", "name", descending=True)
    if excess.height and excess["more"][0] > EXPLAINED * ns:
        top = excess.row(0, named=True)
        times = (
            f"{top['dur_ns'] / top['usual_ns']:.1f}x as long as elsewhere" if top["usual_ns"] else "which the others do not run"
        )
        return (
            f"its {short(top['name'])} takes {time_text(top['dur_ns'])}, {times}",
            f"rank = {late} and {where_name(top['name'])}",
            True,
        )
    idle = facts.gaps.group_by("rank").agg(pl.col("dur_ns").sum() - pl.col("dependency_ns").sum())
    own, rest = (whole(idle.filter(test)["dur_ns"].mean()) for test in (pl.col("rank") == late, pl.col("rank") != late))
    more = own - rest
    if more > EXPLAINED * ns:
        return f"its GPU idles {time_text(more)} more than elsewhere: look at its host", f"rank = {late}", True
    return "what delays it is not among its kernels or gaps", f"rank = {late}", False


def _late(facts: Facts) -> pl.DataFrame:
    """Match the collectives of the ranks, once: place, family, wait_ns (for the last rank) and late (that rank)."""
    return facts.kept("late", lambda: _matched(facts))


def _matched(facts: Facts) -> pl.DataFrame:
    """Match collectives by group and sequence number, else by their order on each rank.

    All ranks of a collective end together, so the rank whose kernel is shortest came last, and clocks need not agree. Sends and
    receives are between pairs, and left out.
    """
    comm = facts.comm.filter(pl.col("family") != "send-recv").sort("start_ns")
    keys = ["process_group", "family", "number"]
    order = pl.int_range(pl.len(), dtype=pl.Int64).over(*DEVICE, "process_group", "family")
    rows = comm.select(
        *DEVICE, "process_group", "family", "dur_ns", number=pl.coalesce("seq", order), numbered=pl.col("seq").is_not_null()
    )
    rows = rows.filter(pl.len().over(*keys, *DEVICE) == 1)
    counts = pl.len().over("process_group", "family", *DEVICE)
    alike = counts.min().over("process_group", "family") == counts.max().over("process_group", "family")
    rows = rows.filter(pl.col("numbered") | alike)
    members, ranks = pl.len().over(keys), pl.col("rank").n_unique()
    rows = rows.filter((members > 1) & (members == ranks.over(keys)) & (members == ranks.over("process_group", "family")))
    return rows.select(
        *DEVICE,
        "family",
        wait_ns=pl.col("dur_ns") - pl.col("dur_ns").min().over(keys),
        late=pl.col("rank").sort_by("dur_ns", "rank").first().over(keys),
    )


def _at(place: Place) -> pl.Expr:
    return (pl.col("part") == place.part) & (pl.col("rank") == place.rank) & (pl.col("device") == place.device)
