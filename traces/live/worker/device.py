"""What differs from device to device: waiting for it, its caches, its memory counters."""

from __future__ import annotations

from typing import Any

DEFAULT_L2_BYTES = 128 << 20
"""Taken where torch does not say how large the level 2 cache is; no device of today has more."""


def kind(device: str) -> str:
    """Return a device's kind without its index: cuda of cuda:1."""
    return device.partition(":")[0]


def index(device: str) -> int:
    """Return a device's index, 0 when it has none."""
    return int(device.partition(":")[2] or 0)


def synchronize(device: str) -> None:
    """Wait until the device has done what it was given; a CPU has already."""
    import torch

    name = kind(device)
    if name == "cpu":
        return
    if name == "xla":
        import torch_xla  # type: ignore[import-not-found, unused-ignore]
        import torch_xla.core.xla_model as xla  # type: ignore[import-not-found, unused-ignore]

        torch_xla.sync() if hasattr(torch_xla, "sync") else xla.mark_step()
        xla.wait_device_ops()
        return
    module: Any = getattr(torch, name)
    module.synchronize() if name == "mps" else module.synchronize(index(device))


def l2_bytes(device: str) -> int:
    """Return the size of a CUDA device's level 2 cache."""
    import torch

    properties = torch.cuda.get_device_properties(index(device))
    return int(getattr(properties, "L2_cache_size", 0)) or DEFAULT_L2_BYTES


def has_fp64(device: str) -> bool:
    """Tell whether the device computes in fp64."""
    import torch

    name = kind(device)
    if name == "xpu":
        return bool(getattr(torch.xpu.get_device_properties(index(device)), "has_fp64", True))
    return name != "mps"
