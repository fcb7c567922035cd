"""How far an output is from a reference of higher precision, and whether that is no more than the dtype explains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .case import Case
    from .variant import Inputs


def compare(output: Any, case: Case, inputs: Inputs, tolerance: float = 1.0, gradients: Any = None) -> dict[str, Any]:
    """Compare an output with the reference of its case.

    Args:
        output: [B, Hq, Sq, Dv].
        case: the problem.
        inputs: the tensors that the output was computed from.
        tolerance: factor on the bound.
        gradients: of q, k and v, for a backward case.

    Returns:
        Members of a `prepared` frame: `error` and, where it is null, `error_skipped` with why.
    """
    raise NotImplementedError
