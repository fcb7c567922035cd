"""Sequences laid end to end: packed with offsets, or as nested tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import device, probes
from ..case import MODES
from ..variant import Built, Inputs, Variant
from . import calls

if TYPE_CHECKING:
    from ..case import Case

HALF = ("bf16", "fp16")


def window_size(case: Case) -> tuple[int, int]:
    """Return the keys before and after its own that a query sees, as flash-attn counts them; -1 is no limit."""
    if case.window is not None:
        return case.window - 1, 0
    return -1, 0 if case.causal else -1


def packed(tensor: Any) -> Any:
    """Return [B, H, S, D] as [B * S, H, D]."""
    return tensor.transpose(1, 2).flatten(0, 1).contiguous()


def offsets(count: int, length: int, on: Any) -> Any:
    """Return where each of so many sequences of a length begins, and the end: int32."""
    import torch

    return torch.arange(0, (count + 1) * length, length, dtype=torch.int32, device=on)


def _varlen(case: Case, inputs: Inputs) -> Built:
    import inspect

    from torch.nn.attention.varlen import varlen_attn

    known = inspect.signature(varlen_attn).parameters
    options: dict[str, Any] = {"window_size": window_size(case)} if "window_size" in known else {"is_causal": case.causal}
    if case.q_heads != case.kv_heads and "enable_gqa" in known:
        options["enable_gqa"] = True
    on = inputs.q.device
    begins = offsets(case.batch, case.q_len, on), offsets(case.batch, case.kv_len, on)

    q, k, v = (packed(tensor) for tensor in (inputs.q, inputs.k, inputs.v))

    def call() -> Any:
        return varlen_attn(q, k, v, *begins, case.q_len, case.kv_len, **options)

    return Built(call, lambda result: _unpacked(case, result), "flash")


def _unpacked(case: Case, out: Any) -> Any:
    return out.view(case.batch, case.q_len, case.q_heads, -1).transpose(1, 2)


def _varlen_why_not(case: Case) -> str | None:
    if device.kind(case.device) != "cuda":
        return "varlen_attn is CUDA only"
    return None if case.dtype in HALF else "varlen_attn takes bf16 and fp16 only"


def _nested(case: Case, inputs: Inputs) -> Built:
    import torch

    def jagged(tensor: Any) -> Any:
        rows = packed(tensor)
        begins = offsets(case.batch, tensor.shape[2], tensor.device).long()
        return torch.nested.nested_tensor_from_jagged(rows, begins, min_seqlen=tensor.shape[2], max_seqlen=tensor.shape[2])

    q, k, v = (jagged(tensor).transpose(1, 2) for tensor in (inputs.q, inputs.k, inputs.v))

    def call() -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=calls.hides(case))

    return Built(call, lambda result: _unpacked(case, result.transpose(1, 2).values()))


def _nested_why_not(case: Case) -> str | None:
    if case.q_heads != case.kv_heads:
        return "nested tensors are not tried with shared key heads"
    if case.window is not None or (case.causal and case.q_len != case.kv_len):
        return "nested tensors take no window, and causal only of equal lengths"
    if calls.hides(case) and device.kind(case.device) == "cpu":
        return "nested tensors have no causal backend on a CPU"
    return None


VARIANTS = (
    Variant(
        "varlen",
        "packed sequences",
        "layout",
        "torch's varlen_attn over sequences laid end to end (here of equal length); packing is not timed, its backward is.",
        _varlen,
        why_not=_varlen_why_not,
        missing=lambda: None if probes.installed("torch.nn.attention.varlen") else "this torch has no varlen_attn (2.10 has)",
        executed=lambda case: calls.block_share(case, 128, 128),
        modes=MODES,
        expected=(r"_varlen_attn|_flash_attention_forward",),
    ),
    Variant(
        "nested",
        "nested tensors",
        "layout",
        "SDPA over jagged nested tensors (here of equal length); on a CPU through dozens of small ops.",
        _nested,
        why_not=_nested_why_not,
        modes=MODES,
        expected=("scaled_dot_product",),
    ),
)
