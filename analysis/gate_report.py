"""A gate's result for people, pull requests and CI systems."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from .question import Column
from .trials import framed

if TYPE_CHECKING:
    import polars as pl

    from .gate import GateResult, Verdict

COLUMNS = (
    Column("variant", "text", "name of the variant", priority=0),
    Column("case", "text", "the case in a few words", priority=2),
    Column(
        "verdict", "text", "FASTER, SAME, SLOWER, UNDECIDED; CHANGED: a structural check failed; FAILED, MISSING, NEW", priority=0
    ),
    Column("old_us", "us", "median in the baseline", "old", priority=2),
    Column("new_us", "us", "median in this run", "new", priority=2),
    Column("ratio", "ratio", "new median over old median; above 1 is slower", priority=1),
    Column("low", "ratio", "lower end of the ratio's bootstrap 95 % interval", priority=2),
    Column("high", "ratio", "upper end of the ratio's bootstrap 95 % interval", priority=2),
    Column("why", "text", "what differs, or why it is undecided", priority=0),
)
"""Columns of `table`."""
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML cannot hold."""
_ESCAPED = str.maketrans({**{char: f"\\{char}" for char in "\\`*_[]|"}, "<": "&lt;", ">": "&gt;", "\n": " ", "\r": " "})


def table(result: GateResult) -> pl.DataFrame:
    """Return the verdicts as a frame with `COLUMNS`."""
    return framed((_row(verdict) for verdict in result.verdicts), COLUMNS)


def _row(verdict: Verdict) -> dict[str, Any]:
    time = asdict(verdict.time) if verdict.time else {}
    return {**time, "variant": verdict.variant, "case": verdict.case, "verdict": verdict.outcome, "why": verdict.why}


def as_dict(result: GateResult) -> dict[str, Any]:
    """Return a result as plain JSON values."""
    from .gate import SCHEMA

    return {
        "schema": SCHEMA,
        "new": result.new,
        "old": result.old,
        "threshold_pct": result.threshold_pct,
        "exit_code": result.exit_code,
        "summary": result.summary,
        "refused": list(result.refused),
        "notes": list(result.notes),
        "verdicts": [
            {
                **_row(verdict),
                "time_verdict": verdict.time.outcome if verdict.time else None,
                "checks": [asdict(check) for check in verdict.checks],
            }
            for verdict in result.verdicts
        ],
    }


def markdown(result: GateResult) -> str:
    """Return a result as Markdown: the summary, a table, the notes."""
    lines = [
        f"**kinetop gate {result.summary.partition(':')[0]}**",
        "",
        f"`{result.new}` against `{result.old}`, {result.threshold_pct:g} %",
    ]
    if result.refused:
        return "\n".join([*lines, "", *(f"- {_escaped(reason)}" for reason in result.refused)]) + "\n"
    lines += ["", "| variant | case | verdict | old µs | new µs | ratio | 95 % | why |", "|---|---|---|---:|---:|---:|---|---|"]
    for verdict in result.verdicts:
        time = verdict.time
        figures = ["", "", "", ""]
        if time is not None and time.ratio is not None:
            figures = [f"{time.old_us:,.1f}", f"{time.new_us:,.1f}", f"{time.ratio:.3f}", f"{time.low:.3f} to {time.high:.3f}"]
        mark = verdict.outcome if verdict.ok else f"**{verdict.outcome}**"
        lines.append(
            "| " + " | ".join([_escaped(verdict.variant), _escaped(verdict.case), mark, *figures, _escaped(verdict.why)]) + " |"
        )
    return "\n".join([*lines, "", *(f"- {_escaped(note)}" for note in result.notes)]).rstrip() + "\n"


def junit(result: GateResult) -> str:
    """Return a result as JUnit XML; runs that cannot be compared are one test case with an error."""
    failures = sum(not verdict.ok for verdict in result.verdicts)
    skipped = sum(verdict.outcome == "UNDECIDED" for verdict in result.verdicts)
    counts = {"tests": len(result.verdicts) or 1, "failures": failures, "errors": int(bool(result.refused)), "skipped": skipped}
    suite = ET.Element("testsuite", {"name": "kinetop gate", **{name: str(count) for name, count in counts.items()}})
    if result.refused:
        case = ET.SubElement(suite, "testcase", {"classname": "kinetop.gate", "name": "comparable"})
        ET.SubElement(case, "error", {"message": _xml("; ".join(result.refused))})
    for verdict in result.verdicts:
        case = ET.SubElement(suite, "testcase", {"classname": _xml(verdict.variant), "name": _xml(verdict.case)})
        if not verdict.ok:
            ET.SubElement(case, "failure", {"type": verdict.outcome, "message": _xml(verdict.why or _ratio(verdict))})
        elif verdict.outcome == "UNDECIDED":
            ET.SubElement(case, "skipped", {"message": _xml(verdict.why)})
        told = [*(check.why for check in verdict.checks), _ratio(verdict)]
        ET.SubElement(case, "system-out").text = _xml("\n".join(line for line in told if line))
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=False) + "\n"


def _ratio(verdict: Verdict) -> str:
    time = verdict.time
    if time is None or time.ratio is None:
        return ""
    span = f"x{time.ratio:.3f} ({time.low:.3f} to {time.high:.3f})"
    return f"{time.outcome}: {time.old_us:,.1f} µs before, {time.new_us:,.1f} µs now, {span}"


def _xml(text: str) -> str:
    return _FORBIDDEN.sub("?", text)


def _escaped(text: str) -> str:
    """Return a text in which Markdown and HTML see nothing of their own."""
    return text.translate(_ESCAPED)
