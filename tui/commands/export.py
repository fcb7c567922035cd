"""`kinetop export PATH… -o OUT`: a trace as Chrome JSON, with counter tracks where wanted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..talk import say
from . import shared

if TYPE_CHECKING:
    from kinetop.traces.trace import TraceSet

Out = Annotated[Path, typer.Option("--output", "-o", help="A .json file, or a .json.gz one.", show_default=False)]
Counters = Annotated[
    bool,
    typer.Option("--counters", help="Add counter tracks: launch queue, busy share, copy bandwidth by kind, allocated memory."),
]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("export")(export)


def export(
    paths: shared.Paths,
    *,
    output: Out,
    counters: Counters = False,
    buckets: Annotated[int, typer.Option(min=1, max=1_000_000, help="At most so many values of each counter track.")] = 1000,
    where: shared.Where = None,
    rank: shared.Rank = None,
    jobs: shared.Jobs = None,
    no_cache: shared.NoCache = False,
) -> None:
    """Write a trace as Chrome JSON, which Perfetto opens; a filter narrows the trace's own events."""
    if not output.name.lower().endswith((".json", ".json.gz")):
        raise typer.BadParameter(f"a Chrome trace is written as .json or .json.gz; {output.name} is neither")
    shared.check_output(output, paths)
    from .convert import condition

    keep = None if where is None else condition(where)
    trace = shared.opened(paths, jobs=jobs, cache=not no_cache)
    part = _chosen(trace, rank)
    from kinetop.analysis.series_tracks import counter_tracks
    from kinetop.traces.export import write_json

    more = list(counter_tracks(trace, part, buckets)) if counters else []
    if counters and not more:
        say("no counter tracks: the trace holds no GPU work")
    written = write_json(trace.traces[part], output, keep, more)
    from ..format import plural

    of_them = f", {len(more):,} of them of counter tracks" if more else ""
    say(f"wrote {plural(written, 'event')} to {output}{of_them}")


def _chosen(trace: TraceSet, rank: int | None) -> int:
    """Return the position of the one trace to write."""
    ranks = [one.rank for one in trace.traces]
    fit = [part for part, one in enumerate(ranks) if rank in (None, one)]
    if len(fit) == 1:
        return fit[0]
    if not fit:
        raise typer.BadParameter(f"there is no rank {rank}")
    raise typer.BadParameter(f"{len(fit)} traces do not go into one file: name one file, or choose with --rank")
