"""`kinetop flame PATH… -o OUT`: stacks with their cost, for flame graph viewers."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Annotated, Literal

import typer

from ..talk import say, say_filter
from . import shared

Out = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="A .folded file (a stack a line, for flamegraph.pl) or a .speedscope.json one; without it, folded stacks on stdout.",
        show_default=False,
    ),
]
Weight = Annotated[
    Literal["cpu", "device"],
    typer.Option("--weight", help="What a stack is worth: its own CPU time, or the durations of the GPU work launched from it."),
]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("flame")(flame)


def flame(
    paths: shared.Paths,
    *,
    output: Out = None,
    weight: Weight = "cpu",
    where: shared.Where = None,
    window: shared.Window = None,
    step: shared.Step = None,
    rank: shared.Rank = None,
    device: shared.Device = None,
    jobs: shared.Jobs = None,
    no_cache: shared.NoCache = False,
) -> None:
    """Write the stacks of a trace as flame data, in nanoseconds."""
    if output is not None and output.suffix.lower() not in {".folded", ".json"}:
        raise typer.BadParameter(f"flame data is written as .folded or .speedscope.json; {output.name} is neither")
    shared.check_output(output, paths)
    trace = shared.opened(paths, jobs=jobs, cache=not no_cache)
    from kinetop.analysis.flame import folded, speedscope, stacks
    from kinetop.analysis.work import scoped
    from kinetop.traces.errors import FilterError

    try:
        found = stacks(scoped(trace, where=where, window=window, step=step, rank=rank, device=device), weight)
    except FilterError as error:
        say_filter(error, where)
        raise typer.Exit(2) from error
    if output is not None and output.suffix.lower() == ".json":
        text = jsonlib.dumps(speedscope(found, f"{paths[0].name}, {weight} time"), ensure_ascii=False)
    else:
        text = "".join(f"{line}\n" for line in folded(found))
    shared.put(text.encode("utf-8", "replace"), output)
    from ..format import plural

    if not found:
        what = "GPU work" if weight == "device" else "host ranges"
        say(f"no stacks: the trace holds no {what} in scope")
    elif output is not None:
        say(f"wrote {plural(len(found), 'stack')} to {output}")
