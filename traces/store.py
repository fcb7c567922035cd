"""The Parquet trace as a file: its name until it is whole, and what it says about itself.

A Parquet trace is one zstd file with the columns of `schema.COLUMNS` and, under the key `kinetop` of its metadata, JSON with
the trace's header, the import report and the schema's version. Row groups keep the order of the trace (a profiler writes
each thread and each stream in time order), and carry minimum and maximum of every column, so that a time window or a
category reads only its own.
"""

from __future__ import annotations

import json
import os
import secrets
from typing import TYPE_CHECKING, Any

from . import schema
from .errors import NotATraceError, UnreadableError
from .report import ImportReport
from .seal import BLANK

if TYPE_CHECKING:
    from pathlib import Path

METADATA_KEY = b"kinetop"


def metadata(header: dict[str, Any], report: ImportReport, **more: Any) -> str:
    """Return the text that stands under the key `kinetop` of a Parquet trace's metadata."""
    return json.dumps(
        {"seal": BLANK, "schema_version": schema.SCHEMA_VERSION, "header": header, "report": report.as_dict(), **more},
        ensure_ascii=True,
    )


def temporary_name(out: Path) -> Path:
    """Return a name beside `out` that no other process uses; it says which process made it."""
    return out.with_name(f".{out.name}.{os.getpid()}-{secrets.token_hex(4)}.part")


def filled_columns(path: Path) -> set[str]:
    """Return the columns of a Parquet trace that hold any value, as its statistics say."""
    import pyarrow.parquet as pq

    about = pq.read_metadata(path)
    filled = set()
    for place in range(about.num_row_groups):
        group = about.row_group(place)
        for number in range(group.num_columns):
            column = group.column(number)
            said = column.statistics
            if said is None or not said.has_null_count or said.null_count < group.num_rows:
                filled.add(column.path_in_schema)
    return filled


def event_count(path: Path) -> int:
    """Return how many events a Parquet trace holds."""
    import pyarrow.parquet as pq

    return int(pq.read_metadata(path).num_rows)


def _checked(said: Any) -> dict[str, Any]:
    """Return what a file says under our key if it is of the kinds that are written there.

    Raises:
        TypeError, KeyError: it is not.
    """
    header, version, rank = said.get("header", {}), said.get("schema_version", 0), said.get("rank", 0)
    if not (isinstance(header, dict) and type(version) is type(rank) is int):
        raise TypeError("its metadata are not a trace's")
    if "report" in said:
        ImportReport.from_dict(said["report"])
    return dict(said)


def read_metadata(path: Path) -> dict[str, Any]:
    """Return what a Parquet trace says about itself.

    Args:
        path: a Parquet file.

    Raises:
        UnreadableError: it is damaged or cut off.
        NotATraceError: it is Parquet, but not a trace, or of a newer kinetop.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq  # late: an import in its own process goes on meanwhile

    try:
        file = pq.read_metadata(path)
        found = file.schema.to_arrow_schema()
        text = (file.metadata or {}).get(METADATA_KEY)
        made = _checked(json.loads(text)) if text else {}
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UnreadableError(
            f"{path}: the Parquet file cannot be read ({(str(error) or repr(error)).splitlines()[0]})."
        ) from error
    missing = [name for name in ("ph", "cat", "name", "ts_ns", "dur_ns") if name not in found.names]
    if missing:
        raise NotATraceError(f"{path}: this Parquet file is not a trace: it has no column {', '.join(missing)}.")
    if made.get("schema_version", schema.SCHEMA_VERSION) > schema.SCHEMA_VERSION:
        raise NotATraceError(
            f"{path}: written by a newer kinetop (event table {made['schema_version']}, this one reads {schema.SCHEMA_VERSION})."
        )
    return made
