"""`kinetop rules`: the ordered rules, or the one that takes a name."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from . import shared

Name = Annotated[str | None, typer.Argument(help="Kernel name; without it, every rule in the order tried.", show_default=False)]
Collective = Annotated[str | None, typer.Option("--collective", help="`Collective name` beside the kernel.", show_default=False)]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("rules")(rules)


def rules(
    name: Name = None,
    *,
    collective: Collective = None,
    kind: shared.Kind = None,
    json: shared.Json = False,
    output: shared.Out = None,
) -> None:
    """Show the rules that class kernels, or which one takes NAME."""
    form = shared.chosen_format(kind, json, output)
    import polars as pl

    from kinetop.analysis import classify

    from ..output import dumped, frame_bytes

    shown = classify.rules() if name is None else (classify.explain(name, collective=collective),)
    rows = [_row(rule) for rule in shown]
    if form == "json":
        data = dumped({"schema": "kinetop.rules/1", "name": name, "user_file": str(classify.user_file()), "rules": rows})
    else:
        frame = pl.DataFrame(rows, schema=dict.fromkeys(rows[0], pl.String))
        data = frame_bytes(frame, form, shared.look(output))
    shared.put(data, output)


def _row(rule: Any) -> dict[str, str | None]:
    return {
        "rule": rule.id,
        "class": rule.class_,
        "family": rule.family,
        "implementation": rule.implementation,
        "pattern": rule.pattern,
        "collective": rule.collective,
        "source": rule.source,
    }
