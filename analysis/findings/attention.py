"""Rules about attention that runs as separate matrix products and a softmax instead of one fused kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from kinetop.traces import schema

from ..where import where_name
from ..work import DEVICE
from .facts import Facts, short, times_text, whole
from .matrix import fp32, saved_share
from .rule import Found, rule

if TYPE_CHECKING:
    from collections.abc import Iterable

BETWEEN = ("elementwise", "copy", "triton", "quantize")
"""Families that may stand between a product and the softmax: scale, mask, dropout, casts."""
REACH = 6
"""Kernels from the softmax to either product, at most."""
FEWEST = 2
"""Times that it must recur."""
_LOG_SOFTMAX = r"(?i)log_?softmax|softmax_warp_(forward|backward)<[^<>]*, \d+, true|cross_?entropy"
_MATH = "aten::_scaled_dot_product_attention_math"


@rule("attention-unfused")
def attention_unfused(facts: Facts) -> Iterable[Found]:
    """Find matrix product, softmax, matrix product on a stream, with little between them."""
    found = patterns(facts)
    if found.height < FEWEST:
        return
    math = _sdpa_math(facts)
    for place, rows in facts.places(found):
        times = whole(rows["span_ns"].sum())
        gemms = whole(rows.filter("fp32")["gemm_ns"].sum())
        ns = times - whole(rows["gemm_ns"].sum()) + int(gemms * saved_share(facts, place))
        name = rows.group_by("name").agg(pl.col("span_ns").sum()).sort("span_ns", "name", descending=True)["name"][0]
        path = "through SDPA's math path" if math else "without a fused kernel"
        precision = ", its products in fp32" if 2 * gemms > whole(rows["gemm_ns"].sum()) else ""
        what = (
            f"Attention runs {path}{precision}: {times_text(rows.height, 'time')} product, softmax, product take"
            f" {facts.share(times, place)}; a fused kernel would not write the scores ({short(name)})."
        )
        yield Found(
            place=place,
            saving_ns=ns,
            what=what,
            view="kernels",
            where=where_name(name),
            confidence="high" if math else "medium",
            why="the trace names the math path"
            if math
            else "told from the order of the kernels: product, softmax, product on one stream",
        )


def patterns(facts: Facts) -> pl.DataFrame:
    """Return each softmax between two products: place, name, span_ns (all kernels of it), gemm_ns, fp32, first and last row.

    Args:
        facts: what is known; rows are those of `Facts.kernels`.
    """
    return facts.kept("attention", lambda: _patterns(facts.kernels))


def _patterns(kernels: pl.DataFrame) -> pl.DataFrame:
    lane = [*DEVICE, "stream"]
    softmax = kernels.filter(pl.col("family") == "softmax")["name"].unique()
    softmax = softmax.filter(~softmax.str.contains(_LOG_SOFTMAX))
    if softmax.is_empty():
        kernels = kernels.clear()
    gemm, inner = pl.col("family") == "gemm", pl.col("family").is_in(list(BETWEEN))
    rows = kernels.select(*lane, "name", "dur_ns", "family").with_row_index("row")
    rows = rows.with_columns(softmax=(pl.col("family") == "softmax") & pl.col("name").is_in(softmax.implode()), gemm=gemm)
    return _marked(rows.with_columns(broken=~(gemm | inner | pl.col("softmax"))), lane)


def _marked(rows: pl.DataFrame, lane: list[str]) -> pl.DataFrame:
    """Keep the softmaxes that have a product on either side and nothing strange between."""
    at = pl.when("gemm").then("row")
    rows = rows.with_columns(
        upto=pl.col("dur_ns").cum_sum(), products=pl.when("gemm").then("dur_ns").otherwise(0).cum_sum(),
        breaks=pl.col("broken").cum_sum(),
        first=at.forward_fill().over(lane), last=at.backward_fill().over(lane),
    )  # fmt: skip
    found = rows.filter(
        pl.col("softmax") & (pl.col("row") - pl.col("first") <= REACH) & (pl.col("last") - pl.col("row") <= REACH)
    )
    found = _widened(found, rows)
    first, last = (rows[found[side]] for side in ("first", "last"))
    found = found.with_columns(
        span_ns=last["upto"] - first["upto"] + first["dur_ns"],
        gemm_ns=last["products"] - first["products"] + first["dur_ns"],
        fp32=first.select(fp32(pl.col("name"))).to_series() & last.select(fp32(pl.col("name"))).to_series(),
        whole=first["breaks"] == last["breaks"],
    )
    return found.filter("whole").select(*DEVICE, "name", "span_ns", "gemm_ns", "fp32", "first", "last")


def _widened(found: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Backward has two products on either side: take in the second one, where it is the same kernel."""
    beside = rows.select("name", before=pl.col("name").shift(1), after=pl.col("name").shift(-1))
    back = pl.col("name").str.contains("(?i)backward")
    same = {"first": pl.col("name") == pl.col("before"), "last": pl.col("name") == pl.col("after")}
    more = {side: beside[found[side]].select(test.fill_null(value=False)).to_series() for side, test in same.items()}
    return found.with_columns(
        first=pl.col("first") - pl.when(back & more["first"]).then(1).otherwise(0).cast(pl.UInt32),
        last=pl.col("last") + pl.when(back & more["last"]).then(1).otherwise(0).cast(pl.UInt32),
    )


def _sdpa_math(facts: Facts) -> bool:
    names = facts.work.trace.events.filter(pl.col("cat").is_in(list(schema.OP_CATS)), pl.col("name") == _MATH)
    return bool(names.select(pl.len()).collect().item())
