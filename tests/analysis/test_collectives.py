"""Collectives: nccl-tests' definitions, against TraceLens' rows and against the definitions written out again here."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import kinetop
from kinetop.analysis.collectives import ELEMENT_BYTES, collectives

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GIB_PER_GB = 1.073741824
ORACLES = [
    ("nccl_implicit_sync__hta__nccl_parser_config__nccl_data.csv", "nccl_metadata.json.gz"),
    ("nccl_implicit_sync__tl__b200__eager_trace.csv", "b200_vllm_eager.json.gz"),
]


def tables(trace: kinetop.TraceSet, **options: Any) -> dict[str, pl.DataFrame]:
    return collectives.ask(trace, **options).tables


def call(name: str, elements: tuple[int | None, int | None], dtype: str, ranks: int | None, **more: Any) -> dict[str, Any]:
    args = {"collective": name, "in_elements": elements[0], "out_elements": elements[1], "dtype": dtype, "group_size": ranks}
    place = {"process": "0", "thread": "7", "device": 0, "stream": 7}
    return {"ph": "X", "cat": "kernel", "name": "ncclDevKernel", "ts_ns": 0, "dur_ns": 1000, **place, **args, **more}


@pytest.mark.parametrize(("rows", "trace"), ORACLES)
def test_against_tracelens(shared: Path, rows: str, trace: str) -> None:
    with (shared / "reference" / rows).open(newline="") as file:
        wanted = sorted(csv.DictReader(file), key=lambda row: float(row["rank_0_ts"]))
    kinds = {"allreduce": "all-reduce", "_allgather_base": "all-gather"}
    found = tables(kinetop.open(shared / "traces" / trace))["calls"]
    found = found.filter(pl.col("collective").is_in([row["Collective name"] for row in wanted]))
    assert found.height == len(wanted) > 0
    for row, oracle in zip(found.iter_rows(named=True), wanted, strict=True):
        assert row["kind"] == kinds[oracle["Collective name"]]
        assert row["process_group"] == oracle["Process Group Name"]
        assert row["group_size"] == int(oracle["Group size"])
        assert row["bytes"] == float(oracle["Full msg size (MB)"]) * 2**20
        assert row["dur_us"] == float(oracle["comm_latency"])
        assert row["algorithm_gbps"] == pytest.approx(float(oracle["algo bw (GB/s)"]) * GIB_PER_GB, abs=1e-6)
        assert row["bus_gbps"] == pytest.approx(float(oracle["bus bw (GB/s)"]) * GIB_PER_GB, abs=1e-6)


def test_sizes_of_each_call_against_tracelens(shared: Path) -> None:
    """The long table has the broadcasts too, for which TraceLens states no bandwidth."""
    with (shared / "reference" / "nccl_long__hta__nccl_parser_config__nccl_data.csv").open(newline="") as file:
        wanted = sorted(csv.DictReader(file), key=lambda row: float(row["ts"]))
    found = tables(kinetop.open(shared / "traces" / "nccl_metadata.json.gz"))["calls"]
    assert found.height == len(wanted) == 21
    for row, oracle in zip(found.iter_rows(named=True), wanted, strict=True):
        assert (row["collective"], row["dtype"]) == (oracle["Collective name"], oracle["dtype"])
        assert (row["in_elements"], row["out_elements"]) == (int(oracle["In msg nelems"]), int(oracle["Out msg nelems"]))
        assert row["bytes"] == float(oracle["In msg size (MB)"]) * 2**20
        assert row["bus_gbps"] is not None


@pytest.mark.parametrize(
    ("name", "elements", "ranks", "buffer", "factor"),
    [
        ("allreduce", (1024, 1024), 8, 1024, 14 / 8),
        ("allreduce_coalesced", (1024, 1024), 4, 1024, 6 / 4),
        ("_allgather_base", (128, 1024), 8, 1024, 7 / 8),
        ("all_gather_into_tensor_coalesced", (128, None), 8, 1024, 7 / 8),
        ("_reduce_scatter_base", (1024, 128), 8, 1024, 7 / 8),
        ("reduce_scatter_tensor_coalesced", (None, 128), 8, 1024, 7 / 8),
        ("all_to_all", (1024, 1024), 8, 1024, 7 / 8),
        ("all_to_allv", (1024, 900), 8, 1024, 7 / 8),
        ("gather", (128, 1024), 8, 1024, 7 / 8),
        ("gather", (128, 0), 8, 1024, 7 / 8),
        ("scatter", (1024, 128), 8, 1024, 7 / 8),
        ("scatter", (0, 128), 8, 1024, 7 / 8),
        ("broadcast", (1024, 1024), 8, 1024, 1),
        ("_broadcast_oop", (1024, 1024), None, 1024, 1),
        ("reduce", (1024, 1024), 8, 1024, 1),
        ("_reduce_oop", (1024, 1024), 8, 1024, 1),
        ("send", (1024, 0), 8, 1024, 1),
        ("recv", (0, 1024), 8, 1024, 1),
        ("allreduce", (1024, 1024), 1, 1024, None),
        ("allreduce", (1024, 1024), None, 1024, None),
        ("_allgather_base", (128, None), None, None, None),
        ("barrier", (1, 1), 8, None, None),
        ("something_new", (1024, 1024), 8, None, None),
    ],
)
def test_definitions(
    made: Callable[..., Any],
    name: str,
    elements: tuple[int | None, int | None],
    ranks: int | None,
    buffer: int | None,
    factor: float | None,
) -> None:
    row = tables(made([call(name, elements, "BFloat16", ranks)]))["calls"].row(0, named=True)
    assert row["bytes"] == (None if buffer is None else 2 * buffer)
    algorithm = None if buffer is None else 2 * buffer / 1000  # bytes a nanosecond are 10^9 bytes a second
    assert row["algorithm_gbps"] == algorithm
    assert row["bus_gbps"] == (None if algorithm is None or factor is None else pytest.approx(algorithm * factor))


def test_every_element_type(made: Callable[..., Any]) -> None:
    torch = pytest.importorskip("torch")
    named = {
        str(value).removeprefix("torch."): value.itemsize for value in vars(torch).values() if isinstance(value, torch.dtype)
    }
    assert {name: size for name, size in named.items() if ELEMENT_BYTES.get(name) not in {size, None}} == {}
    unknown = {name for name in named if name not in ELEMENT_BYTES}
    assert {name for name in unknown if not name.startswith(("int", "uint", "bits"))} == set()


@pytest.mark.parametrize(
    ("dtype", "size"), [("Float8_e4m3fn", 1), ("Float8_e5m2", 1), ("Float8_e8m0fnu", 1), ("Half", 2), ("c10::Float8_e4m3fnuz", 1)]
)
def test_eight_bit_floats_have_a_bandwidth(made: Callable[..., Any], dtype: str, size: int) -> None:
    row = tables(made([call("allreduce", (4096, 4096), dtype, 2)]))["calls"].row(0, named=True)
    assert (row["bytes"], row["bus_gbps"]) == (4096 * size, 4096 * size / 1000)


def test_what_is_unknown_or_absurd_is_null(made: Callable[..., Any]) -> None:
    rows = [
        call("allreduce", (8, 8), "Quantum", 2),
        call("allreduce", (8, 8), "Float", 2, dur_ns=0, ts_ns=2000),
        call("_allgather_base", (2**62, None), "Double", 2**40, ts_ns=3000),
        {**call("allreduce", (8, 8), "Float", 2, ts_ns=5000), "collective": None, "in_elements": None, "out_elements": None},
    ]
    found = tables(made(rows))["calls"]
    assert found["algorithm_gbps"].to_list() == [None] * 4
    assert found["bytes"].to_list() == [None, 32, None, None]
    assert tables(made(rows))["sizes"].select("from_bytes", "bus_gbps").rows() == [(32, None)]


def test_groups_and_sizes_are_of_the_calls(made: Callable[..., Any]) -> None:
    rows = [
        call("allreduce", (2**n, 2**n), "Float", 2, ts_ns=at * 10**6, dur_ns=1000 * n)
        for at, n in enumerate([10, 10, 11, 12, 13])
    ]
    rows += [call("allreduce", (3 * 2**10, 3 * 2**10), "Float", 2, ts_ns=10**9, dur_ns=4000)]
    found = tables(made(rows))
    assert found["groups"]["count"].sum() == found["calls"].height == len(rows)
    assert found["groups"]["total_us"].sum() == found["calls"]["dur_us"].sum() == found["sizes"]["total_us"].sum()
    classes = dict(found["sizes"].select("from_bytes", "count").rows())
    assert classes == {2**12: 2, 2**13: 2, 2**14: 1, 2**15: 1}
    both = found["sizes"].filter(pl.col("from_bytes") == 2**13).row(0, named=True)
    assert both["bus_gbps"] == pytest.approx((2**13 + 3 * 2**12) / (11000 + 4000), abs=1e-6)
    assert both["best_bus_gbps"] == pytest.approx(3 * 2**12 / 4000, abs=1e-6)


def test_exposed_time_and_window(made: Callable[..., Any]) -> None:
    gemm = {"ph": "X", "cat": "kernel", "name": "gemm", "process": "0", "thread": "1", "device": 0, "stream": 1}
    rows = [call("allreduce", (1000, 1000), "Float", 2, dur_ns=10_000), {**gemm, "ts_ns": 4000, "dur_ns": 3000}]
    trace = made(rows)
    whole = tables(trace)["calls"]
    assert whole.select("dur_us", "exposed_us", "bus_gbps").row(0) == (10.0, 7.0, 0.4)
    assert tables(trace, window="2us..5us")["calls"].equals(whole), "a cut call keeps its own duration and bandwidth"


def test_args_of_the_operator_serve_a_kernel_that_has_none(made: Callable[..., Any]) -> None:
    op = {**call("_allgather_base", (128, 1024), "Half", 8), "cat": "cpu_op", "name": "record_param_comms", "process": "9"}
    op |= {"thread": "1", "device": None, "stream": None, "dur_ns": 50_000}
    launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "process": "9", "thread": "1", "ts_ns": 5000}
    silent = {"name": "ncclDevKernel_AllGather_RING_LL", "collective": None, "in_elements": None, "out_elements": None}
    kernel = {**call("", (None, None), "", None, correlation=5, ts_ns=60_000, dur_ns=2048), **silent, "dtype": None}
    row = tables(made([op, {**launch, "dur_ns": 100, "correlation": 5}, kernel]))["calls"].row(0, named=True)
    assert (row["collective"], row["bytes"], row["bus_gbps"]) == ("_allgather_base", 2048, 7 / 8)


def test_every_trace_answers(every_trace: kinetop.TraceSet) -> None:
    found = tables(every_trace)
    calls = found["calls"]
    communication = kinetop.overlap(every_trace)
    assert calls.is_empty() == (communication["comm_us"].sum() == 0)
    assert calls.filter((pl.col("exposed_us") < 0) | (pl.col("exposed_us") > pl.col("dur_us"))).is_empty()
    assert found["groups"]["count"].sum() == calls.height
    assert calls.filter((pl.col("bus_gbps") > 2 * pl.col("algorithm_gbps") + 1e-6) | (pl.col("bus_gbps") < 0)).is_empty()
