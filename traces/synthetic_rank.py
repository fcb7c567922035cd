"""One rank of a synthetic training job: a host clock, GPU streams that run in order, and the events Kineto would write."""

from __future__ import annotations

import random
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

COMPUTE, COPY, COMM = 7, 20, 24
"""Streams: kernels, copies of the next batch, collectives."""
BASE_TIME_NS = 1_750_000_000_000_000_000
"""`baseTimeNanoseconds` of every synthetic trace; event times count from here."""
AT_REST = 9_126_805_504
"""Bytes allocated between steps: weights, their gradients and the optimizer's state."""
SEGMENT = 2 * 1024 * 1024
"""Bytes by which the allocator reserves."""
LAUNCH_LATENCY_NS = 2_600
KERNEL_SPACING_NS = 640

_COMPLETE = """  {
    "ph": "X", "cat": "%s", "name": "%s", "pid": %s, "tid": %s,
    "ts": %s, "dur": %s,
    "args": {
      %s
    }
  }"""
_FLOW = """  {
    "ph": "%s", "id": %d, "pid": %d, "tid": %d, "ts": %s,
    "cat": "ac2g", "name": "ac2g"%s
  }"""
_MEMORY = """  {
    "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]",
    "pid": %d, "tid": %d,
    "ts": %s,
    "args": {
      "Total Reserved": %d, "Total Allocated": %d, "Bytes": %d, "Addr": %d, "Device Id": %d, "Device Type": 1, "Ev Idx": %d
    }
  }"""


class Kernel(NamedTuple):
    """A kernel as the generator knows it."""

    name: str
    dur_ns: int
    """Duration before jitter."""
    grid: tuple[int, int, int]
    block: int = 128
    registers: int = 32
    shared_bytes: int = 0
    occupancy_pct: int = 75


class Collective(NamedTuple):
    """A collective that a rank is ready for; its end is when the last rank has come and the transfer is done."""

    ready_ns: int
    dur_ns: int


@dataclass(slots=True)
class Meter:
    """Adds up figures of one rank from the intervals as they are made, one step at a time.

    A step ends with every stream idle, so the figures of a step are those of its own boundaries, swept once.
    """

    kernels: int = 0
    copies: int = 0
    kernel_sum_ns: int = 0
    busy_ns: int = 0
    compute_ns: int = 0
    comm_ns: int = 0
    memory_ns: int = 0
    overlap_ns: int = 0
    first_ns: int = -1
    last_ns: int = 0

    def close(self, intervals: list[tuple[int, int, str]]) -> None:
        """Add a step's GPU activities, each (start_ns, end_ns, class)."""
        edges = sorted(edge for start, end, kind in intervals for edge in ((start, 1, kind), (end, -1, kind)))
        running = {"compute": 0, "memory": 0, "comm": 0}
        before = edges[0][0]
        for at_ns, change, kind in edges:
            passed = at_ns - before
            compute, memory, comm = running["compute"] > 0, running["memory"] > 0, running["comm"] > 0
            self.compute_ns += passed * compute
            self.memory_ns += passed * memory
            self.comm_ns += passed * comm
            self.overlap_ns += passed * (comm and compute)
            self.busy_ns += passed * (comm or compute or memory)
            running[kind] += change
            before = at_ns
        if self.first_ns < 0:
            self.first_ns = edges[0][0]
        self.last_ns = before


