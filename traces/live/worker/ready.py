"""A variant made ready for a case: built, called the first time, compared with the reference; then sampled."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import costs, device, inputs, memory, numerics, timing
from .profile import ProfilerBusyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from .case import Case
    from .variant import Built, Inputs, Variant


@dataclass
class Ready:
    """A variant that can be called."""

    variant: Variant
    case: Case
    call: Callable[[], Any]
    """One step: the call as the case's mode wants it."""
    reset: Callable[[], None] | None
    call_ns: int
    """How long a call takes, roughly."""
    samples: int = 0
    spent_ns: int = 0
    """Of its samples together."""
    windows: int = 0
    window_fails: bool = False
    """Whether a window could not be taken: then no more are tried."""

    def step(self) -> Any:
        """Reset and call."""
        if self.reset:
            self.reset()
        return self.call()

    def sample(self, timer: timing.Timer, count: int) -> list[int]:
        """Return samples in nanoseconds, after one call that is not counted: another variant had the caches before."""
        if count > 1:
            self.step()
        taken = timer.samples(self.call, count, self.reset)
        self.samples += len(taken)
        self.spent_ns += sum(taken)
        self.call_ns = sorted(taken)[len(taken) // 2]
        return taken


def prepare(variant: Variant, case: Case, seed: int, timer: timing.Timer) -> tuple[Ready, dict[str, Any]]:
    """Make a variant ready, and return it with the members of its `prepared` frame.

    Args:
        variant: what to build.
        case: for what.
        seed: of its inputs.
        timer: of the case.
    """
    given = inputs.make(case, seed)
    device.synchronize(case.device)
    began = time.perf_counter_ns()
    built = variant.build(case, given)
    call = timing.step(case, built, given)
    device.synchronize(case.device)
    build_ns = time.perf_counter_ns() - began
    if built.reset:
        built.reset()
    _, first_ns = timer.once(call)
    ready = Ready(variant, case, call, built.reset, timer.warm_up(call, built.reset))
    return ready, {
        "backend": built.backend,
        "compile_s": (build_ns + max(0, first_ns - ready.call_ns)) / 1e9,
        "first_call_us": first_ns / 1e3,
        **_error(ready, built, given),
        "flops_useful": costs.useful(case),
        "flops_executed": costs.executed(case, variant),
        "bytes_min": costs.least_bytes(case),
        **_peak(ready),
        "expected": list(variant.expected),
        "unexpected": list(variant.unexpected),
    }


def _error(ready: Ready, built: Built, given: Inputs) -> dict[str, Any]:
    function = ready.variant.reference
    result, gradients = ready.step(), None
    if ready.case.mode == "backward":
        result, gradients = result
    if not ready.variant.exact and function is None:
        return numerics.looked_at(built.output(result), "it computes another function than the reference")
    return numerics.compare(built.output(result), ready.case, given, ready.variant.tolerance, gradients, function)


def _peak(ready: Ready) -> dict[str, Any]:
    """Return the peak of one call; without a profiler a CPU has none, which is said and no failure of the variant."""
    if ready.reset:
        ready.reset()
    try:
        return {"peak_bytes": memory.peak(ready.call, ready.case)}
    except ProfilerBusyError as error:
        return {"peak_bytes": None, "peak_skipped": str(error)}
