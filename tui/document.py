"""A result as one JSON document: what was asked about what, the tables, how far to trust them, and what the import had to say."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

    from kinetop.analysis.question import Result
    from kinetop.analysis.work import Work
    from kinetop.traces.trace import TraceSet


def document(result: Result) -> dict[str, Any]:
    """Return a result as plain JSON values.

    Args:
        result: the answer to a question.

    Returns:
        schema, trace, window, one member per table (rows as objects), coverage, warnings. Times are microseconds, and what
        is not a finite number is null.

    Example:
        >>> import kinetop
        >>> trace = kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False)
        >>> list(document(kinetop.summary.ask(trace)))[:3]
        ['schema', 'trace', 'window']
    """
    return {
        "schema": result.question.schema,
        **about(result.work),
        **{name: rows(frame) for name, frame in result.tables.items()},
        **trust(result.work),
    }


def about(work: Work) -> dict[str, Any]:
    """Return what was asked about: `trace` and `window`."""
    return {"trace": trace_facts(work.trace), "window": window_facts(work)}


def trust(work: Work) -> dict[str, Any]:
    """Return how far the figures can be trusted: `coverage` and `warnings`."""
    from kinetop.analysis.coverage import coverage

    notices = [
        {"code": notice.code, "count": notice.count, "offset": notice.offset, "message": notice.message}
        for notice in work.trace.warnings
    ]
    return {"coverage": plain(coverage(work)), "warnings": notices}


def trace_facts(traces: TraceSet) -> dict[str, Any]:
    """Return what the traces say about themselves, without looking at any event."""
    devices = [
        {"rank": trace.rank, "device": index, "name": properties.get("name")}
        for trace in traces.traces
        for index, properties in sorted(trace.devices.items())
    ]
    # Python's integers: what hostile stamps span may be more than 64 bits hold.
    ends = traces.extent.select("first_ns", "end_ns").drop_nulls().rows()
    return {
        "paths": [str(trace.path) for trace in traces.traces],
        "events": sum(trace.report.events for trace in traces.traces),
        "ranks": sorted({trace.rank for trace in traces.traces}),
        "world_size": next((trace.world_size for trace in traces.traces if trace.world_size is not None), None),
        "devices": devices,
        "span_us": max(((end - first) / 1000 for first, end in ends), default=None),
    }


def window_facts(work: Work) -> dict[str, Any]:
    """Return the window of each device and the choice that led to it; starts count from the set's first event, on its clock."""
    from kinetop.analysis.work import since_first

    scope, ends = work.scope, ("window_start_ns", "window_end_ns")
    devices = [
        {
            "rank": row["rank"],
            "device": row["device"],
            "start_us": row["window_start_ns"] / 1000,
            "end_us": row["window_end_ns"] / 1000,
            "span_us": (row["window_end_ns"] - row["window_start_ns"]) / 1000,
        }
        for row in work.windows.with_columns(since_first(name, work.trace) for name in ends).iter_rows(named=True)
    ]
    return {
        "kind": scope.window or "gpu",
        "step": scope.step,
        "where": scope.where,
        "rank": scope.rank,
        "device": scope.device,
        "devices": devices,
    }


def rows(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Return a frame's rows as plain JSON values, every name as it stands in the trace."""
    return [plain(row) for row in frame.iter_rows(named=True)]


def plain(value: Any) -> Any:
    """Return a value as JSON has it: no NaN, no infinity, no Decimal.

    Example:
        >>> plain({"a": float("nan"), "b": [Decimal("1"), Decimal("1.5")]})
        {'a': None, 'b': [1, 1.5]}
    """
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, Decimal):
        value = int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return str(value)
