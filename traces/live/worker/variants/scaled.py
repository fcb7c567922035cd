"""scaled_dot_product_attention: what auto takes, and each backend by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import device
from ..case import MODES
from ..variant import Variant
from . import calls, choice

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..case import Case
    from ..variant import Built, Inputs

_LOWER_RIGHT = frozenset({"auto", "flash", "efficient"})
"""Backends for which torch has a bottom-right causal path of their own, on a GPU."""


def arguments(case: Case, backend: str = "auto", on: Any = None) -> dict[str, Any]:
    """Return the keyword arguments that give the case's mask: `is_causal` is upper-left, so it serves equal lengths only.

    Args:
        case: causal, window and lengths.
        backend: which is to run.
        on: torch device of a mask that has to be made.
    """
    gqa = {"enable_gqa": True} if case.q_heads != case.kv_heads else {}
    if not calls.hides(case):
        return gqa
    if not calls.windowed(case):
        if case.q_len == case.kv_len:
            return {**gqa, "is_causal": True}
        if backend in _LOWER_RIGHT and device.kind(case.device) in {"cuda", "xpu"}:
            from torch.nn.attention.bias import causal_lower_right

            return {**gqa, "attn_mask": causal_lower_right(case.q_len, case.kv_len)}
    return {**gqa, "attn_mask": calls.visible(case, on)}


def _auto(case: Case, inputs: Inputs) -> Built:
    import torch

    given = arguments(case, on=inputs.q.device)

    def attend(q: Any, k: Any, v: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, **given)

    return calls.built(inputs, attend, backend=backend_of(inputs.q, inputs.k, inputs.v, given))


def backend_of(q: Any, k: Any, v: Any, given: dict[str, Any]) -> str:
    """Return the backend that these tensors and keyword arguments take."""
    mask, causal, gqa = given.get("attn_mask"), given.get("is_causal", False), given.get("enable_gqa", False)
    return choice.taken(q, k, v, mask, causal=causal, gqa=gqa)


def forced(backend: str) -> Callable[[Case, Inputs], Built]:
    """Return what builds SDPA held to one backend."""

    def build(case: Case, inputs: Inputs) -> Built:
        import torch

        given, only = arguments(case, backend, inputs.q.device), choice.Only(backend)

        def attend(q: Any, k: Any, v: Any) -> Any:
            with only:
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, **given)

        return calls.built(inputs, attend, backend=backend)

    return build


def refuses(backend: str) -> Callable[[Case], str | None]:
    """Return what says why a backend does not take a case, in torch's words."""

    def why_not(case: Case) -> str | None:
        if device.kind(case.device) not in {"cpu", "cuda"}:
            return f"whether {device.kind(case.device)} has it cannot be asked"
        if device.kind(case.device) == "cpu" and backend != "flash":
            return "it is CUDA only"
        mask = calls.hides(case) and (calls.windowed(case) or case.q_len != case.kv_len)
        own = mask and not calls.windowed(case) and backend in _LOWER_RIGHT and device.kind(case.device) == "cuda"
        return choice.reasons(backend, case, masked=mask and not own, causal=calls.hides(case) and not mask)

    return why_not


def skipped(case: Case) -> float:
    """Return the share of the square that fused kernels compute: causal blocks are skipped, under a mask none is."""
    gpu = device.kind(case.device) != "cpu"
    if calls.windowed(case) or (not gpu and (case.q_len != case.kv_len or case.qk_dim != case.v_dim)):
        return 1.0
    rows = 256 if case.q_len >= 768 else 64 if case.q_len >= 192 else 32
    return calls.block_share(case, 128, 128) if gpu else calls.block_share(case, rows, 512)


def _sdpa(backend: str, title: str, about: str, expected: str, **rest: Any) -> Variant:
    return Variant(
        f"sdpa:{backend}",
        f"SDPA, {title}",
        "sdpa",
        about,
        forced(backend),
        why_not=refuses(backend),
        expected=(expected,),
        modes=MODES,
        **rest,
    )


_MATH_OP = r"aten::_scaled_dot_product_attention_math"

VARIANTS = (
    Variant(
        "sdpa:auto",
        "SDPA",
        "sdpa",
        "scaled_dot_product_attention as called by models; torch picks the backend, which is shown.",
        _auto,
        modes=MODES,
        executed=skipped,
        expected=(r"aten::_scaled_dot_product_|aten::_efficient_attention_forward|scaled_dot_product_attention",),
        unexpected=(_MATH_OP,),
    ),
    Variant(
        "sdpa:math",
        "SDPA, math",
        "sdpa",
        "The fallback that fits everything: scores in full, in fp32 for half types, the mask made anew each call.",
        forced("math"),
        modes=MODES,
        expected=(_MATH_OP,),
        tags=frozenset({"materializes"}),
    ),
    _sdpa(
        "flash",
        "flash",
        "One fused kernel that never stores the scores; on CUDA it takes no mask and half types only.",
        r"aten::_scaled_dot_product_flash_attention",
        executed=skipped,
        unexpected=(_MATH_OP,),
    ),
    _sdpa(
        "efficient",
        "memory-efficient",
        "The fused kernel that takes masks and fp32; CUDA only.",
        r"aten::_scaled_dot_product_efficient_attention|aten::_efficient_attention_forward",
        executed=skipped,
        unexpected=(_MATH_OP,),
    ),
    _sdpa(
        "cudnn",
        "cuDNN",
        "cuDNN's fused kernel, planned on the first call; CUDA only, half types.",
        r"aten::_scaled_dot_product_cudnn_attention",
        executed=skipped,
        unexpected=(_MATH_OP,),
    ),
)
