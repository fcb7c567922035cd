"""What the machine does meanwhile: clocks, power, memory, load, throttling, other work."""

from __future__ import annotations

import threading
import time
from typing import Any

from . import device as devices
from . import gpu
from .processor import Processor

PERIOD_S = 1.0
_WITH_A_GPU = ("cores_pct", "load1", "rss_bytes")
"""What is said of the processor beside a GPU's figures; the other names are the GPU's there."""
_SPARE_CORES = 0.25
_MOST_WAITED = 0.1
"""Share of the time of samples that this process may have waited for a core: more of it is in what they measure."""


class Sampler:
    """Reads the machine's figures once a second in a thread of its own; made in the main thread, for torch's sake."""

    def __init__(self, device: str, period_s: float = PERIOD_S) -> None:
        import torch

        self.device = device
        self._period_s = period_s
        self._threads = torch.get_num_threads()
        self._processor = Processor()
        self._gpu = gpu.find(device) if devices.kind(device) == "cuda" else None
        self._reading: dict[str, Any] | None = None
        self._busy = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kinetop-telemetry", daemon=True)

    def start(self) -> Sampler:
        """Start the thread."""
        self._thread.start()
        return self

    def _run(self) -> None:
        while not self._end.wait(self._period_s):
            self._sample()

    def _sample(self) -> dict[str, Any]:
        with self._busy:
            processor = self._processor.read()
            if devices.kind(self.device) == "cpu":
                found = {**processor, "threads": self._threads}
            else:
                found = {name: processor[name] for name in _WITH_A_GPU if name in processor}
                found |= self._gpu.read() if self._gpu else {}
            self._reading = {"device": self.device, "read_ns": time.time_ns(), **found}
            return self._reading

    def read(self) -> dict[str, Any]:
        """Return the last reading, members of a telemetry frame; the first is taken at once."""
        return dict(self._reading or self._sample())

    def energy_mj(self) -> int | None:
        """Return the device's energy counter now, in millijoules; None where it has none."""
        return self._gpu.energy_mj() if self._gpu else None

    def close(self) -> None:
        """Stop the thread."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2 * self._period_s)


def marks(reading: dict[str, Any], waited: float = 0.0) -> list[str]:
    """Return what speaks against samples: a reading taken meanwhile, and how long they had to wait.

    `throttled`: the clock or the quota was cut. `contended`: another process computes on the GPU, or other processes leave
    fewer cores than threads compute, or those threads waited for a core. Readings are a second apart, and short runs have none
    of their own; the wait is of the very samples.

    Args:
        reading: of the sampler.
        waited: time that the threads of this process waited for a core, over the time that the samples took.

    >>> marks({"throttle": ["SwPowerCap"], "others": 1})
    ['throttled', 'contended']
    >>> marks({"cores_pct": [100.0, 20.0], "threads": 1, "other_cores": 0.2, "throttle": []})
    []
    >>> marks({"cores_pct": [100.0, 20.0], "threads": 1}, waited=0.5)
    ['contended']
    """
    slowed = gpu.SLOWED | {"CgroupQuota", "Thermal"}
    found = ["throttled"] if slowed.intersection(reading.get("throttle", ())) else []
    free = len(reading.get("cores_pct", ())) - reading.get("other_cores", 0.0)
    crowded = "threads" in reading and "cores_pct" in reading and free < reading["threads"] - _SPARE_CORES
    queued = "threads" in reading and waited > _MOST_WAITED  # a GPU's times are its own
    return [*found, "contended"] if crowded or queued or reading.get("others") else found
