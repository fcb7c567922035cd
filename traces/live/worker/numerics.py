"""How far an output is from a reference of higher precision, and whether that is no more than the dtype explains.

The bound follows the FlashAttention tests: twice the error of plain attention in the same dtype, plus twice a rounding of the
largest value, since that error may be small by chance. The reference runs on the same inputs in fp64 by blocks of queries;
where that would take long, on a sample of the queries spread over all of them, and it says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import costs, device
from .inputs import dtype
from .variant import Inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .case import Case

BLOCK_BYTES = 256 << 20
"""Scores that the reference holds at once."""
KEYS_BYTES = 4 << 30
"""Keys and values in the reference's precision; beyond this there is no reference."""
FLOPS = {"cpu": 2e9, "cuda": 2e12}
"""What the reference may compute in fp64; beyond this it takes a sample of the queries."""
FEWEST_QUERIES = 16
SQUARE_BYTES = 1 << 30
"""Scores in the reference's precision of a variant with a function of its own, which is computed whole."""


def compare(
    output: Any,
    case: Case,
    inputs: Inputs,
    tolerance: float = 1.0,
    gradients: Any = None,
    function: Callable[[Case, Inputs], Any] | None = None,
) -> dict[str, Any]:
    """Compare an output with the reference of its case.

    The reference of the last case is kept, for the next variant with the same inputs.

    Args:
        output: [B, Hq, Sq, Dv].
        case: the problem.
        inputs: the tensors that the output was computed from.
        tolerance: factor on the bound.
        gradients: of q, k and v, for a backward case.
        function: what should come out where that is not attention, see `Variant.reference`.

    Returns:
        Members of a `prepared` frame: `error` and, where it is null, `error_skipped` with why. `error` holds `max_abs`,
        `mean_abs`, `bound`, `nan_rows` (rows of the output that are not finite), `reference` (its precision and extent) and
        `ok`; with gradients, also `grad_max_abs` and `grad_bound` of the one that is worst against its bound. An output that
        cannot be compared at all has `ok` and `why` alone.
    """
    global _last  # noqa: PLW0603 -- the one reference kept
    if why := _unfit(output, case):
        return {"error": {"ok": False, "why": why}}
    if too_large := _too_large(case) or (function and _square_too_large(case)):
        return {"error": None, "error_skipped": too_large}
    if function is not None:
        return {"error": Reference(case, inputs, function).compare(output, tolerance, gradients)}
    if _last is None or not _last.fits(case, inputs):
        _last = Reference(case, inputs)
    return {"error": _last.compare(output, tolerance, gradients)}


def looked_at(output: Any, skipped: str) -> dict[str, Any]:
    """Return the members of a `prepared` frame for an output that has no reference: it is wrong all the same when it holds NaN.

    Args:
        output: what came out, of any kind.
        skipped: why there is no reference.
    """
    output = output[0] if isinstance(output, tuple) and output else output
    if not (hasattr(output, "isfinite") and output.is_floating_point() and output.dim()):
        return {"error": None, "error_skipped": skipped}
    broken = int((~output.detach().isfinite().all(-1)).sum())
    if not broken:
        return {"error": None, "error_skipped": skipped}
    return {
        "error": {"nan_rows": broken, "ok": False, "why": f"rows of its output hold NaN or infinity; not compared: {skipped}"}
    }


def forget() -> None:
    """Let go of the reference that is kept."""
    global _last  # noqa: PLW0603
    _last = None


def _unfit(output: Any, case: Case) -> str | None:
    """Return why an output cannot be compared with the reference."""
    shape = (case.batch, case.q_heads, case.q_len, case.v_dim)
    if not hasattr(output, "isfinite"):
        return f"it returns {type(output).__name__}, no tensor"
    if tuple(output.shape) != shape:
        return f"the output has the shape {tuple(output.shape)}, not {shape}"
    return None


