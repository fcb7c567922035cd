"""Synthetic traces of a training job: as real as needed, any size, and with figures that are known beforehand.

The generator plays the job: each rank has a host clock and GPU streams that run in order, a collective ends when the last
rank has come. Figures are added up from that play and never from the file, so a test can compare the two.
"""

from __future__ import annotations

import gzip
import json
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

from .synthetic_rank import BASE_TIME_NS, Collective, Rank, stamp
from .synthetic_step import CAUSES, Work, train_step

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to play; the same plan makes the same bytes."""

    ranks: int = 2
    steps: int = 3
    layers: int = 12
    events: int | None = None
    """About how many events all files hold together; replaces `steps`, and shortens the model for a small number."""
    seed: int = 0
    straggler: int | None = None
    """Rank whose matmuls take 15 % longer, or which runs the slow op of `straggler-op`."""
    causes: tuple[str, ...] = ()
    """Causes of lost time to plant: keys of `CAUSES`."""
    first_step: int = 12

    def __post_init__(self) -> None:
        if unknown := set(self.causes) - set(CAUSES):
            raise ValueError(f"causes are {', '.join(CAUSES)}, not {', '.join(sorted(unknown))}")
        if self.ranks < 1 or self.steps < 1 or self.layers < 1:
            raise ValueError("ranks, steps and layers are at least 1")


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one rank, as `docs/definitions.md` defines them, in integer nanoseconds."""

    events: int
    kernels: int
    copies: int
    kernel_sum_ns: int
    busy_ns: int
    span_ns: int
    idle_ns: int
    compute_ns: int
    comm_ns: int
    memory_ns: int
    overlap_ns: int
    planted_ns: int
    """Time that the planted causes add: of the GPU for slower work, of the host for waits and launches."""


@dataclass(frozen=True, slots=True)
class Written:
    """A trace file and what is known about it."""

    path: Path
    rank: int
    device: int
    figures: Figures


def write(plan: Plan, folder: str | Path, *, compress: bool = False) -> list[Written]:
    """Write one Kineto trace per rank, a step at a time; memory does not grow with the number of steps.

    Args:
        plan: what to play.
        folder: where the files go; made when it is not there.
        compress: write `.json.gz`.

    Returns:
        The files, by rank.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     files = write(Plan(ranks=2, steps=1, layers=2), folder)
        >>> [file.path.name for file in files]
        ['rank-0.pt.trace.json', 'rank-1.pt.trace.json']
        >>> files[0].figures.busy_ns + files[0].figures.idle_ns == files[0].figures.span_ns
        True
    """
    plan = _fitted(plan)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    ranks = [Rank(rank, plan.ranks, plan.seed) for rank in range(plan.ranks)]
    counts = [0] * plan.ranks
    paths = [folder / f"rank-{rank}.pt.trace.json{'.gz' if compress else ''}" for rank in range(plan.ranks)]
    with ExitStack() as stack:
        files = [_create(path, stack) for path in paths]
        begins = [rank.host_ns for rank in ranks]
        for file, rank in zip(files, ranks, strict=True):
            file.write(_header(rank).encode())
        for texts in _steps(plan, ranks):
            for place, events in enumerate(texts):
                counts[place] += len(events)
                files[place].write((",\n".join(events) + ",\n").encode())
        for place, (file, rank) in enumerate(zip(files, ranks, strict=True)):
            closing = _closing_events(rank, begins[place])
            counts[place] += len(closing)
            file.write((",\n".join(closing) + _FOOTER % (plan.seed, rank.rank, BASE_TIME_NS)).encode())
    return [
        Written(path, rank.rank, rank.device, _figures(rank, count))
        for path, rank, count in zip(paths, ranks, counts, strict=True)
    ]


def write_demo(folder: str | Path) -> list[Path]:
    """Write the two ranks that `kinetop demo` opens: a slow loader, an exposed all-reduce and a straggler.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     len(write_demo(folder))
        2
    """
    plan = Plan(ranks=2, steps=4, layers=16, seed=1, straggler=1, causes=("data-loader", "exposed-all-reduce"))
    return [written.path for written in write(plan, folder)]


def _steps(plan: Plan, ranks: list[Rank]) -> Iterator[list[list[str]]]:
    """Play the steps one after another; gives each rank's events of a step."""
    causes = frozenset(plan.causes)
    for number in range(plan.first_step, plan.first_step + plan.steps):
        parts = [train_step(rank, number, plan.layers, causes, straggler=rank.rank == plan.straggler) for rank in ranks]
        ready = [next(part, None) for part in parts]
        while None not in ready:
            here = [collective for collective in ready if collective is not None]
            end = max(collective.ready_ns for collective in here) + max(collective.dur_ns for collective in here)
            ready = [_resume(part, end) for part in parts]
        yield [rank.close_step() for rank in ranks]


def _resume(part: Work, end_ns: int) -> Collective | None:
    """Tell a rank when its collective ended; gives its next one, None when its step is over."""
    try:
        return part.send(end_ns)
    except StopIteration:
        return None


