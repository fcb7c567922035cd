"""Our figures beside those of another tool, and which of its choices makes the difference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from kinetop.traces.reading.header import base_ns

from . import hta, hta_bridge
from .captures import WINDOW, told
from .question import Column, Parameter, Table, question
from .work import DEVICE, Work, scoped

if TYPE_CHECKING:
    from kinetop.traces.trace import Trace

REASONS: dict[str, str] = {
    "rounding": "HTA rounds starts up and ends down to whole microseconds",
    "last_step": "HTA drops what the last profiler step launched",
    "no_launch": "HTA drops GPU work without a launch record once there are two steps",
    "not_work": "HTA takes every row with a stream for GPU work: waits (cuda_sync) and operators of Triton too; "
    "work without a stream, duplicates and impossible times are told apart here",
    "classes": "HTA classes kernels by name: NCCL's alone communicate, and names with Sync or Memcpy do not compute",
    "devices": "HTA puts all devices of a file on one timeline; here each has its own, and they are added up",
    "rest": "none of these: another version of HTA, or how it rounds what it prints",
}
"""Why a figure differs, in the order in which HTA's choices are given up one after the other."""

_TIMES = {
    "span": "from the first start to the last end; HTA: kernel_time",
    "idle": "time in the span in which nothing runs; HTA: idle_time",
    "compute": "time in which compute runs; HTA: compute_time",
    "other": "busy, but no compute; HTA: non_compute_time",
    "kernel_sum": "sum of durations of GPU work; HTA: sum of dur where stream is not -1",
}


def _columns(unit: Any, suffix: str) -> tuple[Column, ...]:
    return (
        Column("rank", "id", "rank of the file", priority=0),
        Column("figure", "text", "what is compared", priority=0),
        Column(f"ours_{suffix}", unit, "kinetop's figure, devices added up", "ours", priority=0),
        Column(f"theirs_{suffix}", unit, "the other tool's; null where it stops or has none", "theirs", priority=0, free=True),
        Column(f"difference_{suffix}", unit, "ours less theirs", "difference", priority=0, free=True),
        *(
            Column(f"{name}_{suffix}", unit, f"part of the difference: {why}", name, priority=3, free=True)
            for name, why in REASONS.items()
        ),
        Column("reason", "text", "the parts that are not zero, the greatest first", priority=0),
        Column("source", "text", "where their figure comes from", priority=1),
        WINDOW,
    )


CHECK_COLUMNS, SHARE_COLUMNS, COUNT_COLUMNS = _columns("us", "us"), _columns("pct", "pct"), _columns("count", "count")


@question(
    name="check",
    title="Check",
    about="Our figures beside those of HolisticTraceAnalysis, and which of its choices makes the difference.",
    parameters=(Parameter("against", "hta", "the other tool", choices=("hta",)),),
    tables=(
        Table("times", CHECK_COLUMNS, about="; ".join(f"{k}: {v}" for k, v in _TIMES.items()) + ".", none="no GPU work"),
        Table("shares", SHARE_COLUMNS, about="overlap: communication beside compute / communication.", none="no communication"),
        Table("counts", COUNT_COLUMNS, about="rows: activities that count as GPU work.", none="no GPU work"),
    ),
    order=18,
    common=("rank",),
)
def check(work: Work, *, against: str) -> dict[str, pl.DataFrame]:  # noqa: ARG001 -- one tool so far
    """Return both tools' figures; those of HTA by itself where it is installed, else by what `--compat hta` does.

    Example:
        >>> import kinetop
        >>> trace = kinetop.open("tests/data/hazards/34_negative_duration.json", cache=False)
        >>> kinetop.check(trace).select("figure", "ours_us").row(0)[0]
        'span'
    """
    rank = work.scope.rank
    rows = [row for part, one in enumerate(work.trace.traces) if rank in (None, one.rank) for row in _compared(work, part, one)]
    return {
        "times": told(_framed(rows, "us"), work, CHECK_COLUMNS),
        "shares": told(_framed(rows, "pct"), work, SHARE_COLUMNS),
        "counts": told(_framed(rows, "count"), work, COUNT_COLUMNS),
    }


Figures = dict[str, float | None]
_LEAST = {"us": 0.001, "count": 1, "pct": 0.006}
"""Smaller parts are not told: HTA prints shares with two decimals."""


