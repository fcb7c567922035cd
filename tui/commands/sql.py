"""`kinetop sql TRACE "select …"`."""

from __future__ import annotations

from typing import Annotated

import typer

from ..talk import say, say_filter
from . import shared

Query = Annotated[
    str,
    typer.Argument(
        help="One SELECT. Tables: events, activities (gpu), launches, and those of every question.", show_default=False
    ),
]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("sql")(sql)


def sql(
    paths: shared.Paths,
    query: Query,
    *,
    kind: shared.Kind = None,
    json: shared.Json = False,
    output: shared.Out = None,
    jobs: shared.Jobs = None,
    no_cache: shared.NoCache = False,
) -> None:
    """Run a read-only SQL query over traces (DuckDB's dialect)."""
    form = shared.chosen_format(kind, json, output, paths)
    if len(paths) > 1 and not paths[-1].exists() and " " in str(paths[-1]):
        raise typer.BadParameter("the query comes last, as one argument in quotes")
    trace = shared.opened(paths, jobs=jobs, cache=not no_cache)
    from kinetop.analysis.sql import query as run
    from kinetop.traces.errors import FilterError

    try:
        frame = run(trace, query)
    except FilterError as error:
        say_filter(error, query)
        raise typer.Exit(2) from error
    from ..document import rows, trace_facts
    from ..output import dumped, frame_bytes

    if form == "json":
        data = dumped({"schema": "kinetop.sql/1", "trace": trace_facts(trace), "query": query, "rows": rows(frame)})
    else:
        data = frame_bytes(frame, form, shared.look(output))
    shared.put(data, output)
    if output is not None:
        say(f"wrote {output}")
