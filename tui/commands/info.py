"""`kinetop info`: what a trace says about itself, or where kinetop keeps things."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kinetop import __version__

from . import shared

if TYPE_CHECKING:
    from kinetop.traces.trace import Trace, TraceSet

PathsOrNone = Annotated[
    list[Path] | None,
    typer.Argument(metavar="PATH...", help="Traces; without any: versions and folders of kinetop.", show_default=False),
]
_PACKAGES = ("polars", "pyarrow", "duckdb", "textual", "typer", "torch", "HolisticTraceAnalysis")
_SHOWN_ELSEWHERE = frozenset({"deviceProperties", "distributedInfo"})


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("info")(info)


def info(
    paths: PathsOrNone = None,
    *,
    json: shared.Json = False,
    output: shared.Out = None,
    jobs: shared.Jobs = None,
    no_cache: shared.NoCache = False,
) -> None:
    """Show a trace's header, events and import report, or kinetop's versions and folders."""
    form = shared.chosen_format(None, json or (output is not None and output.suffix == ".json"), output, paths or [])
    if form not in {"table", "json"}:
        raise typer.BadParameter("info is written as text or JSON")
    facts = _trace_info(shared.opened(paths, jobs=jobs, cache=not no_cache)) if paths else _own_info()
    from ..output import dumped

    shared.put(dumped(facts) if form == "json" else ("\n".join(_lines(facts)) + "\n").encode(), output)


def _own_info() -> dict[str, Any]:
    from kinetop.analysis.classify import user_file
    from kinetop.traces.cache import folder as cache_folder

    from ..recent import RecentTraces

    return {
        "schema": "kinetop.info/1",
        "kinetop": __version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "packages": {name: _version(name) for name in _PACKAGES},
        "folders": {
            "cache": str(cache_folder()),
            "rules": str(user_file()),
            "state": str(RecentTraces().path.parent),
        },
    }


def _version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version  # late: 20 ms of every start

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _trace_info(traces: TraceSet) -> dict[str, Any]:
    from ..document import trace_facts

    return {
        "schema": "kinetop.info/1",
        "trace": trace_facts(traces),
        "files": [_file_info(trace) for trace in traces.traces],
        "warnings": [notice.as_dict() for notice in traces.warnings],
    }


def _file_info(trace: Trace) -> dict[str, Any]:
    import polars as pl

    from ..document import plain

    kinds = (
        trace.events.group_by(pl.col("cat").cast(pl.String))
        .agg(events=pl.len())
        .sort("events", "cat", descending=[True, False])
        .collect()
    )
    return {
        "path": str(trace.path),
        "rank": trace.rank,
        "world_size": trace.world_size,
        "bytes": trace.report.bytes,
        "events": trace.report.events,
        "events_by_category": {category or "(none)": count for category, count in kinds.iter_rows()},
        "devices": plain(list(trace.devices.values())),
        "distributed": plain(trace.header.get("distributedInfo")),
        "header": plain({key: value for key, value in trace.header.items() if key not in _SHOWN_ELSEWHERE}),
    }


def _lines(value: Any, indent: str = "", *, counts: bool = False) -> list[str]:
    """Return nested values as indented lines of `name: value`; counts get separators, what a trace itself says stays as it is."""
    from ..format import ABSENT, clean

    lines: list[str] = []
    for key, member in value.items() if isinstance(value, dict) else enumerate(value):
        label = clean(str(key)) if isinstance(value, dict) else "-"
        if isinstance(member, dict | list) and member:
            lines += [
                f"{indent}{label}{':' if isinstance(value, dict) else ''}",
                *_lines(member, indent + "  ", counts=key == "events_by_category"),
            ]
        elif not (isinstance(member, dict | list) or key == "schema"):
            shown = (
                ABSENT
                if member is None
                else f"{member:,}"
                if isinstance(member, int) and (counts or key in {"events", "bytes"})
                else clean(str(member))
            )
            lines.append(f"{indent}{label}{':' if isinstance(value, dict) else ''} {shown}")
    return lines
