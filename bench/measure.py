"""What the benchmarks share: run a command and count its time and memory, name the machine, keep results."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import threading
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
SAMPLE_S = 0.02


@dataclass(frozen=True, slots=True)
class Cost:
    """What a command took, its child processes included."""

    wall_s: float
    cpu_s: float
    peak_bytes: int
    """Largest sum of resident memory over the command's processes, seen every 20 ms; at least each process's own peak."""
    anonymous_bytes: int
    """The same without pages of files, which the system takes back when it needs them."""


def environment() -> dict[str, str]:
    """Return the variables of this process without the one that keeps modules from being compiled, as installing does."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def run(argv: list[str | Path], env: dict[str, str] | None = None) -> Cost:
    """Run a command and return its cost; raises `SystemExit` with its words when it fails."""
    begin = time.perf_counter()
    process = subprocess.Popen(
        [str(part) for part in argv],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**environment(), **(env or {})},
        cwd=ROOT,
    )
    peaks = {"VmRSS": 0, "RssAnon": 0}
    done = threading.Event()
    sampler = threading.Thread(target=_sample, args=(process.pid, peaks, done))
    sampler.start()
    assert process.stderr is not None
    words = process.stderr.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    done.set()
    sampler.join()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(map(str, argv))}: exit {process.returncode}\n{words[-2000:]}")
    return Cost(wall, usage.ru_utime + usage.ru_stime, max(peaks["VmRSS"], usage.ru_maxrss * 1024), peaks["RssAnon"])


def _sample(pid: int, peaks: dict[str, int], done: threading.Event) -> None:
    while not done.wait(SAMPLE_S):
        sums = dict.fromkeys(peaks, 0)
        for member in _family(pid):
            for name, size in _memory(member).items():
                sums[name] += size
        for name, size in sums.items():
            peaks[name] = max(peaks[name], size)


def _family(pid: int) -> list[int]:
    """Return the process and its descendants."""
    family = [pid]
    for member in family:
        try:
            children = Path(f"/proc/{member}/task/{member}/children").read_text().split()
        except OSError:
            continue  # it ended while we looked
        family.extend(map(int, children))
    return family


def _memory(pid: int) -> dict[str, int]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    fields = dict(line.split(":", 1) for line in lines)
    return {name: int(fields[name].split()[0]) * 1024 for name in ("VmRSS", "RssAnon") if name in fields}


def machine() -> dict[str, Any]:
    """Return what the figures were measured on."""
    info = Path("/proc/cpuinfo").read_text()
    names = [line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")]
    memory = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    packages = {name: version(name) for name in ("polars", "pyarrow", "duckdb", "textual")}
    return {
        "cpu": names[0] if names else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory / 1e9, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        **packages,
    }


def keep(name: str, rows: list[dict[str, Any]]) -> None:
    """Write a benchmark's rows to bench/results/NAME.json, with the machine."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")
    print(path)


def as_row(cost: Cost) -> dict[str, float]:
    """Return a cost with three decimals and gigabytes."""
    row = asdict(cost)
    return {
        "wall_s": round(row["wall_s"], 3),
        "cpu_s": round(row["cpu_s"], 3),
        "peak_gb": round(row["peak_bytes"] / 1e9, 3),
        "anonymous_gb": round(row["anonymous_bytes"] / 1e9, 3),
    }
