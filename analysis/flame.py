"""Flame data: the stacks of a trace with what each of them costs, for flame graph viewers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from .call_costs import charged, charges
from .forest import merged
from .op_groups import thread_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .work import Work

WEIGHTS = ("cpu", "device")
"""What a stack's width may stand for: own CPU time, or durations of the GPU work launched from it."""

Stack = tuple[list[str], int]
"""Frames from the thread inwards, and nanoseconds."""

_UNLAUNCHED = "(no launch record)"
_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def stacks(work: Work, weight: str) -> list[Stack]:
    """Return the stacks in scope, those of the same path as one; the weights sum to the whole.

    Frames are the thread, Python frames, annotations, operators and calls of the GPU's runtime; weighted by device, the GPU work
    itself comes last, and work without a launch record has a stack of its own.

    Args:
        work: the work in scope.
        weight: one of `WEIGHTS`.

    Example:
        >>> import kinetop
        >>> from kinetop.analysis.work import scoped
        >>> work = scoped(kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False))
        >>> stacks(work, "cpu")[0]
        (['process 4242 thread 4242', 'ProfilerStep#1'], 310000)
    """
    paid = charges(work)
    calls = charged(work, paid)
    labels = pl.DataFrame({"lane": thread_names(work.trace, calls), "name": _plain(calls["name"])})
    frames = labels.unique(maintain_order=True).with_row_index("label")
    code = labels.join(frames, on=["lane", "name"], how="left", maintain_order="left")["label"]
    nodes, at = merged(code, calls["parent"])
    found = _paths(nodes.join(frames, on="label", how="left", maintain_order="left"))
    if weight == "cpu":
        costs = pl.DataFrame({"node": at, "ns": calls["self_ns"]}).group_by("node").agg(pl.col("ns").sum())
        return [(found[node], ns) for node, ns in costs.filter(pl.col("ns") > 0).sort("node").iter_rows()]
    spent = pl.DataFrame({"node": at.gather(paid["row"]), "name": _plain(paid["name"]), "ns": paid["dur_ns"]})
    spent = spent.group_by("node", "name").agg(pl.col("ns").sum()).filter(pl.col("ns") > 0)
    rows = spent.sort("node", "name", nulls_last=True).iter_rows()
    return [([*([_UNLAUNCHED] if node is None else found[node]), name], ns) for node, name, ns in rows]


def _paths(nodes: pl.DataFrame) -> list[list[str]]:
    """Return the frames of each node; a node stands behind the one that it hangs below."""
    found: list[list[str]] = []
    for parent, lane, name in nodes.select("parent", "lane", "name").iter_rows():
        found.append([*([lane] if parent is None else found[parent]), name])
    return found


def _plain(names: pl.Series) -> pl.Series:
    """Return names on one line, without what would end a frame of a folded stack, and without addresses, which differ by run."""
    distinct = names.unique().to_frame("name")
    text = (
        pl.col("name").cast(pl.String).str.replace_all(r" at 0x[0-9a-fA-F]+", "").str.replace_all(r"[\s\x00-\x1f\x7f-\x9f]+", " ")
    )
    text = text.str.replace_all(";", ":", literal=True).str.strip_chars()
    plain = distinct.with_columns(plain=pl.when(text != "").then(text).otherwise(pl.lit("(unnamed)")))
    return names.to_frame("name").join(plain, on="name", how="left", nulls_equal=True, maintain_order="left")["plain"]


def folded(found: list[Stack]) -> Iterator[str]:
    """Yield the lines of a folded-stacks file: frames divided by semicolons, a blank, nanoseconds.

    Args:
        found: see `stacks`.

    Example:
        >>> list(folded([(["main", "aten::mm"], 1500)]))
        ['main;aten::mm 1500']
    """
    for frames, ns in found:
        yield f"{';'.join(frames)} {ns}"


def speedscope(found: list[Stack], name: str) -> dict[str, Any]:
    """Return the JSON document that speedscope opens.

    Args:
        found: see `stacks`.
        name: what the profile is called.

    Example:
        >>> made = speedscope([(["main", "aten::mm"], 1500), (["main"], 20)], "rank 0")
        >>> made["profiles"][0]["samples"], made["profiles"][0]["weights"]
        ([[0, 1], [0]], [1500, 20])
    """
    numbers: dict[str, int] = {}
    samples = [[numbers.setdefault(frame, len(numbers)) for frame in frames] for frames, _ in found]
    weights = [ns for _, ns in found]
    profile = {"type": "sampled", "name": name, "unit": "nanoseconds", "startValue": 0, "endValue": sum(weights)}
    return {
        "$schema": _SCHEMA,
        "exporter": "kinetop",
        "name": name,
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": frame} for frame in numbers]},
        "profiles": [{**profile, "samples": samples, "weights": weights}],
    }
