"""An opened trace: its events as a lazy frame, its header, and what the import had to say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from .once import once

if TYPE_CHECKING:
    from .pairs import Pairs
    from .report import ImportReport, Notice


@dataclass(frozen=True)
class Trace:
    """One trace file, opened.

    `events` has the columns of `kinetop.traces.schema.COLUMNS`; times are integer nanoseconds.
    """

    path: Path
    """The file that the user named."""
    parquet: Path
    """The Parquet trace that `events` reads."""
    rank: int
    """Rank of the process that wrote it; 0 when the trace does not say."""
    header: dict[str, Any]
    """Top-level members of the trace other than its events (deviceProperties, distributedInfo, ...)."""
    report: ImportReport
    """What the import repaired, dropped or noticed."""
    stored_rank: int | None = None
    """The rank that stands in the Parquet trace's own rows, where it says so."""
    member: str | None = None
    """The member of a zip archive that was read."""
    window: int = 0
    """Which capture window of its rank this is, when one rank has several files."""
    clock_offset_ns: int = 0
    """How far this rank's clock runs ahead of the first rank's; subtract it before comparing times across ranks."""
    keep: Any = field(default=None, compare=False, repr=False)
    """Holds a temporary folder alive when there is no cache."""

    @property
    def events(self) -> pl.LazyFrame:
        """The event table as a lazy frame, in file order."""
        return pl.scan_parquet(self.parquet, glob=False)

    @property
    def devices(self) -> dict[int, dict[str, Any]]:
        """Device properties by device index, as the profiler wrote them."""
        rows = self.header.get("deviceProperties")
        if not isinstance(rows, list):
            return {}
        return {row["id"]: row for row in rows if isinstance(row, dict) and isinstance(row.get("id"), int)}

    @property
    def world_size(self) -> int | None:
        """Number of ranks in the job, when the trace says it."""
        info = self.header.get("distributedInfo")
        size = info.get("world_size") if isinstance(info, dict) else None
        if isinstance(size, str) and size.isdecimal():
            size = int(size)
        return size if type(size) is int and size > 0 else None


@dataclass(frozen=True)
class TraceSet:
    """One or more traces opened together, sorted by rank."""

    traces: tuple[Trace, ...]
    """The traces; their position is the `part` column of the frames."""
    notices: tuple[Notice, ...] = ()
    """Findings about the set as a whole (ranks claimed twice, clock skew, ...)."""

    @property
    def events(self) -> pl.LazyFrame:
        """All events as one lazy frame: `schema.COLUMNS` plus `part` (i32), the position in `traces`."""
        return once(self, "events", self._concatenated)

    @property
    def pairs(self) -> Pairs:
        """Begin events and the ends that close them: see `kinetop.traces.pairs.pairs`."""
        from .pairs import pairs

        return once(self, "pairs", lambda: pairs(self.events))

    @property
    def extent(self) -> pl.DataFrame:
        """First and last moment of each part, impossible timestamps aside: see `kinetop.traces.extent.extent`."""
        from .extent import extent

        return once(self, "extent", lambda: extent(self))

    @property
    def activities(self) -> pl.DataFrame:
        """GPU work, cleaned: see `kinetop.traces.activities.activities`."""
        return self._activities[0]

    @property
    def links(self) -> pl.DataFrame:
        """The launch call of each GPU activity: see `kinetop.traces.links.links`."""
        from .links import links

        return once(self, "links", lambda: links(self))

    @property
    def launches(self) -> pl.DataFrame:
        """The launch call and operator of each GPU activity: see `kinetop.traces.links.launches`."""
        from .links import launches

        return once(self, "launches", lambda: launches(self))

    @property
    def host(self) -> pl.DataFrame:
        """Operators, launch calls and annotations as written: see `kinetop.traces.host.host`."""
        from .host import host

        return once(self, "host", lambda: host(self))

    @property
    def calls(self) -> pl.DataFrame:
        """Host ranges as call trees: see `kinetop.traces.calls.calls`."""
        from .calls import calls

        return once(self, "calls", lambda: calls(self))

    @property
    def warnings(self) -> tuple[Notice, ...]:
        """Everything there is to say about the set: import, set, activities, launches."""
        from .links import launch_notices

        per_trace = [notice for trace in self.traces for notice in trace.report.notices]
        return (*per_trace, *self.notices, *self._activities[1], *once(self, "_launch_notices", lambda: launch_notices(self)))

    @property
    def _activities(self) -> tuple[pl.DataFrame, tuple[Notice, ...]]:
        from .activities import activities

        return once(self, "_activities", lambda: activities(self))

    def _concatenated(self) -> pl.LazyFrame:
        parts = [
            trace.events.with_columns(rank=pl.lit(trace.rank, pl.Int32), part=pl.lit(part, pl.Int32))
            for part, trace in enumerate(self.traces)
        ]
        return parts[0] if len(parts) == 1 else pl.concat(parts)


Progress = Callable[[dict[str, Any]], None]
"""Called with `{"bytes", "total_bytes", "events", "file"}` as an import goes on; raising in it cancels the import."""


def open_traces(
    paths: str | Path | Sequence[str | Path],
    *,
    jobs: int | None = None,
    cache: bool = True,
    progress: Progress | None = None,
) -> TraceSet:
    """Open trace files, folders of them or Parquet traces as one set.

    Args:
        paths: a path or several; a folder stands for the traces in it.
        jobs: slices decoded at a time; None means the cores this process may use.
        cache: keep the imported trace for next time.
        progress: called as the import goes on.

    Raises:
        UnreadableError: a file cannot be read as a trace.

    Example:
        >>> import kinetop
        >>> trace = kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False)
        >>> trace.events.select("name").collect().height > 0
        True
    """
    from .reading.importer import open_set

    many = [paths] if isinstance(paths, (str, Path)) else list(paths)
    return open_set([Path(path) for path in many], jobs=jobs, cache=cache, progress=progress)
