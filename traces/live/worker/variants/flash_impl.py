"""scaled_dot_product_attention with flash-attn 3 or 4 in the place of torch's own flash kernel, as torch lets one exchange it."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .. import probes
from ..case import MODES
from ..variant import Variant
from . import scaled
from .external import half

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..case import Case
    from ..variant import Built, Inputs


def _missing(implementation: str, module: str) -> Callable[[], str | None]:
    def missing() -> str | None:
        from torch.nn import attention

        listed = getattr(attention, "list_flash_attention_impls", None)
        if listed is None:
            return "this torch cannot exchange the flash kernel of SDPA (2.13 can)"
        if implementation not in listed():
            return f"this torch knows no {implementation}, only {', '.join(listed()) or 'its own kernel'}"
        return None if probes.installed(module) else f"{module.partition('.')[0]} is not installed"

    return missing


def exchanged(implementation: str) -> Callable[[], Any]:
    """Return what makes SDPA's flash backend run an implementation while inside, and afterwards what it ran before.

    Args:
        implementation: as torch names it, `FA3` or `FA4`.
    """

    @contextmanager
    def within() -> Iterator[None]:
        from torch.nn import attention

        before = attention.current_flash_attention_impl()
        attention.activate_flash_attention_impl(implementation)
        try:
            yield
        finally:
            attention.restore_flash_attention_impl()
            if before is not None:
                attention.activate_flash_attention_impl(before)

    return within


def _variant(number: int, module: str, majors: frozenset[int], about: str) -> Variant:
    def build(case: Case, inputs: Inputs) -> Built:
        return replace(scaled.forced("flash")(case, inputs), backend=f"flash-attn {number}")

    return Variant(
        f"sdpa-flash:{number}",
        f"SDPA, flash-attn {number}",
        "sdpa",
        about,
        build,
        why_not=half(scaled.refuses("flash"), majors=majors),
        missing=_missing(f"FA{number}", module),
        within=exchanged(f"FA{number}"),
        executed=scaled.skipped,
        expected=(r"aten::_scaled_dot_product_flash_attention|aten::_flash_attention_forward",),
        unexpected=(r"aten::_scaled_dot_product_attention_math", r"pytorch_flash"),  # the namespace of torch's own kernels
        modes=MODES,
        timeout_s=300.0,
    )


VARIANTS = (
    _variant(3, "flash_attn_interface", frozenset({9}), "SDPA's flash backend with flash-attn 3 in it, for Hopper."),
    _variant(
        4,
        "flash_attn.cute",
        frozenset({9, 10}),
        "SDPA's flash backend with flash-attn 4 in it, compiled on the first call, for Hopper and Blackwell.",
    ),
)
