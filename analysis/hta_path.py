"""The critical path of a step as HolisticTraceAnalysis finds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from kinetop.traces.errors import FilterError

from .hta_bridge import STOPS, quiet, to_hta, version

if TYPE_CHECKING:
    from kinetop.traces.trace import TraceSet

_KINDS = {
    "cpu_bound": "host",
    "data_loading": "host",
    "gpu_compute_bound": "compute",
    "gpu_communication_bound": "comm",
    "gpu_kernel_kernel_overhead": "kernel_gap",
    "gpu_kernel_launch_overhead": "launch_delay",
}
"""HTA's words for what an edge is bound by; edges without one have no length."""


def hta_path(trace: TraceSet, step: str | None) -> pl.DataFrame:
    """Return the critical path that HTA finds in the one trace of a set.

    Args:
        trace: a set of one trace.
        step: name of the step's annotation; None means the whole trace.

    Returns:
        kind, start_us (since the first event that HTA keeps), dur_us, name and stream (null: the host) of each edge.

    Raises:
        FilterError: HTA is not installed, the trace holds no `cuda_sync` rows, or HTA stops.
    """
    if version() is None:
        raise FilterError(
            "HTA's critical path needs HolisticTraceAnalysis: pip install 'kinetop[hta]'. `--by kinetop` needs nothing."
        )
    if trace.events.filter(pl.col("cat").cast(pl.String) == "cuda_sync").select(pl.len()).collect().item() == 0:
        raise FilterError(
            "HTA's critical path needs cuda_sync rows, and this trace has none: without them it finds no way from the GPU to "
            "the host. `--by kinetop` goes by the calls that waited."
        )
    with quiet():
        try:
            rows = _edges(trace, step)
        except STOPS as error:
            raise FilterError(f"HTA's critical path stops here: {type(error).__name__} {error}") from error
    schema = {"kind": pl.String, "start_us": pl.Float64, "dur_us": pl.Float64, "name": pl.String, "stream": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row").sort("start_us", maintain_order=True)


def _edges(trace: TraceSet, step: str | None) -> list[tuple[Any, ...]]:
    """Run HTA and read the edges of its path."""
    from hta.analyzers.critical_path_analysis import CriticalPathAnalysis

    analysis, rank = to_hta(trace, include_last_profiler_step=True), trace.traces[0].rank
    graph, found = CriticalPathAnalysis.critical_path_analysis(analysis.t, rank, step or "", _instance(analysis, rank, step))
    if not found:
        raise ValueError("it finds no path")
    frame, rows = graph.trace_df, []
    for edge in graph.critical_path_edges_set:
        if edge.weight <= 0:
            continue
        event = graph.get_event_attribution_for_edge(edge)
        event = graph.node_list[edge.end].ev_idx if event is None else event
        known = frame.loc[event] if event in frame.index else None
        name, stream = (None, -1) if known is None else (graph.sym_table[known["name"]], int(known["stream"]))
        kind = _kind(edge.type.value, name, stream)
        rows.append((kind, float(graph.node_list[edge.begin].ts), float(edge.weight), name, None if stream < 0 else stream))
    return rows


def _kind(type_: str, name: str | None, stream: int) -> str:
    """Return our word for what an edge is, by HTA's own function."""
    from hta.analyzers.critical_path_analysis import bound_by

    return _KINDS[bound_by({"type": type_, "s_name": name, "stream": stream})]


def _instance(analysis: Any, rank: int, step: str | None) -> int:
    """Return which of the rows that HTA finds by the step's name is the host's own."""
    if step is None:
        return 0
    ids = analysis.t.symbol_table.get_sym_id_map()
    frame = analysis.t.get_trace(rank)
    named = frame[frame["name"].isin([number for name, number in ids.items() if step in name])]
    host = [ids.get(cat) for cat in ("user_annotation", "cpu_op", "Operator")]
    own = named["name"].eq(ids[step]) & named["cat"].isin(host)
    return int(own.to_numpy().argmax())
