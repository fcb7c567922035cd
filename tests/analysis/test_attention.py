"""Attention: found in real traces as TraceLens finds it, in operator sequences as a reader would, with no figure made up."""

from __future__ import annotations

import csv
import json
import shlex
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kinetop
from kinetop.analysis.attention import ATTENTION_COLUMNS
from kinetop.analysis.attention_calls import attention_calls
from kinetop.traces.live.worker.case import Case

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TRACES = {
    "tracediff_h100_vs_mi300_qwen": "h100_qwen",
    "tl__h100__Qwen_Qwen1.5-0.5B-Chat__1016005": "h100_qwen",
    "tl__mi300__Qwen_Qwen1.5-0.5B-Chat__1016005": "mi300_qwen",
    "tl__torch_compile_triton__trace": "compile_triton_attention",
    "tl__h100__gaunernst_bert-small-uncased__1016001": "h100_bert",
    "tl__inference__xdit_sd_3.5__profile_trace_rank_0": "xdit_sd35_rank0",
}
"""Name of the oracle -> trace, of those that are here."""
SIZES = {
    "batch": "B",
    "q_heads": "H_Q",
    "kv_heads": "H_KV",
    "q_len": "N_Q",
    "kv_len": "N_KV",
    "qk_dim": "d_h_qk",
    "v_dim": "d_h_v",
}


def test_rows_of_tracelens(shared: Path, real: Callable[[str], kinetop.TraceSet]) -> None:
    with (shared / "reference" / "tracelens_attention_rows.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["trace"] in TRACES]
    assert len(rows) == 9
    for row in rows:
        sizes = {name: int(row[f"param: {theirs}"]) for name, theirs in SIZES.items()}
        causal = row["param: causal"] == "True"
        found = kinetop.attention(real(f"{TRACES[row['trace']]}.json.gz"))
        ours = found.filter(
            pl.all_horizontal(pl.col(name) == size for name, size in sizes.items()), causal=causal, direction="forward"
        ).to_dicts()
        assert len(ours) == 1
        one = ours[0]
        # TraceLens halves the square of a causal mask; here the diagonal counts: (S + 1) / 2S of it.
        times = (sizes["kv_len"] + 1) / sizes["kv_len"] if causal else 1.0
        assert one["useful_gflop"] == pytest.approx(float(row["GFLOPS_first"]) * times, rel=1e-12)
        assert one["bytes"] == float(row["Data Moved (MB)_first"]) * 2**20
        assert one["dtype"] == "bf16"
        assert one["calls"] == int(row["name_count"])
        assert one["device_us"] == pytest.approx(float(row["Kernel Time (\u00b5s)_sum"]), abs=0.01)
        assert one["useful_tflops"] == pytest.approx(float(row["TFLOPS/s_mean"]) * times, rel=0.05)


@pytest.mark.parametrize(
    ("name", "implementation", "phase", "calls"),
    [
        ("sglang_decode", "paged", "decode", 36),
        ("vllm_decode_graph", "triton", "decode", 12),
        ("b200_vllm_eager", "trtllm", "prefill", 36),
        ("a100_particle_transformer", "eager", "prefill", 8),
        ("xdit_sd35_rank0", "eager", "prefill", 48),
        ("a100_vit_cudagraph", "flash", None, 60),
    ],
)
def test_other_implementations(
    real: Callable[[str], kinetop.TraceSet], name: str, implementation: str, phase: str | None, calls: int
) -> None:
    found = kinetop.attention(real(f"{name}.json.gz")).filter(implementation=implementation)
    assert found.filter(pl.col("phase").eq_missing(pl.lit(phase)))["calls"].to_list() == [calls]


def test_a_source_name_in_a_generated_kernel_is_no_attention(real: Callable[[str], kinetop.TraceSet]) -> None:
    trace = real("xdit_sd35_rank0.json.gz")
    assert trace.activities["name"].str.contains("^triton_poi.*attention").any()
    assert not kinetop.attention(trace)["kernel"].str.contains("^triton_poi").any()


def test_every_trace_answers(every_trace: kinetop.TraceSet) -> None:
    for question in (kinetop.attention, kinetop.roofline):
        found = question(every_trace)
        numbers = found.select(pl.selectors.numeric())
        assert numbers.select(pl.any_horizontal((pl.all() < 0).any()).fill_null(value=False)).item() is False
        assert not found.select(pl.any_horizontal(pl.selectors.float().is_nan().any()).fill_null(value=False)).row(0)[0]


# ---- made traces -------------------------------------------------------------------------------------------------------------

Rows = list[dict[str, Any]]
QUERY = [2, 4, 32, 16]
FLASH = "aten::_scaled_dot_product_flash_attention"


def op(name: str, start: int, dur: int, dims: list[Any] | None = None, thread: str = "1", **more: Any) -> dict[str, Any]:
    at = {"ph": "X", "cat": "cpu_op", "name": name, "process": "9", "thread": thread, "ts_ns": start, "dur_ns": dur}
    if dims is None:
        return at
    types = json.dumps(["c10::Half" if one else "" for one in dims])
    return {**at, "input_dims": json.dumps(dims), "input_types": types, **more}


def launched(start: int, name: str, dur: int, thread: str = "1") -> Rows:
    """A launch call on the host and the kernel that it launches, 1000 ns later."""
    host = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "process": "9", "thread": thread}
    gpu = {"ph": "X", "cat": "kernel", "name": name, "process": "0", "thread": "7", "device": 0, "stream": 7}
    return [
        {**host, "ts_ns": start, "dur_ns": 1, "correlation": start},
        {**gpu, "ts_ns": start + 1000, "dur_ns": dur, "correlation": start},
    ]


