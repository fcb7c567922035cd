"""What variants share: the mask a case asks for, and plain attention for references."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..variant import Built

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..case import Case
    from ..variant import Inputs


def hides(case: Case) -> bool:
    """Return whether any query of the case may not see any key."""
    windowed = case.window is not None and case.window < case.kv_len
    return windowed or ((case.causal or case.window is not None) and case.q_len > 1)


def windowed(case: Case) -> bool:
    """Return whether the case's window hides keys that causality does not."""
    return case.window is not None and case.window < case.kv_len


def visible(case: Case, device: Any = None) -> Any:
    """Return the mask [Sq, Sk], True where a query sees a key (bottom-right aligned); None when all is seen."""
    import torch

    if not hides(case):
        return None
    query = torch.arange(case.q_len, device=device)[:, None] + (case.kv_len - case.q_len)
    key = torch.arange(case.kv_len, device=device)[None, :]
    mask = key <= query
    return mask if case.window is None else mask & (key > query - case.window)


def scale(case: Case) -> float:
    """Return the factor of the scores."""
    return 1 / math.sqrt(case.qk_dim)


def plain(case: Case, inputs: Inputs, *, bias: Any = None, mask: Any = None, cap: float | None = None) -> Any:
    """Compute attention plainly, for references: keys repeated, scores whole.

    Args:
        case: its mask is used when none is given.
        inputs: in the dtype to compute in.
        bias: added to the scores [.., Sq, Sk].
        mask: True where a key is seen.
        cap: scores s become cap * tanh(s / cap).
    """
    import torch

    group = case.q_heads // case.kv_heads
    k, v = (tensor.repeat_interleave(group, 1) for tensor in (inputs.k, inputs.v))
    scores = inputs.q @ k.mT * scale(case)
    scores = scores if cap is None else cap * torch.tanh(scores / cap)
    scores = scores if bias is None else scores + bias
    mask = visible(case, scores.device) if mask is None else mask
    scores = scores if mask is None else scores.masked_fill(~mask, -math.inf)
    return torch.softmax(scores, -1) @ v


def block_share(
    case: Case,
    block_q: int,
    block_k: int,
    first: Callable[[int], int] | None = None,
    last: Callable[[int], int] | None = None,
) -> float:
    """Return the share of the q_len x kv_len square in blocks that hold a visible pair, as block-skipping kernels compute.

    Args:
        case: its mask.
        block_q: queries of a block.
        block_k: keys of a block.
        first: the first key that a query sees, where it is not the case's; it must not fall.
        last: the last one.
    """
    first, last = first or case.first_key, last or case.last_key
    computed = 0
    for begin in range(0, case.q_len, block_q):
        end = min(begin + block_q, case.q_len)
        left = first(begin) // block_k * block_k
        right = min((last(end - 1) // block_k + 1) * block_k, case.kv_len)
        computed += (end - begin) * (right - left)
    return computed / (case.q_len * case.kv_len)


def built(
    inputs: Inputs,
    attend: Callable[[Any, Any, Any], Any],
    *,
    backend: str = "",
    output: Callable[[Any], Any] = lambda result: result,
) -> Built:
    """Make a variant of a function of q, k and v; the mode and graphs are the timer's matter.

    Args:
        inputs: q, k and v.
        attend: computes the result.
        backend: what runs, where known.
        output: turns the result into [B, Hq, Sq, Dv].
    """
    return Built(lambda: attend(inputs.q, inputs.k, inputs.v), output, backend)
