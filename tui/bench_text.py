"""A bench document for a person: the table of trials, parts, what a sweep says, findings."""

from __future__ import annotations

from dataclasses import replace
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import polars as pl

from kinetop.analysis.parts import PARTS
from kinetop.analysis.question import Column
from kinetop.analysis.sweep import BEST_COLUMNS, CROSSOVER_COLUMNS, FRONTIER_COLUMNS
from kinetop.analysis.trials import CASE_COLUMNS, COLUMNS, framed

from .format import clean, plural
from .text import declared_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .output import Look

_LEFT_OUT = frozenset({"group", "exact", *(column.name for column in CASE_COLUMNS)})
"""The case stands in a column, or above the table, as text."""
_ALWAYS = frozenset({"variant", "state", "median_us"})
_SWEEP = {"best": BEST_COLUMNS, "crossovers": CROSSOVER_COLUMNS, "frontier": FRONTIER_COLUMNS}
_TITLES = {
    "best": "best variant of each case",
    "crossovers": "where the best variant changes",
    "frontier": "how far each variant goes",
}
_FINDINGS = 12


def report(document: Mapping[str, Any], look: Look, *, command: str = "kinetop bench") -> str:
    """Return a bench document as text.

    Args:
        document: as `analysis.benchmark.document` makes it, with `sweep` where several cases were measured.
        look: width and marks.
        command: the first words.
    """
    trials = framed(document["trials"])
    cases = trials["case"].unique(maintain_order=True).to_list()
    parts = ["\n".join(map(clean, _heading(document, cases, command))) + "\n", declared_table(*_figures(trials), look)]
    if document["parts"]:
        parts.append("time of a step by part, %\n" + declared_table(*_parts(document["parts"], trials), look))
    for name, columns in _SWEEP.items():
        if rows := document.get("sweep", {}).get(name):
            parts.append(f"{_TITLES[name]}\n" + declared_table(framed(rows, columns), columns, look))
    found = "\n".join(_findings(document["findings"], look.width or 120))
    return "\n".join([*parts, *([found + "\n"] if found else [])])


def _figures(trials: pl.DataFrame) -> tuple[pl.DataFrame, list[Column]]:
    """Return the table of trials; rates below a TFLOP/s are written in GFLOP/s."""
    columns, rates = shown(trials), [column.name for column in COLUMNS if column.name.endswith("_tflops")]
    fastest = trials.select(pl.max_horizontal(pl.col(rates).max())).item()
    if fastest is None or fastest >= 1:
        return trials, columns
    labelled = [
        replace(column, label=column.label.replace("TF/s", "GF/s")) if column.name in rates else column for column in columns
    ]
    return trials.with_columns(pl.col(rates) * 1000), labelled


def shown(trials: pl.DataFrame) -> list[Column]:
    """Return the columns of a table of trials that say something here: no case that is the same in each row, no empty figure."""
    single = trials["case"].n_unique() == 1

    def says(column: Column) -> bool:
        if column.name in _ALWAYS:
            return True
        if column.name in _LEFT_OUT or (single and column.name == "case"):
            return False
        values = trials[column.name].drop_nulls()
        return bool(values.sum()) if column.name.endswith(("throttled_pct", "contended_pct")) else not values.is_empty()

    return [column for column in COLUMNS if says(column)]


def _heading(document: Mapping[str, Any], cases: Sequence[str], command: str) -> Iterator[str]:
    environment, run = document["environment"], document["run"]
    torch, threads = environment.get("torch"), environment.get("threads")
    on = [environment.get("device_name"), torch and f"torch {torch}", threads and plural(threads, "thread")]
    yield "  ".join([command, *(str(word) for word in on if word), f"{run['seconds']:.0f} s"])
    yield cases[0] if len(cases) == 1 else plural(len(cases), "case")


def _parts(rows: Sequence[Mapping[str, Any]], trials: pl.DataFrame) -> tuple[pl.DataFrame, list[Column]]:
    """Return the shares of the parts, a row a trial and a column a part."""
    keys = ["variant"] if trials["case"].n_unique() == 1 else ["variant", "case"]
    shares = pl.DataFrame(rows).pivot("part", index=["variant", "case"], values="share_pct", aggregate_function="first")
    table = trials.select("variant", "case").join(shares, on=["variant", "case"], maintain_order="left")
    seen = [part for part in PARTS if part in table.columns and (table[part] >= 0.05).any()]
    return table, [*(Column(key, "text", "", priority=0) for key in keys), *(Column(part, "pct", "", part) for part in seen)]


def _findings(findings: Sequence[Mapping[str, Any]], width: int) -> Iterator[str]:
    told: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for finding in findings:  # one rule is one thing to know, on however many variants and cases
        told.setdefault((finding["code"], finding["title"]), []).append(finding)
    for same in list(told.values())[:_FINDINGS]:
        first, variants = same[0], ", ".join(dict.fromkeys(finding["variant"] for finding in same))
        where = f" ({first['variant']}, {first['case']})" if len(same) > 1 else ""
        text = f"{first['level']}: {variants}: {first['title']}. {first['evidence']}{where}. {first['fix']}"
        yield from wrap(clean(text, 2_000), width, subsequent_indent="  ")
    if len(told) > _FINDINGS:
        yield f"and {plural(len(told) - _FINDINGS, 'finding')} more; --json has them all"
