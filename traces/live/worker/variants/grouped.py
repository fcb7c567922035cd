"""Query heads that share key heads (GQA, MQA): by the flag, or with keys and values repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import ranges
from ..case import MODES
from ..variant import Variant
from . import calls, scaled

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..case import Case
    from ..variant import Built, Inputs

_COPIES = r"aten::(repeat_interleave|clone|index_select)$"


def _equal(case: Case) -> str | None:
    return "the case has as many key heads as query heads" if case.q_heads == case.kv_heads else None


def _flag(case: Case, inputs: Inputs) -> Built:
    return _step(case, inputs, lambda _case, tensor: tensor, flag=True)


def _repeat(case: Case, inputs: Inputs) -> Built:
    return _step(case, inputs, lambda case, tensor: tensor.repeat_interleave(case.q_heads // case.kv_heads, 1))


def _expand(case: Case, inputs: Inputs) -> Built:
    def expand(case: Case, tensor: Any) -> Any:
        return tensor[:, :, None].expand(-1, -1, case.q_heads // case.kv_heads, -1, -1).flatten(1, 2)

    return _step(case, inputs, expand)


def _step(case: Case, inputs: Inputs, widen: Callable[[Case, Any], Any], *, flag: bool = False) -> Built:
    import torch

    given = {**scaled.arguments(case, on=inputs.q.device), "enable_gqa": flag}

    def attend(q: Any, k: Any, v: Any) -> Any:
        if not flag:
            with ranges.part("copy"):
                k, v = widen(case, k), widen(case, v)
        with ranges.part("fused"):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, **given)

    k, v = (inputs.k, inputs.v) if flag else (widen(case, inputs.k), widen(case, inputs.v))
    return calls.built(inputs, attend, backend=scaled.backend_of(inputs.q, k, v, given))


def _gqa(name: str, title: str, about: str, build: Callable[[Case, Inputs], Built], **rest: Any) -> Variant:
    return Variant(f"gqa:{name}", title, "sdpa", about, build, why_not=_equal, executed=scaled.skipped, modes=MODES, **rest)


VARIANTS = (
    _gqa(
        "flag",
        "GQA by enable_gqa",
        "SDPA reads each key head once for all the query heads that share it.",
        _flag,
        expected=("scaled_dot_product",),
        unexpected=(_COPIES,),
    ),
    _gqa(
        "repeat",
        "GQA, keys repeated",
        "repeat_interleave copies keys and values to the number of query heads before SDPA.",
        _repeat,
        expected=("scaled_dot_product", _COPIES),
    ),
    _gqa(
        "expand",
        "GQA, keys expanded",
        "expand and flatten: a view at first, yet flattening copies keys and values all the same.",
        _expand,
        expected=("scaled_dot_product", r"aten::clone$"),
    ),
)
