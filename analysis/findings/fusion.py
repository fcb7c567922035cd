"""Rules about elementwise work that one kernel could do instead of many."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from ..work import DEVICE
from .facts import Facts, short, time_text, times_text, whole
from .rule import Found, rule

if TYPE_CHECKING:
    from collections.abc import Iterable

TINY_NS = 5_000
"""Mean duration below which the kernels of a run count as tiny."""
TINY_RUN, RUN = 4, 3
"""Kernels that a run has at least."""


@rule("tiny-kernels")
def tiny_kernels(facts: Facts) -> Iterable[Found]:
    """Find runs of very short elementwise kernels."""
    runs = _runs(facts).filter((pl.col("kernels") >= TINY_RUN) & (pl.col("mean_ns") < TINY_NS))
    return _told(facts, runs, f"dur < {TINY_NS // 1000}us", "a fused kernel reads and writes the same elements once")


@rule("unfused-elementwise")
def unfused_elementwise(facts: Facts) -> Iterable[Found]:
    """Find runs of longer elementwise kernels over the same number of elements."""
    runs = _runs(facts).filter((pl.col("kernels") >= RUN) & (pl.col("mean_ns") >= TINY_NS))
    return _told(facts, runs, f"dur >= {TINY_NS // 1000}us", "a fused kernel would still read every input of the run once")


def _runs(facts: Facts) -> pl.DataFrame:
    """Return runs of elementwise kernels that follow each other on a stream with the same grid and nothing between them."""
    return facts.kept("runs", lambda: _made(facts.kernels))


def _made(kernels: pl.DataFrame) -> pl.DataFrame:
    lane = [*DEVICE, "stream"]
    rows = kernels.with_row_index("row").filter(pl.col("family") == "elementwise")
    apart = pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift(1)) for name in (*lane, "grid"))
    rows = rows.with_columns(run=(apart | (pl.col("row") != pl.col("row").shift(1) + 1)).fill_null(value=True).cum_sum())
    # Names in order of the alphabet, as numbers: the most frequent one of each run is a maximum of few small integers.
    names = rows["name"].unique().sort()
    rows = rows.with_columns(number=names.search_sorted(rows["name"]))
    often = rows.group_by("run", "number").agg(times=pl.len()).sort("number").sort("times", descending=True, maintain_order=True)
    often = often.unique("run", keep="first", maintain_order=True)
    runs = rows.group_by("run", maintain_order=True).agg(
        pl.col(*DEVICE, "grid").first(),
        kernels=pl.len(),
        span_ns=pl.col("end_ns").max() - pl.col("start_ns").min(),
        sum_ns=pl.col("dur_ns").sum(),
        longest_ns=pl.col("dur_ns").max(),
    )
    runs = runs.join(often, on="run", how="left", maintain_order="left")
    return runs.with_columns(names.gather(runs["number"]), mean_ns=pl.col("sum_ns") / pl.col("kernels"))


def _told(facts: Facts, runs: pl.DataFrame, limit: str, why: str) -> Iterable[Found]:
    # Time between the kernels of a run counts up to what a launch takes on the GPU; longer gaps have a cause of their own.
    between = pl.min_horizontal(pl.col("span_ns") - pl.col("sum_ns"), 2_000 * (pl.col("kernels") - 1)).clip(0)
    runs = runs.with_columns(saved_ns=pl.col("sum_ns") - pl.col("longest_ns") + between)
    for place, rows in facts.places(runs):
        ns = whole(rows["saved_ns"].sum())
        name = rows.group_by("name").agg(pl.col("saved_ns").sum()).sort("saved_ns", "name", descending=True)["name"][0]
        kernels = whole(rows["kernels"].sum())
        mean = whole(rows["sum_ns"].sum()) / kernels
        what = (
            f"{times_text(rows.height, 'run')} of elementwise kernels over the same elements, {kernels / rows.height:.3g}"
            f" kernels of {time_text(mean)} each on average ({short(name)}): one kernel a run would save"
            f" {facts.share(ns, place)}."
        )
        known = bool(rows["grid"].null_count() < rows.height)
        yield Found(
            place=place,
            saving_ns=ns,
            what=what,
            view="kernels",
            where=f"family = 'elementwise' and {limit}",
            confidence="medium" if known else "low",
            why=f"same grid, one after the other on a stream; {why}" if known else "the trace holds no grids to compare",
        )
