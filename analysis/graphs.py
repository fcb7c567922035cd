"""Replays of CUDA and HIP graphs: how long each takes, how much of it is gaps, which node is slowest and whether it drifts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from kinetop.traces import schema
from kinetop.traces.nesting import innermost
from kinetop.traces.pairs import ranges

from .captures import PLACE, WINDOW, told
from .question import Column, Table, question
from .shares import percent
from .work import DEVICE, Work, since_first

if TYPE_CHECKING:
    from kinetop.traces.trace import TraceSet

LAUNCH = r"(?i)graph_?launch"
"""Calls that replay a graph."""
LEAST = 3
"""Replays from which a drift can be told."""

_GRAPH = Column("graph", "id", "number of the graph on its device, in order of first replay; same nodes, same graph", priority=0)
_DRIFT = "length of a straight line through the durations over the replays, of their mean; null with fewer than three replays"
_GAPS = (
    Column("gap_us", "us", "time inside it in which none of its nodes runs", "gaps", priority=0),
    Column("longest_gap_us", "us", "the longest of these gaps", "longest gap", priority=1),
)

GRAPH_COLUMNS = (
    *PLACE,
    _GRAPH,
    Column("graph_id", "id", "the trace's own id of the graph; null where it has none", priority=3),
    Column("api", "text", "call that replays it; null where the trace holds none", priority=2),
    Column("replays", "count", "replays in scope", priority=0),
    Column("nodes", "count", "kernels, copies and memsets of one replay, the most there are", priority=0),
    Column("dur_us", "us", "from the first start to the last end of a replay, median", "replay", priority=0),
    Column("min_us", "us", "the shortest replay", "min", priority=1),
    Column("max_us", "us", "the longest replay", "max", priority=1),
    Column("drift_pct", "pct", f"how the replays grow: {_DRIFT}", "drift", priority=1, free=True),
    Column("gap_us", "us", "time inside a replay in which none of its nodes runs, median", "gaps", priority=0),
    Column("gap_pct", "pct", "share of all its replays together", "gaps %", priority=1),
    Column("longest_gap_us", "us", "the longest gap inside a replay", "longest gap", priority=1),
    Column("launch_us", "us", "duration of the launch call, median", "launch call", priority=2),
    Column("slowest", "text", "name of the node that takes longest over all replays", "slowest node", priority=0),
    Column("slowest_us", "us", "its median duration", "slowest", priority=1),
    Column("slowest_pct", "pct", "its share of the durations of all nodes", "slowest %", priority=1),
    Column("slowest_drift_pct", "pct", f"how it grows: {_DRIFT}", "its drift", priority=1, free=True),
    WINDOW,
)
"""Columns of the graphs."""

REPLAY_COLUMNS = (
    *PLACE,
    _GRAPH,
    Column("replay", "id", "number of the replay of this graph, in order of time", priority=0),
    Column("start_us", "us", "when its first node starts, since the first event", "start", priority=1),
    Column("dur_us", "us", "from its first start to its last end", "replay", priority=0),
    Column(
        "delay_us",
        "us",
        "from the start of the launch call to the first node; null without a launch call",
        "delay",
        priority=1,
        free=True,
    ),
    Column("launch_us", "us", "duration of the launch call", "launch call", priority=1),
    Column("nodes", "count", "nodes that ran", priority=1),
    *_GAPS,
    Column("slowest", "text", "its longest node", "slowest node", priority=2),
    Column("slowest_us", "us", "duration of that node", "slowest", priority=2),
    WINDOW,
)
"""Columns of the replays."""

NODE_COLUMNS = (
    *PLACE,
    _GRAPH,
    Column("node", "id", "number of the node, in the order in which nodes start in the first replay", priority=1),
    Column("node_id", "id", "the trace's own id of the node; null where it has none", priority=3),
    Column("name", "text", "kernel, copy or memset", priority=0),
    Column("op", "text", "operator that was recorded when the graph was captured; null where the trace holds none", priority=2),
    Column("replays", "count", "replays in which it ran", priority=2),
    Column("median_us", "us", "its median duration", "median", priority=0),
    Column("min_us", "us", "shortest", "min", priority=2),
    Column("max_us", "us", "longest", "max", priority=1),
    Column("total_us", "us", "sum over the replays", "total", priority=1),
    Column("share_pct", "pct", "share of the durations of all nodes of the graph", "share", priority=0),
    Column("drift_pct", "pct", f"how it grows: {_DRIFT}", "drift", priority=0, free=True),
    WINDOW,
)
"""Columns of the nodes."""

_NONE = "the trace holds no replay of a graph"


@question(
    name="graphs",
    title="Graphs",
    about="Replays of CUDA and HIP graphs: duration, gaps inside, the slowest node and how it drifts.",
    tables=(
        Table("graphs", GRAPH_COLUMNS, about="Replays that any of the work in scope belongs to count whole.", none=_NONE),
        Table("replays", REPLAY_COLUMNS, none=_NONE),
        Table("nodes", NODE_COLUMNS, sort="total_us", about="A filter keeps the nodes that it names.", none=_NONE),
    ),
    order=12,
)
def graphs(work: Work) -> dict[str, pl.DataFrame]:
    """Return the graphs that were replayed, each replay, and each node over the replays.

    A node is the same in every replay by its id, else by its name and its place among the nodes of that name.

    Example:
        >>> import kinetop
        >>> trace = kinetop.open("tests/data/hazards/52_graph_replay_shared_correlation.json", cache=False)
        >>> kinetop.graphs(trace).select("replays", "nodes").rows()
        [(2, 6)]
    """
    nodes = _nodes(work)
    replays, by_node = _replays(nodes), _over_replays(nodes)
    kept = by_node if work.scope.where is None else by_node.filter("named")
    return {
        "graphs": told(_graphs(replays, by_node), work, GRAPH_COLUMNS),
        "replays": told(replays.with_columns(start_ns=since_first("start_ns", work.trace)), work, REPLAY_COLUMNS),
        "nodes": told(kept.with_columns(_named_ops(kept, work.trace)), work, NODE_COLUMNS),
    }


_REPLAY = ("part", "rank", "device", "call")
_OF_GRAPH = ("rank", "part", "device", "graph")


def _nodes(work: Work) -> pl.DataFrame:
    """Return the work of every replay with a node in scope: its graph, the number of the replay, and its node."""
    every = work.trace.activities.select(
        *DEVICE, "event_id", "stream", "name", "start_ns", "end_ns", "dur_ns", "graph_id", "correlation"
    )
    links = work.trace.links.select("launch_id", "api", "launch_start_ns", "launch_end_ns")
    rows = every.with_columns(links, graph_id=pl.when(pl.col("graph_id") > 0).then("graph_id"))
    by_name = rows.select(pl.col("api").unique()).filter(pl.col("api").str.contains(LAUNCH))["api"]
    rows = rows.filter(pl.col("api").is_in(by_name.implode()) | pl.col("graph_id").is_not_null())
    # A call's event number and a correlation id are told apart by their sign.
    call = pl.coalesce(pl.col("launch_id").cast(pl.Int64), -1 - pl.col("correlation"))
    rows = rows.with_columns(call=call).filter(pl.col("call").is_not_null())
    chosen = work.gpu.select("part", "event_id", named=pl.lit(value=True))
    rows = rows.join(chosen, on=["part", "event_id"], how="left", maintain_order="left")
    rows = rows.with_columns(pl.col("named").fill_null(value=False)).filter(pl.col("named").any().over(_REPLAY))
    return _numbered(_with_node_ids(rows, work.trace))


def _with_node_ids(rows: pl.DataFrame, trace: TraceSet) -> pl.DataFrame:
    known = trace.events.filter(pl.col("graph_node_id") > 0, pl.col("cat").is_in(list(schema.GPU_KINDS)))
    ids = known.select("part", "event_id", node_id="graph_node_id").collect()
    return rows.join(ids, on=["part", "event_id"], how="left", maintain_order="left")


def _numbered(rows: pl.DataFrame) -> pl.DataFrame:
    """Number graphs, replays and nodes: replays are of one graph when its id, else the names of all their nodes, are the same."""
    rows = rows.with_columns(kind=pl.col("name").rank("dense")).sort(*_REPLAY, "start_ns", "event_id")
    what = pl.coalesce(pl.col("graph_id").first().cast(pl.String), pl.col("kind").sort().cast(pl.String).str.join(" "))
    replays = rows.group_by(_REPLAY, maintain_order=True).agg(begin_ns=pl.col("start_ns").min(), what=what)
    place = ["rank", "device"]
    replays = replays.sort(*place, "begin_ns")
    first = replays.group_by(*place, "what", maintain_order=True).agg(pl.len())
    numbers = first.select(*place, "what", graph=pl.int_range(1, pl.len() + 1).over(place))
    replays = replays.join(numbers, on=[*place, "what"], how="left", maintain_order="left")
    replays = replays.with_columns(replay=pl.int_range(1, pl.len() + 1).over(_OF_GRAPH)).drop("what", "begin_ns")
    rows = rows.join(replays, on=list(_REPLAY), how="left", maintain_order="left")
    nth = pl.int_range(pl.len()).over([*_REPLAY, "name"])
    return rows.with_columns(nth=pl.when(pl.col("node_id").is_null()).then(nth))


def _replays(nodes: pl.DataFrame) -> pl.DataFrame:
    """Return each replay: when, how long, what of it is gaps, and its longest node."""
    longest = pl.col("dur_ns").arg_max()
    keys = [*_REPLAY, "graph", "replay"]
    reach = pl.col("end_ns").cum_max().shift(1).over(keys)
    nodes = nodes.sort("start_ns", "event_id").with_columns(gap=(pl.col("start_ns") - reach).clip(0).fill_null(0))
    rows = nodes.group_by(keys).agg(
        pl.col("start_ns").min(),
        pl.col("end_ns").max(),
        pl.col("graph_id").first(),
        pl.col("api").first(),
        nodes=pl.len().cast(pl.Int64),
        delay_ns=pl.col("start_ns").min() - pl.col("launch_start_ns").first(),
        launch_ns=pl.col("launch_end_ns").first() - pl.col("launch_start_ns").first(),
        slowest=pl.col("name").get(longest),
        slowest_ns=pl.col("dur_ns").max(),
        gap_ns=pl.col("gap").sum(),
        longest_gap_ns=pl.col("gap").max(),
    )
    dur = pl.col("end_ns") - pl.col("start_ns")
    return rows.with_columns(dur_ns=dur).sort(*_OF_GRAPH, "replay")


def _over_replays(nodes: pl.DataFrame) -> pl.DataFrame:
    """Return each node of each graph over its replays."""
    dur = pl.col("dur_ns")
    rows = (
        nodes.sort(*_OF_GRAPH, "replay", "start_ns", "event_id")
        .group_by(*_OF_GRAPH, "name", "node_id", "nth", maintain_order=True)
        .agg(
            pl.col("graph_id").first(),
            replays=pl.len().cast(pl.Int64),
            median_ns=dur.median(),
            min_ns=dur.min(),
            max_ns=dur.max(),
            total_ns=dur.sum(),
            drift_pct=_drift(pl.col("replay"), dur),
            named=pl.col("named").any(),
        )
        .with_columns(
            node=pl.int_range(1, pl.len() + 1).over(_OF_GRAPH),
            share_pct=percent(pl.col("total_ns"), pl.col("total_ns").sum().over(_OF_GRAPH)),
        )
    )
    return rows.sort("total_ns", *_OF_GRAPH, "node", descending=[True, *[False] * 5])


def _graphs(replays: pl.DataFrame, by_node: pl.DataFrame) -> pl.DataFrame:
    """Sum up the replays of each graph."""
    slowest = by_node.sort("total_ns", "node", descending=[True, False]).unique(_OF_GRAPH, keep="first", maintain_order=True)
    slowest = slowest.select(
        *_OF_GRAPH, slowest="name", slowest_ns="median_ns", slowest_pct="share_pct", slowest_drift_pct="drift_pct"
    )
    dur = pl.col("dur_ns")
    rows = replays.group_by(*_OF_GRAPH, maintain_order=True).agg(
        pl.col("graph_id", "api").drop_nulls().first(),
        replays=pl.len().cast(pl.Int64),
        nodes=pl.col("nodes").max(),
        min_ns=dur.min(),
        max_ns=dur.max(),
        drift_pct=_drift(pl.col("replay"), dur),
        gap_ns=pl.col("gap_ns").median(),
        gap_pct=percent(pl.col("gap_ns").sum(), dur.sum()),
        longest_gap_ns=pl.col("longest_gap_ns").max(),
        launch_ns=pl.col("launch_ns").median(),
        dur_ns=dur.median(),
    )
    return rows.join(slowest, on=list(_OF_GRAPH), how="left", maintain_order="left")


def _drift(at: pl.Expr, value: pl.Expr) -> pl.Expr:
    """Length of the least-squares line through values, in percent of their mean."""
    away = at - at.mean()
    line = (away * value).sum() / (away * away).sum() * (at.max() - at.min())
    return pl.when((pl.len() >= LEAST) & (value.sum() > 0)).then(100 * line / value.mean())


def _named_ops(nodes: pl.DataFrame, trace: TraceSet) -> pl.Series:
    """Return the operator that each node was captured in: of the host range that carries the node's id."""
    host = [*schema.LAUNCH_CATS, *schema.OP_CATS]
    if nodes["node_id"].null_count() == nodes.height:
        return pl.Series("op", [None] * nodes.height, pl.String)
    marked = ranges(trace, host, "cat", "process", "thread", "name", pl.col("graph_node_id").alias("node_id"))
    marked = marked.filter(pl.col("node_id") > 0)
    ops = ranges(trace, schema.OP_CATS, "process", "thread", "name")
    around = ops["name"].gather(innermost(marked.select("part", "process", "thread", at_ns="start_ns"), ops)).cast(pl.String)
    own = pl.when(pl.col("cat").is_in(list(schema.OP_CATS))).then(pl.col("name").cast(pl.String))
    marked = marked.with_columns(around.alias("around")).with_columns(op=pl.coalesce(own, "around")).drop_nulls("op")
    marked = marked.sort("start_ns", descending=True).unique(["part", "node_id"], keep="first", maintain_order=True)
    return nodes.join(marked.select("part", "node_id", "op"), on=["part", "node_id"], how="left", maintain_order="left")["op"]
