"""Forward operators beside their backward, and forward work that was done again inside backward."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from .call_costs import is_op
from .forest import among, nearest
from .op_groups import with_inputs
from .question import Column

if TYPE_CHECKING:
    from kinetop.traces.trace import TraceSet

_PHASES = {
    "forward": "forward calls that a backward call is linked to",
    "backward": "backward calls",
    "recompute": "forward calls made again inside backward (activation checkpointing)",
}

AUTOGRAD_COLUMNS = (
    Column("name", "text", "forward operator; null where the forward is not in the trace", priority=0),
    Column("backward", "text", "node of the backward graph", priority=1),
    *(
        column
        for phase, about in _PHASES.items()
        for column in (
            Column(f"{phase}_calls", "count", about, priority=2 if phase != "recompute" else 3),
            Column(f"{phase}_cpu_us", "us", f"CPU time of these, without the others in them: {about}", priority=1),
            Column(f"{phase}_device_us", "us", f"durations of the GPU work that these launched: {about}", priority=0),
        )
    ),
    Column(
        "device_ratio",
        "ratio",
        "backward_device_us / forward_device_us; null where the forward launched nothing",
        "ratio",
        priority=1,
    ),
)
"""Columns of the autograd table."""
_EVALUATE = "autograd::engine::evaluate_function: "


def autograd(trace: TraceSet, calls: pl.DataFrame) -> pl.DataFrame:
    """Return forward, backward and recomputation of each operator.

    Args:
        trace: the set.
        calls: its calls with their costs, see `call_costs.charged`.
    """
    marked = _marked(trace, calls)
    back = _backward(marked, calls["parent"])
    inside = nearest(_flags(calls.height, back["row"]), calls["parent"]).is_not_null()
    marked = marked.with_columns(inside=inside.gather(marked["row"]))
    heads = (
        marked.filter(~pl.col("goes_back"))
        .sort("start_ns", "row")
        .unique([*_SEQUENCE, "thread"], keep="last", maintain_order=True)
    )
    pairs = _linked(back, heads)
    known = pairs.drop_nulls("forward").unique("forward", maintain_order=True)
    forward = known.filter(~pl.col("inside"))
    nodes = known.group_by("name", "node").len().sort("len", "node", descending=[True, False]).unique("name", keep="first")
    again = _recomputed(trace, calls, marked, heads, inside).join(nodes.select("name", "node"), on="name", how="left")
    phases = {"forward": forward.with_columns(row="forward"), "backward": pairs, "recompute": again}
    return _summed(calls, pl.concat(f.select("row", "name", "node", pl.lit(p).alias("phase")) for p, f in phases.items()))


_SEQUENCE = ("part", "process", "sequence_number")
"""What a forward call and its backward share; the counter is the thread's own."""


def _marked(trace: TraceSet, calls: pl.DataFrame) -> pl.DataFrame:
    """Return the operators that have a sequence number, with their row of the calls."""
    numbers = trace.events.select("part", "event_id", "sequence_number", "fwd_thread_id").filter(pl.col("sequence_number") >= 0)
    rows = calls.with_row_index("row").filter(is_op(calls))
    return rows.join(numbers.collect(), on=["part", "event_id"], maintain_order="left").select(
        "row", *_SEQUENCE, "thread", "fwd_thread_id", "start_ns", pl.col("name").cast(pl.String),
        goes_back=(pl.col("fwd_thread_id") > 0).fill_null(value=False),
    )  # fmt: skip


def _flags(height: int, rows: pl.Series) -> pl.Series:
    return pl.repeat(False, height, dtype=pl.Boolean, eager=True).scatter(rows, True)


