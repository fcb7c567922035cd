"""Repeated kernel sequences: against a count by hand over lists, and on every trace."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kinetop.analysis.sequences import sequences
from kinetop.traces.errors import FilterError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kinetop.traces.trace import TraceSet

HOST = {"ph": "X", "process": "1", "thread": "1"}
GPU = {"ph": "X", "cat": "kernel", "process": "0", "device": 0, "stream": 7, "thread": "7"}
OP_NS, CALL_NS, APART_NS = 100_000, 300, 1_000
CALLS = st.lists(
    st.tuples(st.sampled_from(["aten::a", "aten::b"]), st.lists(st.sampled_from("xyz"), max_size=7)), min_size=1, max_size=9
)


def events(calls: list[tuple[str, list[str]]], lengths: list[int]) -> list[dict[str, Any]]:
    """Operators one after the other, a nested one in each; kernel n lasts lengths[n] and starts when free and launched."""
    rows, number, free_ns = [], 0, 0
    for at, (op, kernels) in enumerate(calls):
        begin = at * OP_NS
        rows.append({**HOST, "cat": "cpu_op", "name": op, "ts_ns": begin, "dur_ns": OP_NS - 1})
        rows.append({**HOST, "cat": "cpu_op", "name": "aten::inner", "ts_ns": begin + 1, "dur_ns": OP_NS - 10})
        for place, name in enumerate(kernels):
            number += 1
            launch = begin + 10 + place * APART_NS
            call = {**HOST, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "dur_ns": CALL_NS}
            rows.append({**call, "ts_ns": launch, "correlation": number})
            begun = max(free_ns, launch + CALL_NS)
            free_ns = begun + lengths[number % len(lengths)]
            rows.append({**GPU, "name": name, "ts_ns": begun, "dur_ns": free_ns - begun, "correlation": number})
    return rows


Spans = list[tuple[str, int, int]]


def spans_of(rows: list[dict[str, Any]], calls: list[tuple[str, list[str]]]) -> list[Spans]:
    work = iter([(row["name"], row["ts_ns"], row["ts_ns"] + row["dur_ns"]) for row in rows if row["cat"] == "kernel"])
    return [[next(work) for _ in kernels] for _, kernels in calls]


def costs(parts: list[Spans]) -> tuple[float, ...]:
    gpu = sum(end - start for part in parts for _, start, end in part)
    gap = sum(after[1] - before[2] for part in parts for before, after in pairwise(part))
    launch = sum(CALL_NS * (len(part) - 1) for part in parts)
    return len(parts), gpu / 1000, gap / 1000, launch / 1000, (gap + launch) / 1000


def by_hand(calls: list[tuple[str, list[str]]], spans: list[Spans], least: int) -> tuple[dict[Any, Any], dict[Any, Any]]:
    whole, runs = defaultdict(list), defaultdict(list)
    for (op, kernels), work in zip(calls, spans, strict=True):
        if len(kernels) >= least:
            whole[op, " | ".join(kernels)].append(work)
        free: dict[str, int] = {}
        for at in range(len(kernels) - least + 1):
            name = " | ".join(kernels[at : at + least])
            if at >= free.get(name, 0):
                free[name] = at + least
                runs[name].append(work[at : at + least])
    return tuple({key: costs(parts) for key, parts in found.items() if len(parts) > 1} for found in (whole, runs))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(CALLS, st.lists(st.integers(1, 5_000), min_size=1, max_size=5), st.integers(2, 4))
def test_counts_and_costs_are_those_by_hand(
    made: Callable[..., TraceSet], calls: list[tuple[str, list[str]]], lengths: list[int], least: int
) -> None:
    rows = events(calls, lengths)
    whole, runs = by_hand(calls, spans_of(rows, calls), least)
    told = sequences.ask(made(rows), min_length=least).tables
    found = told["sequences"]
    assert {(row[1], row[2]): row[4:] for row in found.rows()} == {key: pytest.approx(cost) for key, cost in whole.items()}
    assert (found["length"] == found["sequence"].str.count_matches(" | ", literal=True) + 1).all()
    assert {row[1]: row[2:] for row in told["runs"].rows()} == {key: pytest.approx(cost) for key, cost in runs.items()}


def test_op_narrows_to_the_calls_it_names(made: Callable[..., TraceSet]) -> None:
    trace = made(events([("aten::a", ["x", "y"]), ("aten::b", ["x", "z"])] * 2, [10]))
    assert sequences.ask(trace, op="ATEN::A").main["sequence"].to_list() == ["x | y"]
    assert sequences.ask(trace, op="inner").main["call"].unique().to_list() == ["aten::inner"]
    assert sequences.ask(trace, op="[/").main.is_empty()


def test_a_length_that_makes_no_sense_is_refused(made: Callable[..., TraceSet]) -> None:
    with pytest.raises(FilterError, match="2 to 12"):
        sequences.ask(made(events([("aten::a", ["x"])], [10])), min_length=1)


def test_every_trace_answers(every_trace: TraceSet) -> None:
    for op in (None, "nn.Module", "aten::"):
        told = sequences.ask(every_trace, op=op, min_length=3).tables
        for table in told.values():
            assert (table["times"] >= 2).all()
            assert (table["gap_us"] >= 0).all()
            assert ((table["gap_us"] + table["launch_us"] - table["save_us"]).abs() < 0.002).all()


def test_kernels_without_a_launch_are_looked_at_stream_by_stream(shared: Path) -> None:
    import kinetop

    told = sequences.ask(kinetop.open(shared / "traces" / "mi210_gpu_only.json.gz")).tables
    assert not told["runs"].is_empty()