def _fitted(plan: Plan) -> Plan:
    """Turn a wanted number of events into steps, and into layers where one step would already be too much."""
    if plan.events is None:
        return plan
    fixed, both = (_events(replace(plan, events=None, steps=1, layers=layers)) for layers in (1, 2))
    per_layer = both - fixed
    fixed -= per_layer
    steps = max(1, round(plan.events / (fixed + plan.layers * per_layer)))
    layers = max(1, round((plan.events / steps - fixed) / per_layer))
    return replace(plan, events=None, steps=steps, layers=layers)


def _events(plan: Plan) -> int:
    """Return how many events a plan makes, the few closing ones aside."""
    ranks = [Rank(rank, plan.ranks, plan.seed) for rank in range(plan.ranks)]
    return sum(len(events) for texts in _steps(plan, ranks) for events in texts)


def _create(path: Path, stack: ExitStack) -> IO[bytes] | gzip.GzipFile:
    """Open a file for writing; a gzip file carries no time and no name, so that the same plan gives the same bytes."""
    file = stack.enter_context(path.open("wb"))
    if path.suffix != ".gz":
        return file
    return stack.enter_context(gzip.GzipFile(filename="", mode="wb", compresslevel=1, fileobj=file, mtime=0))


def _header(rank: Rank) -> str:
    """Return the file's text up to its first event."""
    ranks = list(range(rank.ranks))
    group = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": rank.ranks, "ranks": ranks}
    distributed = {
        "backend": "nccl",
        "rank": rank.rank,
        "world_size": rank.ranks,
        "pg_count": 1,
        "pg_config": [group],
        "nccl_version": "2.27.3",
    }
    devices = ",\n".join(_DEVICE % device for device in range(max(rank.device + 1, min(rank.ranks, 8))))
    return _HEADER % (devices, json.dumps(distributed))


def _closing_events(rank: Rank, begin_ns: int) -> list[str]:
    """Return the rows that name processes and threads, and the capture's own span."""
    begin, end = stamp(begin_ns - 20_000), stamp(rank.host_ns + 30_000)
    names = [
        _NAME % ("process_name", begin, rank.pid, 0, '"name": "python"'),
        _NAME % ("process_labels", begin, rank.pid, 0, '"labels": "CPU"'),
        _NAME % ("process_name", begin, rank.device, 0, '"name": "python"'),
        _NAME % ("process_labels", begin, rank.device, 0, f'"labels": "GPU {rank.device}"'),
        _NAME % ("thread_name", begin, rank.pid, rank.main_thread, f'"name": "thread {rank.main_thread} (pt_main_thread)"'),
        _NAME
        % ("thread_name", begin, rank.pid, rank.backward_thread, f'"name": "thread {rank.backward_thread} (pt_autograd_0)"'),
    ]
    streams = [
        _NAME % ("thread_name", begin, rank.device, stream, f'"name": "stream {stream} "') for stream in rank.stream_free_ns
    ]
    return [*names, *streams, _SPAN % (begin, stamp(rank.host_ns - begin_ns)), _START % begin, _END % end]


def _figures(rank: Rank, events: int) -> Figures:
    meter = rank.meter
    span = meter.last_ns - meter.first_ns
    return Figures(
        events=events,
        kernels=meter.kernels,
        copies=meter.copies,
        kernel_sum_ns=meter.kernel_sum_ns,
        busy_ns=meter.busy_ns,
        span_ns=span,
        idle_ns=span - meter.busy_ns,
        compute_ns=meter.compute_ns,
        comm_ns=meter.comm_ns,
        memory_ns=meter.memory_ns,
        overlap_ns=meter.overlap_ns,
        planted_ns=rank.planted_ns,
    )


_DEVICE = """    {
      "id": %d, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85045542912,
      "computeMajor": 9, "computeMinor": 0,
      "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048,
      "regsPerBlock": 65536, "warpSize": 32,
      "sharedMemPerBlock": 49152, "numSms": 132
    , "regsPerMultiprocessor": 65536, "sharedMemPerBlockOptin": 232448, "sharedMemPerMultiprocessor": 233472
    }"""
_HEADER = """
{
  "schemaVersion": 1,
  "deviceProperties": [
%s
  ],
  "distributedInfo": %s,
  "cuda_runtime_version": 12080, "cuda_driver_version": 12080,
  "record_shapes": 1, "profile_memory": 1, "with_stack": 1,
  "traceEvents": [
"""
_NAME = """  {
    "name": "%s", "ph": "M", "ts": %s, "pid": %d, "tid": %d,
    "args": {
      %s
    }
  }"""
_SPAN = """  {
    "ph": "X", "cat": "Trace", "ts": %s, "dur": %s,
    "pid": "Spans", "tid": "PyTorch Profiler",
    "name": "PyTorch Profiler (0)",
    "args": {
      "Op count": 0
    }
  }"""
_START = """  {
    "name": "Iteration Start: PyTorch Profiler", "ph": "i", "s": "g",
    "pid": "Traces", "tid": "Trace PyTorch Profiler", "ts": %s
  }"""
_END = """  {
    "name": "Record Window End", "ph": "i", "s": "g",
    "pid": "", "tid": "", "ts": %s
  }"""
_FOOTER = """
  ],
  "traceName": "synthetic-seed%d-rank%d.json",
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": %d
}
"""
