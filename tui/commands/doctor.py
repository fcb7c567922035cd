"""`kinetop doctor`: what can be measured here, or on another machine, and what stands in the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..talk import say
from . import measuring as m
from . import shared

if TYPE_CHECKING:
    from ..examination import Examination
    from ..output import Look

SHAPE = "1,4,64,64"
"""Small, and any variant with equal heads takes it."""
_UNREADABLE = 3


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("doctor")(doctor)


def doctor(
    *,
    shape: Annotated[str, typer.Option("--shape", help="B,Hq[/Hkv],S[/Sk],D[/Dv] that variants are asked about.")] = SHAPE,
    dtype: m.Dtype = None,
    causal: m.Causal = True,
    window: m.Window = None,
    mode: m.Mode = "forward",
    device: m.Device = None,
    python: m.Python = None,
    host: m.Host = None,
    plugin: m.Plugin = None,
    kind: shared.Kind = None,
    json: shared.Json = False,
    output: shared.Out = None,
) -> None:
    """Say what is available here and why not: torch, devices, compiler, profiler, telemetry, every variant."""
    form = shared.chosen_format(kind, json, output)
    asked = m.wanted(
        shapes=[shape],
        dtype=dtype,
        causal=causal,
        window=window,
        mode=mode,
        device=device,
        python=python,
        host=host,
        plugin=plugin,
    )
    say("measuring one small case; this takes as long as torch needs to load")
    from ..examination import examine
    from ..output import dumped, frame_bytes

    found = examine(asked.start, asked.cases[0])
    look = shared.look(output)
    if form == "json":
        data = dumped(found.document())
    elif form == "table":
        data = _text(found, look).encode()
    else:
        data = frame_bytes(found.checks_frame(), form, look)
    shared.put(data, output)
    if not found.measures:
        raise typer.Exit(_UNREADABLE)


def _text(found: Examination, look: Look) -> str:
    from ..text import bare_table

    checks = bare_table(found.checks_frame(), look)
    variants = bare_table(found.variants_frame(), look) if found.variants else ""
    return checks + ("\n" + variants if variants else "")
