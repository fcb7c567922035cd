"""Which variant to choose for which shape: the best of each case, where the best changes, how far each variant goes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log, log2
from typing import TYPE_CHECKING, Any

from .question import Column
from .trials import CASE_COLUMNS, framed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    import polars as pl

    from kinetop.traces.live.worker.case import Case

SCHEMA = "kinetop.dispatch/1"
AXES: dict[str, tuple[str, ...]] = {
    "seq": ("kv_len", "q_len"),
    "batch": ("batch",),
    "dim": ("qk_dim", "v_dim"),
    "heads": ("q_heads", "kv_heads"),
}
"""What a sweep can run along: the members of a case that change with it, the one that is read off first."""
EXACT = ("dtype", "causal", "window", "mode", "device", "graph")
NEAR = ("batch", "q_heads", "kv_heads", "q_len", "kv_len", "qk_dim", "v_dim")
LOOKUP = (
    "Take the entries whose `exact` members equal yours (device without its index). Of these take the one with the least sum of "
    "abs(log2(entry / yours)) over the `near` members, the first of equals. Its `variants` stand fastest first: use the first "
    "that you have."
)
"""The rule by which a program reads a dispatch table."""
_RANGE = re.compile(r"(\d+):(\d+)(?::([x+])(\d+))?")
_LONGEST = 1_000

BEST_COLUMNS = (
    Column("case", "text", "the case in a few words", priority=0),
    Column(
        "variant", "text", "the variant with the least median of those that compute the same function and are right", priority=0
    ),
    Column("median_us", "us", "its median", "median", priority=0),
    Column("second", "text", "the next variant", priority=1),
    Column("lead_pct", "pct", "how much longer the next one takes", "lead", priority=1),
    Column("tie", "flag", "whether the 95 % intervals of the two overlap: then either will do", priority=2),
)
CROSSOVER_COLUMNS = (
    Column("along", "text", "what grows", priority=1),
    Column("others", "text", "the members of the case that stay", priority=1),
    Column("before", "text", "best variant at `low`", priority=0),
    Column("after", "text", "best variant at `high`", priority=0),
    Column("low", "id", "last measured size at which `before` is best", priority=0),
    Column("high", "id", "first measured size at which `after` is best", priority=0),
    Column(
        "at",
        "id",
        "where the two curves cross, read off between them on logarithmic scales; null where one is missing",
        priority=0,
    ),
)
FRONTIER_COLUMNS = (
    Column("variant", "text", "name of the variant", priority=0),
    Column("along", "text", "what grows", priority=1),
    Column("others", "text", "the members of the case that stay", priority=1),
    Column("largest", "id", "largest size that ran", priority=0),
    Column("peak_bytes", "bytes", "memory that a call held there", "peak memory", priority=1),
    Column("failed_at", "id", "next size, which failed; null where none did", priority=0),
    Column("why", "text", "why it failed", priority=1),
)


@dataclass(frozen=True)
class Axis:
    """What a sweep runs along, and the sizes."""

    name: str
    values: tuple[int, ...]


def axis(text: str) -> Axis:
    """Read an axis: `seq=512:65536:x2`, `batch=1:8:+1`, `dim=64,128`.

    Args:
        text: `NAME=FIRST:LAST[:xFACTOR|:+STEP]` (x2 unless said) or `NAME=SIZE,SIZE,…`.

    Raises:
        ValueError: it cannot be read, and why.

    Example:
        >>> axis("seq=512:4096:x2").values
        (512, 1024, 2048, 4096)
    """
    name, _, sizes = text.replace(" ", "").partition("=")
    if name not in AXES:
        raise ValueError(f"a sweep runs along {', '.join(AXES)}, such as seq=512:65536:x2; not {text!r}")
    if found := _RANGE.fullmatch(sizes):
        first, last, by = int(found[1]), int(found[2]), int(found[4] or 2)
        if not 0 < first <= last or by < (1 if found[3] == "+" else 2):
            raise ValueError(f"{text} has no sizes: FIRST:LAST:xFACTOR, FIRST above 0 and no larger than LAST")
        values = tuple(_sizes(first, last, by, multiply=found[3] != "+"))
    elif re.fullmatch(r"\d+(,\d+)*", sizes):
        values = tuple(sorted({int(size) for size in sizes.split(",")}))
    else:
        raise ValueError(f"sizes are FIRST:LAST:xFACTOR, FIRST:LAST:+STEP or SIZE,SIZE; not {sizes!r}")
    return Axis(name, values)


def _sizes(first: int, last: int, by: int, *, multiply: bool) -> Iterator[int]:
    size = first
    for _ in range(_LONGEST):
        if size > last:
            return
        yield size
        size = size * by if multiply else size + by
    raise ValueError(f"a sweep of over {_LONGEST:,} sizes")


def spread(cases: Iterable[Case], axes: Sequence[Axis]) -> list[Case]:
    """Return every case at every size of every axis, each once.

    Args:
        cases: what the sizes are put into: `seq` is q_len and kv_len (kv_len alone where the two differ, as in decode), `dim`
            both dimensions, `heads` the query heads, with as many of them to a key head as before.
        axes: what is varied; without any the cases stay.

    Raises:
        ValueError: a case cannot have a size, and why.

    Example:
        >>> from kinetop.traces.live.worker.case import Case
        >>> [case.shape_text for case in spread([Case.of("1,4/2,64,8")], [axis("seq=64:128"), axis("heads=2,8")])]
        ['1,2/1,64,8', '1,8/4,64,8', '1,2/1,128,8', '1,8/4,128,8']
    """
    made = list(cases)
    for each in axes:
        made = [_sized(case, each.name, size) for case in made for size in each.values]
    return list(dict.fromkeys(made))


def _sized(case: Case, along: str, size: int) -> Case:
    if along == "seq":
        return case.with_(kv_len=size, **({"q_len": size} if case.q_len == case.kv_len and case.mode != "decode" else {}))
    if along == "heads":
        group = case.q_heads // case.kv_heads
        if size % group:
            raise ValueError(f"{size} query heads cannot share key heads by {group}")
        return case.with_(q_heads=size, kv_heads=size // group)
    return case.with_(**dict.fromkeys(AXES[along], size))


@dataclass(frozen=True)
class Choice:
    """What a table of trials says about choosing."""

    best: pl.DataFrame
    """The best variant of each case: `BEST_COLUMNS`."""
    crossovers: pl.DataFrame
    """Where the best variant changes: `CROSSOVER_COLUMNS`."""
    frontier: pl.DataFrame
    """How far each variant goes: `FRONTIER_COLUMNS`."""
    dispatch: dict[str, Any]
    """A table that a program can dispatch on; `lookup` reads it by the rule `LOOKUP`, which it holds as text."""


def choose(table: pl.DataFrame, along: str | None = None, environment: Mapping[str, Any] | None = None) -> Choice:
    """Return which variant to choose for each case of a table of trials.

    Args:
        table: as `trials.table` makes it.
        along: the axis (`AXES`) of crossovers and frontier; the first along which the table has several sizes when None.
        environment: of the worker, noted in the dispatch table.

    Raises:
        ValueError: there is no such axis.
    """
    if along is not None and along not in AXES:
        raise ValueError(f"an axis is one of {', '.join(AXES)}, not {along!r}")
    on = along or next((name for name, members in AXES.items() if table[members[0]].n_unique() > 1), "seq")
    rows = table.to_dicts()
    ranked = {case: _ranked(group) for case, group in _by(rows, ("case",)).items()}
    return Choice(
        framed([_best(case[0], group) for case, group in ranked.items() if group], BEST_COLUMNS),
        framed([cross for others, line in _lines(rows, on) for cross in _crossovers(line, on, others)], CROSSOVER_COLUMNS),
        framed(
            [_reach(line, variant, on, others) for others, line in _lines(rows, on) for variant in _names(line)], FRONTIER_COLUMNS
        ),
        _dispatch(list(ranked.values()), environment or {}),
    )


def lookup(dispatch: Mapping[str, Any], case: Case, available: Collection[str] | None = None) -> str | None:
    """Return the variant that a dispatch table says for a case, by the rule `LOOKUP`; None where it says nothing.

    Args:
        dispatch: a dispatch table, as made or as read from its JSON.
        case: what is to be computed.
        available: variants there are; all of them when None.
    """
    wanted = _kind(case.to_dict())
    fitting = [entry for entry in dispatch["entries"] if all(entry[name] == wanted[name] for name in dispatch["exact"])]
    if not fitting:
        return None
    nearest = min(fitting, key=lambda entry: sum(abs(log2(entry[name] / wanted[name])) for name in dispatch["near"]))
    names = (variant["name"] for variant in nearest["variants"])
    return next((name for name in names if available is None or name in available), None)


def _by(rows: Iterable[dict[str, Any]], names: Sequence[str]) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def _names(rows: Iterable[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["variant"] for row in rows))


def _ranked(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the trials that may be chosen, fastest first: measured, right, and the same function as the others."""
    usable = [row for row in rows if row["median_us"] is not None and row["error_ok"] is not False and row["exact"] is not False]
    return sorted((row for row in usable if row["state"] != "FAILED"), key=lambda row: row["median_us"])


