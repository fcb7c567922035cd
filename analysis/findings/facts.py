"""What several rules need to know of the work in scope, each worked out once and only when it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl

from kinetop.traces import schema
from kinetop.traces.pairs import ranges

from .. import intervals
from ..coverage import coverage
from ..gaps import cut_gaps
from ..names import matching, short_names
from ..peaks import Peaks, peaks_of
from ..steps import steps
from ..work import DEVICE, Work, host_windows
from .rule import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LONGEST = 60
"""Characters of a name in a sentence."""
_ALLOCATIONS = r"^(cuda|hip|cu|musa)(Mem)?(Malloc\w*|Alloc(Host|Managed)?|Free(Host|Array)?|HostAlloc|HostMalloc)(_v\d+)?$"
_QUICK = r"Async"


@dataclass(frozen=True)
class Facts:
    """The work in scope, and what is derived from it."""

    work: Work

    @cached_property
    def windows(self) -> dict[Place, tuple[int, int]]:
        """Start and end of the window of each device, in nanoseconds."""
        return {Place(*row[:3]): row[3:] for row in self.work.windows.iter_rows()}

    @cached_property
    def window_ns(self) -> dict[Place, int]:
        """Length of the window of each device."""
        return {place: end - start for place, (start, end) in self.windows.items()}

    @cached_property
    def steps(self) -> pl.DataFrame:
        """The marked steps in scope: see `steps`."""
        found, spans = steps(self.work.trace), host_windows(self.work)
        if spans is None:
            return found
        inside = found.join(spans.rename({"start_ns": "low", "end_ns": "high"}), on="part", maintain_order="left")
        return inside.filter((pl.col("start_ns") < pl.col("high")) & (pl.col("end_ns") > pl.col("low"))).drop("low", "high")

    def steps_of(self, place: Place) -> pl.DataFrame:
        """Return the steps in scope that reach into a device's window."""
        start, end = self.windows[place]
        return self.steps.filter(pl.col("part") == place.part, pl.col("start_ns") < end, pl.col("end_ns") > start)

    @cached_property
    def gaps(self) -> pl.DataFrame:
        """The idle gaps of each device with their parts, longest first."""
        return cut_gaps(self.work)

    @cached_property
    def allocations(self) -> pl.DataFrame:
        """Calls that ask the driver for memory or give it back: part, name, start_ns, end_ns."""
        rows = ranges(self.work.trace, schema.LAUNCH_CATS, "name")
        rows = rows.filter(matching(rows["name"], _ALLOCATIONS)).filter(pl.col("end_ns") > pl.col("start_ns"))
        rows = rows.filter(~matching(rows["name"], _QUICK))
        return rows.select("part", pl.col("name").cast(pl.String), "start_ns", "end_ns")

    @cached_property
    def records_stacks(self) -> bool:
        """Whether the profiler recorded Python stacks, which slows the host."""
        return any(one.header.get("with_stack") == 1 for one in self.work.trace.traces)

    @cached_property
    def kernels(self) -> pl.DataFrame:
        """Kernels in scope, by device, stream and start: place, stream, start_ns, end_ns, dur_ns, name, family and grid."""
        columns = ("stream", "start_ns", "end_ns", "dur_ns", "name", "family", "grid")
        kernels = (self.work.gpu["kind"] == "kernel").arg_true()
        by_stream = self.work.gpu["stream"].gather(kernels).to_frame().with_columns(row=kernels)
        order = by_stream.sort("stream", maintain_order=True)["row"]  # they are in order of device and time
        rows = self.work.gpu.select(*DEVICE, *columns)[order]
        return rows if len(self.windows) < 2 else rows.sort(*DEVICE, maintain_order=True)

    @cached_property
    def compute(self) -> pl.DataFrame:
        """Time in which each device computes, as disjoint intervals; a filter does not narrow it."""
        spans = self.work.all_gpu.select(*DEVICE, "start_ns", "end_ns", "class")
        return intervals.union(spans.filter(pl.col("class") == "compute"), DEVICE)

    @cached_property
    def comm(self) -> pl.DataFrame:
        """Communication kernels in scope: place, start_ns, end_ns, dur_ns, name, family, process_group and seq."""
        columns = ("start_ns", "end_ns", "dur_ns", "name", "family", "process_group", "seq")
        return self.work.gpu.lazy().filter(pl.col("class") == "comm").select(*DEVICE, *columns).collect()

    @cached_property
    def coverage(self) -> dict[str, Any]:
        """How far the figures can be trusted."""
        return coverage(self.work)

    def kept(self, what: str, make: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        """Return what was made under this name before, else make it: for rules of one file that share a step.

        Args:
            what: a name, one for each use.
            make: makes it.
        """
        shared: dict[str, pl.DataFrame] = vars(self).setdefault("_kept", {})
        if what not in shared:
            shared[what] = make()
        return shared[what]

    def places(self, frame: pl.DataFrame) -> Iterator[tuple[Place, pl.DataFrame]]:
        """Split a frame by device."""
        if len(self.windows) == 1 and not frame.is_empty():
            yield next(iter(self.windows)), frame
            return
        for key, rows in frame.partition_by(*DEVICE, as_dict=True, maintain_order=True).items():
            yield Place(*key), rows

    def properties(self, place: Place) -> dict[str, Any]:
        """Return what the trace says of a device."""
        return self.work.trace.traces[place.part].devices.get(place.device, {})

    def peaks(self, place: Place) -> Peaks:
        """Return what a device can do at most, as far as that is known."""
        return peaks_of(str(self.properties(place).get("name", "")))

    def share(self, ns: int, place: Place) -> str:
        """Return a time and its share of a device's window: `152.8 ms (11.9 %)`."""
        return f"{time_text(ns)} ({100 * ns / max(1, self.window_ns[place]):.1f} %)"


def time_text(ns: float) -> str:
    """Return a time with the unit in which it reads best.

    Example:
        >>> time_text(152_800_000), time_text(7_800), time_text(2_500_000_000)
        ('152.8 ms', '7.8 µs', '2.50 s')
    """
    if ns >= 1e9:
        return f"{ns / 1e9:,.2f} s"
    return f"{ns / 1e6:,.1f} ms" if ns >= 1e6 else f"{ns / 1e3:,.1f} µs"


def whole(value: Any) -> int:
    """Return an aggregate of a column of nanoseconds or counts as an integer; 0 where there is no row.

    Example:
        >>> whole(pl.Series([3, 5]).max()), whole(pl.Series([], dtype=pl.Int64).max())
        (5, 0)
    """
    return int(value or 0)


def times_text(count: int, noun: str) -> str:
    """Return a count and its noun.

    Example:
        >>> times_text(1, "gap"), times_text(4_123, "gap"), times_text(2, "copy")
        ('1 gap', '4,123 gaps', '2 copies')
    """
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun[:-1]}ies" if noun.endswith("y") else f"{count:,} {noun}s"


def short(name: str | None) -> str:
    """Return the short form of a kernel's name, as a sentence can hold it."""
    return plain(short_names(pl.Series([name or "(unnamed)"], dtype=pl.String)).item())


def plain(name: str) -> str:
    """Return a name of the trace as a sentence can hold it.

    Example:
        >>> plain("aten::copy_"), len(plain("a" * 5_000))
        ('aten::copy_', 60)
    """
    text = "".join(char if char.isprintable() else " " for char in name[:400])
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
