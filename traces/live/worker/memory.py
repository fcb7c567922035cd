"""Peak memory of one call above what was held before it, its results included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import device, kineto, profile

if TYPE_CHECKING:
    from collections.abc import Callable

    from .case import Case


def peak(call: Callable[[], Any], case: Case) -> int | None:
    """Return the most bytes that one call held at once above what was held before; None where that is not counted.

    CUDA and XPU: the allocator's own counters. CPU: the running sum of the profiler's allocation records, so it takes a window.
    A graph's replay allocates nothing: it has no figure.

    Args:
        call: one step, already warm.
        case: says the device.

    Raises:
        ProfilerBusyError: on a CPU, when another profiler is active.
    """
    import torch

    name = device.kind(case.device)
    if case.graph:
        return None
    if name == "cpu":
        return _cpu_peak(call, case.device)
    counters: Any = getattr(torch, name, None)
    if not hasattr(counters, "reset_peak_memory_stats"):
        return None
    on = device.index(case.device)
    device.synchronize(case.device)
    counters.reset_peak_memory_stats(on)
    before = counters.memory_allocated(on)
    result = call()
    device.synchronize(case.device)
    most = counters.max_memory_allocated(on)
    del result
    return int(most - before)


def _cpu_peak(call: Callable[[], Any], on: str) -> int:
    with profile.recording(on, profile_memory=True) as profiler:
        with profile.started(profiler, on):
            result = call()
        del result
        return kineto.peak_bytes(profile.events(profiler))
