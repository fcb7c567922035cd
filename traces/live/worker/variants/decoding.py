"""One new token against a cache of keys and values: written in place, or grown by cat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import ranges
from ..variant import Variant
from . import calls, scaled

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..case import Case
    from ..variant import Built, Inputs


def _step(case: Case, inputs: Inputs, append: Callable[[Any, Any], tuple[Any, Any]]) -> Built:
    """Append the last key and value, then attend to the cache, or to its end where the case has a window.

    Each call is the step at the case's length: the cost of a cache that grows is that of its last step, and calls stay alike.
    """
    import torch

    gqa, seen = case.q_heads != case.kv_heads, min(case.window or case.kv_len, case.kv_len)

    def attend(q: Any, k: Any, v: Any) -> Any:
        with ranges.part("copy"):
            keys, values = append(k[:, :, -1:], v[:, :, -1:])
        keys, values = keys[:, :, case.kv_len - seen :], values[:, :, case.kv_len - seen :]
        with ranges.part("fused"):
            return torch.nn.functional.scaled_dot_product_attention(q, keys, values, enable_gqa=gqa)

    keys, values = (tensor[:, :, case.kv_len - seen :] for tensor in (inputs.k, inputs.v))
    return calls.built(inputs, attend, backend=scaled.backend_of(inputs.q, keys, values, {"enable_gqa": gqa}))


def _static(case: Case, inputs: Inputs) -> Built:
    keys, values = inputs.k.clone(), inputs.v.clone()
    keys[:, :, -1], values[:, :, -1] = 0, 0

    def append(key: Any, value: Any) -> tuple[Any, Any]:
        keys[:, :, case.kv_len - 1 : case.kv_len].copy_(key)
        values[:, :, case.kv_len - 1 : case.kv_len].copy_(value)
        return keys, values

    return _step(case, inputs, append)


def _cat(case: Case, inputs: Inputs) -> Built:
    import torch

    keys, values = inputs.k[:, :, :-1].clone(), inputs.v[:, :, :-1].clone()
    return _step(case, inputs, lambda key, value: (torch.cat((keys, key), 2), torch.cat((values, value), 2)))


def _decode(name: str, title: str, about: str, build: Callable[[Case, Inputs], Built], **rest: Any) -> Variant:
    def executed(case: Case) -> float:
        return min(case.window or case.kv_len, case.kv_len) / case.kv_len

    return Variant(f"decode:{name}", title, "decode", about, build, executed=executed, modes=("decode",), **rest)


VARIANTS = (
    _decode(
        "static",
        "decode, static cache",
        "The new key and value are written into a cache of full length; only the new row is copied.",
        _static,
        expected=("scaled_dot_product", r"aten::copy_$"),
        unexpected=(r"aten::cat$",),
    ),
    _decode(
        "cat",
        "decode, cache grown by cat",
        "Each step makes a new cache one longer: everything before is copied again.",
        _cat,
        expected=("scaled_dot_product", r"aten::cat$"),
    ),
)
