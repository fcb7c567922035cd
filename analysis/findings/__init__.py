"""What costs time that could be saved, the most promising first; nothing where nothing does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from ..question import Column, Table, question
from .rule import rules

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..work import Work
    from .facts import Facts
    from .rule import Confidence, Found, Rule

WEIGHTS: dict[Confidence, float] = {"high": 1.0, "medium": 0.8, "low": 0.3}
"""What a share of the window counts in the ranking, by confidence."""

COLUMNS = (
    Column("rank", "id", "rank of the process; null where the finding is about the trace as a whole", priority=2),
    Column("device", "id", "GPU index", priority=2),
    Column("code", "text", "the rule: see docs/findings.md", "finding", priority=0),
    Column(
        "what",
        "text",
        "what was found, in one sentence with figures; of several devices the one it costs most",
        priority=0,
        prose=True,
    ),
    Column("saving_us", "us", "time by which the device's window could be shorter at most; null where not known", "saves", 0),
    Column("saving_per_step_us", "us", "that, divided by the steps in scope; null where none are marked", "per step", priority=2),
    Column("share_pct", "pct", "that, as a share of the device's window", "share", priority=1),
    Column("confidence", "text", "high, medium or low", priority=1),
    Column("why", "text", "reason for the confidence", priority=3, prose=True),
    Column("fix", "text", "what to do about it", priority=2, prose=True),
    Column("evidence", "text", "question and filter that open the rows: `kernels / nccl and dur > 1ms`", priority=2, prose=True),
    Column("view", "text", "the question of the evidence", priority=3),
    Column("where", "text", "its filter; empty where all rows are meant", priority=3),
    Column("devices", "count", "devices on which the rule found the same", priority=3),
)
"""Columns of the findings."""


@question(
    name="findings",
    title="Findings",
    about="What costs time that could be saved, the most promising first.",
    tables=(
        Table(
            "findings",
            COLUMNS,
            about="Savings are upper bounds and may overlap, so they do not add up. Ranked by share of the window, medium"
            " confidence counted 0.8 and low 0.3; what saves nothing comes last.",
            none="no rule found a cost above its threshold: nothing stands out",
        ),
    ),
    order=14,
)
def findings(work: Work) -> dict[str, pl.DataFrame]:
    """Return what costs time, the most promising first.

    Example:
        >>> import kinetop
        >>> trace = kinetop.open("tests/data/hazards/75_cpu_only.json", cache=False)
        >>> kinetop.findings(trace).select("code", "what").row(0)
        ('low-coverage', 'The trace holds no GPU events, so there are no GPU figures.')
    """
    from .facts import Facts

    facts = Facts(work)
    rows = [row for rule in rules().values() for row in _merged(rule, list(rule.find(facts)), facts)]
    rows.sort(key=lambda row: (row["saving_us"] is None, -WEIGHTS[row["confidence"]] * (row["share_pct"] or 0)))
    return {"findings": pl.DataFrame(rows, schema=_schema())}


def _merged(rule: Rule, found: Iterable[Found], facts: Facts) -> list[dict[str, Any]]:
    """Return one row for what a rule found on several devices: the worst of them, those below the threshold left out."""
    kept = [row for one in found if (row := _row(rule, one, facts))["saving_us"] is None or row["share_pct"] >= rule.at_least_pct]
    if not kept:
        return []
    worst = max(kept, key=lambda row: row["share_pct"] or 0)
    others = len(kept) - 1
    if others:
        low, high = (round(pick(row["share_pct"] or 0 for row in kept), 1) for pick in (min, max))
        spread = f"{low} to {high} %" if low != high else f"{low} %"
        worst["what"] += f" It is so on {len(kept)} GPUs ({spread})."
    return [{**worst, "devices": len(kept)}]


def _row(rule: Rule, found: Found, facts: Facts) -> dict[str, Any]:
    place, ns = found.place, found.saving_ns
    steps = facts.steps_of(place).height if place is not None else 0
    whole = None if ns is None or place is None else found.whole_ns or max(1, facts.window_ns[place])
    return {
        "rank": place and place.rank,
        "device": place and place.device,
        "code": rule.code,
        "what": found.what,
        "saving_us": None if ns is None else round(ns / 1000, 3),
        "saving_per_step_us": round(ns / 1000 / steps, 3) if ns is not None and steps else None,
        "share_pct": round(100 * ns / whole, 3) if ns is not None and whole else None,
        "confidence": found.confidence,
        "why": found.why,
        "fix": found.fix or rule.fix,
        "evidence": f"{found.view} / {found.where}" if found.where else found.view,
        "view": found.view,
        "where": found.where,
    }


def _schema() -> dict[str, pl.DataType]:
    kinds = {"id": pl.Int64(), "count": pl.Int64(), "us": pl.Float64(), "pct": pl.Float64()}
    return {column.name: kinds.get(column.unit, pl.String()) for column in COLUMNS}
