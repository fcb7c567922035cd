"""How much of the GPU time could be linked to a launch, and how far the figures can be trusted."""

from __future__ import annotations

from typing import Any

import polars as pl

from . import intervals
from .linked import with_links
from .question import Column
from .work import DEVICE, Work

COVERAGE_FIELDS = (
    Column("gpu_events", "count", "GPU activities in scope"),
    Column("linked_pct", "pct", "share of GPU time (sum of durations) whose launch call is in the trace"),
    Column(
        "before_window_pct",
        "pct",
        "share of GPU time launched before the capture began: no launch record, and a correlation id below all linked ones of "
        "its rank (without an id: a start before the first linked launch)",
        "before window",
    ),
    Column(
        "no_launch_pct",
        "pct",
        "share of GPU time with no launch record, launched during the capture; the three sum to 100",
        "no launch",
    ),
    Column("unlinked", "count", "GPU activities with no launch record"),
    Column("before_window", "count", "of these, launched before the capture began"),
    Column(
        "same_stream_overlap_us", "us", "time counted more than once because activities overlap on their own stream", "overlap"
    ),
    Column("zero_or_clipped", "count", "activities of zero length, or whose end was clipped"),
    Column("verdict", "text", "trust; partial: what the trace misses touches the figures; no gpu: there are none"),
    Column("why", "text", "the reason for the verdict, one sentence"),
)
"""The fields of a coverage, each with its definition."""

_TRUSTED_PCT = 90.0
_LOST = frozenset(
    {"truncated", "unreadable-event", "garbage", "no-timestamp", "impossible-timestamp", "unpaired-begin-end", "overrun"}
    | {"missing-duration", "negative-duration"}
)
"""Notices about work that is missing from the figures, or in them with a length that is a guess."""


def coverage(work: Work) -> dict[str, Any]:
    """Return how much of the GPU time in scope is linked to a launch, and whether the figures can be trusted.

    The verdict is `partial` where the import or the repair left work out or had to guess its length, or where less than
    90 % of the GPU time is linked to a launch; time figures stay complete in the second case.

    Args:
        work: what the question was asked about.

    Returns:
        The fields of `COVERAGE_FIELDS`.

    Example:
        >>> import kinetop
        >>> from kinetop.analysis.work import scoped
        >>> told = coverage(scoped(kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False)))
        >>> told["linked_pct"], told["verdict"]
        (100.0, 'trust')
    """
    shares = _shares(work)
    lanes = intervals.total(work.gpu, [*DEVICE, "stream"])
    overlap_ns = int(work.gpu["dur_ns"].sum()) - int(lanes["total_ns"].sum())
    odd = work.gpu.filter((pl.col("dur_ns") == 0) | (pl.col("fault") == "overrun").fill_null(value=False))
    facts = {
        "gpu_events": work.gpu.height,
        **shares,
        "same_stream_overlap_us": round(overlap_ns / 1000, 3),
        "zero_or_clipped": odd.height,
    }
    verdict, why = _verdict(work, facts)
    return {**facts, "verdict": verdict, "why": why}


def origins(work: Work) -> pl.DataFrame:
    """Return where each activity in scope was launched.

    Args:
        work: what the question was asked about.

    Returns:
        part, event_id, dur_ns, `origin`: linked, before-window or no-launch.
    """
    linked = pl.col("launch_id").is_not_null()
    gpu = work.gpu.select("part", "rank", "event_id", "start_ns", "dur_ns", "correlation")
    rows = with_links(gpu, work.trace, "launch_id")
    if not rows["launch_id"].has_nulls():  # most traces: nothing is left to tell apart
        return rows.select("part", "event_id", "dur_ns", origin=pl.lit("linked"))
    # The bounds come from the whole trace: a filter must not move the start of the capture.
    whole = work.trace.links.with_columns(work.trace.activities.select("rank", "correlation"))
    bounds = whole.filter(linked).group_by("part", "rank").agg(
        low=pl.col("correlation").filter(pl.col("correlation") > 0).min(), first_ns=pl.col("launch_start_ns").min()
    )  # fmt: skip
    rows = rows.join(bounds, on=["part", "rank"], how="left")
    numbered = pl.col("correlation") > 0  # 0 and -1 say that there is none
    early = pl.when(numbered).then(pl.col("correlation") < pl.col("low")).otherwise(pl.col("start_ns") < pl.col("first_ns"))
    name = (
        pl.when(linked)
        .then(pl.lit("linked"))
        .when(early.fill_null(value=False))
        .then(pl.lit("before-window"))
        .otherwise(pl.lit("no-launch"))
    )
    return rows.select("part", "event_id", "dur_ns", origin=name)


def _shares(work: Work) -> dict[str, Any]:
    """Shares of GPU time by origin; of the activities where all are of zero length; null where there are none."""
    found = origins(work)
    weight = "dur_ns" if found["dur_ns"].sum() else "one"
    sums = dict(found.with_columns(one=1).group_by("origin").agg(pl.col(weight).sum()).iter_rows())
    counts = dict(found["origin"].value_counts().iter_rows())
    whole = sum(sums.values())
    share = {name: round(100 * sums.get(name, 0) / whole, 3) if whole else None for name in ("linked", "before-window")}
    left = None if share["linked"] is None or share["before-window"] is None else 100 - share["linked"] - share["before-window"]
    return {
        "linked_pct": share["linked"],
        "before_window_pct": share["before-window"],
        "no_launch_pct": None if left is None else abs(round(left, 3)),
        "unlinked": found.height - counts.get("linked", 0),
        "before_window": counts.get("before-window", 0),
    }


def _verdict(work: Work, facts: dict[str, Any]) -> tuple[str, str]:
    """Verdict and the reason for it."""
    if work.trace.activities.is_empty():
        return "no gpu", "The trace holds no GPU events, so there are no GPU figures."
    if not facts["gpu_events"]:
        return "no gpu", "No GPU event is in scope; widen the filter, step or window."
    lost = [n for n in work.trace.warnings if n.code in _LOST or n.code.startswith(("damaged-", "unreadable-"))]
    if lost:
        return "partial", f"What could be read is not all there was: {lost[0].message.rstrip('.')}."
    linked = facts["linked_pct"]
    if linked < _TRUSTED_PCT:
        early = facts["before_window_pct"]
        where = f" ({early:.1f} % was launched before the capture began)" if early else ""
        return (
            "partial",
            f"{100 - linked:.1f} % of GPU time has no launch record{where}: time figures are complete, launch figures are not.",
        )
    return "trust", f"{linked:.1f} % of GPU time is linked to its launch and nothing was left out."
