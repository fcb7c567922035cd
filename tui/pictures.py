"""The picture above the tables of a question, by its name: what is in the answer handed to a function that draws it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from .format import plural, size
from .render import curves, roofline, scatter, shares, steps

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import polars as pl
    from textual.content import Content

    from kinetop.analysis.question import Result, Unit

Sized = Callable[[int, int], "Sequence[Content]"]
"""Width and height in cells to lines, at most as many as the height."""
Row = dict[str, Any]
QUEUE_BUCKETS = 200
SERIES: dict[str, tuple[str, Unit, str]] = {
    "busy_pct": ("busy", "pct", "$compute"),
    "queue_mean": ("queue", "ratio", "$accent"),
    "unfinished_mean": ("unfinished", "ratio", "$accent"),
    "copy_gbps": ("copies", "GB/s", "$memory"),
    "allocated_bytes": ("allocated", "bytes", "$memory"),
    "reserved_bytes": ("reserved", "bytes", "$memory"),
}
"""Columns of the series, each with its name, unit and colour."""


def picture(result: Result) -> Sized | None:
    """Return what draws the picture of an answer; None where the question has none, or there is nothing to draw.

    It may ask another question about the same work, so call it in a thread.

    Args:
        result: the answer.
    """
    made = PICTURES.get(result.question.name)
    return made(result) if made is not None else None


def _steps(result: Result) -> Sized | None:
    rows = _rows(result.main)
    places = {(row["rank"], row["device"]) for row in rows}
    found = [
        steps.Step(
            label=f"{_place(row, places)}step {row['step']}",
            wall_us=row["wall_us"],
            parts=tuple(row[f"{name}_us"] or 0.0 for name in steps.PARTS),
            partial=bool(row["partial"]),
        )
        for row in rows
    ]
    return partial(steps.bars, found) if found else None


def _launches(result: Result) -> Sized | None:
    """The queue of each device over time, from the series of the same work."""
    from kinetop.analysis.question import all_questions

    found = all_questions()["series"].function(result.work, buckets=QUEUE_BUCKETS)["series"]
    return _over_time(found, {"queue_mean": ("queued", "ratio", "$accent"), "busy_pct": SERIES["busy_pct"]})


def _series(result: Result) -> Sized | None:
    return _over_time(result.main, SERIES)


def _over_time(frame: pl.DataFrame, wanted: Mapping[str, tuple[str, Unit, str]]) -> Sized | None:
    rows = _rows(frame)
    devices = [group for _, group in _grouped(rows, "rank", "device")]
    places = {(row["rank"], row["device"]) for row in rows}
    found = []
    for name, (label, unit, style) in wanted.items():  # a figure of all devices, then the next, so that they can be compared
        for group in devices:
            values = tuple(row[name] for row in group)
            if any(value is not None for value in values):
                top = 100.0 if unit == "pct" else None
                found.append(curves.Curve(f"{_place(group[0], places)}{label}", unit, values, style, top))
    if not found:
        return None
    return partial(curves.lines, found, min(r["start_us"] for r in rows), max(r["start_us"] + r["dur_us"] for r in rows))


def _memory(result: Result) -> Sized | None:
    """The curve of the allocator with the highest peak as an area; with more allocators, a line each."""
    rows = _rows(result.tables["curve"])
    if not rows:
        return None
    ranks, lanes = {row["rank"] for row in rows}, list(_grouped(rows, "rank", "place"))
    found = []
    for (rank, place), group in lanes:
        label = f"rank {rank} {place}" if len(ranks) > 1 else str(place)
        counted = any(row["allocated_bytes"] is not None for row in group)
        values = tuple(row["peak_bytes"] if counted else row["above_start_bytes"] for row in group)
        reserved = tuple(row["reserved_bytes"] for row in group)
        above = reserved if len(lanes) == 1 and any(value is not None for value in reserved) else ()
        told = f"{'in use' if counted else 'above start'}{', ░ held from the driver' if above else ''}"
        found.append(curves.Curve(f"{label} {told}", "bytes", values, "$memory", None, above))
    start_us, end_us = min(row["start_us"] for row in rows), max(row["end_us"] for row in rows)
    return partial(curves.area, found[0], start_us, end_us) if len(found) == 1 else partial(curves.lines, found, start_us, end_us)


def _collectives(result: Result) -> Sized | None:
    rows = [row for row in _rows(result.tables["sizes"]) if row["from_bytes"] and row["bus_gbps"]]
    kinds = sorted(_grouped(rows, "kind", "group_size"), key=lambda entry: -sum(row["total_us"] or 0.0 for row in entry[1]))
    clouds = [
        scatter.Cloud(
            f"{kind} of {ranks}" if ranks else str(kind), tuple((float(row["from_bytes"]), row["bus_gbps"]) for row in group)
        )
        for (kind, ranks), group in kinds
    ]
    if not clouds:
        return None
    return partial(scatter.field, clouds, x_text=size, y_text=lambda value: f"{value:,.3g} GB/s", about="bus bandwidth by size")


def _attention(result: Result) -> Sized | None:
    found = []
    for (name,), group in _grouped(_rows(result.main), "implementation"):
        calls = sum(row["calls"] or 0 for row in group)
        told = f"{plural(len(group), 'problem')}, {plural(calls, 'call')}"
        found.append(shares.Share(str(name), sum(row["share_pct"] or 0.0 for row in group), told))
    return partial(shares.bars, sorted(found, key=lambda share: -share.pct)) if found else None


def _roofline(result: Result) -> Sized | None:
    rows = _rows(result.main)
    return partial(roofline.chart, rows) if any(row["tflops"] and row["intensity"] for row in rows) else None


def _rows(frame: pl.DataFrame) -> list[Row]:
    return list(frame.iter_rows(named=True))


def _grouped(rows: Sequence[Row], *names: str) -> Iterator[tuple[tuple[Any, ...], list[Row]]]:
    """Yield the rows of each value of some columns, in order of the values, their own order kept."""

    def key(row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in names)

    ordered = sorted(
        rows, key=lambda row: tuple((value is None, value or 0 if not isinstance(value, str) else value) for value in key(row))
    )
    yield from ((value, list(group)) for value, group in groupby(ordered, key))


def _place(row: Row, places: set[tuple[Any, Any]]) -> str:
    return f"rank {row['rank']} GPU {row['device']}  " if len(places) > 1 else ""


PICTURES: dict[str, Callable[[Result], Sized | None]] = {
    "steps": _steps,
    "launches": _launches,
    "attention": _attention,
    "roofline": _roofline,
    "memory": _memory,
    "collectives": _collectives,
    "series": _series,
}
"""What makes the picture of each question that has one."""