def eager_layer(mask: str | None = None) -> Rows:
    rows = [
        op("aten::bmm", 0, 10, [[8, 32, 16], [8, 16, 32]]),
        *launched(2, "qk_gemm", 100),
        op("aten::_softmax", 20, 10, [[2, 4, 32, 32], [], []]),
        *launched(22, "softmax_kernel", 50),
        op("aten::bmm", 40, 10, [[8, 32, 32], [8, 32, 16]]),
        *launched(42, "pv_gemm", 100),
    ]
    return rows if mask is None else [*rows, op(mask, 12, 4, [[2, 4, 32, 32], [32, 32]]), *launched(13, "mask_kernel", 30)]


H100 = {"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132}]}


def test_eager_attention(made: Callable[..., kinetop.TraceSet]) -> None:
    row = kinetop.attention(made(eager_layer(), **H100)).to_dicts()[0]
    assert (row["implementation"], row["calls"], row["kernels"], row["device_us"]) == ("eager", 1, 3, 0.25)
    assert [row[name] for name in SIZES] == [2, 4, 4, 32, 32, 16, 16]
    assert row["causal"] is False
    assert row["useful_gflop"] == row["executed_gflop"] == 2 * 2 * 4 * 32 * 32 * 32 / 1e9
    assert row["could_save_us"] == 0  # a fused kernel is not taken to need less than 5 us
    masked = kinetop.attention(made(eager_layer("aten::masked_fill"), **H100)).to_dicts()[0]
    assert (masked["kernels"], masked["causal"], masked["useful_gflop"]) == (4, None, None)
    assert masked["executed_gflop"] == row["executed_gflop"]


def test_an_operator_holds_what_it_calls(made: Callable[..., kinetop.TraceSet]) -> None:
    inside = [{**row, "ts_ns": row["ts_ns"] + 100} for row in eager_layer()]
    values = json.dumps(["", "", "", "", "0.", "True", "", "False"])
    outer = op("aten::scaled_dot_product_attention", 90, 100, [QUERY, QUERY, QUERY, *[[]] * 5], concrete_inputs=values)
    math = op("aten::_scaled_dot_product_attention_math", 95, 80, [QUERY, QUERY, QUERY, *[[]] * 6], concrete_inputs=values)
    found = kinetop.attention(made([outer, math, *inside, *launched(300, "elsewhere", 5)], **H100)).to_dicts()
    assert [(row["implementation"], row["calls"], row["kernels"]) for row in found] == [("math", 1, 3)]
    assert found[0]["useful_gflop"] == pytest.approx(found[0]["executed_gflop"] * 33 / 64)


def test_backward_is_eager_too(made: Callable[..., kinetop.TraceSet]) -> None:
    names = ["aten::bmm", "aten::bmm", "aten::_softmax_backward_data", "aten::bmm", "aten::bmm"]
    rows = [one for at, name in enumerate(names) for one in (op(name, 20 * at, 10), *launched(20 * at + 2, f"k{at}", 10))]
    found = kinetop.attention(made(rows)).to_dicts()
    assert [(row["direction"], row["calls"], row["kernels"], row["phase"]) for row in found] == [("backward", 1, 5, None)]


ROLES = {"b": "aten::bmm", "m": "aten::mm", "s": "aten::_softmax", "o": "aten::relu"}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("bmso"), st.sampled_from("12")), max_size=14))
def test_which_sequences_are_eager(made: Callable[..., kinetop.TraceSet], told: list[tuple[str, str]]) -> None:
    trace = made([op(ROLES[role], 10 * at, 5, thread=thread) for at, (role, thread) in enumerate(told)])
    wanted = 0
    for thread in "12":
        line = "".join(role for role, own in told if own == thread and role != "o")
        wanted += sum(line[at - 1 : at + 2] == "bsb" for at in range(1, len(line)))
    assert attention_calls(trace).calls.height == wanted


