"""Captures of one rank told apart: some runs profile a rank several times, each time into a file of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from .question import Column, as_declared

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .work import Work

WINDOW = Column("window", "id", "which capture of its rank, from 1; only there when one rank has several files", priority=2)
"""Column that tells captures of one rank apart."""


def told(rows: pl.DataFrame, work: Work, columns: Iterable[Column]) -> pl.DataFrame:
    """Give rows the form that their table declares, see `as_declared`; with `WINDOW` only where one rank has several files.

    Args:
        rows: part and what is declared.
        work: what the question was asked about.
        columns: what is declared.

    Example:
        >>> import kinetop
        >>> from kinetop.analysis.work import scoped
        >>> work = scoped(kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False))
        >>> told(work.gpu.head(1), work, (Column("name", "text", "kernel"), Column("dur_us", "us", "duration"), WINDOW)).columns
        ['name', 'dur_us']
    """
    files = work.windows.group_by("rank").agg(pl.col("part").n_unique())
    several = not files.filter(pl.col("part") > 1).is_empty()
    captures = {part: one.window + 1 for part, one in enumerate(work.trace.traces)}
    rows = rows.with_columns(window=pl.col("part").replace_strict(captures, return_dtype=pl.Int64))
    return as_declared(rows, [column for column in columns if several or column is not WINDOW])
