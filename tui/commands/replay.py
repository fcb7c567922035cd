"""`kinetop replay FILE`: a recorded session on the live screen, or its figures where stdout is no terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..talk import on_terminal, say
from . import measuring as m
from . import shared
from .opening import Ascii, NoMouse, Theme  # noqa: TC001 -- Typer reads the annotations

if TYPE_CHECKING:
    from kinetop.traces.live.recording import Recording
    from kinetop.traces.report import Notice

File = Annotated[
    Path | None, typer.Argument(help="A session that `live` or `bench` recorded, or its .journal.", show_default=False)
]
Demo = Annotated[bool, typer.Option("--demo", help="The session that comes with kinetop, recorded on a CPU.")]
Pace = Annotated[
    float,
    typer.Option("--pace", min=0, callback=shared.finite, help="Times faster than it was recorded; 0 shows the end at once."),
]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("replay")(replay)


def replay(
    path: File = None,
    *,
    demo: Demo = False,
    pace: Pace = 1.0,
    kind: shared.Kind = None,
    json: shared.Json = False,
    output: shared.Out = None,
    price_per_hour: m.Price = None,
    theme: Theme = None,
    ascii_only: Ascii = False,
    no_mouse: NoMouse = False,
) -> None:
    """Show a recorded session as it was live; needs no torch. Prints its figures where stdout is no terminal."""
    chosen = _chosen(path, demo=demo)
    form = shared.chosen_format(kind, json, output, [chosen])
    if kind is None and not json and output is None and on_terminal():
        from ..live_app import run_live
        from ..live_feed import FeedOptions
        from ..options import Options

        feed = FeedOptions(session=chosen, pace=pace, price_per_hour=price_per_hour)
        raise typer.Exit(run_live(feed, options=Options(ascii=ascii_only, theme=theme, mouse=not no_mouse)))
    notices: list[Notice] = []
    recording = read(chosen, notices)
    from .bench import whole_document, written

    made = whole_document(recording, {}, {"price_per_hour": price_per_hour})
    shared.put(written(made, form, shared.look(output), command=f"kinetop replay {chosen.name}"), output)
    for notice in notices:
        say(f"note: {notice.message}")
    if output is not None:
        say(f"wrote {output}")


def _chosen(path: Path | None, *, demo: bool) -> Path:
    """Return the session to show.

    Raises:
        BadParameter: neither or both were named.
        TraceError: the file is no session.
    """
    from kinetop.traces.errors import NotATraceError
    from kinetop.traces.live import session

    if demo == (path is not None):
        raise typer.BadParameter("name a session, or give --demo for the one that comes with kinetop")
    chosen = session.demo() if path is None else path
    if not chosen.is_file():
        raise typer.BadParameter(f"there is no file {chosen}")
    if not session.is_session(chosen):
        session.frames(chosen)  # says what is the matter with a file that is a damaged session
        raise NotATraceError(f"{chosen}: this is no recorded session; `kinetop {chosen}` opens traces")
    return chosen


def read(path: Path, notices: list[Notice] | None = None) -> Recording:
    """Return all that a session holds."""
    from kinetop.traces.live import session
    from kinetop.traces.live.recording import Recording

    made = Recording()
    for frame in session.frames(path, notices):
        made.add(frame)
    return made
