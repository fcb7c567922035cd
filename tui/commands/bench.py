"""`kinetop bench`: measure attention variants to the end, once, without a screen."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..talk import say
from . import measuring as m
from . import shared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinetop.traces.live.recording import Recording
    from kinetop.traces.live.worker.case import Case

    from ..output import Format, Look

_UNREADABLE = 3
_TIME = re.compile(r"(\d+(?:\.\d+)?)(ms|s)")
_KINDS = {".json", ".parquet"}

Outs = Annotated[
    list[Path] | None,
    typer.Option(
        "--out", "-o", help="Keep the result in this .json or .parquet file too; may be given again.", show_default=False
    ),
]
Samples = Annotated[int, typer.Option("--samples", min=1, help="Timed calls of each variant, at least.")]
MinTime = Annotated[str, typer.Option("--min-time", help="Time of these calls together, at least: 200ms, 2s.")]
Seed = Annotated[
    int, typer.Option("--seed", min=0, max=2**32 - 1, help="Of the inputs, the order of the variants and the intervals.")
]
Sweep = Annotated[
    list[str] | None,
    typer.Option(
        "--sweep",
        help="Sizes to run through: seq=512:65536:x2, batch=1:8:+1, dim=64,128, heads=8,16; may be given again.",
        show_default=False,
    ),
]
TraceDir = Annotated[
    Path | None, typer.Option("--trace-dir", help="Folder that gets a Chrome trace of each variant.", show_default=False)
]
Dispatch = Annotated[
    Path | None,
    typer.Option(
        "--dispatch", help="Write the table of which variant to take for which shape to this .json file.", show_default=False
    ),
]
Append = Annotated[bool, typer.Option("--append", help="Add to the runs in the .parquet file of --out: a history for the gate.")]
Base = Annotated[
    str | None, typer.Option("--base", help="Variant that others are compared with; eager, else the first.", show_default=False)
]
Windows = Annotated[int, typer.Option("--windows", min=0, help="Profiled windows of each variant, for parts and operators.")]
Peak = Annotated[
    float | None,
    typer.Option(
        "--peak-tflops",
        min=0,
        callback=shared.finite,
        help="Peak of the device, TFLOP/s, where kinetop does not know it.",
        show_default=False,
    ),
]
Bandwidth = Annotated[
    float | None,
    typer.Option("--peak-gbs", min=0, callback=shared.finite, help="Memory bandwidth of the device, GB/s.", show_default=False),
]
Log = Annotated[
    list[str] | None,
    typer.Option(
        "--log", help="Send the result to tensorboard:DIR, wandb:PROJECT, mlflow:URI or neptune:PROJECT too.", show_default=False
    ),
]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("bench")(bench)


def bench(
    *,
    variants: m.Variants = m.DEFAULT_VARIANTS,
    shape: m.Shapes = None,
    dtype: m.Dtype = None,
    causal: m.Causal = True,
    window: m.Window = None,
    mode: m.Mode = "forward",
    device: m.Device = None,
    graph: m.Graph = False,
    sweep: Sweep = None,
    samples: Samples = 30,
    min_time: MinTime = "200ms",
    windows: Windows = 1,
    seed: Seed = 0,
    base: Base = None,
    out: Outs = None,
    append: Append = False,
    dispatch: Dispatch = None,
    trace_dir: TraceDir = None,
    kind: Annotated[str | None, typer.Option("--format", help="table, json, csv or md on stdout.", show_default=False)] = None,
    json: shared.Json = False,
    log: Log = None,
    peak_tflops: Peak = None,
    peak_gbs: Bandwidth = None,
    price_per_hour: m.Price = None,
    python: m.Python = None,
    host: m.Host = None,
    plugin: m.Plugin = None,
    target: m.Target = None,
    setup: m.Setup = None,
    inputs: m.Input = None,
) -> None:
    """Measure attention variants: times with intervals, rates, errors, parts; needs torch here, in --python or on --host."""
    asked = m.wanted(
        variants=variants, shapes=shape or (), dtype=dtype, causal=causal, window=window, mode=mode, device=device, graph=graph,
        python=python, host=host, plugin=plugin, target=target, setup=setup, inputs=inputs, price_per_hour=price_per_hour,
    )  # fmt: skip
    form = shared.chosen_format(kind, json, None)
    if form == "parquet":
        raise typer.BadParameter("stdout gets table, json, csv or md; --out FILE.parquet writes Parquet")
    _check_files(out or [], dispatch, append=append)
    loggers = _checked_loggers(log or [])
    how = {"samples": samples, "min_time_ms": _milliseconds(min_time), "windows": windows}
    cases = _cases(asked.cases, sweep or [])
    names = [*(["target*"] if target else []), *asked.variants.split(",")]
    if base is not None and not any(fnmatch(base, name.strip()) for name in names):
        raise typer.BadParameter(f"--base {base} is none of the --variants: {asked.variants}")
    _make_folder(trace_dir)
    recording = _measured(replace(asked, start=replace(asked.start, seed=seed), cases=tuple(cases)), names, how, trace_dir)
    settings = {"variants": asked.variants, "seed": seed, "sweep": sweep or [], **how}
    figures = {"base": base, "price_per_hour": price_per_hour, "seed": seed, "peaks": _peaks(recording, peak_tflops, peak_gbs)}
    made = whole_document(recording, settings, figures)
    _keep(made, out or [], dispatch, append=append)
    shared.put(written(made, form, shared.look(None)), None)
    for sentence in loggers.log(made, log) if loggers and log else ():
        say(sentence)
    if not any(trial["n"] for trial in made["trials"]):
        say("kinetop: nothing could be measured; the table says why")
        raise typer.Exit(_UNREADABLE)


def _check_files(out: Sequence[Path], dispatch: Path | None, *, append: bool) -> None:
    for path in out:
        if path.suffix.lower() not in _KINDS:
            raise typer.BadParameter(f"--out is a .json or a .parquet file; {path.name} is none")
        shared.check_output(path, [])
    if dispatch is not None:
        if dispatch.suffix.lower() != ".json":
            raise typer.BadParameter(f"--dispatch is a .json file; {dispatch.name} is none")
        shared.check_output(dispatch, [])
    if append and not any(path.suffix.lower() == ".parquet" for path in out):
        raise typer.BadParameter("--append adds to a .parquet file: name it with --out")


def _make_folder(trace_dir: Path | None) -> None:
    try:
        if trace_dir is not None:
            trace_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"--trace-dir {trace_dir} cannot be made: {error.strerror}") from error


def _checked_loggers(specs: Sequence[str]) -> Any:
    if not specs:
        return None
    from .. import loggers

    try:
        loggers.check(specs)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    return loggers


def _milliseconds(text: str) -> float:
    found = _TIME.fullmatch(text.replace(" ", ""))
    if found is None:
        raise typer.BadParameter(f"--min-time is a time such as 200ms or 2s, not {text!r}")
    return float(found[1]) * (1000 if found[2] == "s" else 1)


def _cases(cases: Sequence[Case], sweeps: Sequence[str]) -> list[Case]:
    from kinetop.analysis.sweep import axis, spread

    try:
        return spread(cases, [axis(text) for text in sweeps])
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _measured(asked: m.Wanted, names: Sequence[str], how: dict[str, Any], trace_dir: Path | None) -> Recording:
    """Measure, with what happens on standard error.

    Raises:
        WorkerError: no worker can be had, or it could not begin.
        BadParameter: there is no such variant.
    """
    from kinetop.traces.errors import WorkerError
    from kinetop.traces.live.measure import measure

    from ..bench_progress import BenchProgress
    from .live import with_torch

    start = with_torch(asked.start)
    with BenchProgress(len(asked.cases)) as progress:
        recording = measure(start, asked.cases, names, trace_dir=trace_dir, progress=progress, **how)
    if start.target is not None and recording.log:
        said = f"{len(recording.log):,} lines, the last: {recording.log[-1]}" if len(recording.log) > 1 else recording.log[-1]
        say(f"the worker wrote on standard error: {said}")
    if not recording.trials:
        first, last = (recording.errors[0], recording.errors[-1]) if recording.errors else ({}, {})
        why = str(first.get("message") or "the worker measured nothing and did not say why").removeprefix("bench: ")
        raise typer.BadParameter(why) if last.get("type") == "ValueError" else WorkerError(why)
    return recording


def _peaks(recording: Recording, tflops: float | None, gb_s: float | None) -> Any:
    from kinetop.analysis.peaks import given, peaks_of

    return given(tflops, gb_s, peaks_of(recording.environment.get("device_name")))


def whole_document(recording: Recording, settings: dict[str, Any], figures: dict[str, Any]) -> dict[str, Any]:
    """Return the bench document, with what a sweep says where there are several cases."""
    from kinetop.analysis import benchmark
    from kinetop.analysis.sweep import choose
    from kinetop.analysis.trials import framed

    from ..document import plain, rows

    made = benchmark.document(recording, settings=settings, **figures)
    chosen = choose(framed(made["trials"]), environment=recording.environment)
    if len(recording.cases) > 1:
        tables = {"best": chosen.best, "crossovers": chosen.crossovers, "frontier": chosen.frontier}
        made["sweep"] = {name: rows(frame) for name, frame in tables.items()}
    made["dispatch"] = plain(chosen.dispatch)
    return made


def _keep(made: dict[str, Any], out: Sequence[Path], dispatch: Path | None, *, append: bool) -> None:
    from ..output import dumped

    for path in out:
        shared.put(_parquet(made, path, append=append) if path.suffix.lower() == ".parquet" else dumped(made), path)
        say(f"wrote {path}")
    if dispatch is not None:
        shared.put(dumped(made["dispatch"]), dispatch)
        say(f"wrote {dispatch}")


def _parquet(made: dict[str, Any], path: Path, *, append: bool) -> bytes:
    import polars as pl

    from kinetop.analysis import benchmark

    frame, data = benchmark.frame(made), io.BytesIO()
    if append and path.exists():
        frame = pl.concat([pl.read_parquet(path), frame], how="diagonal")
    frame.write_parquet(data)
    return data.getvalue()


def written(made: dict[str, Any], form: Format, look: Look, *, command: str = "kinetop bench") -> bytes:
    """Return a bench document in a format.

    Args:
        made: the document.
        form: the format; CSV, Markdown and Parquet hold the trials.
        look: how text is laid out.
        command: how text begins.
    """
    from kinetop.analysis.trials import framed

    from ..output import dumped, frame_bytes

    if form == "json":
        return dumped(made)
    if form == "table":
        from ..bench_text import report

        return report(made, look, command=command).encode()
    return frame_bytes(framed(made["trials"]), form, look)
