"""Costs of matrix products and convolutions."""

from __future__ import annotations

from math import prod

from .op_calls import BYTES, TYPE_CODES, Call, Cost, Tensor, broadcast

# ---- matrix products ---------------------------------------------------------------------------------------------------------


def _product(a: Tensor | None, b: Tensor | None, bias: Tensor | None = None, out: str | None = None) -> Cost | None:
    """Cost of a times b, over the last two dimensions; the ones before are broadcast."""
    if a is None or b is None:
        return None
    left = a.dims if len(a.dims) > 1 else (1, *a.dims)
    right = b.dims if len(b.dims) > 1 else (*b.dims, 1)
    batch = broadcast(left[:-2], right[:-2])
    if left[-1] != right[-2] or batch is None:
        return None
    results = prod(batch) * left[-2] * right[-1]
    moved = a.bytes + b.bytes + (0 if bias is None else bias.bytes) + results * BYTES[out or a.dtype]
    return Cost("gemm", 2 * results * left[-1], moved, a.dtype)


def _mm(call: Call) -> Cost | None:
    return _product(call.tensor(0), call.tensor(1))


def _addmm(call: Call) -> Cost | None:
    """`beta * self + alpha * (a @ b)`; self is not read where beta is 0."""
    bias = None if call.value(3) == 0 else call.tensor(0)
    return _product(call.tensor(1), call.tensor(2), bias)


def _linear(call: Call) -> Cost | None:
    weight = call.tensor(1)
    return None if weight is None else _product(call.tensor(0), _turned(weight), call.tensor(2))


def _turned(weight: Tensor) -> Tensor:
    return Tensor(weight.dims[::-1], weight.dtype, weight.strides[::-1])


def _scaled_mm(call: Call) -> Cost | None:
    """The result has the type that `out_dtype` names, else that of the first operand."""
    code = call.value(6)
    given = TYPE_CODES.get(code) if isinstance(code, int) else None
    if code is not None and given is None:
        return None
    return _product(call.tensor(0), call.tensor(1), call.tensor(4), given)


def _int_mm(call: Call) -> Cost | None:
    return _product(call.tensor(0), call.tensor(1), out="int32")


def _out_first(call: Call) -> Cost | None:
    """`gemm(out, a, b)`, as serving engines write it."""
    out = call.tensor(0)
    return None if out is None else _product(call.tensor(1), call.tensor(2), out=out.dtype)


def _grouped_mm(call: Call) -> Cost | None:
    """Rows of a spread over the matrices of b; each row meets one of them."""
    a, b = call.tensor(0), call.tensor(1)
    if a is None or b is None or len(b.dims) != 3 or a.dims[-1] != b.dims[-2]:
        return None if a is None or b is None or len(b.dims) == 3 else _product_over_groups(a, b, call.tensor(2))
    results = prod(a.dims[:-1]) * b.dims[-1]
    return Cost("gemm", 2 * results * a.dims[-1], a.bytes + b.bytes + results * a.element_bytes, a.dtype)


def _product_over_groups(a: Tensor, b: Tensor, ends: Tensor | None) -> Cost | None:
    """Two matrices cut along their common dimension: a result for each group."""
    if len(a.dims) != 2 or len(b.dims) != 2 or ends is None or a.dims[1] != b.dims[0]:
        return None
    results = a.dims[0] * b.dims[1]
    moved = a.bytes + b.bytes + ends.elements * results * a.element_bytes
    return Cost("gemm", 2 * results * a.dims[1], moved, a.dtype)


# ---- convolutions ------------------------------------------------------------------------------------------------------------

_CONVOLUTIONS = {
    "aten::convolution": (3, 4, 5),
    "aten::_convolution": (3, 4, 5),
    "aten::conv1d": (3, 4, 5),
    "aten::conv2d": (3, 4, 5),
    "aten::conv3d": (3, 4, 5),
    "aten::cudnn_convolution": (3, 2, 4),
    "aten::cudnn_convolution_relu": (3, 4, 5),
    "aten::miopen_convolution": (4, 3, 5),
    "aten::miopen_depthwise_convolution": (4, 3, 5),
    "aten::mkldnn_convolution": (4, 3, 5),
    "aten::_conv_depthwise2d": (4, 5, 6),
}
"""Positions of stride, padding and dilation."""
_WITH_TRANSPOSED = {"aten::convolution", "aten::_convolution"}


