"""What a variant did in one step, free of noise: ops, kernels, copies and the sizes of what it allocated."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from kinetop.traces.schema import GPU_KINDS, OP_CATS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinetop.traces.live.worker.case import Case

COPIES = ("aten::clone", "aten::copy_", "aten::_to_copy", "Memcpy")
"""Copies by how their names begin; a clone and a cast each end in a `copy_` of their own."""
_MEMORY = "[memory]"
# Numbers that differ between runs of the same code: hashes of compiled graphs, the order in which graphs were compiled.
_VOLATILE = {
    r"CompiledFxGraph \w+": "CompiledFxGraph",
    r"Compiled Region: \d+/\d+": "Compiled Region",
    r"\bgraph_\d+_": "graph_",
}


@dataclass(frozen=True)
class Structure:
    """Counts of one step; the median of the steps that were profiled whole."""

    ops: Mapping[str, int] = field(default_factory=dict)
    """Framework operators by name."""
    kernels: Mapping[str, int] = field(default_factory=dict)
    """GPU kernels, copies and memsets by name."""
    allocations: Mapping[int, int] | None = None
    """Allocations of at least q_len x kv_len bytes, by size; None where no window recorded memory."""
    steps: int = 0
    """Steps that were seen."""

    @property
    def copies(self) -> dict[str, int]:
        """Copies by kind (`COPIES`)."""
        every = [*self.ops.items(), *self.kernels.items()]
        counts = {kind: sum(count for name, count in every if name.startswith(kind)) for kind in COPIES}
        return {kind: count for kind, count in counts.items() if count}

    def scores(self, case: Case) -> int | None:
        """Return how many allocations are as large as all scores, batch x q_heads x q_len x kv_len elements, or larger."""
        if self.allocations is None:
            return None
        least = case.batch * case.q_heads * case.q_len * case.kv_len * case.element_bytes
        return sum(count for size, count in self.allocations.items() if size >= least)

    def to_dict(self) -> dict[str, Any]:
        """Return the members for JSON, the most frequent names first."""

        def ordered(counts: Mapping[Any, int]) -> dict[str, int]:
            return {str(name): count for name, count in sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))}

        sizes = None if self.allocations is None else {str(size): count for size, count in sorted(self.allocations.items())}
        return {"ops": ordered(self.ops), "kernels": ordered(self.kernels), "allocations": sizes, "steps": self.steps}

    @classmethod
    def from_dict(cls, members: Mapping[str, Any]) -> Structure:
        """Read what `to_dict` made.

        Raises:
            ValueError: a member cannot be.
        """
        ops, kernels, sizes = (members.get(name) or {} for name in ("ops", "kernels", "allocations"))
        for counts in (ops, kernels, sizes):
            if not isinstance(counts, dict) or any(type(count) is not int for count in counts.values()):
                raise ValueError("a structure whose counts are no numbers")
        large = None if members.get("allocations") is None else {int(size): count for size, count in sizes.items()}
        return cls(dict(ops), dict(kernels), large, int(members.get("steps") or 0))


def structure(events: pl.DataFrame, case: Case) -> Structure:
    """Return what one step of a trial did.

    Args:
        events: its window events as `Recording.events` gives them: cat, name, memory_bytes, window, step.
        case: what was computed; sizes of allocations are told by it.
    """
    rows = events.filter(pl.col("step").is_not_null()).select(
        pl.col("cat").cast(pl.String), _stable_name(), "memory_bytes", "window", "step"
    )
    steps = rows.select("window", "step").unique().height
    memory = rows.filter((pl.col("name") == _MEMORY) & (pl.col("memory_bytes") > 0))
    with_memory = memory.select("window", "step").unique().height
    return Structure(
        _per_step(rows.filter(pl.col("cat").is_in(list(OP_CATS))), "name", steps),
        _per_step(rows.filter(pl.col("cat").is_in(list(GPU_KINDS))), "name", steps),
        _per_step(memory.filter(pl.col("memory_bytes") >= case.q_len * case.kv_len), "memory_bytes", with_memory)
        if with_memory
        else None,
        steps,
    )


def _stable_name() -> pl.Expr:
    name = pl.col("name").cast(pl.String)
    for pattern, stands in _VOLATILE.items():
        name = name.str.replace_all(pattern, stands)
    return name


def _per_step(rows: pl.DataFrame, key: str, steps: int) -> dict[Any, int]:
    """Return how often each key occurs in a step: the lower median over all steps, those without it counted as none."""
    counts = rows.group_by(key, "window", "step").len().group_by(key).agg(pl.col("len").sort(descending=True))
    # Sorted downwards, the value at half of the steps is the median; a shorter list has zeros there.
    found = counts.with_columns(pl.col("len").list.get(steps // 2, null_on_oob=True)).drop_nulls("len")
    return dict(found.select(key, "len").iter_rows())
