"""`kinetop open`, and `kinetop PATH`: the terminal app, or the summary where stdout is no terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..talk import on_terminal
from . import shared  # noqa: TC001 -- Typer reads the annotations

Ascii = Annotated[bool, typer.Option("--ascii", help="Draw with ASCII characters only.")]
Theme = Annotated[str | None, typer.Option("--theme", metavar="NAME", help="Colour theme.", show_default=False)]
NoMouse = Annotated[bool, typer.Option("--no-mouse", help="Leave the mouse to the terminal, so that it can select text.")]
View = Annotated[str, typer.Option("--view", metavar="NAME", help="View to begin with.")]
PathsOrNone = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="PATH...", help="Traces, folders or Parquet traces; none begins at the recent ones.", show_default=False
    ),
]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("open")(open_)


def open_(
    paths: PathsOrNone = None,
    *,
    where: shared.Where = None,
    window: shared.Window = None,
    step: shared.Step = None,
    rank: shared.Rank = None,
    device: shared.Device = None,
    view: View = "overview",
    theme: Theme = None,
    ascii_only: Ascii = False,
    no_mouse: NoMouse = False,
    jobs: shared.Jobs = None,
    no_cache: shared.NoCache = False,
) -> None:
    """Open traces in the terminal app; print the summary where stdout is no terminal."""
    if on_terminal():
        from ..app import run
        from ..options import Options

        options = Options(
            where=where, rank=rank, device=device, step=step, window=window, jobs=jobs, cache=not no_cache,
            ascii=ascii_only, theme=theme, mouse=not no_mouse, view=view,
        )  # fmt: skip
        raise typer.Exit(run(paths or [], options=options))
    if not paths:
        raise typer.BadParameter("name a trace: the terminal app, which lists recent ones, needs a terminal")
    summarise(paths, where=where, window=window, step=step, rank=rank, device=device, jobs=jobs, no_cache=no_cache)


def summarise(paths: list[Path], **options: object) -> None:
    """Print the summary of traces."""
    from kinetop.analysis.question import all_questions

    from .ask import answer

    answer(all_questions()["summary"], paths, **options)  # type: ignore[arg-type]
