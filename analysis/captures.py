"""What a row is of: rank, device, and which capture, where a run profiled a rank several times, each time into its own file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from .question import Column, as_declared

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .work import Work

RANK = Column("rank", "id", "rank of the process", priority=0)
"""Column of the rank."""
PLACE = (RANK, Column("device", "id", "GPU index", priority=0))
"""Columns that tell devices apart."""
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
    return as_declared(*numbered(rows, work, columns))


def numbered(rows: pl.DataFrame, work: Work, columns: Iterable[Column]) -> tuple[pl.DataFrame, list[Column]]:
    """Add to rows which capture of its rank each is of, where one rank has several files; else drop that column from the table.

    Args:
        rows: has `part`.
        work: the scope of the rows.
        columns: of the table, `WINDOW` among them.
    """
    if not _several(work):
        return rows, [column for column in columns if column is not WINDOW]
    captures = {part: one.window + 1 for part, one in enumerate(work.trace.traces)}
    return rows.with_columns(window=pl.col("part").replace_strict(captures, return_dtype=pl.Int64)), list(columns)


def _several(work: Work) -> bool:
    """Whether a rank in scope has several files: by what the files say, and by the ranks of the work in them."""
    files = [one.rank for one in work.trace.traces if work.scope.rank in (None, one.rank)]
    parts = work.windows.group_by("rank").agg(pl.col("part").n_unique())
    return len({*files}) < len(files) or bool((parts["part"] > 1).any())
