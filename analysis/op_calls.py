"""One operator call as the profiler recorded it: tensors with their element sizes, and the values of its other arguments."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from typing import Any

ELEMENTS: dict[str, tuple[str, int]] = {
    "double": ("fp64", 8),
    "float": ("fp32", 4),
    "c10::Half": ("fp16", 2),
    "c10::BFloat16": ("bf16", 2),
    "c10::Float8_e4m3fn": ("fp8", 1),
    "c10::Float8_e4m3fnuz": ("fp8", 1),
    "c10::Float8_e5m2": ("fp8", 1),
    "c10::Float8_e5m2fnuz": ("fp8", 1),
    "c10::complex<float>": ("complex64", 8),
    "c10::complex<double>": ("complex128", 16),
    "long int": ("int64", 8),
    "long": ("int64", 8),
    "long long": ("int64", 8),
    "int": ("int32", 4),
    "short int": ("int16", 2),
    "short": ("int16", 2),
    "signed char": ("int8", 1),
    "unsigned char": ("uint8", 1),
    "bool": ("bool", 1),
}
"""Short name and bytes of an element, by the type that the profiler writes for a tensor."""

TYPE_CODES = {0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "fp16", 6: "fp32", 7: "fp64", 11: "bool", 15: "bf16"}
"""PyTorch's numbers of element types, as they stand in arguments such as `out_dtype`."""

BYTES = dict(ELEMENTS.values())
"""Bytes of an element by its short name."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor argument."""

    dims: tuple[int, ...]
    dtype: str
    """Short name of the element type."""
    strides: tuple[int, ...] = ()
    """In elements; empty where the trace does not say."""

    @property
    def elements(self) -> int:
        """How many elements it has."""
        return prod(self.dims)

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return BYTES[self.dtype]

    @property
    def bytes(self) -> int:
        """Bytes that reading it moves: a dimension that repeats itself (stride 0) counts once."""
        steps = self.strides if len(self.strides) == len(self.dims) else (1,) * len(self.dims)
        return prod(size for size, step in zip(self.dims, steps, strict=True) if step) * self.element_bytes


@dataclass(frozen=True, slots=True)
class Cost:
    """What a call costs."""

    kind: str
    """gemm, conv, attention, norm, softmax, reduce, embedding, elementwise or copy."""
    flops: int | None
    bytes: int | None
    dtype: str | None
    """Element type of the first operand."""


@dataclass(frozen=True, slots=True)
class Call:
    """An operator with its arguments by position; what a position does not hold is None."""

    name: str
    tensors: tuple[Tensor | None, ...] = ()
    """A number that was wrapped as a tensor without dimensions counts as no tensor."""
    values: tuple[str, ...] = ()
    """Values of arguments that are no tensors, as written; empty where there is none."""
    wrapped: tuple[str, ...] = ()
    """Element types of numbers wrapped as tensors."""

    def tensor(self, at: int) -> Tensor | None:
        """Return the tensor at a position, if one is there."""
        return self.tensors[at] if at < len(self.tensors) else None

    def value(self, at: int) -> Any:
        """Return the value at a position (number, flag, list of these), or None where the trace does not say."""
        text = self.values[at] if 0 <= at < len(self.values) else ""
        return _value(text)

    @property
    def shapes(self) -> str:
        """The tensors' sizes, as a row of a table shows them."""
        return " ".join("x".join(map(str, one.dims)) for one in self.tensors if one is not None)


def read_call(
    name: str, dims: str | None = None, types: str | None = None, strides: str | None = None, values: str | None = None
) -> Call:
    """Return a call from what stands in a trace; what cannot be read counts as not there.

    Args:
        name: the operator.
        dims: `Input Dims`, JSON.
        types: `Input type`, JSON.
        strides: `Input Strides`, JSON.
        values: `Concrete Inputs`, JSON.

    Example:
        >>> call = read_call("aten::mm", "[[4,8],[8,2]]", '["c10::BFloat16","c10::BFloat16"]')
        >>> call.tensor(1).bytes, call.shapes
        (32, '4x8 8x2')
    """
    sizes, kinds, steps = _list(dims), _list(types), _list(strides)
    tensors, wrapped = [], []
    for at, (size, kind) in enumerate(zip(sizes, kinds, strict=False)):
        known = ELEMENTS.get(kind) if isinstance(kind, str) else None
        whole = known is not None and _is_sizes(size)
        if whole and not size and known is not None:
            wrapped.append(known[0])
        step = steps[at] if at < len(steps) and _is_sizes(steps[at]) else ()
        tensors.append(Tensor(tuple(size), known[0], tuple(step)) if whole and size and known is not None else None)
    texts = tuple(one if isinstance(one, str) else json.dumps(one) for one in _list(values))
    return Call(name, tuple(tensors), texts, tuple(wrapped))


def _is_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(one) is int and one >= 0 for one in value)


def _list(text: str | None) -> list[Any]:
    try:
        found = json.loads(text) if text else []
    except (ValueError, RecursionError):  # an argument that a tracer wrote wrong is one that is not there
        return []
    return found if isinstance(found, list) else []


def _value(text: str) -> Any:
    """Read a value as the profiler writes it: `True`, `0.125`, `[1, 1]`, `[True, False]`."""
    plain = text.replace("True", "true").replace("False", "false")
    plain = plain[:-1] if plain.endswith(".") else plain
    try:
        return json.loads(plain)
    except (ValueError, RecursionError):
        return None


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the common shape of several, or None where there is none.

    Example:
        >>> broadcast((2, 1, 4), (3, 1)), broadcast((2,), (3,))
        ((2, 3, 4), None)
    """
    rank = max((len(shape) for shape in shapes), default=0)
    full = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    made = []
    for sizes in zip(*full, strict=True):
        wide = {size for size in sizes if size != 1}
        if len(wide) > 1:
            return None
        made.append(wide.pop() if wide else 1)
    return tuple(made)
