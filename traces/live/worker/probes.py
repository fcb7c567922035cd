"""Whether a device, a compiler or a package can be had here; nothing heavy is imported to know it."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from . import device

if TYPE_CHECKING:
    from .case import Case


def device_why_not(case: Case) -> str | None:
    """Return why no variant can run the case here; None when its device is there and can do it."""
    kind = device.kind(case.device)
    if why := _device(kind):
        return why
    if case.graph and kind != "cuda":
        return "graphs need a CUDA device"
    if case.dtype == "fp64" and kind == "mps":
        return "mps has no fp64"
    if (case.causal or case.window is not None) and case.q_len > case.kv_len:
        return "the first queries would see no key: q_len is above kv_len"
    return None


def compiling_why_not(case: Case) -> str | None:
    """Return why torch.compile cannot serve the case's device; None when it can."""
    kind = device.kind(case.device)
    if sys.platform == "win32" or kind not in {"cpu", "cuda", "xpu"}:
        return f"torch.compile is not tried on {'Windows' if sys.platform == 'win32' else kind}"
    if kind == "cpu":
        names = (os.environ.get("CXX", ""), "g++", "clang++")
        return None if any(name and shutil.which(name) for name in names) else "no C++ compiler (g++ or clang++) is found"
    return None if installed("triton") else "Triton is not installed"


@functools.cache
def installed(module: str) -> bool:
    """Return whether a module is there; nothing is imported, not even its parent packages."""
    top, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return False
    if spec is None or not rest:
        return spec is not None
    folders = [Path(folder, *rest[:-1]) for folder in spec.submodule_search_locations or ()]
    return any(found for folder in folders for found in folder.glob(f"{rest[-1]}*") if found.name.partition(".")[0] == rest[-1])


@functools.cache
def capability() -> tuple[int, int]:
    """Return the compute capability of the current CUDA device; (0, 0) without one."""
    import torch

    return torch.cuda.get_device_capability() if torch.cuda.is_available() else (0, 0)


def _device(kind: str) -> str | None:
    import torch

    here = {
        "cpu": lambda: True,
        "cuda": torch.cuda.is_available,
        "xpu": lambda: hasattr(torch, "xpu") and torch.xpu.is_available(),
        "mps": torch.backends.mps.is_available,
        "xla": lambda: installed("torch_xla"),
    }
    return None if here[kind]() else f"torch finds no {kind} device here"