def test_times_of_all_rows_are_those_of_their_work(made: Callable[..., kinetop.TraceSet]) -> None:
    alone = [*launched(500, "void flash_fwd_splitkv_kernel<>", 40), *launched(600, "flash_fwd_splitkv_combine_kernel", 10)]
    named = [op(FLASH, 700, 20), *launched(705, "flash_fwd_kernel", 80), *launched(800, "relu_kernel", 5)]
    found = kinetop.attention(made([*eager_layer(), *alone, *named]))
    assert dict(found.group_by("implementation").agg(pl.col("device_us").sum().round(3)).rows()) == {"eager": 0.25, "flash": 0.13}
    assert found["calls"].sum() == 3
    assert found["compute_pct"].null_count() == found.height  # the device is not known
    narrowed = kinetop.attention(made([*eager_layer(), *alone, *named]), where="splitkv")
    assert narrowed["kernels"].to_list() == [2]


def test_a_cpu_has_calls_without_device_time(made: Callable[..., kinetop.TraceSet]) -> None:
    values = json.dumps(["", "", "", "0.", "False"])
    row = kinetop.attention(
        made([op(f"{FLASH}_for_cpu", 0, 4000, [QUERY, QUERY, QUERY, [], []], concrete_inputs=values)])
    ).to_dicts()[0]
    assert (row["calls"], row["device_us"], row["host_us"], row["useful_tflops"]) == (1, None, 4.0, None)
    assert row["useful_gflop"] is not None


def test_replay_commands_say_what_bench_takes(real: Callable[[str], kinetop.TraceSet]) -> None:
    for name in ("xdit_sd35_rank0", "a100_particle_transformer", "h100_qwen", "sglang_decode"):
        asked = kinetop.attention.ask(real(f"{name}.json.gz"), replay=True).tables
        table, shapes = asked["replay"], set()
        assert table["device_us"].sum() == pytest.approx(asked["attention"]["device_us"].sum(), abs=0.01)
        for command in table["command"].drop_nulls():
            words = shlex.split(command)
            options = dict(zip(words[2::2], words[3::2], strict=False))
            causal = "--causal" in words
            for at, word in enumerate(words):
                if word == "--shape":
                    mode = options.get("--mode", "decode" if "decode" in words else "forward")
                    case = Case.of(words[at + 1], dtype=words[words.index("--dtype") + 1], causal=causal, mode=mode)
                    shapes.add((case.batch, case.q_heads, case.q_len, case.kv_len, case.qk_dim))
        told = asked["attention"].drop_nulls("q_len").select("batch", "q_heads", "q_len", "kv_len", "qk_dim")
        assert shapes == set(told.iter_rows())
    assert "replay" not in kinetop.attention.ask(real("h100_qwen.json.gz")).tables


def test_columns_are_those_declared(real: Callable[[str], kinetop.TraceSet]) -> None:
    assert kinetop.attention(real("h100_bert.json.gz")).columns == [column.name for column in ATTENTION_COLUMNS]
