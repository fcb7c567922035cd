"""Names of kernels and ranges: which of them match, and short forms without argument lists, namespaces and C++ lambdas."""

from __future__ import annotations

import re

import polars as pl

_PARENTHESES = 8
"""How deep argument lists nest before they are left as they are."""
_LONGEST = 4_000
"""Longer names are cut before they are worked on: a generated one may have megabytes."""
_LENGTH = re.compile(r"\d+")


def short_names(names: pl.Series) -> pl.Series:
    """Return a short form of each kernel name; different kernels may share one, so count names where you group by it.

    Args:
        names: kernel names, best each once.

    Example:
        >>> import polars as pl
        >>> short_names(pl.Series(["void at::native::reduce_kernel<512, at::native::MeanOps<float> >(MeanOps<float>)"])).item()
        'reduce_kernel<512, MeanOps<float>>'
        >>> short_names(pl.Series(["_ZN5aiter24add_rmsnorm_quant_kernelIDF16bLi256EEvPT0_"])).item()
        'add_rmsnorm_quant_kernel'
    """
    distinct = names.unique()
    text = pl.col("name").str.slice(0, _LONGEST).str.replace(r"^void ", "").str.replace_all(r"\(anonymous namespace\)::", "")
    # The operand types of the innermost lambda tell its instances apart; its numbers mean nothing to a reader.
    text = text.str.replace_all(r"::\{lambda\((\w[\w:, ]*)\)#\d+\}", "[$1]")
    text = text.str.replace_all(r"operator\(\)", "operator").str.replace_all(r"\((\w+::)*\w+\)(\d+)", "$2")
    for _ in range(_PARENTHESES):
        text = text.str.replace_all(r"\([^()]*\)", "")
    text = text.str.replace_all(r"(::\{[^{}]*\}|::operator\b( const)?|\{lambda[^{}]*\})+", "").str.replace_all(
        r">\[int(, bool)?\]", ">"
    )
    text = (
        text.str.replace_all(r"\b(\w+::)+", "")
        .str.replace_all(r"\s*>", ">")
        .str.replace_all(r" (const|volatile)\b", "")
        .str.replace_all(r"([\w>*])&", "$1")
    )
    made = pl.DataFrame({"name": distinct}).with_columns(short=text.str.strip_chars())
    mangled = distinct.filter(distinct.str.starts_with("_Z").fill_null(value=False))
    plain = {name: _demangled(name) for name in mangled}
    short = pl.coalesce(
        pl.col("name").replace_strict(plain, default=None, return_dtype=pl.String),
        pl.when(pl.col("short") != "").then("short"),
        "name",
    )
    return names.to_frame("name").join(
        made.select("name", short=short), on="name", how="left", nulls_equal=True, maintain_order="left"
    )["short"]


def matching(names: pl.Series, pattern: str) -> pl.Expr:
    """Return which rows have a name that matches; each distinct name is looked at once: they are few, and rows millions.

    Args:
        names: the column of the rows that holds the names, text or categorical.
        pattern: regular expression.

    Example:
        >>> import polars as pl
        >>> rows = pl.DataFrame({"name": ["gemm", "relu", "gemm", None]})
        >>> rows.filter(matching(rows["name"], "^g")).height
        2
    """
    distinct = names.unique()
    found = distinct.filter(distinct.cast(pl.String).str.contains(pattern).fill_null(value=False))
    return pl.col(names.name).is_in(found.implode())


def _demangled(name: str) -> str | None:
    """Return the last identifier of a mangled name's own path (`_ZN5aiter3addE...` is `add`), or None where it has none."""
    at, found = 3 if name.startswith("_ZN") else 2, None
    while hit := _LENGTH.match(name, at):
        start = hit.end()
        at = start + int(hit[0][:6])
        if at > len(name):
            break
        found = name[start:at]
    return found
