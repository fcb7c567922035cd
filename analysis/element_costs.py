"""Costs of norms, softmax, work element by element, reductions and look-ups."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from .op_calls import BYTES, TYPE_CODES, Call, Cost, Tensor, broadcast

Formula = Callable[[Call], Cost | None]

# ---- norms and softmax -------------------------------------------------------------------------------------------------------


def _norm(at: int, each: int, *, extra: tuple[int, ...] = (), training: int | None = None) -> Formula:
    """Normalise: `each` FLOPs an element, one more for a weight and one for a bias; `extra` are the positions of these."""

    def formula(call: Call) -> Cost | None:
        source = call.tensor(at)
        if source is None:
            return None
        given = [one for one in map(call.tensor, extra) if one is not None]
        steps = each if training is None or call.value(training) is not False else 2  # no mean and variance to find
        moved = source.bytes + source.elements * source.element_bytes + sum(one.bytes for one in given)
        return Cost("norm", source.elements * (steps + len(given)), moved, source.dtype)

    return formula


def _norm_backward(grad_at: int, source_at: int, weight_at: int) -> Formula:
    """Gradients of input, weight and bias: 14 FLOPs an element, 9 without weight."""

    def formula(call: Call) -> Cost | None:
        grad, source, weight = (call.tensor(at) for at in (grad_at, source_at, weight_at))
        if grad is None or source is None:
            return None
        moved = grad.bytes + source.bytes + source.elements * source.element_bytes + (3 * weight.bytes if weight else 0)
        return Cost("norm", source.elements * (14 if weight else 9), moved, source.dtype)

    return formula


def _added_rms_norm(call: Call) -> Cost | None:
    """`fused_add_rms_norm(input, residual, weight)`: both are read and written."""
    source, residual, weight = (call.tensor(at) for at in range(3))
    if source is None or residual is None or weight is None:
        return None
    moved = 2 * (source.bytes + residual.bytes) + weight.bytes
    return Cost("norm", 5 * source.elements, moved, source.dtype)


def _softmax(call: Call) -> Cost | None:
    """Largest value, difference, exponential, sum, quotient: 5 FLOPs an element."""
    source = call.tensor(0)
    if source is None:
        return None
    out = 4 if call.value(2) is True else source.element_bytes
    return Cost("softmax", 5 * source.elements, source.bytes + source.elements * out, source.dtype)


def _softmax_backward(call: Call) -> Cost | None:
    grad, result = call.tensor(0), call.tensor(1)
    if grad is None or result is None:
        return None
    return Cost("softmax", 4 * grad.elements, grad.bytes + result.bytes + grad.elements * grad.element_bytes, grad.dtype)


# ---- element by element ------------------------------------------------------------------------------------------------------

_ORDER = ("bool", "uint8", "int8", "int16", "int32", "int64", "fp8", "fp16", "bf16", "fp32", "fp64", "complex64", "complex128")
_FLAGS = frozenset(
    {"eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not", "logical_xor", "isnan", "isinf", "isfinite"}
)
_NO_FLOPS = frozenset(
    {"where", "masked_fill", "bitwise_not", "bitwise_and", "bitwise_or", "bitwise_xor", "tril", "triu", "logical_not"}
)
_FRACTIONS = frozenset(
    {"div", "exp", "exp2", "log", "log2", "log1p", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tanh", "sigmoid", "erf", "expm1"}
)
_UNARY = frozenset(
    {
        "neg",
        "abs",
        "exp",
        "exp2",
        "expm1",
        "log",
        "log2",
        "log1p",
        "sqrt",
        "rsqrt",
        "reciprocal",
        "square",
        "sin",
        "cos",
        "tan",
        "tanh",
        "sigmoid",
        "silu",
        "gelu",
        "relu",
        "relu6",
        "elu",
        "leaky_relu",
        "hardswish",
        "hardsigmoid",
        "hardtanh",
        "softplus",
        "mish",
        "erf",
        "clamp",
        "clamp_min",
        "clamp_max",
        "floor",
        "ceil",
        "round",
        "trunc",
        "sign",
        "threshold",
        "nan_to_num",
        "logical_not",
        "bitwise_not",
        "isnan",
        "isinf",
        "isfinite",
        "tril",
        "triu",
    }
)
_BINARY = frozenset(
    {
        "add",
        "sub",
        "rsub",
        "mul",
        "div",
        "pow",
        "maximum",
        "minimum",
        "fmod",
        "remainder",
        "floor_divide",
        "atan2",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "logical_and",
        "logical_or",
        "logical_xor",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "masked_fill",
        "threshold_backward",
        "sigmoid_backward",
        "tanh_backward",
        "silu_backward",
        "gelu_backward",
        "leaky_relu_backward",
        "elu_backward",
        "hardswish_backward",
        "hardtanh_backward",
        "softplus_backward",
    }
)
_TERNARY = {"where": 0, "addcmul": 3, "addcdiv": 3, "lerp": 3}
"""FLOPs an element; `a + v * b * c` is three."""


def _elementwise(arity: int, each: int, word: str, *, in_place: bool) -> Formula:
    """Each function of an element counts `each` FLOPs, whatever it is; a comparison gives bytes."""

    def formula(call: Call) -> Cost | None:
        given = [one for one in call.tensors[:arity] if one is not None]
        dims = broadcast(*(one.dims for one in given)) if given else None
        if dims is None:
            return None
        kind = given[0].dtype if in_place and call.tensor(0) is not None else _result(word, given, call.wrapped)
        count = prod(dims)
        return Cost("elementwise", each * count, sum(one.bytes for one in given) + count * BYTES[kind], given[0].dtype)

    return formula


def _result(word: str, given: list[Tensor], wrapped: tuple[str, ...]) -> str:
    """Return the element type of a result, as PyTorch promotes them."""
    if word in _FLAGS:
        return "bool"
    widest = max((one.dtype for one in given), key=_ORDER.index)
    if {one.dtype for one in given} >= {"fp16", "bf16"}:
        return "fp32" if _ORDER.index(widest) < _ORDER.index("fp32") else widest
    whole = _ORDER.index(widest) < _ORDER.index("fp8")
    fraction = word in _FRACTIONS or any(one.startswith("fp") for one in wrapped)
    return "fp32" if whole and fraction else widest


def _copy(call: Call) -> Cost | None:
    target, source = call.tensor(0), call.tensor(1)
    if target is None:
        return None
    return Cost("copy", 0, target.bytes + (0 if source is None else source.bytes), target.dtype)


def _fill(call: Call) -> Cost | None:
    target = call.tensor(0)
    return None if target is None else Cost("copy", 0, target.bytes, target.dtype)


# ---- reductions and look-ups -------------------------------------------------------------------------------------------------

_REDUCTIONS = {
    **dict.fromkeys(("sum", "mean", "prod", "amax", "amin", "max", "min", "argmax", "argmin", "any", "all"), 1),
    "linalg_vector_norm": 2,
    "var": 4,
    "std": 4,
}
"""FLOPs an element."""


def _reduction(word: str, each: int) -> Formula:
    """Fold dimensions together: the ones that the trace names, all where none is an argument."""
    at = 2 if word == "linalg_vector_norm" else 1

    def formula(call: Call) -> Cost | None:
        source = call.tensor(0)
        if source is None:
            return None
        left = _left(source, call, at)
        size = _reduced_bytes(word, source, call)
        moved = None if left is None or size is None else source.bytes + left * size
        return Cost("reduce", each * source.elements, moved, source.dtype)

    return formula


def _left(source: Tensor, call: Call, at: int) -> int | None:
    """Return how many results there are, or None where the dimensions are not known."""
    if len(call.tensors) <= at:
        return 1
    value = call.value(at)
    if value is None and not call.values:
        return None
    folded = value if isinstance(value, list) else [] if value is None else [value]
    rank = len(source.dims)
    if any(type(one) is not int or not -rank <= one < rank for one in folded):
        return None
    gone = {one % rank for one in folded} or set(range(rank))
    return prod(size for dim, size in enumerate(source.dims) if dim not in gone)


def _reduced_bytes(word: str, source: Tensor, call: Call) -> int | None:
    if word in {"argmax", "argmin"}:
        return 8
    if word in {"any", "all"}:
        return 1
    if word in {"max", "min"} and len(call.tensors) > 1:
        return source.element_bytes + 8  # the values and where they are
    code = call.value(3) if word in {"sum", "mean", "prod"} else None
    if code is not None:
        return BYTES.get(TYPE_CODES.get(code, "")) if isinstance(code, int) else None
    whole = _ORDER.index(source.dtype) < _ORDER.index("fp8")
    return 8 if whole and word in {"sum", "prod"} else source.element_bytes


def _rows(table_at: int, index_at: int) -> Formula:
    """Take rows of a table: each look-up reads its row, and the row is written."""

    def formula(call: Call) -> Cost | None:
        table, index = call.tensor(table_at), call.tensor(index_at)
        if table is None or index is None or (index_at == 2 and call.value(1) != 0):
            return None
        row = prod(table.dims[1:]) * table.element_bytes
        return Cost("embedding", 0, 2 * index.elements * row + index.bytes, table.dtype)

    return formula


def _embedding_backward(call: Call) -> Cost | None:
    """Sum the gradients into a table of all rows."""
    grad, index, rows = call.tensor(0), call.tensor(1), call.value(2)
    if grad is None or index is None or not isinstance(rows, int):
        return None
    return Cost("embedding", grad.elements, grad.bytes + index.bytes + rows * grad.dims[-1] * grad.element_bytes, grad.dtype)


def _by_word() -> dict[str, Formula]:
    found = {f"aten::{word}": _reduction(word, each) for word, each in _REDUCTIONS.items()}
    flops = {**dict.fromkeys(_UNARY | _BINARY, 1), **dict.fromkeys(_NO_FLOPS, 0), **_TERNARY}
    for word, each in flops.items():
        arity = 3 if word in _TERNARY else 2 if word in _BINARY else 1
        found[f"aten::{word}"] = _elementwise(arity, each, word, in_place=False)
        found[f"aten::{word}_"] = _elementwise(arity, each, word, in_place=True)
    return found


_BATCH_NORMS = ("batch_norm", "native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "_native_batch_norm_legit")
ELEMENT_FORMULAS: dict[str, Formula] = {
    **_by_word(),
    **dict.fromkeys(("aten::native_layer_norm", "aten::layer_norm"), _norm(0, 6, extra=(2, 3))),
    "aten::native_group_norm": _norm(0, 6, extra=(1, 2)),
    **dict.fromkeys((f"aten::{word}" for word in _BATCH_NORMS), _norm(0, 6, extra=(1, 2), training=5)),
    **dict.fromkeys(("aten::rms_norm", "aten::_fused_rms_norm"), _norm(0, 3, extra=(2,))),
    "_C::rms_norm": _norm(1, 3, extra=(2,)),
    "_C::fused_add_rms_norm": _added_rms_norm,
    "aten::native_layer_norm_backward": _norm_backward(0, 1, 5),
    "aten::native_group_norm_backward": _norm_backward(0, 1, 4),
    "aten::native_batch_norm_backward": _norm_backward(0, 1, 2),
    **dict.fromkeys(("aten::cudnn_batch_norm_backward", "aten::miopen_batch_norm_backward"), _norm_backward(1, 0, 2)),
    **dict.fromkeys(("aten::_softmax", "aten::_log_softmax", "aten::_safe_softmax"), _softmax),
    **dict.fromkeys(("aten::_softmax_backward_data", "aten::_log_softmax_backward_data"), _softmax_backward),
    "aten::copy_": _copy,
    **dict.fromkeys(("aten::fill_", "aten::zero_"), _fill),
    "aten::embedding": _rows(0, 1),
    "aten::index_select": _rows(0, 2),
    "aten::embedding_dense_backward": _embedding_backward,
}
"""Formula of each operator."""