class Rank:
    """The state of one rank, and the events it has made in the current step."""

    def __init__(self, rank: int, ranks: int, seed: int) -> None:
        self.rank, self.ranks = rank, ranks
        self.device = rank % 8
        self.pid = 25_286 + 31 * rank
        self.thread = self.main_thread = self.pid
        self.backward_thread = self.pid + 212
        self.random = random.Random(seed * 7_919 + rank)  # noqa: S311 - a seeded play, no secret
        self.host_ns = 5_000_000_000 + self.random.randrange(400_000)
        self.stream_free_ns = {COMPUTE: 0, COPY: 0, COMM: 0}
        self.meter = Meter()
        self.planted_ns = 0
        """Time that the planted causes add on this rank."""
        self.events: list[str] = []
        self._intervals: list[tuple[int, int, str]] = []
        self._ops, self._op, self._correlation, self._event = 0, 0, 0, 0
        self._python, self._frames = 0, [0]
        self._seq = 0
        self._allocated, self._reserved = AT_REST, 34_359_738_368

    def jitter(self, ns: float) -> int:
        """Return a duration near `ns`, never below 1."""
        return max(1, int(ns * self.random.uniform(0.95, 1.07)))

    def spend(self, ns: float) -> None:
        """Let the host work for about `ns`."""
        self.host_ns += self.jitter(ns)

    def close_step(self) -> list[str]:
        """Add the step's GPU work to the figures and return its events."""
        self.meter.close(self._intervals)
        events, self.events, self._intervals = self.events, [], []
        return events

    def complete(self, cat: str, name: str, track: tuple[int, int], span: tuple[int, int], args: str) -> str:
        """Return a complete event as text; `track` is (pid, tid), `span` is (start_ns, end_ns)."""
        return _COMPLETE % (cat, name, *track, stamp(span[0]), stamp(span[1] - span[0]), args)

    @contextmanager
    def op(self, name: str, inputs: str = "", *, cat: str = "cpu_op", host_ns: int = 3_000) -> Iterator[None]:
        """Run the body inside a host range; `inputs` is more args as JSON text, `host_ns` the time before the body."""
        place, start, thread = len(self.events), self.host_ns, self.thread
        self.events.append("")
        self._ops += 1
        self._event += 1
        outer, own, event = self._op, self._ops, self._event
        self._op = own
        self.spend(host_ns)
        yield
        self.spend(900)
        self._op = outer
        args = f'"External id": {own},"Record function id": 0{inputs}, "Ev Idx": {event - 1}'
        self.events[place] = self.complete(cat, name, (self.pid, thread), (start, self.host_ns), args)

    @contextmanager
    def frame(self, name: str, module: int | None = None) -> Iterator[None]:
        """Run the body inside a Python frame."""
        place, start, parent = len(self.events), self.host_ns, self._frames[-1]
        self.events.append("")
        self._python += 1
        self._event += 1
        own, event = self._python, self._event
        self._frames.append(own)
        self.spend(700)
        yield
        self.spend(300)
        self._frames.pop()
        more = "" if module is None else f', "Python module id": {module}'
        args = f'"Python parent id": {parent or "null"}, "Python id": {own}{more}, "Ev Idx": {event - 1}'
        self.events[place] = self.complete("python_function", name, (self.pid, self.main_thread), (start, self.host_ns), args)

    def call(self, api: str, cbid: int, until_ns: int = 0, *, host_ns: int = 3_400) -> int:
        """Make a runtime call that returns after about `host_ns` and not before `until_ns`; return its correlation."""
        start = self.host_ns
        self.spend(host_ns)
        self.host_ns = max(self.host_ns, until_ns)
        self._correlation += 1
        args = f'"External id": {self._op},      "cbid": {cbid}, "correlation": {self._correlation}'
        self.events.append(self.complete("cuda_runtime", api, (self.pid, self.thread), (start, self.host_ns), args))
        if api.startswith(("cudaLaunch", "cudaMemcpy")):
            self.events.append(_FLOW % ("s", self._correlation, self.pid, self.thread, stamp(start), ""))
        return self._correlation

    def wait(self, stream: int, other: int) -> None:
        """Make `stream` wait for what `other` has been given so far."""
        self.call("cudaEventRecord", 135, host_ns=900)
        self.call("cudaStreamWaitEvent", 147, host_ns=800)
        self.stream_free_ns[stream] = max(self.stream_free_ns[stream], self.stream_free_ns[other])

    def synchronise(self, stream: int) -> None:
        """Block the host until the stream is idle."""
        self.call("cudaStreamSynchronize", 131, self.stream_free_ns[stream] + 2_200, host_ns=1_100)

    def launch(self, kernel: Kernel, scale: float = 1.0) -> int:
        """Launch a kernel on the compute stream; `scale` lengthens it. Returns its duration in ns."""
        correlation = self.call("cudaLaunchKernel", 211)
        dur = self.jitter(kernel.dur_ns * scale)
        start = self._start(COMPUTE)
        self._work("kernel", kernel.name, COMPUTE, (start, start + dur), correlation, shape_args(kernel))
        return dur

    def copy(self, name: str, size_bytes: int, stream: int, gbps: float) -> None:
        """Copy `size_bytes` to or from the device at about `gbps` GB/s."""
        correlation = self.call("cudaMemcpyAsync", 41, host_ns=5_200)
        dur = self.jitter(1_100 + size_bytes / gbps)
        start = self._start(stream)
        args = f', "bytes": {size_bytes}, "memory bandwidth (GB/s)": {size_bytes / dur:.6f}'
        self._work("gpu_memcpy", name, stream, (start, start + dur), correlation, args)

    def collective(self, name: str, kernel: str, elements: tuple[int, int], dur_ns: float) -> Generator[Collective, int, None]:
        """Run a collective on its own stream once the compute stream has come this far; ends when all ranks are there.

        Args:
            name: name in the args, e.g. `allreduce`.
            kernel: kernel name.
            elements: elements sent and received.
            dur_ns: time of the transfer.
        """
        self._seq += 1
        ranks = ", ".join(map(str, range(self.ranks)))
        args = (
            f', "Collective name": "{name}", "In msg nelems": {elements[0]}, "Out msg nelems": {elements[1]},'
            f' "In split size": "[]", "Out split size": "[]", "Group size": {self.ranks}, "dtype": "BFloat16",'
            f' "Process Group Name": "0", "Process Group Description": "default_pg", "Process Group Ranks": "[{ranks}]",'
            f' "Global rank start": 0, "Global rank stride": 1, "Seq": {self._seq}, "Rank": {self.rank}'
        )
        with self.op(f"c10d::{name}_", host_ns=5_000), self.op("record_param_comms", args, host_ns=4_000):
            self.wait(COMM, COMPUTE)
            correlation = self.call("cudaLaunchKernelExC", 430)
            start = self._start(COMM)
            end = yield Collective(start, self.jitter(dur_ns))
            grid = f"{shape_args(Kernel(kernel, 0, (24, 1, 1), 640, 96, 82_176, 31))}{args}"
            self._work("kernel", kernel, COMM, (start, end), correlation, grid)

    def memory(self, change_bytes: int) -> None:
        """Record that the allocator gave out or took back this many bytes."""
        self._allocated += change_bytes
        self._event += 1
        address = 0x7F40_0000_0000 + 4_096 * (abs(change_bytes) % 65_521)
        self._reserved = max(self._reserved, -(-self._allocated // SEGMENT) * SEGMENT)
        figures = (self._reserved, self._allocated, change_bytes, address, self.device, self._event - 1)
        self.events.append(_MEMORY % (self.pid, self.thread, stamp(self.host_ns), *figures))

    def free_step(self) -> None:
        """Record that all is given back that was allocated since the step began."""
        self.memory(AT_REST - self._allocated)

    def annotate_gpu(self, name: str) -> None:
        """Label the step's stretch of the compute stream, as the profiler does."""
        spans = [(start, end) for start, end, kind in self._intervals if kind == "compute"]
        args = f'"External id": {self._op}'
        self.events.append(self.complete("gpu_user_annotation", name, (self.device, COMPUTE), (spans[0][0], spans[-1][1]), args))

    def _start(self, stream: int) -> int:
        return max(self.host_ns + self.jitter(LAUNCH_LATENCY_NS), self.stream_free_ns[stream] + KERNEL_SPACING_NS)

    def _work(self, cat: str, name: str, stream: int, span: tuple[int, int], correlation: int, more: str) -> None:
        self._intervals.append((*span, "memory" if cat == "gpu_memcpy" else "comm" if stream == COMM else "compute"))
        self.stream_free_ns[stream] = span[1]
        if cat == "kernel":
            self.meter.kernels += 1
            self.meter.kernel_sum_ns += span[1] - span[0]
        else:
            self.meter.copies += 1
        args = (
            f'"External id": {self._op},      "queued": 0, "device": {self.device}, "context": 1,'
            f'      "stream": {stream}, "correlation": {correlation}{more}'
        )
        self.events.append(self.complete(cat, name, (self.device, stream), span, args))
        self.events.append(_FLOW % ("f", correlation, self.device, stream, stamp(span[0]), ', "bp": "e"'))


def stamp(ns: int) -> str:
    """Return integer nanoseconds as Kineto writes them: microseconds with three decimals."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def shape_args(kernel: Kernel) -> str:
    """Return the launch shape of a kernel as more args, JSON text."""
    blocks = kernel.grid[0] * kernel.grid[1] * kernel.grid[2] / 132
    return (
        f', "registers per thread": {kernel.registers}, "shared memory": {kernel.shared_bytes},'
        f' "blocks per SM": {blocks:.6f}, "warps per SM": {blocks * kernel.block / 32:.6f},'
        f' "grid": {list(kernel.grid)}, "block": [{kernel.block}, 1, 1], "est. achieved occupancy %": {kernel.occupancy_pct}'
    )
