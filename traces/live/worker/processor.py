"""What the processor does, from /proc, /sys and the control group; a file that is not there is a figure that is absent."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any


class Processor:
    """Reads load, memory, clock, quota and throttling; rates are since the former reading, and absent in the first."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
        self._before: dict[str, Any] = {}

    def read(self) -> dict[str, Any]:
        """Return the CPU members of a telemetry frame.

        `cores_pct` is of the CPUs that this process may use; `other_cores` is what other processes take of them, in cores.
        """
        now = {"at": time.monotonic(), "own_s": time.process_time(), "ticks": self._ticks(), "throttled": self._throttled()}
        before, self._before = self._before, now
        found = {
            "load1": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
            "rss_bytes": self._rss_bytes(),
            "mhz": self._mhz(),
            "quota_cpus": self._quota_cpus(),
            **self._memory(),
        }
        if before:
            found |= _rates(before, now)
        return {name: value for name, value in found.items() if value is not None}

    def _text(self, path: str) -> str:
        try:
            return (self._root / path).read_text()
        except OSError:
            return ""

    def _ticks(self) -> dict[int, tuple[int, int]]:
        """Return busy and all clock ticks by CPU."""
        ticks = {}
        for line in self._text("proc/stat").splitlines():
            name, *counts = line.split()
            if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in self._cpus:
                numbers = [int(count) for count in counts[:8]]  # what follows, guests' time, is counted in user already
                ticks[int(name[3:])] = (sum(numbers) - sum(numbers[3:5]), sum(numbers))
        return ticks

    def _rss_bytes(self) -> int | None:
        pages = self._text("proc/self/statm").split()
        return int(pages[1]) * os.sysconf("SC_PAGE_SIZE") if len(pages) > 1 else None

    def _mhz(self) -> float | None:
        """Return the mean clock of the CPUs that this process may use."""
        files = (f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq" for cpu in self._cpus)
        clocks = [int(text) / 1000 for path in files if (text := self._text(path)).strip().isdigit()]
        if not clocks:
            lines = self._text("proc/cpuinfo").splitlines()
            clocks = [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")]
        return round(sum(clocks) / len(clocks), 1) if clocks else None

    def _memory(self) -> dict[str, int]:
        """Return bytes used and in all: the control group's where it has a limit, else the machine's."""
        limit, used = self._group("memory.max").strip(), self._group("memory.current").strip()
        if limit.isdigit() and used.isdigit():
            return {"memory_bytes": int(used), "memory_total_bytes": int(limit)}
        lines = (line.split() for line in self._text("proc/meminfo").splitlines())
        kib = {line[0].rstrip(":"): int(line[1]) for line in lines if len(line) > 1}
        if "MemTotal" not in kib or "MemAvailable" not in kib:
            return {}
        return {"memory_bytes": (kib["MemTotal"] - kib["MemAvailable"]) * 1024, "memory_total_bytes": kib["MemTotal"] * 1024}

    def _group(self, name: str) -> str:
        """Return a file of this process's control group (version 2), or of the root as containers see theirs."""
        own = next((line[3:] for line in self._text("proc/self/cgroup").splitlines() if line.startswith("0::")), "/")
        return self._text(f"sys/fs/cgroup/{own.strip('/')}/{name}") or self._text(f"sys/fs/cgroup/{name}")

    def _quota_cpus(self) -> float | None:
        quota = self._group("cpu.max").split()
        if not quota:  # version 1
            quota = [self._text(f"sys/fs/cgroup/cpu/cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
        return int(quota[0]) / int(quota[1]) if len(quota) == 2 and quota[0].isdigit() else None

    def _throttled(self) -> dict[str, int]:
        """Return how often each cause has slowed this process or its CPUs so far."""
        lines = (self._group("cpu.stat") or self._text("sys/fs/cgroup/cpu/cpu.stat")).splitlines()
        counts = {line.split()[0]: int(line.split()[1]) for line in lines if len(line.split()) == 2}
        files = (f"sys/devices/system/cpu/cpu{cpu}/thermal_throttle/core_throttle_count" for cpu in self._cpus)
        hot = [int(text) for path in files if (text := self._text(path)).strip().isdigit()]
        return {"CgroupQuota": counts.get("nr_throttled", 0), "Thermal": sum(hot)}


def waited_ns(tasks: Path = Path("/proc/self/task")) -> int:
    """Return how long the threads of this process have waited for a core so far, all together; 0 where the system does not say.

    Of each thread `schedstat` holds the time on a core, the time it waited for one, and how often it got one.
    """
    waited = 0
    for task in tasks.glob("*/schedstat"):
        with suppress(OSError):  # the thread has ended
            waited += int(task.read_text().split()[1])
    return waited


def _rates(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Return per-core load, the load of others and what throttled between two readings."""
    shares = []
    for cpu, (busy, all_) in now["ticks"].items():
        busy_before, all_before = before["ticks"].get(cpu, (0, 0))
        shares.append((busy - busy_before) / max(1, all_ - all_before))
    found: dict[str, Any] = {
        "throttle": [cause for cause, count in now["throttled"].items() if count > before["throttled"].get(cause, 0)]
    }
    if shares:
        own = (now["own_s"] - before["own_s"]) / max(1e-9, now["at"] - before["at"])
        found["cores_pct"] = [round(100 * share, 1) for share in shares]
        found["other_cores"] = round(max(0.0, sum(shares) - own), 2)
    return found
