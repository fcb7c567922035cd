"""What one call of an operator costs: FLOPs and least bytes, by closed formulas over the shapes and types that the trace holds.

One multiply-add is 2 FLOPs. Bytes are those of each input read once and each output written once, with the real element sizes;
what a cache saves or a second pass costs is not in them. An operator that is not known here, or whose arguments do not say
enough, has no cost: unknown is None and never 0. The conventions stand in docs/definitions.md.
"""

from __future__ import annotations

import polars as pl

from .attention_shapes import cost_of as attention_cost
from .attention_shapes import shape_of
from .element_costs import ELEMENT_FORMULAS
from .op_calls import Call, Cost, read_call
from .product_costs import PRODUCTS

FORMULAS = PRODUCTS | ELEMENT_FORMULAS
"""Formula of each operator that is known by its name alone; attention is in `attention_shapes`."""


MATRIX_KINDS = frozenset({"gemm", "conv", "attention"})
"""Kinds that matrix units serve; the others are held against the fp32 rate."""
SIGNATURE = ("name", "input_dims", "input_types", "input_strides", "concrete_inputs")
"""Columns of the event table that a cost follows from."""


def costs(calls: pl.DataFrame) -> pl.DataFrame:
    """Return the cost of each distinct call.

    Args:
        calls: `SIGNATURE`, a row for each distinct call.

    Returns:
        The rows with `kind`, `dtype`, `flops`, `bytes` and `shape` (sizes of the tensors, as text); null where unknown.

    Example:
        >>> row = {"name": "aten::mm", "input_dims": "[[4,8],[8,2]]", "input_types": '["float","float"]'}
        >>> found = costs(pl.DataFrame([{**row, "input_strides": None, "concrete_inputs": None}]))
        >>> found.select("kind", "flops", "bytes").row(0)
        ('gemm', 128, 224)
    """
    made = [_row(read_call(*row)) for row in calls.select(SIGNATURE).iter_rows()]
    types = {"kind": pl.String, "dtype": pl.String, "flops": pl.Int64, "bytes": pl.Int64, "shape": pl.String}
    return calls.hstack(pl.DataFrame(made, schema=types, orient="row"))


def _row(call: Call) -> tuple[str | None, str | None, int | None, int | None, str | None]:
    found = cost(call)
    shapes = call.shapes or None
    if found is None:
        return None, None, None, None, shapes
    return found.kind, found.dtype, _counted(found.flops), _counted(found.bytes), shapes


def _counted(count: int | None) -> int | None:
    """Return a count, or None where no column can hold it: sizes that a broken trace states."""
    return None if count is None or count >= 2**63 else count


def cost(call: Call) -> Cost | None:
    """Return what a call costs, or None where that is not known.

    Example:
        >>> cost(read_call("aten::relu", "[[4,8]]", '["c10::Half"]'))
        Cost(kind='elementwise', flops=32, bytes=128, dtype='fp16')
    """
    formula = FORMULAS.get(call.name)
    if formula is not None:
        return formula(call)
    shape = shape_of(call)
    if shape is None:
        return None
    executed, moved = attention_cost(shape)
    return Cost("attention", executed, moved, shape.dtype)
