"""What commands have in common: opening traces, choosing where the output goes."""

from __future__ import annotations

import math
import os
import secrets
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..talk import ProgressLine, is_plain, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinetop.traces.trace import TraceSet

    from ..output import Format, Look

Paths = Annotated[
    list[Path],
    typer.Argument(
        metavar="PATH...", help="Traces, folders of traces or Parquet traces; - is standard input.", show_default=False
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", "-j", min=1, metavar="N", help="Slices decoded at a time; the cores by default.", show_default=False),
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Neither use nor fill the cache of imported traces.")]
Kind = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="table, json, csv, md or parquet; by default what -o's suffix says, else table.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="The same as --format json.")]
Out = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write to this file; its suffix says the format.", show_default=False),
]
Where = Annotated[
    str | None,
    typer.Option(
        "--where", help="Filter: words, /regex/, !not, dur > 100us and stream = 7.", metavar="FILTER", show_default=False
    ),
]
Window = Annotated[
    str | None,
    typer.Option(
        "--window",
        metavar="WINDOW",
        help="gpu (first to last GPU work, the default), trace, or START..END such as 10ms..12.5ms.",
        show_default=False,
    ),
]
Step = Annotated[
    str | None, typer.Option("--step", metavar="STEPS", help="Profiler steps: 13, 12-14 or last.", show_default=False)
]
Rank = Annotated[int | None, typer.Option("--rank", min=0, metavar="N", help="Only this rank.", show_default=False)]
Device = Annotated[int | None, typer.Option("--device", min=0, metavar="N", help="Only this GPU.", show_default=False)]
Top = Annotated[
    int | None, typer.Option("--top", min=1, metavar="N", help="Only the first rows of the main table.", show_default=False)
]


def opened(paths: Sequence[Path], *, jobs: int | None = None, cache: bool = True) -> TraceSet:
    """Open traces with a progress line.

    Args:
        paths: what the user named.
        jobs: slices decoded at a time.
        cache: keep the imported trace for next time.

    Raises:
        TraceError: a file cannot be read as a trace.
        CancelledError: the user stopped it.
    """
    from kinetop.traces.trace import open_traces

    with ProgressLine() as progress:
        return open_traces(paths, jobs=jobs, cache=cache, progress=progress)


def chosen_format(kind: str | None, as_json: bool, out: Path | None, inputs: Sequence[Path] = ()) -> Format:  # noqa: FBT001
    """Return the format of the output, before anything costly is done.

    Raises:
        BadParameter: the options contradict each other, or the output would replace an input.
    """
    from ..output import format_of

    if as_json and kind not in {None, "json"}:
        raise typer.BadParameter(f"--json and --format {kind} contradict each other")
    try:
        found = format_of("json" if as_json else kind, out)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    check_output(out, inputs)
    if found == "parquet" and out is None and sys.stdout.isatty():
        raise typer.BadParameter("Parquet is not for a terminal: give -o FILE, or send stdout to a file")
    return found


def check_output(out: Path | None, inputs: Sequence[Path]) -> None:
    """Refuse an output that is a folder, one of the inputs, or in a folder that takes no files.

    Raises:
        BadParameter: it is.
    """
    if out is None:
        return
    if not out.exists():
        if not out.parent.is_dir():
            raise typer.BadParameter(f"{out} cannot be written: there is no folder {out.parent}")
        if not os.access(out.parent, os.W_OK):
            raise typer.BadParameter(f"{out} cannot be written: the folder {out.parent} is read-only")
        return
    if any(path.exists() and out.samefile(path) for path in inputs):
        raise typer.BadParameter(f"{out} is the trace itself; write to another file")
    if out.is_dir():
        raise typer.BadParameter(f"{out} is a folder; name a file in it")


def finite(value: float | None) -> float | None:
    """Refuse an option's value that is no finite number; `min` lets nan through.

    Raises:
        BadParameter: it is.
    """
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value:g} is no finite number")
    return value


def put(data: bytes, out: Path | None) -> None:
    """Write data to a file, which is then whole or as it was before, or to stdout.

    Args:
        data: everything there is to write.
        out: the file; None means stdout.
    """
    if out is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    part = out.with_name(f".{out.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        part.write_bytes(data)
        part.replace(out)
    except OSError as error:
        say(f"kinetop: {out} cannot be written: {error.strerror or error}")
        raise typer.Exit(2) from error
    finally:
        part.unlink(missing_ok=True)


def look(out: Path | None) -> Look:
    """Return how text is laid out: for the terminal that stdout is, or plainly for a pipe or a file."""
    from ..output import PLAIN, Look

    if out is not None or not sys.stdout.isatty():
        return PLAIN
    return Look(shutil.get_terminal_size().columns, not is_plain(sys.stdout))
