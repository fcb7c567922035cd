"""Write the pages of docs/ that come from the code: questions, findings, keys, events, figures. usage: build.py."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from inspect import getmembers, isclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kinetop.analysis.findings import WEIGHTS
from kinetop.analysis.findings.rule import rules
from kinetop.analysis.question import all_questions
from kinetop.traces import schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.binding import Binding

    from kinetop.analysis.question import Question, Table

DOCS = Path(__file__).resolve().parent
MADE = "Made from the code by `just docs`; do not edit."
GROUPS = {
    "app": "Everywhere",
    "view": "In every view",
    "scope": "Steps and window",
    "table": "In a table",
    "filter": "In the filter line",
    "question": "In the view of a question without a screen of its own",
    "entry": "Where a value is typed",
    "home": "At the list of traces",
    "path": "In the path line",
    "importing": "While a trace is imported",
    "export": "In the export dialogue",
    "page": "On a page of help",
    "live": "On the live screen",
    "case": "In the form of a case",
    "choose": "In the list of variants",
    "choice": "On a line of choices",
    "links": "On lines that lead somewhere",
}
"""Heading of each group of keys, by the first part of a binding's id; a view's own keys follow under its name."""


def pages() -> dict[str, str]:
    """Return the text of every page that comes from the code, by file name."""
    return {
        "questions.md": questions_page(),
        "findings.md": findings_page(),
        "keys.md": keys_page(),
        "events.md": events_page(),
        "figures.md": figures_page(),
    }


def questions_page() -> str:
    """Return the page of all questions: options, tables, definitions of the columns."""
    lines = [
        "# Questions",
        "",
        MADE,
        "",
        "Each question is a command (`kinetop NAME TRACE`), a function (`kinetop.NAME(trace)`, a Polars frame) and a view.",
        "Its JSON has one member per table. Times are microseconds with three decimals; null means that there is no such value.",
    ]
    for question in all_questions().values():
        lines += ["", *_question(question)]
    return "\n".join(lines) + "\n"


def _question(question: Question) -> Iterator[str]:
    yield f"## {question.name}"
    yield ""
    yield f"{question.about} JSON schema: `{question.schema}`."
    if question.parameters:
        yield ""
        yield from _rows(
            ("option", "default", "what"),
            [
                (f"`--{p.name.replace('_', '-')}`", p.default, p.about + (f": {', '.join(p.choices)}" if p.choices else ""))
                for p in question.parameters
            ],
        )
    for table in question.tables:
        yield ""
        yield from _table(table)


def _table(table: Table) -> Iterator[str]:
    yield f"### {table.name}"
    yield ""
    said = [table.about] if table.about else []
    said += [f"Sorted by `{table.sort}`, largest first."] if table.sort else []
    if said:
        yield " ".join(said)
        yield ""
    yield from _rows(
        ("column", "unit", "definition"), [(f"`{column.name}`", column.unit, column.about) for column in table.columns]
    )


def findings_page() -> str:
    """Return the page of the rules behind `kinetop findings`."""
    weights = ", ".join(f"{name} {weight:g}" for name, weight in WEIGHTS.items())
    lines = [
        "# Findings",
        "",
        MADE,
        "",
        "`kinetop findings` looks for what costs time that could be saved. A rule says nothing below its share of the window;",
        "where no rule speaks, the answer is that nothing stands out. Savings are upper bounds: two rules may count the same",
        f"time, so they do not add up. Rows are ranked by share of the window, weighted by confidence ({weights}).",
        "Of several devices on which a rule finds the same, the one it costs most stands for all.",
        "",
        "The rules are `analysis/rules/findings.toml` (these texts) and one function each under `analysis/findings/`.",
    ]
    for rule in rules().values():
        least = f"From {rule.at_least_pct:g} % of the window on. " if rule.at_least_pct else ""
        lines += ["", f"## {rule.code}", "", f"{rule.about} {least}".rstrip(), "", f"What to do: {rule.fix}"]
    return "\n".join(lines) + "\n"


def keys_page() -> str:
    """Return the page of all keys, grouped by where they apply."""
    groups: dict[str, dict[str, Binding]] = {}
    for binding in _bindings():
        group, _, name = (binding.id or "").partition(".")
        if binding.description:
            groups.setdefault(group, {})[name] = binding
    lines = [
        "# Keys",
        "",
        MADE,
        "",
        "`?` lists every command with its key, `F1` explains the view at hand.",
    ]
    for group in [*GROUPS, *sorted(set(groups) - set(GROUPS))]:
        if group in groups:
            rows = [(_shown(binding), _sentence(binding.tooltip or binding.description)) for binding in groups[group].values()]
            lines += ["", f"## {GROUPS.get(group, f'In {group}')}", "", *_rows(("key", "does"), rows)]
    return "\n".join(lines) + "\n"


def _bindings() -> Iterator[Binding]:
    """Return every binding declared under kinetop.tui, in the order of modules and declarations."""
    from textual.binding import Binding

    package = import_module("kinetop.tui")
    for module in pkgutil.walk_packages(package.__path__, "kinetop.tui."):
        for _, holder in getmembers(import_module(module.name), isclass):
            if holder.__module__ == module.name:
                yield from (entry for entry in vars(holder).get("BINDINGS", ()) if isinstance(entry, Binding))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _shown(binding: Binding) -> str:
    from textual.keys import format_key

    keys = [binding.key_display] if binding.key_display else [format_key(key.strip()) for key in binding.key.split(",")]
    return " ".join(f"`{key}`" for key in keys)


def events_page() -> str:
    """Return the page of the event table."""
    lines = [
        "# The event table",
        "",
        MADE,
        "",
        f"One row per event of the trace, version {schema.SCHEMA_VERSION}. It is what a Parquet trace holds, what `kinetop sql`",
        "calls `events`, and `trace.events` in Python. Kinds: int i64, uint u64, float f64, text, json (JSON text of a value).",
        "",
    ]
    head = [(f"`{name}`", kind, about) for name, kind, about in schema.HEAD_COLUMNS]
    args = [(f"`{arg.column}`", arg.kind, f"{arg.about} (`{arg.key}`)") for arg in schema.ARGS]
    tail = [(f"`{name}`", kind, about) for name, kind, about in schema.TAIL_COLUMNS]
    lines += [*_rows(("column", "kind", "what"), head), "", "Members of an event's `args`, with the name in the trace:", ""]
    lines += [*_rows(("column", "kind", "what"), args), "", "What is left:", "", *_rows(("column", "kind", "what"), tail)]
    return "\n".join(lines) + "\n"


def figures_page() -> str:
    """Return the page of the columns that a benchmark, a sweep and the gate give."""
    from kinetop.analysis import gate_report, sweep, trials

    tables = {
        "Trials": trials.COLUMNS,
        "Best variants": sweep.BEST_COLUMNS,
        "Crossovers": sweep.CROSSOVER_COLUMNS,
        "Frontier": sweep.FRONTIER_COLUMNS,
        "Gate": gate_report.COLUMNS,
    }
    lines = [
        "# Figures of a benchmark",
        "",
        MADE,
        "",
        "One row a trial: a variant on a case. Times are microseconds, null where there is no such value.",
        "How they are measured, the files and the gate: [bench.md](bench.md).",
    ]
    for title, columns in tables.items():
        lines += ["", f"## {title}", ""]
        lines += _rows(("column", "unit", "definition"), [(f"`{column.name}`", column.unit, column.about) for column in columns])
    return "\n".join(lines) + "\n"


def _rows(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> Iterator[str]:
    for row in (head, ("---",) * len(head), *rows):
        yield "| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |"


def main() -> None:
    """Write the pages."""
    for name, text in pages().items():
        (DOCS / name).write_text(text)


if __name__ == "__main__":
    main()
