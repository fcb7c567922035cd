"""Short profiled windows for attribution, never for latency, and deep captures; one profiler at a time in a process."""

from __future__ import annotations

import gc
import gzip
import os
import shutil
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import device, kineto, ranges
from .timing import no_collection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .case import Case

STEPS = 3
LONG_CALL_NS = 50_000_000
WINDOWS_BETWEEN_COLLECTIONS = 25
"""Reading events leaves garbage in cycles: 318 MB per 1,000 windows were seen on torch 2.11 with CUDA."""
_FIRST_COST_NS = 10_000_000
"""What starting, stopping and reading are taken to cost before a window was measured."""


class ProfilerBusyError(RuntimeError):
    """Another profiler is active in this process, or took this window's events; two at once lose events or crash."""


@dataclass
class _Process:
    """What a process has one of."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    names: kineto.Names = field(default_factory=kineto.Names)
    windows: int = 0
    collection_ns: int = 200_000_000
    """What the last collection of garbage took; before the first, a guess."""

    @property
    def collects(self) -> bool:
        """Whether garbage is collected before the next window."""
        return self.windows % WINDOWS_BETWEEN_COLLECTIONS == WINDOWS_BETWEEN_COLLECTIONS - 1

    def collect(self) -> None:
        began = time.perf_counter_ns()
        gc.collect()
        self.collection_ns = time.perf_counter_ns() - began


_process = _Process()


@contextmanager
def recording(on: str, **options: bool) -> Iterator[Any]:
    """Give a profiler that is prepared, not started; `started` starts and stops it.

    It is torch's inner profiler: the outer one (`torch.profiler.profile`) imports torch._inductor when it is prepared, seconds of
    work.

    Args:
        on: the device, as in a case.
        **options: of the profiler: record_shapes, profile_memory, with_stack.

    Raises:
        ProfilerBusyError: another profiler is active.
    """
    import torch

    if not _process.lock.acquire(blocking=False):
        raise ProfilerBusyError("a window is being taken already")
    try:
        if torch.autograd._profiler_enabled() or getattr(torch.autograd.profiler, "_is_profiler_enabled", False):
            raise ProfilerBusyError("the code that is measured profiles itself: windows need the process's only profiler")
        profiler = torch.autograd.profiler.profile(use_device=_traced(on), use_kineto=True, **options)
        with no_collection():
            profiler._prepare_trace()
            yield profiler
    finally:
        _process.lock.release()


def _traced(on: str) -> str | None:
    """Return the kind of a device whose work the profiler records besides the CPU's."""
    import torch

    name = device.kind(on)
    activity = getattr(torch.profiler.ProfilerActivity, name.upper(), None)
    return name if name != "cpu" and activity in torch.profiler.supported_activities() else None


@contextmanager
def started(profiler: Any, on: str) -> Iterator[None]:
    """Start a prepared profiler's trace with nothing in flight on the device, and stop it likewise."""
    device.synchronize(on)
    profiler._start_trace()
    try:
        yield
        device.synchronize(on)
    finally:
        profiler.__exit__(None, None, None)


def events(profiler: Any) -> Any:
    """Return the raw events of a stopped trace.

    Raises:
        ProfilerBusyError: there are none at all.
    """
    results = profiler.kineto_results
    found = results.events() if results is not None else []
    if not found:
        raise ProfilerBusyError("the window has no events: another profiler or tool (nsys, ncu, DCGM) took them")
    return found


