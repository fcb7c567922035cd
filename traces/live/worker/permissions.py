"""Who may read what here: performance counters and the GPU's own figures. For `kinetop doctor`; timelines need none of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from . import device as devices
from . import gpu

DRIVER = Path("/proc/driver/nvidia/params")
PERF = Path("/proc/sys/kernel/perf_event_paranoid")


def look(on: str) -> dict[str, Any]:
    """Return what is known.

    Args:
        on: the device, as in a case.

    Returns:
        `gpu_counters` (whether all users may read the GPU's hardware counters), `perf_event_paranoid` (the kernel's setting) and
        `gpu_figures` (`nvml` or `nvidia-smi`, where telemetry has them from); null where it is not known.
    """
    restricted = re.search(r"RmProfilingAdminOnly: (\d)", _text(DRIVER))
    level = _text(PERF).strip()
    source = gpu.find(on) if devices.kind(on) == "cuda" else None
    return {
        "gpu_counters": None if restricted is None else restricted[1] == "0",
        "perf_event_paranoid": int(level) if re.fullmatch(r"-?\d+", level) else None,
        "gpu_figures": None if source is None else "nvml" if isinstance(source, gpu.Nvml) else "nvidia-smi",
    }


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
