"""nn.MultiheadAttention: attention with its projections, as a module."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..variant import Built, Inputs, Variant
from . import calls

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..case import Case


def _module(case: Case, dtype: Any) -> Any:
    """Return an nn.MultiheadAttention with seeded weights that keep the size of what passes."""
    import torch

    width = case.q_heads * case.qk_dim
    module = torch.nn.MultiheadAttention(width, case.q_heads, batch_first=True, bias=False).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in (module.in_proj_weight, module.out_proj.weight):
            weight.copy_(torch.randn(weight.shape, generator=generator) / math.sqrt(width))
    return module.requires_grad_(False).to(dtype)


def _rows(tensor: Any) -> Any:
    """Return [B, H, S, D] as [B, S, H * D]."""
    return tensor.detach().transpose(1, 2).flatten(2)


def _build(*, weights: bool) -> Callable[[Case, Inputs], Built]:
    def build(case: Case, inputs: Inputs) -> Built:
        import torch

        module = _module(case, inputs.q.dtype).to(inputs.q.device)
        hidden = None
        if (visible := calls.visible(case, inputs.q.device)) is not None:
            hidden = torch.zeros(visible.shape, dtype=inputs.q.dtype, device=visible.device).masked_fill_(~visible, -math.inf)
        causal = hidden is not None and case.window is None

        x = _rows(inputs.q)

        def call() -> Any:
            return module(x, x, x, attn_mask=hidden, need_weights=weights, is_causal=causal)[0]

        return Built(call, lambda result: result.unflatten(2, (case.q_heads, -1)).transpose(1, 2))

    return build


def _reference(case: Case, inputs: Inputs) -> Any:
    """Compute the module's function plainly, in the dtype of the inputs, with the weights as the case's dtype rounds them."""
    from ..inputs import dtype

    module, x = _module(case, dtype(case.dtype)).to(inputs.q.device, inputs.q.dtype), _rows(inputs.q)
    heads = ((x @ weight.mT).unflatten(2, (case.q_heads, -1)).transpose(1, 2) for weight in module.in_proj_weight.chunk(3))
    out = calls.plain(case, Inputs(*heads))
    return (_rows(out) @ module.out_proj.weight.mT).unflatten(2, (case.q_heads, -1)).transpose(1, 2)


def _flops(case: Case) -> float:
    rows, width = case.batch * case.q_len, case.q_heads * case.qk_dim
    return 2.0 * rows * width * 4 * width + 4.0 * case.batch * case.q_heads * case.q_len**2 * case.qk_dim


def _why_not(case: Case) -> str | None:
    if (case.q_heads, case.q_len, case.qk_dim) != (case.kv_heads, case.kv_len, case.v_dim):
        return "self-attention needs equal heads, lengths and dimensions of q, k, v"
    return None


def _variant(name: str, about: str, *, weights: bool, **rest: Any) -> Variant:
    return Variant(
        name,
        name.replace("mha", "nn.MultiheadAttention").replace(":", ", "),
        "layout",
        about,
        _build(weights=weights),
        why_not=_why_not,
        flops=_flops,
        modes=("forward",),
        exact=False,
        reference=_reference,
        **rest,
    )


VARIANTS = (
    _variant(
        "mha",
        "The module and its projections, need_weights=False: its fast path (no mask) stores the scores, else it takes SDPA.",
        weights=False,
        expected=(r"aten::(_native_multi_head_attention|linear)$",),
    ),
    _variant(
        "mha:weights",
        "The module as called by default: it returns the weights, so the scores are stored whatever the mask.",
        weights=True,
        expected=(r"aten::(_softmax|_native_multi_head_attention)$",),
        unexpected=("scaled_dot_product",),
        tags=frozenset({"materializes"}),
    ),
)
