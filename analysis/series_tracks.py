"""Figures over time as counter tracks of a Chrome trace, which Perfetto draws above the events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from kinetop.traces.export import counter_text
from kinetop.traces.reading.header import base_ns

from .series import over_time
from .work import DEVICE, scoped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinetop.traces.trace import TraceSet

TRACKS: dict[str, dict[str, str]] = {
    "launch queue": {"waiting": "queue_mean", "unfinished": "unfinished_mean"},
    "busy": {"percent": "busy_pct"},
    "allocator": {"allocated bytes": "allocated_bytes", "reserved bytes": "reserved_bytes"},
}
"""Tracks of a device: their lines, and the column of the series that each shows."""
_STAYS = ("allocator",)
"""Tracks whose last value holds on after the window; the others fall to zero."""


def counter_tracks(trace: TraceSet, part: int, buckets: int) -> Iterator[str]:
    """Yield the counter events of one trace of a set, JSON texts.

    Args:
        trace: the opened set.
        part: position of the trace.
        buckets: at most so many values of each track.

    Example:
        >>> import kinetop
        >>> trace = kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False)
        >>> len(list(counter_tracks(trace, 0, 2)))
        9
    """
    rows, copies = over_time(scoped(trace), buckets)
    rows, base = rows.filter(pl.col("part") == part), base_ns(trace.traces[part].header)
    pids = trace.activities.filter(pl.col("part") == part).group_by(*DEVICE).agg(pl.col("process").first())
    for (_, _, device), mine in rows.join(pids, on=list(DEVICE)).sort(*DEVICE, "bucket").group_by(*DEVICE, maintain_order=True):
        process, end_ns = mine["process"][0], int(mine["end_ns"][-1])
        tracks = {name: mine.select("start_ns", **lines) for name, lines in TRACKS.items()}
        of_device = copies.filter(pl.col("part") == part, pl.col("device") == device)
        tracks["copies GB/s"] = _copies(mine, of_device)
        for name, values in tracks.items():
            for text in _events(values, name not in _STAYS, end_ns):
                yield counter_text(f"GPU {device} {name}", process, *text, base)


def _copies(rows: pl.DataFrame, copies: pl.DataFrame) -> pl.DataFrame:
    """Return the bandwidth of each kind of copy as a column, 0 where none runs."""
    kinds = copies["kind"].unique().sort().to_list()
    made = rows.select("bucket", "start_ns")
    for kind in kinds:
        one = copies.filter(pl.col("kind") == kind).select("bucket", pl.col("gbps").alias(kind), ran=pl.lit(value=True))
        made = made.join(one, on="bucket", how="left", maintain_order="left")
        made = made.with_columns(pl.when(pl.col("ran").is_null()).then(0.0).otherwise(kind).alias(kind)).drop("ran")
    return made.drop("bucket")


def _events(values: pl.DataFrame, falls: bool, end_ns: int) -> Iterator[tuple[int, dict[str, float]]]:  # noqa: FBT001
    """Yield when, and the values known then; last of all zeros where the track falls to zero."""
    known: set[str] = set()
    for start_ns, *row in values.iter_rows():
        here = {name: round(value, 3) for name, value in zip(values.columns[1:], row, strict=True) if value is not None}
        known |= set(here)
        if here:
            yield start_ns, here
    if falls and known:
        yield end_ns, dict.fromkeys(sorted(known), 0.0)
