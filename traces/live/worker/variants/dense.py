"""Attention written out, scores and all: eager, in place, folded into one product, compiled."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .. import device, probes, ranges
from ..case import MODES
from ..variant import Variant
from . import calls, compiled

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..case import Case
    from ..variant import Built, Inputs

_SELECTED = r"aten::(bmm|baddbmm)$"
_SOFTMAX = r"aten::_softmax$"


def _grouped(case: Case, q: Any) -> Any:
    """View [B, Hq, Sq, D] as [B, Hkv, G * Sq, D]: query heads that share a key head form one product, so nothing is repeated."""
    return q.reshape(case.batch, case.kv_heads, -1, case.qk_dim)


def _heads(case: Case, scores: Any) -> Any:
    return scores.view(case.batch, case.q_heads, case.q_len, -1)


def _eager(case: Case, inputs: Inputs) -> Built:
    hidden, scale = _hidden(case, inputs), calls.scale(case)

    def attend(q: Any, k: Any, v: Any) -> Any:
        with ranges.part("qk"):
            scores = _heads(case, _grouped(case, q) @ k.mT)
        with ranges.part("scale"):
            scores = scores * scale
        if hidden is not None:
            with ranges.part("mask"):
                scores = scores.masked_fill(hidden, -math.inf)
        with ranges.part("softmax"):
            weights = scores.softmax(-1)
        with ranges.part("pv"):
            return _heads(case, weights.view(case.batch, case.kv_heads, -1, case.kv_len) @ v)

    return calls.built(inputs, attend, backend="eager")


def _eager_inplace(case: Case, inputs: Inputs) -> Built:
    hidden, scale = _hidden(case, inputs), calls.scale(case)

    def attend(q: Any, k: Any, v: Any) -> Any:
        with ranges.part("qk"):
            scores = _heads(case, _grouped(case, q) @ k.mT)
        with ranges.part("scale"):
            scores.mul_(scale)
        if hidden is not None:
            with ranges.part("mask"):
                scores.masked_fill_(hidden, -math.inf)
        with ranges.part("softmax"):
            weights = scores.softmax(-1)
        with ranges.part("pv"):
            return _heads(case, weights.view(case.batch, case.kv_heads, -1, case.kv_len) @ v)

    return calls.built(inputs, attend, backend="eager")


def _baddbmm(case: Case, inputs: Inputs) -> Built:
    import torch

    hidden, scale = _hidden(case, inputs), calls.scale(case)
    rows = case.q_heads // case.kv_heads * case.q_len
    bias = torch.zeros(rows, case.kv_len, dtype=inputs.q.dtype, device=inputs.q.device)
    if hidden is not None:
        bias.view(-1, case.q_len, case.kv_len).masked_fill_(hidden, -math.inf)
    bias = bias.expand(case.batch * case.kv_heads, -1, -1)
    beta = 0 if hidden is None else 1

    def attend(q: Any, k: Any, v: Any) -> Any:
        with ranges.part("qk"):
            scores = torch.baddbmm(bias, q.reshape(-1, rows, case.qk_dim), k.flatten(0, 1).mT, beta=beta, alpha=scale)
        with ranges.part("softmax"):
            weights = scores.softmax(-1)
        with ranges.part("pv"):
            return _heads(case, torch.bmm(weights, v.flatten(0, 1)))

    return calls.built(inputs, attend, backend="eager")


def _compiled(case: Case, inputs: Inputs) -> Built:
    hidden, scale = _hidden(case, inputs), calls.scale(case)

    def attend(q: Any, k: Any, v: Any) -> Any:
        scores = _heads(case, _grouped(case, q) @ k.mT) * scale
        if hidden is not None:
            scores = scores.masked_fill(hidden, -math.inf)
        return _heads(case, scores.softmax(-1).view(case.batch, case.kv_heads, -1, case.kv_len) @ v)

    built = calls.built(inputs, compiled.compiled(attend))
    counted = compiled.first_call(built, case)
    generated = "C++" if device.kind(case.device) == "cpu" else "Triton"
    return replace(built, backend="sdpa, matched by inductor" if counted.get("fuse_attention") else f"inductor, {generated}")


def _hidden(case: Case, inputs: Inputs) -> Any:
    mask = calls.visible(case, inputs.q.device)
    return None if mask is None else ~mask


def _own(name: str, title: str, about: str, build: Callable[[Case, Inputs], Built], **rest: Any) -> Variant:
    tags = frozenset({"materializes", *rest.pop("tags", ())})
    return Variant(name, title, rest.pop("group", "eager"), about, build, tags=tags, **{"modes": MODES, **rest})


VARIANTS = (
    _own(
        "eager",
        "eager",
        "Two products and a softmax as one writes them first; masked_fill copies the scores.",
        _eager,
        expected=(_SELECTED, _SOFTMAX),
        unexpected=("scaled_dot_product",),
    ),
    _own(
        "eager-inplace",
        "eager, in place",
        "Scale and mask are applied to the scores where they lie; only without gradients.",
        _eager_inplace,
        expected=(_SELECTED, _SOFTMAX, r"aten::mul_$"),
        unexpected=(r"aten::(clone|masked_fill|mul)$", "scaled_dot_product"),
        modes=("forward", "decode"),
    ),
    _own(
        "baddbmm",
        "baddbmm",
        "Scale and mask are folded into the first product; the mask is first copied to the scores' size.",
        _baddbmm,
        expected=(r"aten::baddbmm$", _SOFTMAX, r"aten::bmm$"),
        unexpected=(r"aten::masked_fill", "scaled_dot_product"),
    ),
    _own(
        "compile:eager",
        "eager, compiled",
        "The eager code through torch.compile: scale, mask and softmax become one kernel, the products stay.",
        _compiled,
        group="compiled",
        why_not=probes.compiling_why_not,
        expected=(r"Call CompiledFxGraph|triton_|CompiledFunction",),
        unexpected=(r"aten::masked_fill$", r"aten::_softmax$"),
        timeout_s=240.0,
        tags=("compiled",),
    ),
)