def _best(case: str, ranked: list[dict[str, Any]]) -> dict[str, Any]:
    first, second = ranked[0], ranked[1] if len(ranked) > 1 else None
    found = {"case": case, "variant": first["variant"], "median_us": first["median_us"]}
    if second is not None:
        found |= {
            "second": second["variant"],
            "lead_pct": 100 * (second["median_us"] / first["median_us"] - 1),
            "tie": second["low_us"] <= first["high_us"],
        }
    return found


def _lines(rows: list[dict[str, Any]], along: str) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return the trials that differ along the axis only, with what they have in common as text."""
    moving = AXES[along]
    rest = [column.name for column in CASE_COLUMNS if column.name not in moving]
    several = [name for name in rest if len({row[name] for row in rows}) > 1]
    return [
        (" ".join(f"{name}={group[0][name]}" for name in several), group)
        for group in _by(rows, rest).values()
        if len({row[moving[0]] for row in group}) > 1
    ]


def _crossovers(line: list[dict[str, Any]], along: str, others: str) -> Iterator[dict[str, Any]]:
    sized = {size[0]: _ranked(rows) for size, rows in sorted(_by(line, AXES[along][:1]).items())}
    for (low, at_low), (high, at_high) in pairwise((size, rows) for size, rows in sized.items() if rows):
        before, after = at_low[0]["variant"], at_high[0]["variant"]
        if before != after:
            yield {
                "along": along,
                "others": others,
                "before": before,
                "after": after,
                "low": low,
                "high": high,
                "at": _crossing(before, after, (low, at_low), (high, at_high)),
            }


def _crossing(before: str, after: str, *ends: tuple[int, list[dict[str, Any]]]) -> int | None:
    """Return where two curves of times cross, straight between the two ends on logarithmic scales."""
    leads = []
    for _, rows in ends:
        medians = {row["variant"]: row["median_us"] for row in rows}
        if before not in medians or after not in medians:
            return None
        leads.append(log(medians[after] / medians[before]))
    share = leads[0] / (leads[0] - leads[1]) if leads[0] != leads[1] else 0.0
    low, high = (size for size, _ in ends)
    return round(exp(log(low) + share * log(high / low)))


def _reach(line: list[dict[str, Any]], variant: str, along: str, others: str) -> dict[str, Any]:
    own = sorted((row for row in line if row["variant"] == variant), key=lambda row: row[AXES[along][0]])
    ran = [row for row in own if row["median_us"] is not None]
    last = ran[-1] if ran else None
    largest = last[AXES[along][0]] if last else None
    failed = next((row for row in own if row["state"] == "FAILED" and row[AXES[along][0]] > (largest or 0)), None)
    return {
        "variant": variant,
        "along": along,
        "others": others,
        "largest": largest,
        "peak_bytes": last["peak_bytes"] if last else None,
        "failed_at": failed[AXES[along][0]] if failed else None,
        "why": failed["why"] if failed else None,
    }


def _dispatch(ranked: list[list[dict[str, Any]]], environment: Mapping[str, Any]) -> dict[str, Any]:
    told = ("host", "device_name", "cpu_name", "torch", "cuda", "driver")
    entries = [
        {
            **{name: _kind(rows[0])[name] for name in (*EXACT, *NEAR)},
            "variants": [{"name": row["variant"], "backend": row["backend"], "median_us": row["median_us"]} for row in rows],
        }
        for rows in ranked
        if rows
    ]
    entries.sort(key=lambda entry: [entry[name] for name in ("kv_len", "q_len", "batch", "q_heads", "qk_dim")], reverse=True)
    return {
        "schema": SCHEMA,
        "environment": {name: environment[name] for name in told if environment.get(name) is not None},
        "lookup": LOOKUP,
        "exact": list(EXACT),
        "near": list(NEAR),
        "entries": entries,
    }


def _kind(members: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a case with its device without an index."""
    return {**members, "device": str(members["device"]).partition(":")[0]}
