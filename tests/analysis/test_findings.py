"""Each rule of the findings on rows made by hand: what it must name and with which saving, and what it must let pass."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from kinetop.analysis.findings import COLUMNS, WEIGHTS, findings
from kinetop.analysis.findings.rule import CONFIDENCES, rules
from kinetop.analysis.question import all_questions
from kinetop.analysis.work import scoped

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinetop.traces.trace import TraceSet

Rows = list[dict[str, Any]]
GEMM, BF16_GEMM, SOFTMAX = (
    "ampere_sgemm_128x64_tn",
    "ampere_bf16_s16816gemm_bf16_128x64",
    "softmax_warp_forward<float, 11, false>",
)
LOG_SOFTMAX = "softmax_warp_forward<float, float, float, 11, true, false>"
REDUCE, GATHER = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "ncclDevKernel_AllGather_RING_LL"
ADD, CAST, COPY = "vectorized_elementwise_kernel<4, AddFunctor>", "bfloat16_copy_kernel_cuda", "direct_copy_kernel_cuda"
FETCH = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
H100 = [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "computeMajor": 9}]
_numbers = itertools.count(1)


def host(name: str, start: float, dur: float, cat: str = "cpu_op", **more: Any) -> dict[str, Any]:
    """A range on the one host thread, in microseconds."""
    at = {"ph": "X", "cat": cat, "name": name, "process": "9", "thread": "1"}
    return {**at, "ts_ns": round(1000 * start), "dur_ns": round(1000 * dur), **more}


def work(name: str, start: float, dur: float, launch: float | None = None, api: str = "cudaLaunchKernel", **more: Any) -> Rows:
    """A kernel or copy with its launch call of 2 us, by default long before: the host runs ahead."""
    number = more.pop("number", None) or next(_numbers)
    at = {
        "ph": "X",
        "cat": "kernel",
        "process": "0",
        "thread": "7",
        "device": 0,
        "stream": 7,
        "correlation": number,
        "name": name,
    }
    call = host(api, -500 if launch is None else launch, 2, "cuda_runtime", correlation=number)
    return [call, {**at, "ts_ns": round(1000 * start), "dur_ns": round(1000 * dur), **more}]


def row(*kernels: tuple[str, float], **more: Any) -> Rows:
    """Kernels one behind the other."""
    ends = list(itertools.accumulate((dur for _, dur in kernels), initial=0.0))
    return [each for (name, dur), at in zip(kernels, ends, strict=False) for each in work(name, at, dur, **more)]


def steps(*lengths: float) -> Rows:
    ends = list(itertools.accumulate(lengths, initial=0.0))
    return [host(f"ProfilerStep#{n}", at, dur, "user_annotation") for n, (dur, at) in enumerate(zip(lengths, ends, strict=False))]


def late(*between: dict[str, Any], launch: float | None = 280.0) -> Rows:
    """A gap of 200 us between two kernels of 100 us."""
    return [*work("gemm", 0, 100), *between, *work("gemm", 300, 100, launch)]


def short_gaps(gap: float) -> Rows:
    """Ten kernels of 5 us, each launched when the one before is done."""
    return [each for n in range(10) for each in work("gemm", n * (5 + gap), 5, n * (5 + gap) - 3)]


def replay(gap: float) -> Rows:
    number = next(_numbers)
    call = host("cudaGraphLaunch", -10, 5, "cuda_runtime", correlation=number)
    return [call, *(work("gemm", n * (50 + gap), 50, number=number)[1] for n in range(4))]


def collectives(own: float, *, compute: float = 100.0) -> Rows:
    """Four rounds of compute, then an all-reduce; all ranks end each round at the same time."""
    rows: Rows = []
    for n in range(4):
        end = 1000.0 * (n + 1)
        rows += work("gemm", end - own - compute, compute) + work(REDUCE, end - own, own, stream=20, seq=n, process_group="0")
    return rows


def comm(name: str, *, hidden: bool) -> Rows:
    return [*work("gemm", 0, 200), *work(name, 150 if not hidden else 50, 100, stream=20), *work("gemm", 250, 50)]


ALONE = steps(10_000)
NUMBERED = {"sequence_number": 6, "fwd_thread_id": 0, "input_dims": "[[4]]"}
BACK = {"sequence_number": 6, "fwd_thread_id": 1, "thread": "2"}
AGAIN = [
    host("torch/utils/checkpoint.py(9): unpack", 0, 1, "python_function"),
    host("aten::addmm", 0, 9, **NUMBERED),
    host("AddmmBackward0", 100, 60, **BACK),
    *work("gemm", 10, 10, 2),
]
ONCE = [
    *AGAIN,
    host("cudaLaunchKernel", 112, 2, "cuda_runtime", correlation=990, thread="2"),
    work("gemm", 120, 10, number=990)[1],
]
TWICE = [*ONCE, host("aten::addmm", 110, 20, thread="2", sequence_number=40, fwd_thread_id=0, input_dims="[[4]]")]

CASES: dict[str, tuple[Rows | list[Rows], float | None, Rows | list[Rows]]] = {
    "data-loader": (
        late(host(FETCH, 110, 170, "user_annotation")),
        170,
        [*row(("gemm", 400)), host(FETCH, 110, 170, "user_annotation")],
    ),
    "sync": (
        late(host("cudaStreamSynchronize", 20, 90, "cuda_runtime")),
        10 + 90,  # in the call, and what it gave up
        [*row(("gemm", 400)), host("cudaStreamSynchronize", 20, 90, "cuda_runtime")],
    ),
    "host-late": (late(), 182, late(launch=5)),
    "launch-bound": (short_gaps(12), 9 * 12, short_gaps(0)),
    "host-collective": (
        late(host("gloo:all_reduce", 110, 170)),
        170,
        [*row(("gemm", 400)), host("gloo:all_reduce", 110, 170)],
    ),
    "dependency": (late(launch=5), 200, late()),
    "graph-gaps": (replay(20), 60, replay(0)),
    "idle-edges": ([*ALONE, *work("gemm", 4000, 2000)], 8000, [*ALONE, *work("gemm", 100, 9800)]),
    "exposed-all-reduce": (comm(REDUCE, hidden=False), 50, comm(REDUCE, hidden=True)),
    "exposed-gather": (comm(GATHER, hidden=False), 50, comm(GATHER, hidden=True)),
    "exposed-all-to-all": (comm("ncclDevKernel_AllToAll", hidden=False), 50, comm(REDUCE, hidden=False)),
    "exposed-other-comm": (comm("ncclDevKernel_SendRecv", hidden=False), 50, comm(REDUCE, hidden=False)),
    "straggler": (
        [collectives(220), collectives(20, compute=300)],
        4 * 200,
        [collectives(220), collectives(220)],
    ),
    "attention-unfused": (
        row(*[("gemm", 30), (ADD, 5), (SOFTMAX, 20), ("gemm", 30)] * 3, ("layer_norm_kernel", 100)),
        3 * 25,
        row(*[("gemm", 30), (ADD, 5), (LOG_SOFTMAX, 20), ("gemm", 30)] * 3, *[("gemm", 30), (SOFTMAX, 20), ("radixSort", 9)] * 3),
    ),
    "fp32-gemms": (row((GEMM, 100), ("layer_norm", 100)), 100 * (1 - 67 / 989), row((BF16_GEMM, 100), ("layer_norm", 100))),
    "tiny-kernels": (
        row(("gemm", 100), *[(ADD, 2)] * 8, ("gemm", 100), grid="[64, 1, 1]"),
        7 * 2,
        row(("gemm", 100), *[(ADD, 2), ("layer_norm", 2)] * 8),
    ),
    "unfused-elementwise": (
        row(("gemm", 100), *[(ADD, 20)] * 4, ("gemm", 100), grid="[64, 1, 1]"),
        3 * 20,
        row(("gemm", 100), *[(ADD, 20)] * 2, ("gemm", 100), grid="[64, 1, 1]"),
    ),
    "casts": (row(("gemm", 100), (CAST, 20)), 20, row(("gemm", 100), (COPY, 20))),
    "layout-copies": (row(("gemm", 100), (COPY, 20)), 20, row(("gemm", 100), (CAST, 20))),
    "pageable-copies": (
        [*row(("gemm", 100)), *work("Memcpy HtoD (Pageable -> Device)", 90, 50, cat="gpu_memcpy", stream=20, bytes=10**6)],
        40,
        [*row(("gemm", 100)), *work("Memcpy HtoD (Pinned -> Device)", 90, 50, cat="gpu_memcpy", stream=20, bytes=10**6)],
    ),
    "device-allocations": (
        late(host("cudaMalloc", 90, 60, "cuda_runtime")),
        50,
        [*row(("gemm", 400)), host("cudaMalloc", 90, 60, "cuda_runtime")],
    ),
    "recomputation": (TWICE, 10, ONCE),
    "slow-steps": (
        [*steps(300, 100, 101, 99, 100), *work("gemm", 0, 700)],
        200,
        [*steps(100, 101, 99, 100, 100), *work("gemm", 0, 700)],
    ),
    "low-coverage": ([work("gemm", 0, 100)[1]], None, work("gemm", 0, 100)),
}


def asked(made: Callable[..., Any], rows: Rows | list[Rows]) -> pl.DataFrame:
    several = bool(rows) and isinstance(rows[0], list)
    return findings(made(*(rows if several else [rows]), deviceProperties=H100))


def test_each_rule_has_a_case() -> None:
    assert set(CASES) == set(rules())


@pytest.mark.parametrize("code", CASES)
def test_names_it_with_its_saving(made: Callable[..., Any], code: str) -> None:
    rows, saving_us, _ = CASES[code]
    found = asked(made, rows).filter(pl.col("code") == code)
    assert found.height == 1
    assert found["saving_us"].item() == (saving_us if saving_us is None else pytest.approx(saving_us, abs=0.5))
    assert found["confidence"].item() in CONFIDENCES


@pytest.mark.parametrize("code", CASES)
def test_lets_pass_what_is_well(made: Callable[..., Any], code: str) -> None:
    assert code not in asked(made, CASES[code][2])["code"]


def test_shares_and_steps_follow_from_the_saving(made: Callable[..., Any]) -> None:
    rows = [*steps(200, 200), *late()]
    found = asked(made, rows).row(0, named=True)
    assert found["code"] == "host-late"
    assert found["share_pct"] == pytest.approx(100 * found["saving_us"] / 400, abs=0.001)
    assert found["saving_per_step_us"] == pytest.approx(found["saving_us"] / 2, abs=0.001)


def test_ranked_by_weighted_share(made: Callable[..., Any]) -> None:
    rows = [*late(launch=5), *work(REDUCE, 350, 250, stream=20), *work(CAST, 600, 100)]
    found = asked(made, rows)
    keys = [WEIGHTS[c] * share for c, share in found.select("confidence", "share_pct").drop_nulls("share_pct").rows()]
    assert len(keys) == 3
    assert keys == sorted(keys, reverse=True)


def test_one_row_for_all_devices(made: Callable[..., Any]) -> None:
    found = asked(made, [late(), late()])
    assert found.filter(pl.col("code") == "host-late").select("devices", "rank").row(0) == (2, 0)
    assert "It is so on 2 GPUs" in found["what"][0]


def test_waiting_for_a_late_rank_is_no_exposed_communication(made: Callable[..., Any]) -> None:
    found = asked(made, CASES["straggler"][0])
    assert found["code"][0] == "straggler"
    assert found["rank"][0] == 1
    assert "its gemm takes" in found["what"][0]
    assert "exposed-all-reduce" not in found["code"]  # 20 us of each round of 320


def test_the_scope_is_kept(made: Callable[..., Any]) -> None:
    first = host("ProfilerStep#0", -600, 1050, "user_annotation")
    second = [host("ProfilerStep#1", 450, 500, "user_annotation"), *work("gemm", 500, 400, 460), *work(CAST, 900, 50, 470)]
    trace = made([first, *late(), *second], deviceProperties=H100)
    assert findings(trace, step="0")["code"].to_list() == ["host-late"]
    assert findings(trace, step="1")["code"].to_list() == ["casts"]
    assert set(findings(trace)["code"]) == {"host-late", "casts"}


QUIET = {"compile_triton_attention.json.gz", "sglang_decode.json.gz", "vllm_decode_graph.json.gz"}
"""Traces in which there is nothing to find."""


def test_every_trace_gives_an_answer_whose_evidence_opens(every_trace: TraceSet) -> None:
    found = findings(every_trace)
    assert not found.is_empty() or every_trace.traces[0].path.name in QUIET
    assert found.columns == [column.name for column in COLUMNS]
    assert (found["what"].str.len_chars() < 600).all()
    assert not found["what"].str.contains(r"[\n\x1b]").any()
    for view, where in found.select("view", "where").rows():
        assert view in all_questions()
        assert not where or not scoped(every_trace, where=where).gpu.is_empty(), where
