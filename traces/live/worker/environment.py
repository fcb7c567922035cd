"""Where it is measured: versions, device, processor, settings that matter, and whether the profiler works."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from . import device as devices
from . import permissions, profile

_ACCELERATORS = ("cuda", "xpu", "mps")
_FLAGS = ("CUDA_", "CUBLAS", "PYTORCH_", "TORCH", "TRITON_", "OMP_", "GOMP_", "KMP_", "MKL_", "KINETO_", "NVIDIA_TF32", "HIP_")
"""Beginnings of environment variables that change how torch computes; no other variable is read, since any may be secret."""
_SECRET = ("TOKEN", "KEY", "SECRET", "PASS", "CREDENTIAL")
_OUTPUT_S = 5.0


def available_devices() -> list[str]:
    """Return the devices that torch can compute on here, accelerators first."""
    import torch

    found = []
    for name in _ACCELERATORS:
        module: Any = getattr(torch.backends if name == "mps" else torch, name, None)
        if module is not None and module.is_available():
            count = 1 if name == "mps" else module.device_count()
            found += [name] if count == 1 else [f"{name}:{index}" for index in range(count)]
    if find_spec("torch_xla"):
        found.append("xla")
    return [*found, "cpu"]


def describe(device: str | None = None) -> dict[str, Any]:
    """Return the members of Environment; what does not exist here is None.

    The profiler is tried with one op, which also sets it up: its first start in a process takes most of a second.

    Args:
        device: as in a case; the first accelerator, else the CPU, when None.
    """
    import torch

    there = available_devices()
    device = device or there[0]
    return {
        "host": socket.gethostname(),
        "os": platform.platform(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "hip": getattr(torch.version, "hip", None),
        "cudnn": torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None,
        "driver": _driver(),
        "device": device,
        "devices": there,
        "device_name": _device_name(device),
        "device_count": sum(devices.kind(name) == devices.kind(device) for name in there),
        "cpu_name": _cpu_name(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_bytes": _memory_bytes(device),
        "priority_order": _priority_order(),
        "flags": _variables() | _settings(),
        "git_sha": _output("git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude", "*"),
        "compiler": _compiler(),
        "profiler": profile.check(device),
        "permissions": permissions.look(device),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _output(*command: str) -> str | None:
    """Return the first line that a command writes; None where it does not exist or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_OUTPUT_S, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.splitlines()
    return lines[0] if lines and done.returncode == 0 else None


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _driver() -> str | None:
    """Return the version of NVIDIA's kernel driver."""
    words = _text("/proc/driver/nvidia/version").partition("\n")[0].split()
    return next((word for word in words if word[0].isdigit() and "." in word), None)


def _device_name(device: str) -> str:
    import torch

    name = devices.kind(device)
    if name in {"cuda", "xpu"}:
        return str(getattr(torch, name).get_device_name(devices.index(device)))
    return (_cpu_name() or "cpu") if name == "cpu" else name


def _cpu_name() -> str | None:
    lines = _text("/proc/cpuinfo").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None) or (
        platform.processor() or None
    )


def _memory_bytes(device: str) -> int | None:
    """Return how much memory the device has."""
    import torch

    name = devices.kind(device)
    if name in {"cuda", "xpu"}:
        return int(getattr(torch, name).get_device_properties(devices.index(device)).total_memory)
    if name == "cpu" and hasattr(os, "sysconf"):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return None


def _priority_order() -> list[str] | None:
    """Return the backends in the order that scaled_dot_product_attention tries them on CUDA."""
    import torch

    order = getattr(torch._C, "_get_sdp_priority_order", None)
    backends = getattr(torch._C, "_SDPBackend", None)
    if order is None or backends is None:
        return None
    names = {int(backend): name.lower() for name, backend in backends.__members__.items()}
    return [names.get(int(number), str(number)) for number in order()]


def _variables() -> dict[str, str]:
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(_FLAGS) and not any(word in name for word in _SECRET)
    }


def _settings() -> dict[str, Any]:
    """Return settings of torch that change which kernels run."""
    import torch

    cuda: Any = torch.backends.cuda
    found = {
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
    }
    for name in ("flash", "mem_efficient", "math", "cudnn"):
        if enabled := getattr(cuda, f"{name}_sdp_enabled", None):
            found[f"{name}_sdp"] = enabled()
    if capability := getattr(getattr(torch.backends, "cpu", None), "get_cpu_capability", None):
        found["cpu_capability"] = capability()
    return found


def _compiler() -> str | None:
    """Return what torch.compile would build with: the C++ compiler, and Triton's version where it is installed."""
    names = (os.environ.get("CXX"), "g++", "clang++", "c++")
    found = next((name for name in names if name and shutil.which(name)), None)
    triton = _version("triton")
    return ", ".join([*filter(None, [found and _output(found, "--version")]), *([f"triton {triton}"] if triton else [])]) or None
