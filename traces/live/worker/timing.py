"""Latency: one sample is one call, with the profiler off.

CPU: `perf_counter_ns` around the call, garbage collection off. CUDA: an event before and after each call on the current stream, a
write of twice the level 2 cache before each so that every call starts with a cold cache, and one wait at the end. Other devices:
`perf_counter_ns` around call and wait.
"""

from __future__ import annotations

import gc
import os
import random
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from . import device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .case import Case
    from .variant import Built, Inputs

WARM_UP_CALLS = 3
WARM_UP_MS = 25.0


def step(case: Case, built: Built, inputs: Inputs) -> Callable[[], Any]:
    """Return what is timed and profiled: the variant's call, as the case's mode wants it.

    Forward and decode run without gradients and return what the variant returns. Backward runs forward and backward and returns
    (what the variant returns, the gradients of q, k and v); no gradient accumulates between calls.

    Raises:
        ValueError: calling it, when the variant's result does not depend on q, k and v.
    """
    import torch

    def forward() -> Any:
        with torch.no_grad():
            return built.call()

    def forward_backward() -> Any:
        with torch.enable_grad():
            result = built.call()
            leaves = (inputs.q, inputs.k, inputs.v)
            gradients = torch.autograd.grad(built.output(result), leaves, inputs.grad, allow_unused=True)
        if any(gradient is None for gradient in gradients):
            raise ValueError("the variant's output does not carry gradients to q, k and v")
        return result, gradients

    call = forward_backward if case.mode == "backward" else forward
    return graphed(call, case.device) if case.graph else call


def graphed(call: Callable[[], Any], on: str) -> Callable[[], Any]:
    """Capture a call in a CUDA graph and return what replays it; the results are the same tensors at each replay.

    Args:
        call: without host synchronisation, its tensors already made.
        on: the device, as in a case.
    """
    import torch

    if _version(torch.version.cuda) < (12, 6):  # there the profiler's teardown crashes or hangs with graphs
        os.environ.setdefault("DISABLE_CUPTI_LAZY_REINIT", "1")
        os.environ.setdefault("TEARDOWN_CUPTI", "0")
    side = torch.cuda.Stream(device=on)
    side.wait_stream(torch.cuda.current_stream(on))
    with torch.cuda.stream(side):
        for _ in range(WARM_UP_CALLS):
            call()
    torch.cuda.current_stream(on).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = call()

    def replay() -> Any:
        graph.replay()
        return results

    return replay


def _version(text: str | None) -> tuple[int, ...]:
    return tuple(int(part) for part in (text or "0").split(".") if part.isdigit())


def _first_backward() -> None:
    """Run a backward: a process's first one imports for seconds, which is no variant's time."""
    import torch

    one = torch.ones(1, requires_grad=True)
    torch.autograd.grad(one * 1, one, torch.ones(1))


class Timer:
    """Takes samples of calls on one case's device."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.name = "cuda_event" if device.kind(case.device) == "cuda" else "perf_counter"
        """`timer` of a samples frame."""
        self.cold_cache = self.name == "cuda_event"
        """Whether each sample begins with a cold level 2 cache."""
        self._flush: Any = None
        if case.mode == "backward":
            _first_backward()

    def once(self, call: Callable[[], Any]) -> tuple[Any, int]:
        """Call once and wait for the device; return the result and the nanoseconds, for first calls and compilation."""
        device.synchronize(self.case.device)
        began = time.perf_counter_ns()
        result = call()
        device.synchronize(self.case.device)
        return result, time.perf_counter_ns() - began

    def warm_up(self, call: Callable[[], Any], reset: Callable[[], None] | None = None) -> int:
        """Call at least 3 times and for 25 ms, and return the nanoseconds of the last call."""
        spent, calls = 0, 0
        while True:
            if reset:
                reset()
            last = self.once(call)[1]
            spent, calls = spent + last, calls + 1
            if calls >= WARM_UP_CALLS and spent >= WARM_UP_MS * 1e6:
                return last

    def samples(self, call: Callable[[], Any], count: int, reset: Callable[[], None] | None = None) -> list[int]:
        """Return `count` samples in nanoseconds.

        Args:
            call: what is timed.
            count: how many samples, one call each.
            reset: called before each, not timed.
        """
        with no_collection():
            if self.name == "cuda_event":
                return self._by_events(call, count, reset)
            return [self._by_clock(call, reset) for _ in range(count)]

    def _by_clock(self, call: Callable[[], Any], reset: Callable[[], None] | None) -> int:
        if reset:
            reset()
        if device.kind(self.case.device) != "cpu":
            return self.once(call)[1]
        began = time.perf_counter_ns()
        result = call()
        took = time.perf_counter_ns() - began
        del result  # freed after the clock was read: giving memory back is no part of the call
        return took

    def _by_events(self, call: Callable[[], Any], count: int, reset: Callable[[], None] | None) -> list[int]:
        import torch

        on = self.case.device
        if self._flush is None:
            self._flush = torch.empty(2 * device.l2_bytes(on), dtype=torch.int8, device=on)
        events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(count)]
        with torch.cuda.device(device.index(on)):
            for begin, end in events:
                if reset:
                    reset()
                self._flush.zero_()
                begin.record()
                call()
                end.record()
            device.synchronize(on)
        return [round(begin.elapsed_time(end) * 1e6) for begin, end in events]


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep Python's garbage collection off within."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def interleave(names: Sequence[str], rounds: int, seed: int) -> Iterator[tuple[int, str]]:
    """Yield (round, name): each round all names in a random order of its own, so that drift meets all of them alike.

    Args:
        names: of the variants.
        rounds: how many rounds.
        seed: of the order; the same seed, the same order.

    >>> sorted(name for _, name in interleave(["a", "b"], 2, seed=0))
    ['a', 'a', 'b', 'b']
    """
    order = random.Random(seed)  # noqa: S311 -- an order of measurement, no secret
    for number in range(rounds):
        yield from ((number, name) for name in order.sample(list(names), len(names)))
