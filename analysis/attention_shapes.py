"""The problem that one attention operator was given: sizes, type, mask; and what it costs by closed formulas.

One multiply-add is 2 FLOPs, the softmax is left out, as in published figures. Key heads that several query heads share change the
bytes and not the FLOPs. Backward is 2.5 times forward: the fused kernels compute QK again (5 products instead of 2).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .op_calls import BYTES, Call, Tensor

BACKWARD_FUSED = 2.5
"""FLOPs of a fused backward pass by those of the forward pass."""
BACKWARD_KEPT = 2.0
"""The same where the scores were kept: 4 products."""


@dataclass(frozen=True, slots=True)
class Operator:
    """How the arguments of an attention operator are to be read."""

    pattern: str
    """Regular expression over the whole name."""
    implementation: str | None
    """What runs; None where the operator leaves that to another one inside it."""
    layout: str = "bhsd"
    """Order of batch, heads, sequence and dimension; `thd` is tokens of several sequences behind each other."""
    q: int = 0
    """Position of the query; key and value follow it."""
    causal: int | None = None
    """Position of the causal flag."""
    mask: int | None = None
    """Position of a mask or bias tensor."""
    lengths: int | None = None
    """Position of the cumulative sequence lengths of the queries; the longest ones stand two places after."""
    window: int | None = None
    """Position of how many keys to the left a query sees."""
    bottom_right: bool = False
    """Causal counts from the last key instead of from the first one."""
    backward: bool = False


OPERATORS = (
    Operator(r"aten::scaled_dot_product_attention", None, causal=5, mask=3),
    Operator(r"aten::_scaled_dot_product_attention_math\w*", "math", causal=5, mask=3),
    Operator(r"aten::_scaled_dot_product_flash_attention", "flash", causal=4),
    Operator(r"aten::_scaled_dot_product_flash_attention_for_cpu", "flash", causal=4, mask=5),
    Operator(r"aten::_scaled_dot_product_efficient_attention", "efficient", causal=6, mask=3),
    Operator(r"aten::_scaled_dot_product_cudnn_attention", "cudnn", causal=6, mask=3),
    Operator(r"aten::_scaled_dot_product_fused_attention_overrideable", "overrideable", causal=5, mask=3),
    Operator(r"aten::_scaled_dot_product_flash_attention_backward", "flash", q=1, causal=11, backward=True),
    Operator(r"aten::_scaled_dot_product_flash_attention_for_cpu_backward", "flash", q=1, causal=7, mask=8, backward=True),
    Operator(r"aten::_scaled_dot_product_efficient_attention_backward", "efficient", q=1, causal=11, mask=4, backward=True),
    Operator(r"aten::_scaled_dot_product_cudnn_attention_backward", "cudnn", q=1, causal=14, mask=8, backward=True),
    Operator(
        r"aten::_scaled_dot_product_fused_attention_overrideable_backward", "overrideable", q=1, causal=13, mask=4, backward=True
    ),
    Operator(r"aten::_flash_attention_forward", "flash", "bshd", causal=8, lengths=3, window=11, bottom_right=True),
    Operator(r"aten::_flash_attention_backward", "flash", "bshd", q=1, causal=11, lengths=6, bottom_right=True, backward=True),
    Operator(r"aten::_efficient_attention_forward", "efficient", "bshd", causal=9, mask=3, lengths=4),
    Operator(r"aten::_efficient_attention_backward", "efficient", "bshd", q=1, causal=14, mask=4, lengths=6, backward=True),
    Operator(r"aten::_cudnn_attention_forward", "cudnn", causal=10, mask=3),
    Operator(r"aten::_cudnn_attention_backward", "cudnn", q=1, backward=True),
    Operator(r"flash_attn::_flash_attn_forward", "flash", "bshd", causal=5, window=6, bottom_right=True),
    Operator(r"flash_attn::_flash_attn_backward", "flash", "bshd", q=1, causal=11, window=12, bottom_right=True, backward=True),
    Operator(
        r"flash_attn::_flash_attn_varlen_forward", "flash", "thd", causal=9, lengths=3, window=10, bottom_right=True
    ),
    Operator(r"flash_attn::_flash_attn_varlen_backward", "flash", "thd", q=1, backward=True),
    Operator(r"(vllm|sglang)::unified_attention\w*", None, "thd"),
    Operator(r"(torch_attn::_varlen_attn)", "flash", "thd", lengths=3, bottom_right=True),
    # Known by name alone: the order of their arguments differs from release to release.
    Operator(r"FlashAttn\w*Backward", "flash", "", backward=True),
    Operator(r"FlashAttn\w*Func", "flash", ""),
    Operator(r"xformers\w*::\w*(bwd|backward)\w*", None, "", backward=True),
    Operator(r"xformers\w*::\w*(attention|fwd)\w*", None, ""),
    Operator(
        r"(?!aten|torch|autograd|record)\w+::(?!\w*(cache|copy|quant|rope|norm|metadata|plan))"
        r"\w*(attn|attention|fmha|mha_|mla_|varlen_)\w*(bwd|backward)\w*",
        None, "", backward=True,
    ),
    Operator(
        r"(?!aten|torch|autograd|record)\w+::(?!\w*(cache|copy|quant|rope|norm|metadata|plan))"
        r"\w*(attn|attention|fmha|mha_|mla_|varlen_)\w*",
        None, "",
    ),
)  # fmt: skip
"""Attention operators of PyTorch and of the packages around it; the first that fits decides."""

_COMPILED = tuple((re.compile(one.pattern), one) for one in OPERATORS)


@dataclass(frozen=True, slots=True)
class Shape:
    """An attention problem; what the trace does not say is None."""

    batch: int | None
    q_heads: int
    kv_heads: int
    q_len: int | None
    """Queries of a sequence; None where the sequences of a batch differ or are not told."""
    kv_len: int | None
    qk_dim: int
    v_dim: int
    dtype: str
    causal: bool | None
    """None where a mask is given whose content the trace does not hold."""
    window: int | None = None
    """Keys that a query sees, its own included."""
    bottom_right: bool = False
    backward: bool = False
    tokens: int | None = None
    """Queries of all sequences, where these stand behind each other."""
    kv_tokens: int | None = None

    @property
    def text(self) -> str:
        """The sizes in a few words."""
        told = {
            "B": self.batch, "Hq": self.q_heads, "Hkv": self.kv_heads, "Sq": self.q_len, "Sk": self.kv_len,
            "D": self.qk_dim, "Dv": self.v_dim if self.v_dim != self.qk_dim else None,
            "T": self.tokens if self.q_len is None else None,
        }  # fmt: skip
        return " ".join(f"{name}{size}" for name, size in told.items() if size is not None)


def operator(name: str) -> Operator | None:
    """Return how an operator's arguments are read, or None where it is no attention.

    Example:
        >>> operator("aten::_scaled_dot_product_cudnn_attention").implementation, operator("_C::reshape_and_cache_flash")
        ('cudnn', None)
    """
    return next((one for pattern, one in _COMPILED if pattern.fullmatch(name)), None)


def shape_of(call: Call) -> Shape | None:
    """Return the problem that a call was given, or None where it is no attention or does not say.

    Example:
        >>> from kinetop.analysis.op_calls import read_call
        >>> dims, types = "[[2,8,512,64],[2,2,512,64],[2,2,512,64],[],[],[]]", '["c10::Half","c10::Half","c10::Half","","",""]'
        >>> call = read_call("aten::scaled_dot_product_attention", dims, types, values='["","","","","0.","True"]')
        >>> shape_of(call).text, shape_of(call).causal
        ('B2 Hq8 Hkv2 Sq512 Sk512 D64', True)
    """
    how = operator(call.name)
    if how is None or not how.layout:
        return None
    q, k, v = (call.tensor(how.q + at) for at in range(3))
    if q is None or k is None or v is None:
        return None
    packed = how.layout == "thd" or (how.lengths is not None and call.tensor(how.lengths) is not None)
    if packed:
        return _packed(call, how, q, k, v)
    if not len(q.dims) == len(k.dims) == len(v.dims) in {3, 4}:
        return None
    at = {"bhsd": (-3, -2), "bshd": (-2, -3)}[how.layout]
    heads, length = at
    batch = q.dims[0] if len(q.dims) == 4 else 1
    causal = _causal(call, how)
    return Shape(
        batch, q.dims[heads], k.dims[heads], q.dims[length], k.dims[length], q.dims[-1], v.dims[-1], q.dtype, causal,
        _window(call, how), how.bottom_right or call.value(-1 if how.causal is None else how.causal) == 2, how.backward,
    )  # fmt: skip


def _packed(call: Call, how: Operator, q: Tensor, k: Tensor, v: Tensor) -> Shape | None:
    """Read sequences that stand behind each other; their lengths are known only where all have the longest one's."""
    if not len(q.dims) == len(k.dims) == len(v.dims) in {3, 4} or (len(q.dims) == 4 and q.dims[0] != 1):
        return None
    ends = None if how.lengths is None else call.tensor(how.lengths)
    batch = None if ends is None else max(1, ends.elements - 1)
    longest = (None, None) if how.lengths is None else (call.value(how.lengths + 2), call.value(how.lengths + 3))
    tokens, kv_tokens = q.dims[-3], k.dims[-3]
    q_len, kv_len = (
        longest_ if isinstance(longest_, int) and batch is not None and longest_ * batch == total else None
        for longest_, total in zip(longest, (tokens, kv_tokens), strict=True)
    )
    known = how.causal is not None or how.mask is not None
    return Shape(
        batch, q.dims[-2], k.dims[-2], q_len, kv_len, q.dims[-1], v.dims[-1], q.dtype, _causal(call, how) if known else None,
        _window(call, how), how.bottom_right, how.backward, tokens, None if how.lengths is None else kv_tokens,
    )  # fmt: skip