def _convolution(call: Call) -> Cost | None:
    source, weight = call.tensor(0), call.tensor(1)
    transposed = call.value(6) if call.name in _WITH_TRANSPOSED else False
    if source is None or weight is None or transposed is None:
        return None
    if transposed:
        return None if (made := _transposed_size(call, source, weight)) is None else _convolved(source, weight, made, spread=True)
    rank = len(weight.dims) - 2
    told = [_per_dimension(call.value(at), rank) for at in _CONVOLUTIONS[call.name]]
    if rank < 1 or len(source.dims) != len(weight.dims) or None in told:
        return None
    stride, padding, dilation = (one for one in told if one is not None)
    if 0 in stride:
        return None
    spans = zip(source.dims[2:], weight.dims[2:], stride, padding, dilation, strict=True)
    size = [max(0, (n + 2 * pad - gap * (k - 1) - 1) // step + 1) for n, k, step, pad, gap in spans]
    return _convolved(source, weight, (source.dims[0], weight.dims[0], *size))


def _convolved(source: Tensor, weight: Tensor, made: tuple[int, ...], *, spread: bool = False) -> Cost:
    """Each result sums over the weights of one filter; transposed, each input is spread over them."""
    once = prod(source.dims) if spread else prod(made)
    flops = 2 * once * prod(weight.dims[1:])
    return Cost("conv", flops, source.bytes + weight.bytes + prod(made) * source.element_bytes, source.dtype)


def _transposed_size(call: Call, source: Tensor, weight: Tensor) -> tuple[int, ...] | None:
    rank, groups = len(weight.dims) - 2, call.value(8)
    told = [_per_dimension(call.value(at), rank) for at in (3, 4, 5, 7)]
    if None in told or not isinstance(groups, int) or len(source.dims) != len(weight.dims):
        return None
    rows = zip(source.dims[2:], weight.dims[2:], *(one for one in told if one is not None), strict=True)
    size = [(n - 1) * step - 2 * pad + gap * (k - 1) + more + 1 for n, k, step, pad, gap, more in rows]
    return (source.dims[0], weight.dims[1] * groups, *size)


def _per_dimension(value: object, rank: int) -> list[int] | None:
    """Return a list of one number a dimension; a single number holds for all."""
    many = [one for one in (value if isinstance(value, list) else [value]) if type(one) is int]
    told = len(value) if isinstance(value, list) else 1
    if not many or len(many) != told:
        return None
    return many * rank if len(many) == 1 else many if len(many) == rank else None


def _convolution_backward(call: Call) -> Cost | None:
    """The gradients that the mask asks for, each as many FLOPs as the forward pass."""
    grad, source, weight = (call.tensor(at) for at in range(3))
    transposed, mask = call.value(7), call.value(10)
    if grad is None or source is None or weight is None or transposed is None or not isinstance(mask, list) or len(mask) != 3:
        return None
    once = 2 * prod((source if transposed else grad).dims) * prod(weight.dims[1:])
    wanted = int(mask[0] is True) + int(mask[1] is True)
    moved = grad.bytes + wanted * (source.bytes + weight.bytes)
    bias = grad.elements if mask[2] is True else 0
    out = grad.dims[1] * grad.element_bytes if mask[2] is True else 0
    return Cost("conv", wanted * once + bias, moved + out, source.dtype)


PRODUCTS = {
    **dict.fromkeys(("aten::mm", "aten::bmm", "aten::matmul", "aten::mv", "aten::dot", "aten::vdot"), _mm),
    **dict.fromkeys(("aten::addmm", "aten::baddbmm", "aten::addmv", "aten::_addmm_activation"), _addmm),
    "aten::linear": _linear,
    "aten::_scaled_mm": _scaled_mm,
    "aten::_int_mm": _int_mm,
    "aten::_grouped_mm": _grouped_mm,
    "_C::cutlass_scaled_mm": _out_first,
    **dict.fromkeys(_CONVOLUTIONS, _convolution),
    "aten::convolution_backward": _convolution_backward,
}
"""Formula of each operator."""
