"""A recording as text: the figures of its trials, case by case, and what was found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .format import clean
from .text import table_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from kinetop.analysis.live_findings import Finding
    from kinetop.traces.live.recording import Recording

    from .output import Look

SHOWN = (
    "variant", "backend", "median_us", "low_us", "high_us", "vs_base", "useful_tflops", "peak_pct", "peak_bytes", "n",
    "state", "why",
)  # fmt: skip
"""Columns of the text, in this order; the JSON and CSV have all."""
_MARKS = {"error": "x", "warning": "!", "info": "i"}


def report(recording: Recording, figures: pl.DataFrame, look: Look, *, about: str) -> str:
    """Return what was measured as text.

    Args:
        recording: what was said.
        figures: its trials, as `kinetop.analysis.trials.table` gives them.
        look: width and marks.
        about: first words: which command, which file.
    """
    from kinetop.analysis.live_findings import find
    from kinetop.analysis.trials import COLUMNS

    known = {column.name: column for column in COLUMNS}
    columns = [known[name] for name in SHOWN if name in known]
    lines = [clean("  ".join([about, *machine(recording.environment)]))]
    for case in figures["case"].unique(maintain_order=True):
        lines += ["", clean(case), table_text(used(figures.filter(figures["case"] == case)), columns, look).rstrip()]
    if figures.is_empty():
        lines += ["", "nothing was measured"]
    found = finding_lines(find(recording))
    lines += ["", *found] if found else []
    return "\n".join(lines) + "\n"


def used(figures: pl.DataFrame) -> pl.DataFrame:
    """Return the columns that have a value in some row; the variant and its state always stay."""
    return figures.select(name for name in figures.columns if name in {"variant", "state"} or not figures[name].is_null().all())


def machine(environment: dict[str, Any]) -> list[str]:
    """Return the host, the device and the version of torch, as far as they are known."""
    texts = [
        environment.get("host"),
        environment.get("device_name"),
        environment.get("torch") and f"torch {environment['torch']}",
    ]
    return [str(text) for text in texts if text]


def finding_lines(found: Sequence[Finding]) -> list[str]:
    """Return findings as lines, three for each: what, evidence, what to do."""
    lines: list[str] = []
    for finding in found:
        lines += [
            clean(f"{_MARKS[finding.level]} {finding.variant}: {finding.title}", 400),
            clean(f"    seen: {finding.evidence}", 400),
            clean(f"    do:   {finding.fix}", 400),
        ]
    return lines
