"""FlexAttention: the case's mask as a block mask, and scores changed by ALiBi, a soft cap or documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import device, probes
from ..case import MODES
from ..variant import Variant
from . import calls, compiled, scores

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..case import Case
    from ..variant import Built, Inputs

    Make = Callable[[Case, Any], Any]
    Check = Callable[[Case], str | None]

BLOCK = 128
"""Rows and columns of a block of the mask."""
_OVERRUN = range(8, 128, 16)
"""Lengths of keys at which torch 2.13's CPU code gives NaN or wrong rows, as what follows the tensors in memory has it."""
_DENSE_PAIRS = 1 << 28
"""Above so many pairs the block mask is made by compiled code, which never holds the whole square."""


def _flex(masks: Make = scores.seen, changes: Make | None = None) -> Callable[[Case, Inputs], Built]:
    def build(case: Case, inputs: Inputs) -> Built:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        compiled.settings()
        on, gqa = inputs.q.device, case.q_heads != case.kv_heads
        mask, change = masks(case, on), changes and changes(case, on)
        sizes, dense = (case.q_len, case.kv_len), case.q_len * case.kv_len <= _DENSE_PAIRS
        blocks = None if mask is None else create_block_mask(mask, None, None, *sizes, device=on, _compile=not dense)

        def attend(q: Any, k: Any, v: Any) -> Any:
            return flex_attention(q, k, v, score_mod=change, block_mask=blocks, enable_gqa=gqa)

        backend = "flex, C++" if device.kind(case.device) == "cpu" else "flex, Triton"
        built = calls.built(inputs, compiled.compiled(attend), backend=backend)
        compiled.first_call(built, case)
        return built

    return build


def _why_not(needs: Check) -> Check:
    def why_not(case: Case) -> str | None:
        if why := needs(case):
            return why
        if case.dtype == "fp64":
            return "FlexAttention has no fp64"
        if device.kind(case.device) == "cpu" and case.mode == "backward":
            return "FlexAttention has no backward on a CPU"
        if device.kind(case.device) == "cpu" and case.kv_len in _OVERRUN:
            return "FlexAttention on a CPU reads past the end of its tensors at this kv_len"
        return probes.compiling_why_not(case)

    return why_not


def _causal(case: Case) -> str | None:
    if case.window is not None:
        return "the case has a window: see flex:window"
    return None if case.causal else "the case is not causal: see flex:full"


def _window(case: Case) -> str | None:
    return "the case has no window" if case.window is None else None


def _full(case: Case) -> str | None:
    return "the case hides keys" if case.causal or case.window is not None else None


def _aligned(case: Case) -> str | None:
    return "documents need kv_len >= q_len" if case.q_len > case.kv_len else None


def _any(_case: Case) -> str | None:
    return None


def _variant(name: str, about: str, build: Callable[[Case, Inputs], Built], needs: Check = _any, **rest: Any) -> Variant:
    return Variant(
        f"flex:{name}",
        f"FlexAttention, {name}",
        "flex",
        about,
        build,
        why_not=_why_not(needs),
        **{"executed": lambda case: calls.block_share(case, BLOCK, BLOCK), **rest},
        expected=(r"flex_attention|Call CompiledFxGraph|CompiledFunction",),
        unexpected=(r"aten::_softmax$", r"aten::bmm$"),
        modes=MODES,
        timeout_s=240.0,
        tags=frozenset({"compiled"}),
    )


VARIANTS = (
    _variant("full", "Compiled FlexAttention without a mask.", _flex(), _full),
    _variant("causal", "Compiled FlexAttention; blocks above the diagonal are skipped.", _flex(), _causal),
    _variant("window", "Compiled FlexAttention; blocks outside the window are skipped.", _flex(), _window),
    _variant(
        "alibi",
        "Each head lowers scores by its slope times the distance, under the case's mask.",
        _flex(changes=scores.alibi),
        exact=False,
        reference=scores.alibi_reference,
    ),
    _variant(
        "softcap",
        f"Scores pass through {scores.SOFT_CAP:.0f} tanh(s / {scores.SOFT_CAP:.0f}), under the case's mask.",
        _flex(changes=scores.soft_cap),
        exact=False,
        reference=lambda case, inputs: calls.plain(case, inputs, cap=scores.SOFT_CAP),
    ),
    _variant(
        "document",
        f"{scores.DOCUMENTS} documents of uneven length in one sequence; no query sees another document.",
        _flex(scores.same_document),
        _aligned,
        exact=False,
        reference=scores.document_reference,
        executed=lambda case: scores.document_share(case, BLOCK),
    ),
)
