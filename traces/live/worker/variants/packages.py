"""xFormers, FlashInfer and SageAttention, where they are installed."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import calls
from .external import bshd, equal_dims, half, package

if TYPE_CHECKING:
    from ..case import Case
    from ..variant import Built, Inputs


def _xformers(case: Case, inputs: Inputs) -> Built:
    ops = importlib.import_module("xformers.ops")
    biases = importlib.import_module("xformers.ops.fmha.attn_bias")
    bias = None
    if calls.windowed(case):
        bias = biases.LowerTriangularFromBottomRightLocalAttentionMask(_window_size=case.window)
    elif calls.hides(case):
        bias = biases.LowerTriangularFromBottomRightMask()
    group = case.q_heads // case.kv_heads

    def attend(q: Any, k: Any, v: Any) -> Any:
        if group == 1:
            return ops.memory_efficient_attention(q, k, v, attn_bias=bias)
        shared = (tensor.unsqueeze(3).expand(-1, -1, -1, group, -1) for tensor in (k, v))
        return ops.memory_efficient_attention(q.unflatten(2, (case.kv_heads, group)), *shared, attn_bias=bias).flatten(2, 3)

    return bshd(inputs, attend, "xFormers")


def _flashinfer(case: Case, inputs: Inputs) -> Built:
    """One request without a plan: `single_prefill` or `single_decode`, over [S, H, D]."""
    library = importlib.import_module("flashinfer")
    left = -1 if case.window is None else case.window - 1
    causal = case.causal or case.window is not None

    def attend(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (tensor[0].transpose(0, 1).contiguous() for tensor in (q, k, v))
        if case.q_len == 1:
            return library.single_decode_with_kv_cache(q[0], k, v, window_left=left)[None, :, None]
        out = library.single_prefill_with_kv_cache(q, k, v, causal=causal, window_left=left)
        return out.transpose(0, 1)[None]

    return calls.built(inputs, attend, backend="FlashInfer")


def _sage(case: Case, inputs: Inputs) -> Built:
    sageattn = importlib.import_module("sageattention").sageattn
    causal = calls.hides(case)
    return calls.built(inputs, lambda q, k, v: sageattn(q, k, v, tensor_layout="HND", is_causal=causal), backend="SageAttention")


def _one_request(case: Case) -> str | None:
    return None if case.batch == 1 else "a call without a plan serves batch 1 only"


def _sage_limits(case: Case) -> str | None:
    if calls.windowed(case):
        return "it has no window"
    return "its causal is upper-left: it needs q_len = kv_len" if calls.hides(case) and case.q_len != case.kv_len else None


VARIANTS = (
    package(
        "xformers",
        "xFormers",
        "memory_efficient_attention over [B, S, H, D] views; shared key heads by expanded views.",
        _xformers,
        "xformers.ops",
        why_not=half(equal_dims),
        expected=(r"fmha|flash|efficient_attention",),
    ),
    package(
        "flashinfer",
        "FlashInfer",
        "single_prefill and single_decode over [S, H, D]; compiled on the first call. Its layout is copied on each call.",
        _flashinfer,
        "flashinfer",
        why_not=half(_one_request, lowest=(7, 5)),
        expected=(r"flashinfer|Prefill|Decode|BatchDecode|SinglePrefill",),
        modes=("forward", "decode"),
    ),
    package(
        "sage",
        "SageAttention",
        "Products in int8 or fp8 after quantizing q and k: several kernels a call, and a looser error bound.",
        _sage,
        "sageattention",
        why_not=half(_sage_limits, equal_dims, widest=128),
        expected=(r"qk_int|_attn_fwd|sage",),
        modes=("forward", "decode"),
        tolerance=32.0,
    ),
)
