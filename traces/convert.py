"""Opened traces to Parquet files that stay: one file, or a folder with `rank=N/` for several ranks."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import polars as pl

from .errors import IncompatibleError
from .seal import seal
from .store import METADATA_KEY, event_count, metadata, temporary_name
from .trace import Progress, Trace, open_traces

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def convert(
    paths: Sequence[str | Path],
    out: Path,
    *,
    where: pl.Expr | None = None,
    jobs: int | None = None,
    cache: bool = True,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Write traces as Parquet (`.parquet`, or a folder) or as Chrome JSON (`.json`).

    Args:
        paths: the traces.
        out: a file for one trace, a folder for one or more; a file gets its name when it is whole.
        where: keep only the events for which this holds.
        jobs: slices decoded at a time.
        cache: use and fill the cache of imported traces.
        progress: called as the import goes on.

    Returns:
        What was written: `path`, `source`, `rank`, `events`, `bytes` for each file.

    Raises:
        UnreadableError: a file cannot be read as a trace.
        IncompatibleError: several traces for one file.
    """
    opened = open_traces(list(paths), jobs=jobs, cache=cache, progress=progress).traces
    one_file = out.suffix.lower() in (".parquet", ".json")
    if one_file and len(opened) > 1:
        raise IncompatibleError(f"{len(opened)} traces do not go into one file; name a folder: -o {out.with_suffix('')}")
    return [_written(trace, out if one_file else _in_folder(trace, out), where) for trace in opened]


def _in_folder(trace: Trace, folder: Path) -> Path:
    name = trace.path.name.split(".")[0] or "trace"
    place = folder / f"rank={trace.rank}"
    place.mkdir(parents=True, exist_ok=True)
    return place / f"{name}-{trace.window}.parquet"


def _written(trace: Trace, out: Path, where: pl.Expr | None) -> dict[str, Any]:
    if out.resolve() == trace.path.resolve():
        raise IncompatibleError(f"{out}: this is the trace itself; name another file.")
    if out.suffix.lower() == ".json":
        from .export import write_json  # late: it needs Polars, which a plain copy does not

        events = write_json(trace, out, where)
    else:
        events = _write_parquet(trace, out, where)
    return {"path": out, "source": trace.path, "rank": trace.rank, "events": events, "bytes": out.stat().st_size}


def _write_parquet(trace: Trace, out: Path, where: pl.Expr | None) -> int:
    """Copy the imported trace, or write the rows that are wanted."""
    temporary = temporary_name(out)
    try:
        if where is None and trace.stored_rank == trace.rank:
            shutil.copyfile(trace.parquet, temporary)
        else:
            said = metadata(trace.header, trace.report, rank=trace.rank, source=trace.path.name)
            frame = trace.events if where is None else trace.events.filter(where)
            frame.with_columns(rank=pl.lit(trace.rank, pl.Int32)).sink_parquet(
                temporary, compression="zstd", compression_level=1, metadata={METADATA_KEY.decode(): said}
            )
            seal(temporary)
        events = event_count(temporary)
        temporary.replace(out)
    finally:
        temporary.unlink(missing_ok=True)
    return events
