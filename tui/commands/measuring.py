"""The options that `live`, `bench` and `doctor` share: what is measured, where, and with which Python."""

from __future__ import annotations

import platform
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import shared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinetop.traces.live.link import Start
    from kinetop.traces.live.worker.case import Case

DEFAULT_VARIANTS = "eager,eager-inplace,sdpa:*"
"""What is measured where nothing is named: no compiler needed, figures within seconds."""
DEFAULT_SHAPES = {"cpu": "1,8,512,64"}
DEFAULT_SHAPE = "4,32/8,4096,128"
"""On any device that is not in `DEFAULT_SHAPES`."""
_MODES = {"fwd": "forward", "bwd": "backward"}
_DTYPES = {"float64": "fp64", "float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "half": "fp16"}

Variants = Annotated[
    str,
    typer.Option(
        "--variants", "-v", help="Variants to measure, with commas: eager,sdpa:*,flex:window. `kinetop doctor` lists them."
    ),
]
Shape = Annotated[
    str | None,
    typer.Option(
        "--shape",
        help=f"B,Hq[/Hkv],S[/Sk],D[/Dv]; by default {DEFAULT_SHAPE}, on a CPU {DEFAULT_SHAPES['cpu']}.",
        show_default=False,
    ),
]
Shapes = Annotated[
    list[str] | None, typer.Option("--shape", help="B,Hq[/Hkv],S[/Sk],D[/Dv]; may be given more than once.", show_default=False)
]
Dtype = Annotated[
    str | None, typer.Option("--dtype", help="fp64, fp32, bf16 or fp16; bf16 by default, fp32 on a CPU.", show_default=False)
]
Causal = Annotated[bool, typer.Option("--causal/--full", help="Whether a query sees only the keys up to its own place.")]
Window = Annotated[
    int | None, typer.Option("--window", min=1, help="Keys that a query sees, its own included.", show_default=False)
]
Mode = Annotated[str, typer.Option("--mode", help="forward, backward (forward and backward together) or decode (one query).")]
Graph = Annotated[bool, typer.Option("--graph", help="Replay calls from a CUDA graph.", show_default=False)]
Device = Annotated[
    str | None,
    typer.Option(
        "--device", help="cpu, cuda, cuda:1, xpu, mps or xla; by default the GPU where one is seen.", show_default=False
    ),
]
Python = Annotated[
    str | None,
    typer.Option(
        "--python",
        help="Interpreter that has torch; by default the active environment's, else kinetop's own.",
        show_default=False,
    ),
]
Host = Annotated[
    str | None, typer.Option("--host", help="Measure on another machine, through ssh: user@box.", show_default=False)
]
Plugin = Annotated[
    list[str] | None, typer.Option("--plugin", help="Module with variants of your own; may be given again.", show_default=False)
]
Target = Annotated[
    str | None,
    typer.Option("--target", help="Your own callable or module: pkg.mod:fn or path/file.py:fn.", show_default=False),
]
Setup = Annotated[
    str | None, typer.Option("--setup", help="Function that makes the target's arguments: pkg.mod:fn.", show_default=False)
]
Input = Annotated[
    list[str] | None,
    typer.Option("--input", help="An argument of the target: q=bf16[8,16,1024,64]; may be given again.", show_default=False),
]
Price = Annotated[
    float | None,
    typer.Option(
        "--price-per-hour",
        min=0,
        callback=shared.finite,
        help="What an hour of the device costs; shows the cost of a call.",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class Wanted:
    """What the shared options ask for."""

    start: Start
    """How the worker is started."""
    cases: tuple[Case, ...]
    """At least one; `live` begins with the first."""
    variants: str
    """As written; the worker's catalog knows which there are."""
    price_per_hour: float | None = None


def wanted(
    *,
    variants: str = DEFAULT_VARIANTS,
    shapes: Sequence[str] = (),
    dtype: str | None = None,
    causal: bool = True,
    window: int | None = None,
    mode: str = "forward",
    device: str | None = None,
    graph: bool = False,
    python: str | None = None,
    host: str | None = None,
    plugin: Sequence[str] | None = None,
    target: str | None = None,
    setup: str | None = None,
    inputs: Sequence[str] | None = None,
    price_per_hour: float | None = None,
) -> Wanted:
    """Return what the options ask for, with every default filled in.

    Raises:
        BadParameter: an option cannot be understood, or two contradict each other.
    """
    from kinetop.traces.live.link import Start

    if host is not None:
        _check_host(host)
    if not variants.replace(",", "").strip():
        raise typer.BadParameter("--variants names none; `kinetop doctor` lists them")
    if setup and inputs:
        raise typer.BadParameter("--setup and --input both say how the target's arguments are made: give one")
    if target is None and (setup or inputs):
        raise typer.BadParameter("--setup and --input belong to --target")
    start = Start(
        python=python, host=host, plugins=tuple(plugin or ()), target=target, setup=setup or ";".join(inputs or ()) or None
    )
    on = device or default_device(host)
    rest = {
        "dtype": _DTYPES.get(dtype or "", dtype) or ("fp32" if on == "cpu" else "bf16"),
        "causal": causal,
        "window": window,
        "mode": _MODES.get(mode, mode),
        "device": on,
        "graph": graph,
    }
    texts = list(shapes) or [DEFAULT_SHAPES.get(on, DEFAULT_SHAPE)]
    return Wanted(start, tuple(_case(text, rest) for text in texts), variants, price_per_hour)


def _check_host(host: str) -> None:
    from kinetop.traces.errors import WorkerError
    from kinetop.traces.live.bootstrap import checked_host

    try:
        checked_host(host)
    except WorkerError as error:
        raise typer.BadParameter(f"--host: {error}") from error


def _case(shape: str, rest: dict[str, Any]) -> Case:
    from kinetop.traces.live.worker.case import Case

    try:
        return Case.of(shape, **rest)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def default_device(host: str | None = None) -> str:
    """Return where to measure when nobody says: a GPU that is seen here, else the CPU; on another machine its CUDA device."""
    if host is not None or shutil.which("nvidia-smi") or any(Path(name).exists() for name in ("/dev/nvidiactl", "/dev/kfd")):
        return "cuda"
    return "mps" if platform.system() == "Darwin" and platform.machine() == "arm64" else "cpu"
