"""`kinetop live`: attention variants side by side in the terminal, while they are measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..talk import on_terminal
from . import measuring as m
from . import shared
from .opening import Ascii, NoMouse, Theme  # noqa: TC001 -- Typer reads the annotations

if TYPE_CHECKING:
    from kinetop.traces.live.link import Start

Record = Annotated[
    Path | None,
    typer.Option(
        "--record", help="Record the session to this .parquet file; `kinetop replay` shows it again.", show_default=False
    ),
]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("live")(live)


def live(
    *,
    variants: m.Variants = m.DEFAULT_VARIANTS,
    shape: m.Shape = None,
    dtype: m.Dtype = None,
    causal: m.Causal = True,
    window: m.Window = None,
    mode: m.Mode = "forward",
    device: m.Device = None,
    graph: m.Graph = False,
    python: m.Python = None,
    host: m.Host = None,
    plugin: m.Plugin = None,
    target: m.Target = None,
    setup: m.Setup = None,
    inputs: m.Input = None,
    record: Record = None,
    price_per_hour: m.Price = None,
    theme: Theme = None,
    ascii_only: Ascii = False,
    no_mouse: NoMouse = False,
) -> None:
    """Profile attention variants in the terminal, live; needs torch here, in --python or on --host."""
    asked = m.wanted(
        variants=variants, shapes=[shape] if shape else [], dtype=dtype, causal=causal, window=window, mode=mode,
        device=device, graph=graph, python=python, host=host, plugin=plugin, target=target, setup=setup, inputs=inputs,
        price_per_hour=price_per_hour,
    )  # fmt: skip
    if record is not None:
        check_session(record)
    if not on_terminal():
        raise typer.BadParameter("live needs a terminal; `kinetop bench` measures the same without one")
    start = with_torch(asked.start)
    from ..live_app import run_live
    from ..live_feed import FeedOptions
    from ..options import Options

    names = f"target*,{asked.variants}" if target else asked.variants
    feed = FeedOptions(start=start, case=asked.cases[0], variants=names, record=record, price_per_hour=asked.price_per_hour)
    raise typer.Exit(run_live(feed, options=Options(ascii=ascii_only, theme=theme, mouse=not no_mouse)))


def with_torch(start: Start) -> Start:
    """Return the start with its interpreter found; on another machine the worker says what is missing there.

    Raises:
        TorchMissingError: there is no torch; says what to install.
    """
    from kinetop.traces.errors import TorchMissingError
    from kinetop.traces.live import interpreter

    if start.host is not None:
        return start
    if start.python is None:
        return replace(start, python=interpreter.find())
    if not interpreter.has_torch(start.python):
        raise TorchMissingError(interpreter.why_not(start.python))
    return start


def check_session(path: Path) -> None:
    """Refuse a session file that cannot be written, or that would replace one.

    Raises:
        BadParameter: it is so.
    """
    if path.suffix.lower() != ".parquet":
        raise typer.BadParameter(f"a session is a .parquet file; {path.name} is none")
    shared.check_output(path, [])
    if path.exists():
        raise typer.BadParameter(f"{path} is there already; name another file")