def _compared(work: Work, part: int, trace: Trace) -> list[dict[str, Any]]:
    """Return a row for each figure of one trace."""
    levels = _levels(work, part, trace)
    if all(level is None for level in levels):
        return []
    theirs, source = _theirs(work, part, levels[0])
    rows = []
    for figure in next(level for level in levels if level is not None):
        name, _, unit = figure.rpartition("_") if "_" in figure else (figure, "", "count")
        values = [None if level is None else level[figure] for level in levels]
        ours, other = values[-1], theirs.get(figure) if theirs else None
        if unit == "pct" and ours is None and other is None:
            continue
        place = {"part": part, "rank": trace.rank, "figure": name, "unit": unit, "source": source}
        rows.append(place | _row(values, ours, other, _LEAST[unit]))
    return rows


def _row(values: list[float | None], ours: float | None, theirs: float | None, least: float) -> dict[str, Any]:
    """Split the difference: what each of HTA's choices adds when it is given up after the ones before it."""
    made: dict[str, Any] = {"ours": ours, "theirs": theirs, "difference": _less(ours, theirs)}
    parts = {name: _less(after, before) for name, before, after in zip(REASONS, values, values[1:], strict=False)}
    parts["rest"] = _less(values[0], theirs)
    shown = sorted(((abs(value), name) for name, value in parts.items() if value and abs(value) >= least), reverse=True)
    made |= parts
    if theirs is None and ours is not None:
        made["reason"] = "no figure of theirs to compare with"
    else:
        made["reason"] = "; ".join(REASONS[name] for _, name in shown) or "the same"
    return made


def _less(left: float | None, right: float | None) -> float | None:
    return None if left is None or right is None else round(left - right, 3)


def _levels(work: Work, part: int, trace: Trace) -> list[Figures | None]:
    """Return the figures by HTA's choices, then with one choice after the other given up, ours last."""
    rows, zero = hta.gpu_rows(trace), base_ns(trace.header)
    launched = rows.filter(pl.col("kept") | pl.col("linked"))
    by_htas_rows = [hta.in_microseconds(frame, zero, rounded=False) for frame in (hta.kept(rows), launched, rows)]
    gpu = scoped(work.trace).all_gpu.filter(pl.col("part") == part).select(*DEVICE, "name", "start_ns", "end_ns", "class")
    spans = ["start_ns", "end_ns", "compute", "comm"]
    classed = gpu.select(*DEVICE, *spans[:2], compute=pl.col("class") == "compute", comm=pl.col("class") == "comm")
    frames = [
        hta.in_microseconds(hta.kept(rows), zero, rounded=True),
        *by_htas_rows,
        hta.by_name(gpu).select(spans),
        classed.select(spans),
    ]
    levels: list[Figures | None] = []
    for before, frame in zip([None, *frames], frames, strict=False):
        same = before is not None and frame.select(spans).equals(before.select(spans))  # a choice that changes nothing here
        levels.append(levels[-1] if same else hta.figures(frame))
    devices = classed.partition_by(*DEVICE)
    return [*levels, levels[-1] if len(devices) < 2 else _summed([hta.figures(one) for one in devices])]


def _summed(devices: list[Figures | None]) -> Figures | None:
    """Add up devices; of shares there is none where there are several."""
    known = [one for one in devices if one is not None]
    if len(known) < 2:
        return known[0] if known else None
    return {name: None if name.endswith("pct") else sum(one[name] or 0 for one in known) for name in known[0]}


def _theirs(work: Work, part: int, compat: Figures | None) -> tuple[Figures | None, str]:
    """Return HTA's figures and where they are from."""
    installed = hta_bridge.version()
    if installed is None:
        return compat, "kinetop's reimplementation of HTA 0.5.0 (the extra hta is not installed)"
    one = type(work.trace)((work.trace.traces[part],))
    found, stopped = hta_bridge.figures(one)
    return found, f"HTA {installed}" + (f", which stops: {stopped}" if stopped else "")


def _framed(rows: list[dict[str, Any]], unit: str) -> pl.DataFrame:
    """Return the rows of a unit, their figures with it in the name."""
    value = pl.Int64() if unit == "count" else pl.Float64()
    figures = ("ours", "theirs", "difference", *REASONS)
    texts = dict.fromkeys(("figure", "reason", "source"), pl.String())
    kinds = {"part": pl.Int32(), "rank": pl.Int32(), **texts, **dict.fromkeys(figures, value)}
    found = pl.DataFrame([row for row in rows if row["unit"] == unit], schema=kinds, orient="row")
    return found.rename({name: f"{name}_{unit}" for name in figures})
