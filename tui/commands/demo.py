"""`kinetop demo`: a synthetic training trace to try things on."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from ..talk import on_terminal, say
from . import shared  # noqa: TC001 -- Typer reads the annotations
from .opening import open_, summarise

Json = Annotated[bool, typer.Option("--json", help="Print the summary as JSON and open nothing.")]
Keep = Annotated[
    Path | None,
    typer.Option("--keep", metavar="FOLDER", help="Write the traces to this folder and leave them there.", show_default=False),
]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(demo)


def demo(*, json: Json = False, keep: Keep = None, jobs: shared.Jobs = None) -> None:
    """Write a training trace of two ranks, print its summary, and open it where stdout is a terminal."""
    from kinetop.traces import cache
    from kinetop.traces.synthetic import write_demo

    with tempfile.TemporaryDirectory(prefix="kinetop-demo-") as temporary:
        folder = keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        paths = write_demo(folder)
        if keep is not None:
            say(f"wrote {', '.join(map(str, paths))}")
        kept = [cache.entry(path) for path in paths]
        try:
            summarise(paths, json=json, jobs=jobs)
            if not json and on_terminal():
                open_(paths, jobs=jobs)
        finally:
            for entry in kept if keep is None else ():  # nobody can open again what is gone
                entry.unlink(missing_ok=True)
