"""What the windows of one trial show: its operators as trees, with counts and times per step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from . import parts

if TYPE_CHECKING:
    from collections.abc import Iterator


class Share(NamedTuple):
    """How much of the steps some operators were."""

    per_step: float
    """How often in a step."""
    us: float
    """Microseconds of a step, what they call included."""
    pct: float
    """Share of the step's time."""

    def __str__(self) -> str:
        """Return it as evidence: `2 a step, 52.8 us (8.4 %)`."""
        return f"{self.per_step:.3g} a step, {self.us:,.1f} µs ({self.pct:.1f} %)"


@dataclass(frozen=True)
class Seen:
    """The events of one trial's windows, read once and asked often.

    Args:
        events: rows of the event table, as `Recording.events` gives them.

    Example:
        >>> import polars as pl
        >>> rows = [("user_annotation", "kinetop.step|eager|1|0", 0, 100_000), ("cpu_op", "aten::masked_fill", 10_000, 40_000),
        ...     ("cpu_op", "aten::clone", 12_000, 20_000)]
        >>> seen = Seen(pl.DataFrame(rows, schema=["cat", "name", "ts_ns", "dur_ns"], orient="row"))
        >>> str(seen.share("^aten::clone$", inside="^aten::masked_fill$"))
        '1 a step, 20.0 µs (20.0 %)'
    """

    events: pl.DataFrame

    @cached_property
    def _rows(self) -> pl.DataFrame:
        return parts.host_rows(self.events)

    @cached_property
    def steps(self) -> pl.DataFrame:
        """The steps, as `parts.steps` gives them."""
        return parts.steps(self._rows)

    @cached_property
    def ops(self) -> pl.DataFrame:
        """The operators, as `parts.operators` gives them."""
        return parts.operators(self._rows, self.steps)

    @cached_property
    def gpu(self) -> pl.DataFrame:
        """The GPU work, as `parts.gpu_work` gives it."""
        return parts.gpu_work(self._rows, self.steps, self.ops)

    @cached_property
    def parts(self) -> pl.DataFrame:
        """The division of the step time, as `parts.split` gives it."""
        return parts.divided(self.steps, self.ops, self.gpu)

    @property
    def count(self) -> int:
        """How many steps were seen."""
        return self.steps.height

    @property
    def on_gpu(self) -> bool:
        """Whether the steps ran work on a GPU."""
        return not self.gpu.is_empty()

    @cached_property
    def step_us(self) -> float:
        """Mean time of a step: of the GPU where it worked, else of the range."""
        return float(self.parts["dur_us"].sum())

    @cached_property
    def host_us(self) -> float:
        """Mean time of a step's range on the host."""
        return float((self.steps["end_ns"] - self.steps["start_ns"]).sum()) / max(1, self.count) / 1000

    @cached_property
    def busy_us(self) -> float:
        """Mean time of a step in which something of it runs."""
        return float(self.parts.filter(pl.col("part") != "gaps")["dur_us"].sum())

    def marked(self, pattern: str) -> list[str]:
        """Return the distinct names of ranges in the windows that fit a pattern, such as the `attn|…` of a user's own calls."""
        names = self._rows.filter(pl.col("cat") == "user_annotation")["name"].unique()
        return sorted(names.filter(names.str.contains(pattern)))

    def part_pct(self, *names: str) -> float:
        """Return the share of the step's time that parts take."""
        return float(self.parts.filter(pl.col("part").is_in(names))["share_pct"].sum())

    @cached_property
    def names(self) -> pl.DataFrame:
        """Name, count and per_step of every operator and GPU activity, the most frequent first."""
        every = pl.concat([self.ops.filter(~pl.col("range")).select("name"), self.gpu.select("name")])
        counted = every.group_by("name").agg(count=pl.len()).sort("count", "name", descending=[True, False])
        return counted.with_columns(per_step=pl.col("count") / max(1, self.count))

    def share(self, pattern: str, *, inside: str | None = None, outside: str | None = None) -> Share | None:
        """Return how much of the steps the operators of a name are; None where there is none.

        Args:
            pattern: regular expression over operators' names.
            inside: only within an operator (or range) that fits this.
            outside: only where nothing around it fits this.
        """
        asked = pattern, inside, outside
        if asked not in self._shares:
            self._shares[asked] = self._share(*asked)
        return self._shares[asked]

    @cached_property
    def _shares(self) -> dict[tuple[str, str | None, str | None], Share | None]:
        return {}

    def _share(self, pattern: str, inside: str | None, outside: str | None) -> Share | None:
        fits = self.ops["name"].str.contains(pattern)
        if fits.any() and inside is not None:
            fits &= self._inside(inside)
        if fits.any() and outside is not None:
            fits &= ~self._inside(outside)
        if not fits.any():
            return None
        # Of one inside the other only the outer one counts in time; in count both are calls of that name.
        outer = fits & ~self._below(fits)
        total_us = float(self._times.filter(outer).sum()) / 1000 / max(1, self.count)
        return Share(int(fits.sum()) / max(1, self.count), total_us, 100 * total_us / self.step_us if self.step_us else 0.0)

    @cached_property
    def _times(self) -> pl.Series:
        """Nanoseconds of each operator with all it calls: on the GPU where the steps work there, else its own duration."""
        if not self.on_gpu:
            return self.ops["end_ns"] - self.ops["start_ns"]
        lengths = self.gpu.drop_nulls("op").group_by("op").agg(ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
        total = pl.zeros(self.ops.height, dtype=pl.Int64, eager=True).scatter(lengths["op"], lengths["ns"])
        for rows in reversed(list(self._levels())):
            sums = pl.DataFrame({"to": self.ops["parent"].gather(rows), "ns": total.gather(rows)}).drop_nulls("to")
            sums = sums.group_by("to").agg(pl.col("ns").sum())
            total = total.scatter(sums["to"], total.gather(sums["to"]) + sums["ns"])
        return total

    def _levels(self) -> Iterator[pl.Series]:
        """Give the rows of `ops` level by level, the outermost first."""
        depth = self.ops["depth"]
        for level in range(int(depth.max() or 0) + 1):  # type: ignore[arg-type]
            yield (depth == level).arg_true()

    def _inside(self, pattern: str) -> pl.Series:
        return self._below(self.ops["name"].str.contains(pattern))

    def _below(self, marked: pl.Series) -> pl.Series:
        """Return for each operator whether something around it is marked."""
        parents, below = self.ops["parent"], pl.repeat(False, self.ops.height, eager=True)
        for rows in self._levels():
            above = parents.gather(rows)
            found = (marked.gather(above) | below.gather(above)).fill_null(value=False)
            below = below.scatter(rows, found)
        return below