class Windows:
    """Takes windows of one case, and knows how much of its time they took."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self._began_ns = time.perf_counter_ns()
        self._spent_ns = 0
        self._cost_ns: dict[str, int] = {}

    @property
    def duty_pct(self) -> float:
        """Share of the time since this object was made that windows took, their reading included."""
        return 100 * self._spent_ns / max(1, time.perf_counter_ns() - self._began_ns)

    def may(self, variant: str, call_ns: int, duty_pct: float = 5.0) -> bool:
        """Tell whether a window may be taken now so that the share stays under `duty_pct`.

        Args:
            variant: twice its former window's cost is the estimate, since windows differ.
            call_ns: how long one of its calls takes, the estimate before there was a window.
            duty_pct: the largest share.
        """
        guess = _FIRST_COST_NS + 2 * call_ns * (self.steps(call_ns) + 1)
        first = 1 if _process.windows else 2  # one more is thrown away
        cost = 2 * self._cost_ns[variant] if variant in self._cost_ns else guess * first
        cost += _process.collection_ns * _process.collects
        elapsed = time.perf_counter_ns() - self._began_ns
        return 100 * (self._spent_ns + cost) <= duty_pct * (elapsed + cost)

    @staticmethod
    def steps(call_ns: int) -> int:
        """Return how many steps a window should have: 3, of long calls 1."""
        return 1 if call_ns > LONG_CALL_NS else STEPS

    def take(
        self,
        variant: str,
        call: Callable[[], Any],
        steps: int = STEPS,
        *,
        shapes: bool = False,
        memory: bool = False,
        reset: Callable[[], None] | None = None,
    ) -> tuple[dict[str, Any], dict[str, tuple[str, list[int]]]]:
        """Profile a few calls and return a window frame's header and columns.

        The first window of a process is taken and thrown away: profilers lose events when they start.

        Args:
            variant: its name.
            call: one step.
            steps: how many.
            shapes: whether input shapes are recorded, at 1.4 times the cost.
            memory: whether allocations are recorded.
            reset: called before each step, outside its range.

        Raises:
            ProfilerBusyError: another profiler is active or took the events.
        """
        if _process.collects:
            _process.collect()
            self._spent_ns += _process.collection_ns
        began = time.perf_counter_ns()
        try:
            if not _process.windows:
                self._window(variant, call, 1, shapes=shapes, memory=memory, reset=reset)
            number, found = self._window(variant, call, steps, shapes=shapes, memory=memory, reset=reset)
            header = self._header(variant, number, steps, found)
        finally:
            cost = time.perf_counter_ns() - began
            self._spent_ns += cost
            self._cost_ns[variant] = cost
        return {**header, "duty_pct": round(self.duty_pct, 3)}, found.typed()

    def _window(
        self,
        variant: str,
        call: Callable[[], Any],
        steps: int,
        *,
        shapes: bool,
        memory: bool,
        reset: Callable[[], None] | None,
    ) -> tuple[int, kineto.Rows]:
        number = _process.windows
        with recording(self.case.device, record_shapes=shapes, profile_memory=memory) as profiler:
            if reset:
                reset()
            call()  # between prepare and start: what the tracer of the device sets up on its first launch
            with started(profiler, self.case.device), ranges.taking():
                for step in range(steps):
                    if reset:
                        reset()
                    with ranges.step(variant, number, step):
                        call()
            found = kineto.rows(events(profiler), _process.names, shapes=shapes)
        _process.windows += 1
        return number, found

    def _header(self, variant: str, number: int, steps: int, found: kineto.Rows) -> dict[str, Any]:
        columns = found.columns
        first_step = _process.names.id(f"{ranges.STEP}{variant}|{number}|0")
        if first_step not in columns["name"]:
            raise ProfilerBusyError("the window lost the range of its first step: another profiler or tool took it")
        begin_ns = columns["start_ns"][columns["name"].index(first_step)]
        header = {
            "kind": "window",
            "variant": variant,
            "case": self.case.to_dict(),
            "window": number,
            "steps": steps,
            "begin_ns": begin_ns,
            "end_ns": max(map(sum, zip(columns["start_ns"], columns["dur_ns"], strict=True))),
            "dropped": kineto.dropped(found, _process.names),
            "pid": os.getpid(),
            "kinds": found.kinds,
            "names": _process.names.unsent(),
        }
        return {**header, "shapes": found.shapes} if found.shapes else header


def deep(call: Callable[[], Any], path: Path, steps: int, *, on: str = "cpu", variant: str = "") -> dict[str, Any]:
    """Record steps with shapes, memory and Python stacks, and write them as a Chrome trace.

    Args:
        call: one step.
        path: of the trace; a name that ends in `.gz` is compressed. It appears when it is complete.
        steps: how many.
        on: the device, as in a case.
        variant: its name, for the ranges of the steps.

    Returns:
        `path`, `bytes` of the file, `events` recorded.

    Raises:
        ProfilerBusyError: another profiler is active or took the events.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with recording(on, record_shapes=True, profile_memory=True, with_stack=True) as profiler:
        call()
        with started(profiler, on), ranges.taking():
            for step in range(steps):
                with ranges.step(variant, 0, step):
                    call()
        count = len(events(profiler))
        _write(profiler, path)
    return {"path": str(path), "bytes": path.stat().st_size, "events": count}


def _write(profiler: Any, path: Path) -> None:
    """Write a stopped trace as Chrome JSON under a temporary name, and give it its name when it is complete."""
    plain, packed = path.with_name(f".{os.getpid()}.{path.name}.json"), path.with_name(f".{os.getpid()}.{path.name}.part")
    try:
        profiler.export_chrome_trace(str(plain))
        if path.suffix == ".gz":
            with plain.open("rb") as text, gzip.open(packed, "wb", compresslevel=6) as file:
                shutil.copyfileobj(text, file, 1 << 20)
            packed.replace(path)
        else:
            plain.replace(path)
    finally:
        plain.unlink(missing_ok=True)
        packed.unlink(missing_ok=True)


def check(on: str = "cpu") -> dict[str, Any]:
    """Try the profiler with one small op and say whether it works: {`ok`, `why_not`}."""
    import torch

    try:
        with recording(on) as profiler:
            ones = torch.ones(64, device=on)
            with started(profiler, on):
                ones.add(1)
            found = kineto.rows(events(profiler), kineto.Names())
    except (RuntimeError, AttributeError, OSError) as error:
        return {"ok": False, "why_not": f"{type(error).__name__}: {error}".splitlines()[0]}
    if device.kind(on) == "cuda" and not set(found.kinds) & set(kineto.GPU_WORK):
        return {"ok": False, "why_not": "the profiler sees no GPU kernels here (CUPTI missing, no permission, or another tool)"}
    return {"ok": True, "why_not": None}