def _backward(marked: pl.DataFrame, parent: pl.Series) -> pl.DataFrame:
    """Return the backward calls: of those that share a number and lie in each other, the outermost one."""
    back = marked.filter("goes_back").sort("row")
    _, outer = among(_flags(len(parent), back["row"]), parent)
    key = ["sequence_number", "fwd_thread_id"]
    same = pl.all_horizontal(pl.col(name) == back[name].gather(outer) for name in key).fill_null(value=False)
    return back.filter(~same).with_columns(node=pl.col("name").str.strip_prefix(_EVALUATE))


def _linked(back: pl.DataFrame, heads: pl.DataFrame) -> pl.DataFrame:
    """Return backward calls (row, node) with the forward call of their number: its row as `forward`, name and inside.

    Forward operators that record no node share the number of the next one that does, so the last one counts. Backward names the
    thread of its forward by a number that no other event has: it is the thread on which most numbers are found.
    """
    made = heads.select(*_SEQUENCE, "thread", "name", "inside", forward="row", began="start_ns")
    links = back.select("row", "node", *_SEQUENCE, "fwd_thread_id", "start_ns").join(made, on=_SEQUENCE)
    links = links.filter(pl.col("began") <= pl.col("start_ns"))
    whose = ["part", "process", "fwd_thread_id"]
    votes = links.group_by(*whose, "thread").len().sort("len", "thread", descending=[True, False]).unique(whose, keep="first")
    links = links.join(votes.select(*whose, "thread"), on=[*whose, "thread"], how="semi")
    return back.select("row", "node").join(links.select("row", "forward", "name", "inside"), on="row", how="left")


def _recomputed(
    trace: TraceSet, calls: pl.DataFrame, marked: pl.DataFrame, heads: pl.DataFrame, inside: pl.Series
) -> pl.DataFrame:
    """Return the forward calls (row, name) made inside backward whose name and shapes ran outside of it, too.

    Only what is recorded for a backward of its own has a sequence number there. Of these it is the outermost ones, and in them
    those that the number belongs to.
    """
    found = marked.filter(~pl.col("goes_back") & pl.col("inside")).sort("row")
    if found.is_empty():
        return found.select("row", "name")
    what = ["name", "input_dims"]
    ops = (
        with_inputs(trace, calls.with_columns(pl.col("name").cast(pl.String)).filter(is_op(calls) & ~inside))
        .select(what)
        .unique()
    )
    shapes = with_inputs(trace, calls[found["row"]]).select("input_dims")
    found = found.hstack(shapes).join(ops, on=what, how="semi", nulls_equal=True, maintain_order="left")
    _, outer = among(_flags(calls.height, found["row"]), calls["parent"])
    kept = outer.is_null() | found["row"].is_in(heads["row"].implode())
    return found.filter(kept).select("row", "name")


def _summed(calls: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Sum up by name, node and phase what each row costs without the other rows in it."""
    rows = rows.unique("row", keep="last").sort("row")
    owner, _ = among(_flags(calls.height, rows["row"]), calls["parent"])
    own = calls.select("self_ns", "device_ns", owner=owner).drop_nulls("owner").group_by("owner").agg(pl.all().sum())
    found = rows.with_row_index("owner").join(own, on="owner", how="left")
    found = found.with_columns(begun=calls["begun"].gather(rows["row"]).cast(pl.Int64))
    made = found.group_by("name", backward="node").agg(
        pl.col(column).filter(pl.col("phase") == phase).sum().alias(f"{phase}_{name}")
        for phase in _PHASES
        for name, column in (("calls", "begun"), ("cpu_ns", "self_ns"), ("device_ns", "device_ns"))
    )
    costs = (
        pl.sum_horizontal(f"{phase}_device_ns" for phase in _PHASES),
        pl.sum_horizontal(f"{phase}_cpu_ns" for phase in _PHASES),
    )
    forward = pl.col("forward_device_ns")
    made = made.with_columns(device_ratio=pl.when(forward > 0).then(pl.col("backward_device_ns") / forward))
    made = made.filter((costs[1] > 0) | (costs[0] > 0))
    return made.sort(*costs, "name", "backward", descending=[True, True, False, False], nulls_last=True)
