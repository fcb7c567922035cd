"""`kinetop gate NEW --baseline OLD`: whether a benchmark is worse than a baseline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..talk import say
from . import shared

if TYPE_CHECKING:
    from kinetop.analysis.gate import GateResult

    from ..output import Look

New = Annotated[
    Path, typer.Argument(help="The run to judge: a .json or .parquet of `kinetop bench`, or a session.", show_default=False)
]
Baseline = Annotated[
    Path,
    typer.Option(
        "--baseline", "-b", help="What it is held against: a run, a history in Parquet, a folder of runs.", show_default=False
    ),
]
Threshold = Annotated[float, typer.Option("--threshold", help="Change of the median that matters, percent.")]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        help="A structural check that may differ: backend, ops, copies, allocations, peak or numerics; may be given again.",
        show_default=False,
    ),
]
Markdown = Annotated[
    Path | None, typer.Option("--markdown", help="Write the result to this file, as Markdown.", show_default=False)
]
Junit = Annotated[Path | None, typer.Option("--junit", help="Write the result to this file, as JUnit XML.", show_default=False)]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("gate")(gate)


def gate(
    new: New,
    *,
    baseline: Baseline,
    threshold: Threshold = 5.0,
    allow: Allow = None,
    markdown: Markdown = None,
    junit: Junit = None,
    json: Annotated[bool, typer.Option("--json", help="Write the result to stdout as JSON.")] = False,
) -> None:
    """Compare a benchmark with a baseline: structure first, then time with an interval; exits with 1 when it is worse."""
    for path in (markdown, junit):
        shared.check_output(path, [new, baseline])
    result = _compared(new, baseline, threshold, allow or [])
    from ..output import dumped

    for path, write in ((markdown, result.to_markdown), (junit, result.to_junit)):
        if path is not None:
            shared.put(write().encode(), path)
            say(f"wrote {path}")
    shared.put(dumped(result.to_dict()) if json else _text(result, shared.look(None)).encode(), None)
    if result.refused:
        say(f"kinetop: {new} and {baseline} cannot be compared: {'; '.join(result.refused)}")
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def _compared(new: Path, baseline: Path, threshold: float, allow: list[str]) -> GateResult:
    from kinetop.analysis.benchmark import load
    from kinetop.analysis.gate import compare
    from kinetop.analysis.structural import NAMES

    if not 0 < threshold < 1000:
        raise typer.BadParameter(f"--threshold is a share above 0 percent, not {threshold:g}")
    if unknown := [name for name in allow if name not in NAMES]:
        raise typer.BadParameter(f"--allow is one of {', '.join(NAMES)}, not {', '.join(unknown)}")
    return compare(load(new)[-1], load(baseline), threshold, allow=allow)


def _text(result: GateResult, look: Look) -> str:
    from kinetop.analysis.gate_report import COLUMNS, table

    from ..format import clean
    from ..text import declared_table

    lines = [clean(result.summary), f"{clean(result.new)} against {clean(result.old)}, {result.threshold_pct:g} %"]
    if result.verdicts:
        lines += ["", declared_table(table(result), COLUMNS, look).rstrip("\n")]
    return "\n".join([*lines, *(f"note: {clean(note)}" for note in result.notes)]) + "\n"
