"""Linear attention: the softmax replaced by a product of features, so that work grows with the length, not its square."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import ranges
from ..case import MODES
from ..variant import Variant
from . import calls

if TYPE_CHECKING:
    from ..case import Case
    from ..variant import Built, Inputs

CHUNK = 64
"""Queries and keys that meet each other pair by pair; what lies before is summed up."""


def _wide(tensor: Any) -> Any:
    """Return half types as fp32: sums over a whole sequence need it."""
    return tensor.float() if tensor.element_size() < 4 else tensor


def _features(tensor: Any) -> Any:
    import torch

    return torch.nn.functional.elu(_wide(tensor)) + 1


def _sums(case: Case, k: Any, v: Any) -> Any:
    """Return the sum of k v^T over keys, [B, Hq, D, Dv + 1]; the last column sums k itself, the weights."""
    return (_features(k).mT @ _counted(v)).repeat_interleave(case.q_heads // case.kv_heads, 1)


def _counted(v: Any) -> Any:
    """Put a column of ones beside the values: the sum of weights comes out of the same product."""
    import torch

    return torch.nn.functional.pad(_wide(v), (0, 1), value=1.0)


def _divided(summed: Any, like: Any) -> Any:
    return (summed[..., :-1] / summed[..., -1:]).to(like.dtype)


def _linear(case: Case, inputs: Inputs) -> Built:
    if case.mode == "decode":
        return _decode(case, inputs)
    return calls.built(inputs, lambda q, k, v: _causal(case, q, k, v) if case.causal else _full(case, q, k, v), backend="eager")


def _full(case: Case, q: Any, k: Any, v: Any) -> Any:
    with ranges.part("state"):
        state = _sums(case, k, v)
    with ranges.part("pv"):
        return _divided(_features(q) @ state, q)


def _causal(case: Case, q: Any, k: Any, v: Any) -> Any:
    """Chunks: pairs within a chunk, a running sum for the chunks before; keys before the first query are summed up at once."""
    import torch
    import torch.nn.functional as F  # noqa: N812

    before, spare, group = case.kv_len - case.q_len, -case.q_len % CHUNK, case.q_heads // case.kv_heads

    def chunks(tensor: Any, heads: int) -> Any:
        return F.pad(tensor, (0, 0, 0, spare)).view(case.batch, heads, -1, CHUNK, tensor.shape[-1])

    with ranges.part("features"):
        queries = chunks(_features(q), case.q_heads)
        keys = chunks(_features(k[:, :, before:]), case.kv_heads).repeat_interleave(group, 1)
        values = chunks(_counted(v[:, :, before:]), case.kv_heads).repeat_interleave(group, 1)
    with ranges.part("state"):
        own = keys.mT @ values
        state = torch.cumsum(own, 2) - own
        if before:
            state = state + _sums(case, k[:, :, :before], v[:, :, :before])[:, :, None]
    with ranges.part("qk"):
        scores = (queries @ keys.mT).tril()
    with ranges.part("pv"):
        summed = (scores @ values + queries @ state).flatten(2, 3)[:, :, : case.q_len]
    return _divided(summed, q)


def _decode(case: Case, inputs: Inputs) -> Built:
    """One token: the state of all tokens before is kept, the new one is added to it."""
    import torch

    with torch.no_grad():
        kept = _sums(case, inputs.k[:, :, :-1], inputs.v[:, :, :-1])

    def attend(q: Any, k: Any, v: Any) -> Any:
        with ranges.part("state"):
            state = kept + _sums(case, k[:, :, -1:], v[:, :, -1:])
        with ranges.part("pv"):
            return _divided(_features(q) @ state, q)

    return calls.built(inputs, attend, backend="eager")


def reference(case: Case, inputs: Inputs) -> Any:
    """Compute the same function pair by pair, in the dtype of the inputs."""
    import torch

    def features(tensor: Any) -> Any:
        return torch.nn.functional.elu(tensor) + 1

    group = case.q_heads // case.kv_heads
    weights = features(inputs.q) @ features(inputs.k.repeat_interleave(group, 1)).mT
    mask = calls.visible(case, inputs.q.device)
    weights = weights if mask is None else weights.masked_fill(~mask, 0)
    return weights @ inputs.v.repeat_interleave(group, 1) / weights.sum(-1, keepdim=True)


def flops(case: Case) -> float:
    """Return the FLOPs of the products forward: keys into the state, queries out of it, and pairs within chunks."""
    one = 2.0 * case.batch * case.qk_dim * (case.v_dim + 1)
    if case.mode == "decode":
        return one * (case.kv_heads + case.q_heads)
    if not case.causal:
        return one * (case.kv_heads * case.kv_len + case.q_heads * case.q_len)
    rows = -(-case.q_len // CHUNK) * CHUNK
    pairs = 2.0 * case.batch * case.q_heads * rows * CHUNK * (case.qk_dim + case.v_dim + 1)
    return one * (case.kv_heads * (case.kv_len - case.q_len) + 2 * case.q_heads * rows) + pairs


VARIANTS = (
    Variant(
        "linear",
        "linear attention",
        "linear",
        f"elu(x) + 1 in place of the softmax, chunks of {CHUNK}, sums in fp32 or more; its error is by its own definition.",
        _linear,
        why_not=lambda case: "linear attention has no window" if case.window is not None else None,
        flops=flops,
        expected=(r"aten::bmm$", r"aten::elu$"),
        unexpected=(r"aten::_softmax$", "scaled_dot_product"),
        modes=MODES,
        exact=False,
        reference=reference,
    ),
)
