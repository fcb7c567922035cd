"""When a host thread waited: for the GPU, for the data loader, for other ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from kinetop.traces import schema
from kinetop.traces.nesting import THREAD
from kinetop.traces.once import once
from kinetop.traces.pairs import ranges

from . import intervals
from .names import matching

if TYPE_CHECKING:
    from kinetop.traces.trace import TraceSet

SYNC = (
    r"(?i)synchroni[sz]e|EventWait|QueueFinish"
    r"|^(cuda|hip|cu|musa)(Memcpy(_v\d+|HtoD(_v2)?|DtoH(_v2)?)?|Free)$|^hipMemcpyWithStream$"
)
"""Host calls that return when the GPU has caught up."""
LOADER = r"^enumerate\(DataLoader\)#"
"""Ranges in which PyTorch's data loader is asked for the next batch."""
COLLECTIVE = r"(?i)^(gloo|mpi|ucc):|^c10d::(monitored_)?barrier|^(all_gather|broadcast|scatter|gather)_object"
"""Ranges in which the host itself takes part in a collective; that of NCCL and RCCL runs on the GPU."""

_RANGES = {"data_loader": LOADER, "collective": COLLECTIVE}

KINDS = ("sync", "data_loader", "collective")
"""Kinds of waiting; where two overlap on a thread, the first of them counts."""

WAIT_COLUMNS: dict[str, str] = {
    "part": "i32",
    "process": "text",
    "thread": "text",
    "kind": "text: one of `KINDS`",
    "wait_name": "text, the call or range; of nested ones the outer",
    "begun_ns": "i64",
    "until_ns": "i64",
}
"""Columns of the waits; those of a thread do not overlap."""


def waits(trace: TraceSet) -> pl.DataFrame:
    """Return the stretches in which host threads waited.

    Args:
        trace: the opened set.

    Returns:
        A frame with `WAIT_COLUMNS`, in order of thread and time.

    Example:
        >>> import kinetop
        >>> waits(kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False)).height
        0
    """
    found = _waiting(trace)
    outer = {kind: _outer(rows) for kind, rows in found.items()}
    first = pl.coalesce(*(pl.when(pl.col(kind) > 0).then(pl.lit(kind)) for kind in KINDS))
    pieces = intervals.sweep(outer, THREAD).with_columns(kind=first)
    names = pl.concat(rows.select(*THREAD, kind=pl.lit(kind), wait_name="name", at_ns="start_ns") for kind, rows in outer.items())
    pieces = pieces.sort("start_ns").join_asof(
        names.sort("at_ns"), left_on="start_ns", right_on="at_ns", by=[*THREAD, "kind"], check_sortedness=False
    )
    kept = pieces.select(*THREAD, "kind", "wait_name", begun_ns="start_ns", until_ns="end_ns")
    return kept.sort(*THREAD, "begun_ns")


def sync_calls(trace: TraceSet) -> pl.DataFrame:
    """Return the synchronising calls of a set: part, event_id, process, thread, name, start_ns, end_ns.

    Args:
        trace: the opened set.
    """
    return _waiting(trace)["sync"]


def collective_calls(trace: TraceSet) -> pl.DataFrame:
    """Return the collectives that hosts take part in, in the form of `sync_calls`.

    Args:
        trace: the opened set.
    """
    return _waiting(trace)["collective"]


def _waiting(trace: TraceSet) -> dict[str, pl.DataFrame]:
    """Return the ranges of each kind, nested ones and all; kept with the set, since two questions ask for them."""
    return once(trace, "_waiting", lambda: _found(trace))


def _found(trace: TraceSet) -> dict[str, pl.DataFrame]:
    spans = ranges(trace, [*schema.LAUNCH_CATS, *schema.OP_CATS, "user_annotation"], "cat", "process", "thread", "name")
    is_call = pl.col("cat").is_in(list(schema.LAUNCH_CATS))
    found = {"sync": _named(spans, SYNC).filter(is_call)}
    found |= {kind: _named(spans, pattern).filter(~is_call) for kind, pattern in _RANGES.items()}
    return {kind: rows.drop("cat", "raw_dur_ns") for kind, rows in found.items()}


def _named(spans: pl.DataFrame, pattern: str) -> pl.DataFrame:
    """Keep the ranges whose name matches.

    Args:
        spans: has process, thread and name, categorical.
        pattern: regular expression.
    """
    return spans.filter(matching(spans["name"], pattern)).with_columns(pl.col("process", "thread", "name").cast(pl.String))


def _outer(rows: pl.DataFrame) -> pl.DataFrame:
    """Make the ranges of each thread disjoint: of nested ones the outer, of crossing ones each from where the other ended."""
    rows = rows.sort(*THREAD, "start_ns", "event_id")
    rows = rows.with_columns(reach=pl.col("end_ns").cum_max().shift(1).over(THREAD))
    rows = rows.select(*THREAD, "name", start_ns=pl.max_horizontal("start_ns", "reach"), end_ns="end_ns")
    return rows.filter(pl.col("end_ns") > pl.col("start_ns"))
