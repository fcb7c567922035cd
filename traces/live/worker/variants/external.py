"""What variants of other packages share: found by name and imported only when built; limits of half-type CUDA kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import device, probes
from ..case import MODES
from ..variant import Variant
from . import calls
from .layouts import HALF

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..case import Case
    from ..variant import Built, Inputs

    Check = Callable[[Case], str | None]


def transposed(tensor: Any) -> Any:
    """Swap heads and length: a view, as these kernels read strides."""
    return tensor.transpose(1, 2)


def bshd(inputs: Inputs, function: Callable[[Any, Any, Any], Any], backend: str) -> Built:
    """Make a step of a function over [B, S, H, D] that may return more than the output."""

    def attend(q: Any, k: Any, v: Any) -> Any:
        made = function(transposed(q), transposed(k), transposed(v))
        return made[0] if isinstance(made, tuple) else made

    return calls.built(inputs, attend, backend=backend, output=transposed)


def half(*more: Check, lowest: tuple[int, int] = (8, 0), majors: frozenset[int] = frozenset(), widest: int = 256) -> Check:
    """Return what checks a case for a half-type CUDA kernel.

    Args:
        more: checks made afterwards.
        lowest: compute capability it begins with.
        majors: compute capabilities' first numbers that it is made for; all when empty.
        widest: largest head dimension.
    """

    def why_not(case: Case) -> str | None:
        has = probes.capability()
        if device.kind(case.device) != "cuda":
            return "it is CUDA only"
        if case.dtype not in HALF:
            return "it takes bf16 and fp16 only"
        if has < lowest or (majors and has[0] not in majors):
            return f"it is not made for compute capability {has[0]}.{has[1]}"
        if max(case.qk_dim, case.v_dim) > widest:
            return f"head dimensions end at {widest}"
        return next(filter(None, (check(case) for check in more)), None)

    return why_not


def equal_dims(case: Case) -> str | None:
    """Return why a kernel with one head dimension cannot serve a case."""
    return None if case.qk_dim == case.v_dim else "q and v must have one head dimension"


def package(name: str, title: str, about: str, build: Callable[[Case, Inputs], Built], module: str, **rest: Any) -> Variant:
    """Declare a variant that needs a module; it stands as missing where the module is not found."""
    return Variant(
        name,
        title,
        "package",
        about,
        build,
        timeout_s=300.0,  # some compile when first called
        **{
            "missing": lambda: None if probes.installed(module) else f"{module.partition('.')[0]} is not installed",
            "executed": lambda case: calls.block_share(case, 128, 128),
            "modes": MODES,
            **rest,
        },
    )
