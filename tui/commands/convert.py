"""`kinetop convert PATH… -o OUT`: keep traces as Parquet, or write them back as JSON."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..talk import ProgressLine, say, say_filter
from . import shared

if TYPE_CHECKING:
    import polars as pl

Out = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        help="A .parquet file, a .json file (Chrome trace), or a folder that gets rank=N/ for each trace.",
        show_default=False,
    ),
]


_NO_TRACE = {".csv", ".md", ".txt", ".gz", ".zst", ".zip"}
"""Suffixes that nobody gives to a folder."""


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("convert")(convert)


def convert(
    paths: shared.Paths,
    *,
    output: Out,
    where: shared.Where = None,
    json: Annotated[bool, typer.Option("--json", help="Say what was written as JSON.")] = False,
    jobs: shared.Jobs = None,
    no_cache: shared.NoCache = False,
) -> None:
    """Convert traces to Parquet files that Polars, pandas and DuckDB read as they are."""
    if output.suffix.lower() in {".parquet", ".json"}:
        shared.check_output(output, paths)
    elif output.suffix.lower() in _NO_TRACE and not output.is_dir():
        raise typer.BadParameter(f"a trace is written as .parquet or .json, or into a folder; {output.name} is none of them")
    started_s = time.monotonic()
    keep = None if where is None else condition(where)
    from kinetop.traces.convert import convert as write

    with ProgressLine() as progress:
        written = write(paths, output, where=keep, jobs=jobs, cache=not no_cache, progress=progress)
    took_s = time.monotonic() - started_s
    from ..document import plain
    from ..format import clean, plural, size
    from ..output import dumped

    if json:
        rows = [{key: plain(value) for key, value in one.items()} for one in written]
        shared.put(dumped({"schema": "kinetop.convert/1", "seconds": round(took_s, 3), "files": rows}), None)
        return
    for one in written:
        typer.echo(f"{clean(str(one['path']))}  rank {one['rank']}  {plural(one['events'], 'event')}  {size(one['bytes'])}")
    total = sum(one["events"] for one in written)
    say(f"wrote {plural(total, 'event')} in {took_s:,.1f} s")


def condition(where: str) -> pl.Expr:
    """Return the filter over the event table.

    Args:
        where: its text.
    """
    import polars as pl

    from kinetop.analysis.filter import predicate
    from kinetop.traces import schema
    from kinetop.traces.errors import FilterError

    kinds = {"int": pl.Int64(), "uint": pl.UInt64(), "float": pl.Float64(), "text": pl.String(), "json": pl.String()}
    try:
        return predicate(where, {name: kinds[kind] for name, kind in schema.COLUMNS.items()})
    except FilterError as error:
        say_filter(error, where)
        raise typer.Exit(2) from error