def _too_large(case: Case) -> str | None:
    size = case.batch * case.kv_heads * case.kv_len * (case.qk_dim + case.v_dim) * 8
    if size > KEYS_BYTES:
        return f"the reference would need {size / 2**30:.1f} GiB for keys and values alone"
    if _queries(case) < min(FEWEST_QUERIES, case.q_len):
        return f"the reference would compute fewer than {FEWEST_QUERIES} of {case.q_len:,} queries in its time"
    return None


def _square_too_large(case: Case) -> str | None:
    size = case.batch * case.q_heads * case.q_len * case.kv_len * 8
    if size > SQUARE_BYTES or _queries(case) < case.q_len:
        return f"the reference of its function would need {size / 2**30:.1f} GiB of scores, or too much time"
    return None


def _queries(case: Case) -> int:
    """Return how many queries the reference may compute."""
    allowed = FLOPS.get(device.kind(case.device), FLOPS["cpu"])
    return min(case.q_len, int(allowed // costs.forward(case, case.kv_len)))


@dataclass(frozen=True)
class _Expected:
    """A tensor of the reference and how wrong plain attention in the case's dtype is about it."""

    values: Any
    plain_error: float
    rounding: float

    @classmethod
    def of(cls, values: Any, plain: Any, case: Case) -> _Expected:
        import torch

        largest = float(values.abs().max())
        # Half a unit in the last place where sums run in fp32 and only the result is rounded; else each term of a sum rounds.
        ulps = 0.5 if case.element_bytes == 2 else math.sqrt(max(case.q_len, case.kv_len) + case.qk_dim)
        rounding = ulps * float(torch.finfo(dtype(case.dtype)).eps) * largest
        return cls(values, float((plain - values).abs().max()), rounding)

    def bound(self, tolerance: float) -> float:
        return tolerance * 2 * (self.plain_error + self.rounding)

    def difference(self, found: Any) -> Any:
        return (found.to(self.values.dtype) - self.values).abs()


class Reference:
    """What attention should give for one case and its inputs."""

    def __init__(self, case: Case, inputs: Inputs, function: Callable[[Case, Inputs], Any] | None = None) -> None:
        import torch

        self.case, self.inputs = case, inputs
        self.precision = "fp64" if device.has_fp64(case.device) else "fp32"
        count = _queries(case)
        spread = torch.linspace(0, case.q_len - 1, count, dtype=torch.float64).round().long()
        self.rows = spread[_sees_a_key(case, spread)].to(case.device)
        self.whole = len(self.rows) == case.q_len
        self.function = "" if function is None else " of its own function"
        attend = _attend if function is None else _whole(function)
        blocks = _blocks(case, self.rows) if function is None else [self.rows]
        wanted, rounded = self._cast(dtype(self.precision)), self._cast(dtype(case.dtype))
        with torch.no_grad():
            exact = _forward(case, blocks, wanted, attend)
            self.output = _Expected.of(exact, _forward(case, blocks, rounded, attend), case)
        self.gradients: list[_Expected] | None = None
        if case.mode == "backward" and self.whole:
            exact_gradients = _gradients(case, blocks, wanted, inputs.grad, attend)
            plain = _gradients(case, blocks, rounded, inputs.grad, attend)
            self.gradients = [_Expected.of(one, other, case) for one, other in zip(exact_gradients, plain, strict=True)]

    def _cast(self, to: Any) -> list[Any]:
        return [tensor.detach().to(to) for tensor in (self.inputs.q, self.inputs.k, self.inputs.v)]

    def fits(self, case: Case, inputs: Inputs) -> bool:
        """Tell whether this is the reference of a case with these numbers."""
        import torch

        pairs = ((self.inputs.q, inputs.q), (self.inputs.k, inputs.k), (self.inputs.v, inputs.v))
        return self.case == case and all(torch.equal(mine, other) for mine, other in pairs)

    def compare(self, output: Any, tolerance: float, gradients: Sequence[Any] | None = None) -> dict[str, Any]:
        """Return the members of `error`; see `compare` of the module."""
        case = self.case
        found = output.detach()[:, :, self.rows]
        finite = found.isfinite().all(-1, keepdim=True)
        difference = self.output.difference(found).where(finite, 0)
        broken = int((~finite).sum())
        extent = "" if self.whole else f", {len(self.rows):,} of {case.q_len:,} queries"
        error: dict[str, Any] = {
            "max_abs": float(difference.max()),
            "mean_abs": float(difference.mean()),
            "bound": self.output.bound(tolerance),
            "nan_rows": broken,
            "reference": self.precision + self.function + extent,
        }
        error["ok"] = not broken and error["max_abs"] <= error["bound"]
        if gradients is not None and self.gradients is not None:
            worst = max(
                (self._gradient(*pair, tolerance) for pair in zip(self.gradients, gradients, strict=True)), key=lambda one: one[0]
            )
            error |= {"grad_max_abs": worst[1], "grad_bound": worst[2]}
            error["ok"] = error["ok"] and worst[0] <= 1
        return error

    @staticmethod
    def _gradient(expected: _Expected, found: Any, tolerance: float) -> tuple[float, float | None, float]:
        """Return the error against the bound, the error (None where it is not finite) and the bound."""
        bound = expected.bound(tolerance)
        error = float(expected.difference(found.detach()).max())
        return (error / bound, error, bound) if math.isfinite(error) else (math.inf, None, bound)


_last: Reference | None = None


def _sees_a_key(case: Case, rows: Any) -> Any:
    return rows + case.kv_len - case.q_len >= 0 if case.causal or case.window is not None else rows >= 0


def _blocks(case: Case, rows: Any) -> Sequence[Any]:
    blocks: Sequence[Any] = rows.split(max(1, BLOCK_BYTES // (case.batch * case.q_heads * case.kv_len * 8)))
    return blocks


def _whole(function: Callable[[Case, Inputs], Any]) -> Callable[..., Any]:
    """Return a function of a case and its inputs in the form of `_attend`, for all queries."""
    return lambda case, _rows, q, k, v: function(case, Inputs(q, k, v))


def _attend(case: Case, rows: Any, q: Any, k: Any, v: Any) -> Any:
    """Return plain attention of some queries, [B, Hq, rows, Dv], in the dtype of its inputs."""
    import torch

    group = case.q_heads // case.kv_heads
    scores = q.unflatten(1, (case.kv_heads, group)) @ k.unsqueeze(2).mT * case.qk_dim**-0.5
    own = (rows + case.kv_len - case.q_len).unsqueeze(-1)
    keys = torch.arange(case.kv_len, device=rows.device)
    if case.causal or case.window is not None:
        hidden = keys > own
        if case.window is not None:
            hidden |= keys <= own - case.window
        scores = scores.masked_fill(hidden, -math.inf)
    return (scores.softmax(-1) @ v.unsqueeze(2)).flatten(1, 2)


def _forward(case: Case, blocks: Sequence[Any], tensors: Sequence[Any], attend: Callable[..., Any]) -> Any:
    import torch

    q, k, v = tensors
    return torch.cat([attend(case, block, q[:, :, block], k, v) for block in blocks], dim=2)


def _gradients(case: Case, blocks: Sequence[Any], tensors: Sequence[Any], grad: Any, attend: Callable[..., Any]) -> list[Any]:
    """Return the gradients of q, k and v."""
    import torch

    q, k, v = (tensor.detach().requires_grad_() for tensor in tensors)
    total = [torch.zeros_like(tensor) for tensor in (q, k, v)]
    for block in blocks:
        with torch.enable_grad():
            output = attend(case, block, q[:, :, block], k, v)
        parts = torch.autograd.grad(output, (q, k, v), grad[:, :, block].to(output.dtype))
        for place, part in enumerate(parts):
            total[place] += part
    return total
