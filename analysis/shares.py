"""Quotients of columns: null where there is nothing to divide by, never infinite."""

from __future__ import annotations

import polars as pl


def per(part: pl.Expr, whole: pl.Expr) -> pl.Expr:
    """Return part / whole; null where the whole is unknown or not above zero.

    Args:
        part: any number.
        whole: any number.

    Example:
        >>> rows = pl.DataFrame({"bytes": [6, 6], "ns": [4, 0]})
        >>> rows.select(per(pl.col("bytes"), pl.col("ns"))).to_series().to_list()
        [1.5, None]
    """
    return pl.when(whole > 0).then(part / whole)


def percent(part: pl.Expr, whole: pl.Expr) -> pl.Expr:
    """Return which share of the whole a part is, in percent; null as `per` is.

    Args:
        part: any number.
        whole: any number.

    Example:
        >>> rows = pl.DataFrame({"busy": [1, 0], "span": [4, 0]})
        >>> rows.select(percent(pl.col("busy"), pl.col("span"))).to_series().to_list()
        [25.0, None]
    """
    return per(100 * part, whole)


def weighted(value: pl.Expr, weight: pl.Expr) -> pl.Expr:
    """Return the mean of the values that are there, by weight; null where these weigh nothing.

    Args:
        value: what is averaged.
        weight: not negative.

    Example:
        >>> rows = pl.DataFrame({"fill": [1.0, 0.5, None], "ns": [1, 3, 9]})
        >>> rows.select(weighted(pl.col("fill"), pl.col("ns"))).item()
        0.625
    """
    return per((value * weight).sum(), weight.filter(value.is_not_null()).sum())
