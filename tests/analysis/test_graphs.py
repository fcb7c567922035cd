"""Graph replays: found in real traces, sums reconcile, and drift, gaps and capture-time operators against closed figures."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import kinetop
from kinetop.analysis.graphs import graphs
from kinetop.traces.trace import TraceSet

if TYPE_CHECKING:
    from pathlib import Path

Made = Callable[..., TraceSet]
US = 1_000


def node(start: int, dur: int, correlation: int, name: str, **more: Any) -> dict[str, Any]:
    row = {"ph": "X", "cat": "kernel", "name": name, "process": "0", "thread": "7", "device": 0, "stream": 7}
    return {**row, "ts_ns": start * US, "dur_ns": dur * US, "correlation": correlation, **more}


def call(start: int, dur: int, correlation: int | None, name: str = "cudaGraphLaunch", **more: Any) -> dict[str, Any]:
    row = {"ph": "X", "cat": "cuda_runtime", "name": name, "process": "42", "thread": "42"}
    return {**row, "ts_ns": start * US, "dur_ns": dur * US, "correlation": correlation, **more}


def replay(n: int, durs: tuple[int, ...], names: str = "aba", **more: Any) -> list[dict[str, Any]]:
    start = at = 100 * n + 20
    rows = [call(start - 15, 5, n)]
    for name, dur in zip(names, durs, strict=True):
        rows.append(node(at, dur, n, name, **more))
        at += dur + 2
    return rows


def test_replays_nodes_and_the_drift_of_the_slowest(made: Made) -> None:
    rows = [row for n in range(5) for row in replay(n, (3, 10 + n, 4))]
    result = graphs.ask(made(rows))
    (graph,) = result.main.iter_rows(named=True)
    assert (graph["replays"], graph["nodes"], graph["api"], graph["graph_id"]) == (5, 3, "cudaGraphLaunch", None)
    assert (graph["dur_us"], graph["min_us"], graph["max_us"]) == (23.0, 21.0, 25.0)
    assert (graph["gap_us"], graph["longest_gap_us"], graph["launch_us"]) == (4.0, 2.0, 5.0)
    assert graph["gap_pct"] == pytest.approx(100 * 4 / 23, abs=1e-3)
    assert (graph["slowest"], graph["slowest_us"]) == ("b", 12.0)
    # From 10 to 14 us in a straight line, mean 12.
    assert graph["slowest_drift_pct"] == pytest.approx(100 * 4 / 12, abs=1e-3)
    assert graph["drift_pct"] == pytest.approx(100 * 4 / 23, abs=1e-3)
    assert result.tables["replays"].select("replay", "delay_us", "nodes", "slowest_us").rows() == [
        (n + 1, 15.0, 3, 10.0 + n) for n in range(5)
    ]
    nodes = result.tables["nodes"].sort("node").select("node", "name", "replays", "median_us", "drift_pct").rows()
    # The two nodes of one name are told apart by their place.
    assert nodes == [(1, "a", 5, 3.0, 0.0), (2, "b", 5, 12.0, 33.333), (3, "a", 5, 4.0, 0.0)]


def test_two_graphs_and_two_replays_have_no_drift(made: Made) -> None:
    rows = [
        *replay(0, (3, 9, 4)),
        *replay(1, (5, 5), "xy"),
        *replay(2, (3, 9, 4)),
        node(400, 5, 77, "alone"),
        call(390, 5, 77, "cudaLaunchKernel"),
    ]
    found = graphs(made(rows))
    assert found.select("graph", "replays", "nodes", "drift_pct").rows() == [(1, 2, 3, None), (2, 1, 2, None)]


def test_ids_of_the_trace_tell_graphs_and_nodes_apart(made: Made) -> None:
    def mark(rows: list[dict[str, Any]], graph: int) -> list[dict[str, Any]]:
        work = [row for row in rows if row["cat"] == "kernel"]
        for place, row in enumerate(work, 1):
            row |= {"graph_id": graph, "graph_node_id": 10 * graph + place}
        return rows

    # Both graphs have the same names; in the second replay of the first one a node is missing.
    rows = mark(replay(0, (3, 9, 4)), 1) + mark(replay(1, (3, 9, 4)), 2) + mark(replay(2, (3, 9, 4)), 1)[:-1]
    capture = [call(0, 1, None, "cudaLaunchKernel", graph_node_id=12), call(0, 3, None, "aten::mm", cat="cpu_op")]
    capture += [call(3, 1, None, "aten::add", cat="cpu_op", graph_node_id=13)]
    result = graphs.ask(made(rows + capture))
    assert result.main.select("graph", "graph_id", "replays", "nodes").rows() == [(1, 1, 2, 3), (2, 2, 1, 3)]
    nodes = result.tables["nodes"].filter(pl.col("graph") == 1).sort("node").select("node_id", "op", "replays").rows()
    assert nodes == [(11, None, 2), (12, "aten::mm", 2), (13, "aten::add", 1)]


def test_replays_without_a_launch_record_are_found_by_their_id(made: Made) -> None:
    rows = [row for n in range(3) for row in replay(n, (3, 9, 4), graph_id=5) if row["cat"] == "kernel"]
    (graph,) = graphs(made(rows)).iter_rows(named=True)
    assert (graph["replays"], graph["api"], graph["launch_us"], graph["graph_id"]) == (3, None, None, 5)


def test_a_filter_keeps_its_nodes_of_whole_replays(made: Made) -> None:
    result = graphs.ask(made([row for n in range(3) for row in replay(n, (3, 9, 4))]), where="name = 'b'")
    assert result.main["nodes"].to_list() == [3]
    assert result.tables["nodes"]["name"].to_list() == ["b"]


@pytest.mark.parametrize("seed", range(8))
def test_sums_reconcile_with_brute_force(made: Made, seed: int) -> None:
    chance = random.Random(seed)
    rows, spans = [], {}
    for n in range(chance.randint(3, 6)):
        rows.append(call(200 * n, 5, n))
        spans[n] = []
        for k in range(6):
            start, dur = 200 * n + 10 + chance.randint(0, 60), chance.randint(0, 20)
            rows.append(node(start, dur, n, f"k{k}", stream=chance.choice([7, 8])))
            spans[n].append((start, start + dur))
    result = graphs.ask(made(rows))
    for row, work in zip(result.tables["replays"].iter_rows(named=True), spans.values(), strict=True):
        first, last = min(start for start, _ in work), max(end for _, end in work)
        idle = [all(not start <= moment < end for start, end in work) for moment in range(first, last)]
        assert (row["dur_us"], row["gap_us"]) == (last - first, sum(idle))
        reach, longest = first, 0
        for start, end in sorted(work):
            reach, longest = max(reach, end), max(longest, start - reach)
        assert row["longest_gap_us"] == longest
    total = sum(end - start for work in spans.values() for start, end in work)
    assert result.tables["nodes"]["total_us"].sum() == total
    assert result.tables["nodes"]["share_pct"].sum() == pytest.approx(100, abs=0.01)
    assert result.main["dur_us"].item() == statistics.median(result.tables["replays"]["dur_us"])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a100_vit_cudagraph", [(5, 150)]),
        ("diff_test", [(6, 339), (6, 502)]),
        ("sglang_decode", [(1, 544)]),
        ("vllm_decode_graph", [(1, 421)]),
        ("diff_control", []),
    ],
)
def test_real_traces(shared: Path, name: str, expected: list[tuple[int, int]]) -> None:
    trace = kinetop.open(shared / "traces" / f"{name}.json.gz")
    result = graphs.ask(trace)
    assert result.main.select("replays", "nodes").rows() == expected
    replayed = trace.links.filter(pl.col("api").str.contains("GraphLaunch")).height
    assert result.tables["replays"]["nodes"].sum() == replayed
