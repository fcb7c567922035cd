"""Classes and families: the tested rule for communication names, names that fool others, user rules, and the real traces."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import polars as pl
import pytest

import kinetop
from kinetop.analysis.classify import RulesError, classified, explain, rules

if TYPE_CHECKING:
    from pathlib import Path

Open = Callable[[str], kinetop.TraceSet]

COMM = {
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "all-reduce",
    "ncclKernel_ReduceScatter_RING_LL_Sum_float(ncclWorkElem)": "reduce-scatter",
    "ncclDevKernel_AllGather_RING_LL(ncclDevComm*, unsigned long, ncclWork*)": "all-gather",
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)": "send-recv",
    "ncclDevKernel_Broadcast_RING_LL": "broadcast",
    "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)": "other-comm",
    "rcclGenericKernel": "other-comm",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)": "all-reduce",
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)": "all-reduce",
    "void two_shot_all_reduce_kernel<float>": "all-reduce",
    "one_shot_allreduce_kernel": "all-reduce",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<8>": "all-reduce",
    "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*)": "all-to-all",
    "void deep_ep::internode_ll::combine<true>(void*)": "all-to-all",
    "void deep_ep::layout::get_dispatch_layout<32, 1>(int64_t const*)": "all-to-all",
    "nvshmemi_transfer_rma": "other-comm",
    "mscclpp_all_gather_kernel": "all-gather",
    "HCCL_AllToAll": "all-to-all",
    "hcom_allReduce_": "all-reduce",
    "oneccl_reduce_scatter_kernel": "reduce-scatter",
}
COMPUTE = {
    "_combined_routing_forward": "moe",
    "void (anonymous namespace)::groupnorm_kernel_dispatch_down<__hip_bfloat16, 1024u>(unsigned int)": "norm",
    "layer_norm_dispatch_kernel": "norm",
    "hipblaslt_gemm_kernel": "gemm",
    "hip_layernorm_forward": "norm",
    "void softmax_forwardmask_kernel<float>": "softmax",
    "SyncBatchNormKernel": "norm",
    "void cub::DeviceBatchMemcpyKernel<int>": "copy",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>>>": "reduce",
    "at::native::vectorized_elementwise_kernel<4, at::native::direct_copy_kernel_cuda(at::Iter&)::{lambda()#3}>": "copy",
    "triton_red_fused_native_layer_norm_0": "triton",
    "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float>": "optimizer",
    "void at::native::embedding_backward_feature_kernel<float>": "embedding",
    "sm80_xmma_fprop_implicit_gemm_tf32": "conv",
}
ATTENTION = {
    "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128>>": "flash",
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<1>>>": "flash",
    "void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0>": "flashinfer",
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16": "cudnn",
    "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<bf16>::Params)": "efficient",
    "void ck_tile::kentry<256, 2, ck_tile::FmhaFwdKernel<ck_tile::BlockFmhaPipeline>>": "ck",
    "_ZN5aiter33fmha_fwd_hd128_bf16_causal_groupE": "aiter",
    "triton_tem_fused_flex_attention_0": "flex",
    "_attn_fwd": "triton",
}


def test_communication_names_and_their_kinds() -> None:
    assert {name: (explain(name).class_, explain(name).family) for name in COMM} == {
        name: ("comm", kind) for name, kind in COMM.items()
    }


def test_names_that_only_look_like_communication() -> None:
    assert {name: (explain(name).class_, explain(name).family) for name in COMPUTE} == {
        name: ("compute", f) for name, f in COMPUTE.items()
    }


def test_attention_by_implementation() -> None:
    found = {name: (explain(name).family, explain(name).implementation) for name in ATTENTION}
    assert found == {name: ("attention", by) for name, by in ATTENTION.items()}


def test_what_the_profiler_says_about_a_collective_comes_before_the_name() -> None:
    assert explain("ncclDevKernel_SendRecv", collective="all_to_allv").family == "all-to-all"
    assert explain("my_own_kernel", collective="_reduce_scatter_base").family == "reduce-scatter"
    assert explain("Memcpy DtoD", collective="allreduce", kind="memcpy").class_ == "memory"


@pytest.mark.slow
def test_every_real_name_is_communication_exactly_where_the_tested_rule_says(shared: Path, real: Open) -> None:
    rule = re.compile(json.loads((shared / "reference" / "gpu_figures.json").read_text())["communication_name_rule"])
    for path in sorted((shared / "traces").glob("*.json.gz")):
        activities = real(path.name).activities
        kernels = classified(activities).filter(pl.col("kind") == "kernel")
        wrong = [n for n, c in kernels.select("name", "class").unique().rows() if (c == "comm") != bool(rule.search(n))]
        assert wrong == [], path.name
        if path.name.startswith("mtia") or kernels.is_empty():  # accelerator phases, not kernels
            continue
        other = kernels.filter(pl.col("family") == "other")["dur_ns"].sum() / kernels["dur_ns"].sum()
        assert other < 0.02, (path.name, other)


def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    monkeypatch.setenv("KINETOP_RULES", str(path))
    return path


def test_user_rules_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, monkeypatch, "[[rule]]\nid = 'mine'\nclass = 'comm'\nfamily = 'halo'\npattern = '^my_'\n")
    assert explain("my_gemm").id == "mine"
    assert explain("ampere_sgemm_128x64_nn").family == "gemm"
    rows = pl.DataFrame(
        {"kind": ["kernel", "memcpy"], "name": ["my_gemm", "my_copy"], "collective": [None, None]},
        schema_overrides={"collective": pl.String},
    )
    assert classified(rows)["class"].to_list() == ["comm", "memory"]


def test_a_user_rule_may_reuse_an_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, monkeypatch, "[[rule]]\nid = 'gemm'\nclass = 'compute'\nfamily = 'mine'\npattern = '^my_'\n")
    rows = pl.DataFrame(
        {"kind": "kernel", "name": ["my_x", "some_gemm"], "collective": None}, schema_overrides={"collective": pl.String}
    )
    assert classified(rows)["family"].to_list() == ["mine", "gemm"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[rule]\n", "cannot be read"),
        ("rule = 3\n", "no list of"),
        ("[[rule]]\nid = 'a'\nclass = 'comm'\nfamily = 'x'\npattern = '('\n", "no regular expression"),
        ("[[rule]]\nid = 'a'\nclass = 'fast'\nfamily = 'x'\npattern = 'b'\n", "class is one of"),
        ("[[rule]]\nid = 'a'\nclass = 'comm'\nfamily = 'x'\n", "neither a pattern nor a collective"),
        ("[[rule]]\nid = 'a'\nclass = 'comm'\npattern = 'x'\n", "lacks 'family'"),
        ("[[rule]]\nid = 'a'\nclass = 'comm'\nfamily = 'x'\nregex = 'x'\n", "unknown field 'regex'"),
        ("[[rule]]\nid = 'a'\nclass = 'comm'\nfamily = 'x'\npattern = 7\n", "must be text"),
    ],
)
def test_a_bad_user_file_is_said_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str) -> None:
    path = write(tmp_path, monkeypatch, text)
    with pytest.raises(RulesError) as caught:
        rules()
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_rules_file_that_is_named_must_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETOP_RULES", str(tmp_path / "none.toml"))
    with pytest.raises(RulesError, match="KINETOP_RULES"):
        rules()


def test_a_changed_file_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    path = write(tmp_path, monkeypatch, "[[rule]]\nid = 'one'\nclass = 'comm'\nfamily = 'x'\npattern = '^q'\n")
    assert explain("q").id == "one"
    path.write_text("[[rule]]\nid = 'two'\nclass = 'comm'\nfamily = 'x'\npattern = '^q'\n")
    os.utime(path, ns=(1, 1))
    assert explain("q").id == "two"


def test_each_rule_of_our_own_is_a_regular_expression() -> None:
    for rule in rules():
        pl.DataFrame({"name": [""], "collective": [""]}).select(rule.condition)
