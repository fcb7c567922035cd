"""Calls merged by path: from callers to callees, and from each callee back to its callers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from .forest import merged, paths, subtree_sums

if TYPE_CHECKING:
    from .op_groups import Groups

_KEY_DIGITS = 8


def tree(calls: pl.DataFrame, ends: pl.Series, groups: Groups, depth: int) -> pl.DataFrame:
    """Return the calls of a grouping from the top down, those of the same path as one row.

    Args:
        calls: see `call_costs.charged`.
        ends: see `call_costs.call_ends`.
        groups: what counts.
        depth: levels to show; times of deeper ones are in the totals above them.
    """
    nodes, at = merged(groups.code, groups.parent)
    own = _own(calls, groups, at)
    whole = pl.DataFrame(
        {
            "node": at,
            "total_cpu_ns": subtree_sums(calls["self_ns"], ends).gather(groups.calls),
            "total_device_ns": subtree_sums(calls["device_ns"], ends).gather(groups.calls),
        }
    ).group_by("node").agg(pl.all().sum())  # fmt: skip
    found = nodes.with_row_index("node").join(own, on="node", how="left").join(whole, on="node", how="left")
    return _ordered(found, groups.legend, depth, ["total_device_ns", "total_cpu_ns"])


def callers(calls: pl.DataFrame, groups: Groups, depth: int) -> pl.DataFrame:
    """Return each group and, below it, those that called it, with what it cost when called this way.

    Args:
        calls: see `call_costs.charged`.
        groups: what counts.
        depth: levels to show.
    """
    nodes, at = merged(groups.code, groups.parent)
    left = _own(calls, groups, at).with_columns(place=pl.col("node"), above=pl.lit(None, pl.UInt32))
    costs = [name for name in left.columns if name not in {"node", "place", "above"}]
    levels, first = [], 0
    for level in range(depth):
        here = left.with_columns(label=nodes["label"].gather(left["place"]))
        rows = here.group_by("above", "label", maintain_order=True).agg(pl.col(costs).sum()).with_row_index("node", offset=first)
        levels.append(rows.rename({"above": "parent"}).with_columns(depth=pl.lit(level, pl.Int32)))
        numbers = rows.select("above", "label", number="node")
        below = here.join(numbers, on=["above", "label"], how="left", nulls_equal=True, maintain_order="left")
        left = (
            below.with_columns(place=nodes["parent"].gather(below["place"]), above="number")
            .drop("number", "label")
            .drop_nulls("place")
        )
        first += rows.height
        if left.is_empty():
            break
    return _ordered(pl.concat(levels), groups.legend, depth, ["device_ns", "self_cpu_ns"])


def _own(calls: pl.DataFrame, groups: Groups, at: pl.Series) -> pl.DataFrame:
    """Return what each merged node costs without those above it: calls, self_cpu_ns, device_ns, kernels."""
    own = calls.select("device_ns", "kernels", node=at.gather(groups.owner), self_cpu_ns="self_ns")
    counts = pl.DataFrame({"node": at, "calls": calls["begun"].gather(groups.calls).cast(pl.Int64)})
    made = own.drop_nulls("node").group_by("node", maintain_order=True).agg(pl.all().sum())
    return made.join(counts.group_by("node").agg(pl.col("calls").sum()), on="node", how="left", maintain_order="left")


def _ordered(found: pl.DataFrame, legend: pl.DataFrame, depth: int, by: list[str]) -> pl.DataFrame:
    """Name the nodes and sort them so that each stands before what hangs below it, the costliest first."""
    costs = pl.col(
        name for name in ("calls", "kernels", "self_cpu_ns", "total_cpu_ns", "total_device_ns") if name in found.columns
    )
    found = found.filter(pl.col("depth") < depth).sort("node")
    rank = pl.struct(pl.col(by[0]), pl.col(by[1]), -pl.col("node").cast(pl.Int64)).rank("ordinal", descending=True)
    key = paths(found.select(rank.cast(pl.String).str.zfill(_KEY_DIGITS)).to_series(), found, "/")
    number = pl.int_range(pl.len(), dtype=pl.UInt32)
    kept = found.with_columns(key=key).filter(pl.any_horizontal(costs > 0)).sort("key").with_columns(number=number)
    kept = kept.join(legend.with_row_index("label"), on="label", how="left", maintain_order="left")
    above = kept.select(parent="node", above="number")
    return kept.join(above, on="parent", how="left", maintain_order="left").with_columns(
        node="number", parent="above", self_device_ns="device_ns"
    )
