"""What a case costs by closed formulas: useful and executed FLOPs, least bytes.

One multiply-add is 2 FLOPs; the softmax is left out, as in published figures. Key heads that several query heads share change
the bytes, not the FLOPs. `backward` cases measure forward and backward together: 3.5 times the forward FLOPs where the backward
computes QK again (fused kernels: 2 + 5 products), 3 times where the scores were kept (variants tagged `materializes`: 2 + 4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .case import Case
    from .variant import Variant

FORWARD_BACKWARD_FUSED = 3.5
FORWARD_BACKWARD_KEPT = 3.0


def pairs(case: Case) -> int:
    """Return how many (query, key) pairs of one head are visible.

    Query i, bottom-right aligned, sees min(window, i + 1 + kv_len - q_len) keys, none where that is negative.
    """
    if not case.causal and case.window is None:
        return case.q_len * case.kv_len
    window = case.kv_len if case.window is None else min(case.window, case.kv_len)
    return _clipped_sum(case.kv_len, window) - _clipped_sum(max(0, case.kv_len - case.q_len), window)


def _clipped_sum(count: int, limit: int) -> int:
    """Return the sum of min(i, limit) for i from 1 to count."""
    rising = min(count, limit)
    return rising * (rising + 1) // 2 + (count - rising) * limit


def visible_keys(case: Case) -> int:
    """Return how many keys at least one query sees: with a window, decoding reads only the end of a cache."""
    last = case.last_key(case.q_len - 1)
    first_query = max(0, case.q_len - case.kv_len) if case.window is not None else 0
    return last - case.first_key(first_query) + 1


def forward(case: Case, visible: float) -> float:
    """Return FLOPs of the two products forward.

    Args:
        case: heads and dimensions.
        visible: (query, key) pairs of one head that are computed.
    """
    return 2.0 * case.batch * case.q_heads * (case.qk_dim + case.v_dim) * visible


def useful(case: Case) -> float:
    """Return the FLOPs that the result needs: those of visible pairs only.

    A backward case counts 3.5 times the forward, whatever the variant, as published figures do: so the useful rates of two
    variants stand in the same ratio as their speeds.

    >>> from kinetop.traces.live.worker.case import Case
    >>> useful(Case.of("2,4/2,512,64", causal=False))
    536870912.0
    """
    return forward(case, pairs(case)) * (FORWARD_BACKWARD_FUSED if case.mode == "backward" else 1.0)


def executed(case: Case, variant: Variant) -> float:
    """Return the FLOPs that a variant computes: the whole square when it only masks, a share when it skips blocks.

    A backward case counts 3 times the forward for a variant tagged `materializes`, else 3.5 times.
    """
    if variant.flops is not None:
        once = float(variant.flops(case))
    else:
        share = 1.0 if variant.executed is None else variant.executed(case)
        once = forward(case, share * case.q_len * case.kv_len)
    if case.mode != "backward":
        return once
    return once * (FORWARD_BACKWARD_KEPT if "materializes" in variant.tags else FORWARD_BACKWARD_FUSED)


def least_bytes(case: Case) -> int:
    """Return the bytes that any way must move between memory and processor.

    Forward: q, the keys and values that some query sees, and the output, each once. Backward besides: q, k, v, output and its
    gradient read, the gradients of q, k, v written (whole, unseen keys have zeros). Softmax statistics are left out.
    """
    keys = visible_keys(case)
    query = case.batch * case.q_heads * case.q_len
    key = case.batch * case.kv_heads
    per_key = case.qk_dim + case.v_dim
    q, out, seen, whole = query * case.qk_dim, query * case.v_dim, key * keys * per_key, key * case.kv_len * per_key
    moved = q + seen + out
    if case.mode == "backward":
        moved += (q + seen + 2 * out) + (q + whole)
    return moved * case.element_bytes