def _causal(call: Call, how: Operator) -> bool | None:
    """Return whether a query sees only the keys up to its own place; a mask may hide anything."""
    told = None if how.causal is None else call.value(how.causal)
    if told is True or told in (1, 2):  # 1 and 2 are numbers of mask kinds
        return True
    hidden = how.mask is not None and call.tensor(how.mask) is not None
    return None if hidden or told is None else False


def _window(call: Call, how: Operator) -> int | None:
    left = None if how.window is None else call.value(how.window)
    return left + 1 if isinstance(left, int) and not isinstance(left, bool) and left >= 0 else None


def visible_pairs(shape: Shape) -> int | None:
    """Return how many (query, key) pairs of one head are seen, or None where the trace does not say.

    Query i sees keys 0 to i, counted from the last ones where the mask is bottom-right; with a window the last ones of these.

    Example:
        >>> visible_pairs(Shape(1, 1, 1, 4, 4, 64, 64, "bf16", causal=True))
        10
    """
    q_len, kv_len = shape.q_len, shape.kv_len
    if q_len is None or kv_len is None or shape.causal is None:
        return None
    if not shape.causal:
        return q_len * kv_len if shape.window is None else None  # a window to both sides: its right side is not read here
    first = kv_len - q_len if shape.bottom_right else 0
    limit = kv_len if shape.window is None else min(shape.window, kv_len)
    whole = _clipped(first + q_len, limit) - _clipped(max(0, first), limit)
    if first + q_len <= kv_len:
        return whole
    if shape.window is not None:
        return None  # queries behind the last key: how far their window reaches differs between libraries
    return _clipped(kv_len, kv_len) + (q_len - kv_len) * kv_len


