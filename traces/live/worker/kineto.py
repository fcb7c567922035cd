"""Rows of a profiled window, straight from Kineto's events: no parsing into Python objects that live on, 3-5 us an event."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from . import ranges

CODES = {
    "name": "u32",
    "kind": "u8",
    "start_ns": "i64",
    "dur_ns": "i64",
    "device_type": "u8",
    "device": "i32",
    "resource": "i64",
    "correlation": "u64",
    "linked": "u64",
    "nbytes": "i64",
    "flops": "u64",
}
"""Columns of a window, with their types."""
GPU_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
MEMORY = "[memory]"
_LAUNCH = re.compile(r"(cuda|cu|hip)\w*(Launch(?!HostFunc)|Memcpy|Memset)")
_DEVICE_WORK = {
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "Context Sync": "cuda_sync",
    "Stream ": "cuda_sync",
    "Event Sync": "cuda_sync",
}
"""Beginnings of names of a device's events that are no kernels."""
_USER_SCOPE = 7
_RUNTIME = re.compile(r"(cuda|cu|hip)[A-Z]\w*")


class Names:
    """Numbers for names: a name is sent once to the host, with its number."""

    def __init__(self) -> None:
        self.all: list[str] = []
        """Every name; its number is its place."""
        self._ids: dict[str, int] = {}
        self._sent = 0

    def id(self, name: str) -> int:
        """Return a name's number; a new name gets the next one."""
        number = self._ids.get(name)
        if number is None:
            number = self._ids[name] = len(self.all)
            self.all.append(name)
        return number

    def unsent(self) -> dict[int, str]:
        """Return the names not returned before, by number."""
        first, self._sent = self._sent, len(self.all)
        return dict(enumerate(self.all[first:], first))


@dataclass
class Rows:
    """Columns of one window."""

    columns: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in CODES})
    kinds: list[str] = field(default_factory=list)
    """Kinds of events met; `kind` is a place in it."""
    shapes: dict[int, str] = field(default_factory=dict)
    """Input shapes as JSON text by row, where they were recorded."""

    def typed(self) -> dict[str, tuple[str, list[int]]]:
        """Return the columns as `frames.pack` takes them."""
        return {name: (code, self.columns[name]) for name, code in CODES.items()}


def rows(events: Any, names: Names, *, shapes: bool = False) -> Rows:
    """Read Kineto's raw events.

    Args:
        events: what `kineto_results.events()` gave.
        names: numbers of names; new names are added.
        shapes: whether to read input shapes.
    """
    made = Rows()
    kinds: dict[str, int] = {}
    add = [made.columns[name].append for name in CODES]
    for at, event in enumerate(events):
        name = event.name()
        device_type = _number(event.device_type())
        kind = kinds.setdefault(_kind(event, name, device_type), len(kinds))
        values = (
            names.id(name),
            kind,
            _start_ns(event),
            _duration_ns(event),
            device_type,
            event.device_index(),
            event.device_resource_id(),
            event.correlation_id(),
            event.linked_correlation_id(),
            event.nbytes(),
            event.flops(),
        )
        for append, value in zip(add, values, strict=True):
            append(value)
        if shapes and (dims := event.shapes()):
            made.shapes[at] = json.dumps(dims)
    made.kinds = list(kinds)
    return made


def dropped(made: Rows, names: Names) -> int:
    """Return how many launches have no GPU work: the profiler lost the work's record.

    Args:
        made: rows of a window that began and ended with nothing in flight.
        names: numbers of names, as `rows` had them.
    """
    columns = made.columns
    work = {number for number, kind in enumerate(made.kinds) if kind in GPU_WORK}
    calls = {number for number, kind in enumerate(made.kinds) if kind in {"cuda_runtime", "cuda_driver"}}
    seen = {id_ for kind, id_ in zip(columns["kind"], columns["correlation"], strict=True) if kind in work}
    launched = {
        id_
        for name, kind, id_ in zip(columns["name"], columns["kind"], columns["correlation"], strict=True)
        if kind in calls and _LAUNCH.match(names.all[name])
    }
    return len(launched - seen)


def peak_bytes(events: Any) -> int:
    """Return the largest sum of CPU allocations less releases, in bytes, over a window that was recorded with memory."""
    moves = sorted((_start_ns(event), event.nbytes()) for event in events if event.name() == MEMORY and _is_cpu(event))
    held = peak = 0
    for _, moved in moves:
        held += moved
        peak = max(peak, held)
    return peak


def _is_cpu(event: Any) -> bool:
    return _number(event.device_type()) == 0


def _number(device_type: Any) -> int:
    """Return c10's number of a device type: 0 CPU, 1 CUDA."""
    return int(getattr(device_type, "value", device_type))


def _start_ns(event: Any) -> int:
    return int(event.start_ns() if hasattr(event, "start_ns") else event.start_us() * 1000)


def _duration_ns(event: Any) -> int:
    return int(event.duration_ns() if hasattr(event, "duration_ns") else event.duration_us() * 1000)


def _kind(event: Any, name: str, device_type: int) -> str:
    """Return the event's activity type; where an older torch does not give it, what its name and device say."""
    if hasattr(event, "activity_type"):
        return str(event.activity_type())
    if name == MEMORY:
        return "cpu_instant_event"
    if _annotates(event, name):
        return "gpu_user_annotation" if device_type else "user_annotation"
    if not device_type:
        return "cuda_runtime" if _RUNTIME.fullmatch(name) else "cpu_op"
    return next((kind for beginning, kind in _DEVICE_WORK.items() if name.startswith(beginning)), "kernel")


def _annotates(event: Any, name: str) -> bool:
    """Tell whether an event is a range of record_function: on a GPU such a range covers kernels and is no work."""
    if hasattr(event, "is_user_annotation"):
        return bool(event.is_user_annotation())
    return name.startswith((ranges.STEP, ranges.PART)) or event.scope() == _USER_SCOPE
