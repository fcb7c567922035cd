"""Operators, launch calls and annotations of a set, read once: most questions look at them, some several times."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from . import schema

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .trace import TraceSet

CATS = frozenset({*schema.OP_CATS, *schema.LAUNCH_CATS, "user_annotation"})
"""Categories kept. Python frames are not: few questions ask for them, and they may be most of a trace."""
COLUMNS = ("rank", "cat", "name", "process", "thread", "correlation", "external_id", "external_id_legacy")
"""Columns of the event table kept, beside those of `recorded`."""


def host(traces: TraceSet) -> pl.DataFrame:
    """Return the host ranges that most questions look at.

    Args:
        traces: the set.

    Returns:
        part, event_id, start_ns, raw_dur_ns and `COLUMNS` of the categories in `CATS`, in file order.

    Example:
        >>> import kinetop
        >>> trace = kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False)
        >>> host(trace)["cat"].cast(str).unique().sort().to_list()
        ['cpu_op', 'cuda_runtime', 'user_annotation']
    """
    return recorded(traces, CATS, *COLUMNS).collect()


def kept(traces: TraceSet, cats: Iterable[str], *columns: str | pl.Expr) -> pl.LazyFrame:
    """Return the same as `recorded`, without reading the trace again where `host` holds it.

    Args:
        traces: the set.
        cats: categories as written.
        columns: further columns or expressions of the event table.
    """
    wanted = set(cats)
    used = {name for one in columns for name in ([one] if isinstance(one, str) else one.meta.root_names())}
    if not (wanted <= CATS and used <= {*COLUMNS}):
        return recorded(traces, wanted, *columns)
    rows = traces.host.lazy() if wanted == CATS else traces.host.lazy().filter(pl.col("cat").is_in(sorted(wanted)))
    return rows.select("part", "event_id", "start_ns", "raw_dur_ns", *columns)


def recorded(traces: TraceSet, cats: Iterable[str], *columns: str | pl.Expr) -> pl.LazyFrame:
    """Return the complete events of some categories, and the begin events that have an end.

    Args:
        traces: the set.
        cats: categories as written.
        columns: further columns or expressions of the event table.

    Returns:
        part, event_id, start_ns, raw_dur_ns (as written; of a begin, the time to its end) and `columns`, in file order.
    """
    closed = traces.pairs.frame
    ranged = pl.col("ph") == "X" if closed.is_empty() else pl.col("ph").is_in(["X", "B", "b"])
    rows = traces.events.filter(pl.col("cat").is_in(sorted(cats)), ranged, pl.col("ts_ns").is_not_null()).select(
        "part", "event_id", "ph", pl.col("ts_ns").alias("start_ns"), pl.col("dur_ns").alias("raw_dur_ns"), *columns
    )
    if closed.is_empty():
        return rows.drop("ph")
    ends = closed.lazy().select("part", "event_id", "end_ns")
    length = pl.when(pl.col("ph") != "X").then(pl.col("end_ns") - pl.col("start_ns")).otherwise("raw_dur_ns")
    return (
        rows.join(ends, on=["part", "event_id"], how="left", maintain_order="left")
        .filter((pl.col("ph") == "X") | pl.col("end_ns").is_not_null())
        .with_columns(raw_dur_ns=length)
        .drop("ph", "end_ns")
    )
