"""Rules about matrix products that leave the matrix units idle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from ..where import where_name
from ..work import DEVICE
from .facts import Facts, short, whole
from .rule import Found, Place, rule

if TYPE_CHECKING:
    from collections.abc import Iterable

_FP32 = r"(?i)sgemm|xmma_gemm_f32f32_f32f32|simt_s|gemmSN_\w+<float, |gemmk1_kernel<.*float"
_MATRIX_UNITS = r"(?i)tf32|s1688|16816|tensorop"
TENSOR_CORES = 7
"""Compute capability from which NVIDIA devices have matrix units; from 8 on they take fp32 inputs as TF32."""


def fp32(name: pl.Expr) -> pl.Expr:
    """Return whether a product runs in fp32 on the ordinary units, as far as its name says so.

    Args:
        name: kernel names.
    """
    return (name.str.contains(_FP32) & ~name.str.contains(_MATRIX_UNITS)).fill_null(value=False)


def saved_share(facts: Facts, place: Place) -> float:
    """Return which share of an fp32 product's time 16-bit inputs could save at most: the ratio of the peaks, else all of it."""
    rates = facts.peaks(place).tflops
    slow, fast = rates.get("fp32"), rates.get("bf16", rates.get("fp16"))
    return 1 - slow / fast if slow and fast else 1.0


@rule("fp32-gemms")
def fp32_gemms(facts: Facts) -> Iterable[Found]:
    """Find fp32 matrix products on devices whose matrix units could run them; those of unfused attention are told there."""
    from .attention import patterns

    rows = facts.kernels.select(*DEVICE, "name", "dur_ns", "family").with_row_index("row")
    rows = rows.filter(pl.col("family") == "gemm").filter(fp32(pl.col("name")))
    inside = patterns(facts).select(row=pl.int_ranges("first", pl.col("last") + 1, dtype=pl.UInt32)).explode("row")
    rows = rows.join(inside, on="row", how="anti", maintain_order="left")
    for place, mine in facts.places(rows):
        major = facts.properties(place).get("computeMajor")
        if isinstance(major, int) and major < TENSOR_CORES:
            continue
        total = whole(mine["dur_ns"].sum())
        ratio = saved_share(facts, place)
        name = mine.group_by("name").agg(pl.col("dur_ns").sum()).sort("dur_ns", "name", descending=True)["name"][0]
        tf32 = not isinstance(major, int) or major > TENSOR_CORES
        known = ratio < 1
        yield Found(
            place=place,
            saving_ns=int(total * ratio),
            what=f"Matrix products in fp32 take {facts.share(total, place)} on units that are not the matrix units:"
            f" {mine.height:,} of them, most in {short(name)}.",
            view="kernels",
            where=where_name(name),
            confidence="medium",
            why="told from kernel names; "
            + (
                "the saving is the ratio of the device's peaks"
                if known
                else "the device's peaks are not known: the saving is a bound"
            ),
            fix="" if tf32 else "Run the model under autocast in fp16: this device's matrix units take no fp32 inputs.",
        )
