"""What an NVIDIA GPU says of itself: through NVML's bindings, or where they are missing through `nvidia-smi`."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING, Any

from . import device

if TYPE_CHECKING:
    from collections.abc import Callable

REASONS = {
    0x2: "ApplicationsClocksSetting",
    0x4: "SwPowerCap",
    0x8: "HwSlowdown",
    0x10: "SyncBoost",
    0x20: "SwThermalSlowdown",
    0x40: "HwThermalSlowdown",
    0x80: "HwPowerBrakeSlowdown",
    0x100: "DisplayClockSetting",
}
"""Bits of the clock's event reasons; 0x1, that the GPU is idle, is no throttling."""
SLOWED = frozenset({"SwPowerCap", "HwSlowdown", "SwThermalSlowdown", "HwThermalSlowdown", "HwPowerBrakeSlowdown"})
"""The reasons that make a sample slower than the clocks that were asked for."""
_NVLINK_TX, _NVLINK_RX = 138, 139  # NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX and _RX, KiB
_ALL_LINKS = 0xFFFFFFFF


def reasons(bits: int) -> list[str]:
    """Return the names of the clock's event reasons.

    >>> reasons(0x1 | 0x4)
    ['SwPowerCap']
    """
    return [name for bit, name in REASONS.items() if bits & bit]


def selector(on: str) -> str:
    """Return how NVML and nvidia-smi know torch's device: its UUID, since their order of devices may be another.

    Args:
        on: the device, as in a case.
    """
    import torch

    number = device.index(on)
    uuid = str(getattr(torch.cuda.get_device_properties(number), "uuid", ""))
    if uuid:
        return uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
    visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return visible[number] if number < len(visible) else str(number)


class Nvml:
    """One device through NVML; a figure that the device does not give is absent."""

    def __init__(self, nvml: Any, which: str) -> None:
        """Open the device; raises `nvml.NVMLError` where there is no driver or no such device.

        Args:
            nvml: the module pynvml.
            which: UUID or index.
        """
        self._nvml = nvml
        nvml.nvmlInit()
        by_index = which.isdigit()
        self._handle = nvml.nvmlDeviceGetHandleByIndex(int(which)) if by_index else nvml.nvmlDeviceGetHandleByUUID(which)
        self._links: tuple[float, dict[str, int]] | None = None

    def _ask(self, function: str, *args: Any) -> Any:
        """Call an NVML function of the device; None where the bindings, the driver or the device have it not."""
        call = getattr(self._nvml, function, None)
        if call is None:
            return None
        try:
            return call(self._handle, *args)
        except self._nvml.NVMLError:
            return None

    def read(self) -> dict[str, Any]:
        """Return the GPU members of a telemetry frame."""
        ask = self._ask
        used, memory, bits = ask("nvmlDeviceGetUtilizationRates"), ask("nvmlDeviceGetMemoryInfo"), self._reason_bits()
        found = {
            "util_pct": used and used.gpu,
            "memory_util_pct": used and used.memory,
            "memory_bytes": memory and memory.used,
            "memory_total_bytes": memory and memory.total,
            "power_w": _scaled(ask("nvmlDeviceGetPowerUsage"), 1e-3),
            "power_limit_w": _scaled(ask("nvmlDeviceGetEnforcedPowerLimit"), 1e-3),
            "energy_mj": self.energy_mj(),
            "sm_mhz": ask("nvmlDeviceGetClockInfo", 1),
            "sm_max_mhz": ask("nvmlDeviceGetMaxClockInfo", 1),
            "memory_mhz": ask("nvmlDeviceGetClockInfo", 2),
            "temperature_c": ask("nvmlDeviceGetTemperature", 0),
            "throttle": None if bits is None else reasons(bits),
            "pcie_tx_bytes_s": _scaled(ask("nvmlDeviceGetPcieThroughput", 0), 1024),
            "pcie_rx_bytes_s": _scaled(ask("nvmlDeviceGetPcieThroughput", 1), 1024),
            "others": self._others(),
            **self._nvlink(),
        }
        return {name: value for name, value in found.items() if value is not None}

    def energy_mj(self) -> int | None:
        """Return the energy used since the driver was loaded, in millijoules."""
        energy: int | None = self._ask("nvmlDeviceGetTotalEnergyConsumption")
        return energy

    def _reason_bits(self) -> int | None:
        new: int | None = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        return new if new is not None else self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")

    def _others(self) -> int | None:
        """Return how many other processes compute on the device."""
        processes = self._ask("nvmlDeviceGetComputeRunningProcesses")
        if processes is None:
            return None
        pids = {process.pid for process in processes}
        # In a container the driver may give the host's numbers of processes: then one of the unknown ones is this one.
        return max(0, len(pids) - 1) if self._computes() or os.getpid() in pids else len(pids)

    @staticmethod
    def _computes() -> bool:
        import torch

        return bool(torch.cuda.is_initialized())

    def _nvlink(self) -> dict[str, float]:
        """Return NVLink rates from the links' counters, once there is a former reading."""
        values = self._ask("nvmlDeviceGetFieldValues", [(_NVLINK_TX, _ALL_LINKS), (_NVLINK_RX, _ALL_LINKS)])
        if not values or any(value.nvmlReturn for value in values):
            return {}
        now, counts = time.monotonic(), dict(zip(("tx", "rx"), (int(value.value.ullVal) for value in values), strict=True))
        before, self._links = self._links, (now, counts)
        if before is None or now <= before[0]:
            return {}
        return {f"nvlink_{way}_bytes_s": (counts[way] - before[1][way]) * 1024 / (now - before[0]) for way in counts}


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


