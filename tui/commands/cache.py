"""`kinetop cache list` and `kinetop cache clear`."""

from __future__ import annotations

from datetime import datetime

import typer

from ..talk import say
from . import shared


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="List or clear the imported traces that are kept.", rich_markup_mode=None, no_args_is_help=True)
    group.command("list")(list_)
    group.command("clear")(clear)
    app.add_typer(group, name="cache")


def list_(*, kind: shared.Kind = None, json: shared.Json = False, output: shared.Out = None) -> None:
    """List the imported traces, the one used last first."""
    form = shared.chosen_format(kind, json, output)
    import polars as pl

    from kinetop.traces.cache import entries as cache_entries

    from ..output import dumped, frame_bytes

    entries = [
        {
            **{key: value if isinstance(value, int) else str(value) for key, value in entry.items()},
            "used": datetime.fromtimestamp(entry["used"]).astimezone().isoformat(" ", "seconds"),
        }
        for entry in cache_entries()
    ]
    if form == "json":
        data = dumped({"schema": "kinetop.cache/1", "entries": entries})
    elif entries:
        table = pl.DataFrame(entries)
        if form == "table":
            table = table.with_columns(pl.col("used").str.head(16))  # to the minute; the time zone is the terminal's own
        data = frame_bytes(table, form, shared.look(output))
    else:
        say("the cache is empty")
        return
    shared.put(data, output)


def clear() -> None:
    """Delete every imported trace that is kept."""
    from kinetop.traces.cache import clear as clear_cache

    from ..format import plural, size

    count, freed = clear_cache()
    typer.echo(f"deleted {plural(count, 'trace')}, {size(freed)}")