def _clipped(count: int, limit: int) -> int:
    """Return the sum of min(i, limit) for i from 1 to count."""
    rising = max(0, min(count, limit))
    return rising * (rising + 1) // 2 + max(0, count - rising) * limit


def flops(shape: Shape, pairs: int | None, backward_times: float = BACKWARD_FUSED) -> int | None:
    """Return FLOPs over so many (query, key) pairs of each head, or None where the pairs or the batch are not known.

    Args:
        shape: heads and dimensions.
        pairs: pairs of one head.
        backward_times: what a backward pass takes, by the forward one.
    """
    if pairs is None or shape.batch is None:
        return None
    once = 2 * shape.batch * shape.q_heads * (shape.qk_dim + shape.v_dim) * pairs
    return int(backward_times * once) if shape.backward else once


def square(shape: Shape) -> int | None:
    """Return all (query, key) pairs of one head, seen or not."""
    return None if shape.q_len is None or shape.kv_len is None else shape.q_len * shape.kv_len


def least_bytes(shape: Shape) -> int | None:
    """Return the bytes that any way must move, or None where the sizes do not say.

    Forward: query, key, value and output, each once. Backward: these and the output's gradient read, three gradients written.
    A mask, softmax statistics and keys that no query sees are not told apart.
    """
    tokens = shape.tokens if shape.tokens is not None else _times(shape.batch, shape.q_len)
    kv_tokens = shape.kv_tokens if shape.tokens is not None else _times(shape.batch, shape.kv_len)
    if tokens is None or kv_tokens is None:
        return None
    q, out = tokens * shape.q_heads * shape.qk_dim, tokens * shape.q_heads * shape.v_dim
    kv = kv_tokens * shape.kv_heads * (shape.qk_dim + shape.v_dim)
    moved = q + kv + out if not shape.backward else 2 * (q + kv) + 2 * out
    return moved * BYTES[shape.dtype]


def _times(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first * second


def cost_of(shape: Shape) -> tuple[int | None, int | None]:
    """Return FLOPs and least bytes of a call of a fused operator: the pairs that are seen, all of them under a mask.

    Example:
        >>> cost_of(Shape(4, 12, 12, 197, 197, 64, 64, "bf16", causal=False))
        (476884992, 4841472)
    """
    seen = visible_pairs(shape)
    pairs = square(shape) if seen is None and shape.causal is None and shape.window is None else seen
    return flops(shape, pairs), least_bytes(shape)