_QUERY = {
    "utilization.gpu": ("util_pct", 1.0),
    "utilization.memory": ("memory_util_pct", 1.0),
    "memory.used": ("memory_bytes", 2.0**20),
    "memory.total": ("memory_total_bytes", 2.0**20),
    "power.draw": ("power_w", 1.0),
    "enforced.power.limit": ("power_limit_w", 1.0),
    "clocks.sm": ("sm_mhz", 1.0),
    "clocks.max.sm": ("sm_max_mhz", 1.0),
    "clocks.mem": ("memory_mhz", 1.0),
    "temperature.gpu": ("temperature_c", 1.0),
}
"""Fields of nvidia-smi, with the member they are and the factor to its unit."""
_EVENTS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
"""The reasons' field in drivers of now and of before 2023."""


def parse(line: str) -> dict[str, Any]:
    """Read a line that nvidia-smi wrote for our query, `csv,noheader,nounits`; what is no number there is absent.

    >>> parse("7, [N/A], 10, 20, 30.5, 700.00, 1980, 1980, 2619, 31, 0x0000000000000004")["throttle"]
    ['SwPowerCap']
    """
    *values, bits = (text.strip() for text in line.split(","))
    found: dict[str, Any] = {}
    for (name, factor), text in zip(_QUERY.values(), values, strict=False):  # a short line gives fewer members
        try:
            value = float(text) * factor
        except ValueError:
            continue
        found[name] = int(value) if value.is_integer() else value
    if bits.startswith("0x"):
        found["throttle"] = reasons(int(bits, 16))
    return found


class NvidiaSmi:
    """One device through the command nvidia-smi; it gives no energy counter."""

    def __init__(self, which: str, run: Callable[..., Any] = subprocess.run) -> None:
        self._which, self._run = which, run
        self._events = list(_EVENTS)

    def read(self) -> dict[str, Any]:
        """Return the GPU members of a telemetry frame; none when the command fails."""
        while self._events:
            fields = ",".join([*_QUERY, self._events[0]])
            command = ["nvidia-smi", "-i", self._which, f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
            try:
                done = self._run(command, capture_output=True, text=True, timeout=10, check=False)
            except (OSError, subprocess.TimeoutExpired):
                return {}
            if done.returncode == 0 and done.stdout.strip():
                return parse(done.stdout.strip().splitlines()[0])
            if "not a valid field" not in done.stdout + done.stderr:
                return {}
            self._events.pop(0)
        return {}

    def energy_mj(self) -> int | None:
        """Return None: the command has no counter of energy."""
        return None


def find(on: str) -> Nvml | NvidiaSmi | None:
    """Return the way to a CUDA device's figures, None where there is none.

    Args:
        on: the device, as in a case.
    """
    which = selector(on)
    try:
        import pynvml
    except ImportError:
        pass
    else:
        try:
            return Nvml(pynvml, which)
        except pynvml.NVMLError:
            pass  # no driver library or no such device there: the command may still know
    command = NvidiaSmi(which)
    return command if command.read() else None
