"""flash-attn 2, 3 and 4, installed or from the Hugging Face hub's cache."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import probes
from .external import bshd, equal_dims, half, package
from .layouts import window_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..case import Case
    from ..variant import Built, Inputs

HUB = {"flash-attn2": 2, "flash-attn3": 1}
"""Kernels of kernels-community on the Hugging Face hub, with the version asked for."""


def _installed(module: str, backend: str) -> Callable[[Case, Inputs], Built]:
    return lambda case, inputs: _step(case, inputs, importlib.import_module(module), backend)


def _step(case: Case, inputs: Inputs, module: Any, backend: str) -> Built:
    """Make a step of `flash_attn_func`, whose causal is bottom-right from 2.1 on."""
    options: dict[str, Any] = {"causal": case.causal or case.window is not None}
    if case.window is not None:
        options["window_size"] = window_size(case)
    return bshd(inputs, lambda q, k, v: module.flash_attn_func(q, k, v, **options), backend)


def _hub(name: str) -> Callable[[Case, Inputs], Built]:
    def build(case: Case, inputs: Inputs) -> Built:
        kernels = importlib.import_module("kernels")
        return _step(case, inputs, kernels.get_kernel(f"kernels-community/{name}", version=HUB[name]), name)

    return build


def _hub_missing(name: str) -> Callable[[], str | None]:
    def missing() -> str | None:
        if not probes.installed("kernels"):
            return "kernels is not installed"
        home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
        cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
        if any((cache / f"{kind}--kernels-community--{name}").is_dir() for kind in ("models", "kernels")):
            return None
        return f"it is not in the hub's cache: kernels.get_kernel('kernels-community/{name}', version={HUB[name]}) fetches it"

    return missing


_FLASH2 = r"flash_fwd|flash_attn::_flash_attn_forward|flash_attn"
_FLASH3 = r"flash_attn_3|flash::FlashAttnFwd|flash_attn"

VARIANTS = (
    package(
        "flash-attn:2",
        "flash-attn 2",
        "flash_attn_func over [B, S, H, D] views, from compute capability 8.0 on.",
        _installed("flash_attn", "flash-attn 2"),
        "flash_attn.flash_attn_interface",
        why_not=half(equal_dims),
        expected=(_FLASH2,),
    ),
    package(
        "flash-attn:3",
        "flash-attn 3",
        "flash_attn_func made for Hopper.",
        _installed("flash_attn_interface", "flash-attn 3"),
        "flash_attn_interface",
        why_not=half(majors=frozenset({9})),
        expected=(_FLASH3,),
    ),
    package(
        "flash-attn:4",
        "flash-attn 4",
        "flash_attn_func in CuTe, compiled on the first call, for Hopper and Blackwell.",
        _installed("flash_attn.cute", "flash-attn 4"),
        "flash_attn.cute",
        why_not=half(majors=frozenset({9, 10, 11, 12})),
        expected=(r"cutlass|cute|[Ff]lash",),
    ),
    package(
        "hub:flash-attn2",
        "flash-attn 2 of the hub",
        "The build of kernels-community for this torch, offered when the hub's local cache has it.",
        _hub("flash-attn2"),
        "kernels",
        missing=_hub_missing("flash-attn2"),
        why_not=half(equal_dims),
        expected=(_FLASH2,),
    ),
    package(
        "hub:flash-attn3",
        "flash-attn 3 of the hub",
        "The build of kernels-community for this torch, offered when the hub's local cache has it.",
        _hub("flash-attn3"),
        "kernels",
        missing=_hub_missing("flash-attn3"),
        why_not=half(majors=frozenset({8, 9})),
        expected=(_FLASH3,),
    ),
)
