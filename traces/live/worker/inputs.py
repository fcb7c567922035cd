"""Fresh tensors of a case: normal, seeded, never zeros."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .variant import Inputs

if TYPE_CHECKING:
    from .case import Case

_TORCH_NAMES = {"fp64": "float64", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def dtype(name: str) -> Any:
    """Return torch's dtype for a case's name of it."""
    import torch

    return getattr(torch, _TORCH_NAMES[name])


def make(case: Case, seed: int) -> Inputs:
    """Make q, k, v, and for a backward case the gradient of the output.

    They are drawn in fp32 on the CPU from a generator of their own and then moved, so that a seed means the same numbers on every
    device and in every dtype (up to its rounding), and torch's own random state stays as it is. Normal values: zeros and
    constants let a GPU draw less power and clock higher, and hide NaN.

    Args:
        case: shapes, dtype, device and mode.
        seed: of the generator; the same seed, the same numbers.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    learns = case.mode == "backward"

    def normal(heads: int, length: int, dim: int) -> Any:
        drawn = torch.randn(case.batch, heads, length, dim, generator=generator, dtype=torch.float32)
        return drawn.to(device=case.device, dtype=dtype(case.dtype))

    q = normal(case.q_heads, case.q_len, case.qk_dim).requires_grad_(learns)
    k = normal(case.kv_heads, case.kv_len, case.qk_dim).requires_grad_(learns)
    v = normal(case.kv_heads, case.kv_len, case.v_dim).requires_grad_(learns)
    return Inputs(q, k, v, normal(case.q_heads, case.q_len, case.v_dim) if learns else None)
