"""Figures of the machine: what files, NVML and nvidia-smi say, read from fakes, and what absent ones lead to."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kinetop.traces.live.worker import gpu, processor, telemetry

torch = pytest.importorskip("torch", reason="torch is not installed")

PROC = {
    "proc/self/statm": "5000 2000 100 1 0 900 0\n",
    "proc/self/cgroup": "12:cpu:/x\n0::/jobs/7\n",
    "proc/meminfo": "MemTotal:       16000 kB\nMemFree:         1000 kB\nMemAvailable:    6000 kB\n",
    "proc/cpuinfo": "processor\t: 0\ncpu MHz\t\t: 2000.0\nprocessor\t: 1\ncpu MHz\t\t: 3000.0\n",
    "sys/fs/cgroup/jobs/7/cpu.max": "150000 100000\n",
    "sys/fs/cgroup/jobs/7/cpu.stat": "usage_usec 5\nnr_periods 9\nnr_throttled 3\n",
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    write(tmp_path, PROC | {"proc/stat": stat((0, 0), (0, 0))})
    return tmp_path


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def stat(*cores: tuple[int, int]) -> str:
    """/proc/stat with (busy, idle) ticks of each core, half of idle as iowait, and a third core that is not ours."""
    lines = [f"cpu{core} {busy} 0 0 {idle - idle // 2} {idle // 2} 0 0 0 0 0" for core, (busy, idle) in enumerate(cores)]
    return "\n".join(["cpu  9 9 9 9 9 9 9 9 9 9", *lines, "cpu2 900 0 0 0 0 0 0 0 0 0", "intr 5"]) + "\n"


def test_processor_reads_the_files(root: Path) -> None:
    found = processor.Processor(root).read()
    assert found.pop("load1") == pytest.approx(os.getloadavg()[0], abs=1)
    assert found == {
        "rss_bytes": 2000 * os.sysconf("SC_PAGE_SIZE"),
        "mhz": 2500.0,
        "quota_cpus": 1.5,
        "memory_bytes": 10_000 * 1024,
        "memory_total_bytes": 16_000 * 1024,
    }


def test_processor_gives_rates_from_the_second_reading_on(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = {"at": 100.0, "own": 7.0}
    fake = SimpleNamespace(monotonic=lambda: clock["at"], process_time=lambda: clock["own"])
    monkeypatch.setattr(processor, "time", fake)
    reader = processor.Processor(root)
    reader.read()
    clock.update(at=102.0, own=8.0)  # 1 s of computing in 2 s: half a core
    write(root, {"proc/stat": stat((150, 50), (100, 100)), "sys/fs/cgroup/jobs/7/cpu.stat": "nr_throttled 4\n"})
    found = reader.read()
    assert found["cores_pct"] == [75.0, 50.0]
    assert found["other_cores"] == 0.75
    assert found["throttle"] == ["CgroupQuota"]
    assert reader.read()["throttle"] == []


def test_processor_prefers_the_clock_of_each_core_and_the_limit_of_its_group(root: Path) -> None:
    write(
        root,
        {
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "1000000\n",
            "sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq": "1500000\n",
            "sys/fs/cgroup/jobs/7/memory.max": "4096\n",
            "sys/fs/cgroup/jobs/7/memory.current": "1024\n",
            "sys/fs/cgroup/jobs/7/cpu.max": "max 100000\n",
        },
    )
    found = processor.Processor(root).read()
    assert (found["mhz"], found["memory_bytes"], found["memory_total_bytes"]) == (1250.0, 1024, 4096)
    assert "quota_cpus" not in found


def test_control_groups_of_version_1(root: Path) -> None:
    for name in ("sys/fs/cgroup/jobs/7/cpu.max", "sys/fs/cgroup/jobs/7/cpu.stat"):
        (root / name).unlink()
    write(root, {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"})
    assert processor.Processor(root).read()["quota_cpus"] == 0.5
    write(root, {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n"})
    assert "quota_cpus" not in processor.Processor(root).read()


def test_a_machine_without_these_files_gives_what_it_has(tmp_path: Path) -> None:
    reader = processor.Processor(tmp_path)
    assert set(reader.read()) == {"load1"}
    assert set(reader.read()) == {"load1", "throttle"}


class FakeError(Exception):
    """What a fake NVML raises."""


def nvml(**functions: Any) -> Any:
    """A pynvml with a few functions; others that the reader asks for are not there."""
    base = {
        "NVMLError": FakeError,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetHandleByIndex": lambda index: ("index", index),
        "nvmlDeviceGetHandleByUUID": lambda uuid: ("uuid", uuid),
    }
    return SimpleNamespace(**(base | functions))


def unsupported(*_: Any) -> Any:
    raise FakeError("not supported")


def test_nvml_figures_have_their_units() -> None:
    fake = nvml(
        nvmlDeviceGetUtilizationRates=lambda handle: SimpleNamespace(gpu=0, memory=31),
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(used=5, total=9, free=4),
        nvmlDeviceGetPowerUsage=lambda handle: 612_345,
        nvmlDeviceGetEnforcedPowerLimit=lambda handle: 700_000,
        nvmlDeviceGetTotalEnergyConsumption=lambda handle: 123,
        nvmlDeviceGetClockInfo=lambda handle, which: {1: 1980, 2: 2619}[which],
        nvmlDeviceGetMaxClockInfo=lambda handle, which: {1: 1985}[which],
        nvmlDeviceGetTemperature=lambda handle, which: 41,
        nvmlDeviceGetCurrentClocksEventReasons=lambda handle: 0x1 | 0x4 | 0x40,
        nvmlDeviceGetPcieThroughput=lambda handle, way: {0: 3, 1: 5}[way],
    )
    assert gpu.Nvml(fake, "0").read() == {
        "util_pct": 0,
        "memory_util_pct": 31,
        "memory_bytes": 5,
        "memory_total_bytes": 9,
        "power_w": pytest.approx(612.345),
        "power_limit_w": 700.0,
        "energy_mj": 123,
        "sm_mhz": 1980,
        "sm_max_mhz": 1985,
        "memory_mhz": 2619,
        "temperature_c": 41,
        "throttle": ["SwPowerCap", "HwThermalSlowdown"],
        "pcie_tx_bytes_s": 3 * 1024,
        "pcie_rx_bytes_s": 5 * 1024,
    }


def test_what_nvml_has_not_is_absent() -> None:
    fake = nvml(nvmlDeviceGetPowerUsage=unsupported, nvmlDeviceGetTemperature=lambda handle, which: 30)
    device = gpu.Nvml(fake, "0")
    assert device.read() == {"temperature_c": 30}
    assert device.energy_mj() is None


def test_older_bindings_call_the_reasons_throttle_reasons() -> None:
    fake = nvml(nvmlDeviceGetCurrentClocksEventReasons=unsupported, nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: 0x8)
    assert gpu.Nvml(fake, "0").read() == {"throttle": ["HwSlowdown"]}


def test_nvlink_rates_are_differences_of_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    counters, now = {138: 100, 139: 200}, [10.0]

    def fields(handle: Any, asked: list[tuple[int, int]]) -> list[Any]:
        return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(ullVal=counters[field])) for field, _ in asked]

    monkeypatch.setattr(gpu, "time", SimpleNamespace(monotonic=lambda: now[0]))
    device = gpu.Nvml(nvml(nvmlDeviceGetFieldValues=fields), "0")
    assert device.read() == {}
    now[0] = 12.0
    counters.update({138: 104, 139: 210})
    assert device.read() == {"nvlink_tx_bytes_s": 2 * 1024, "nvlink_rx_bytes_s": 5 * 1024}


@pytest.mark.parametrize(
    ("pids", "computes", "others"),
    [
        ([], False, 0),
        ([os.getpid()], True, 0),
        ([os.getpid(), 1], True, 1),
        ([4001], True, 0),
        ([4001, 4002], True, 1),
        ([1], False, 1),
    ],
)
def test_other_processes_on_the_device(pids: list[int], computes: bool, others: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: computes)
    fake = nvml(nvmlDeviceGetComputeRunningProcesses=lambda handle: [SimpleNamespace(pid=pid) for pid in pids])
    assert gpu.Nvml(fake, "0").read() == {"others": others}


def test_a_device_is_opened_by_its_uuid() -> None:
    assert gpu.Nvml(nvml(), "GPU-1-2")._handle == ("uuid", "GPU-1-2")
    assert gpu.Nvml(nvml(), "3")._handle == ("index", 3)


@pytest.mark.parametrize(
    ("properties", "visible", "which"),
    [
        ({"uuid": "ab-cd"}, "", "GPU-ab-cd"),
        ({"uuid": "MIG-ab"}, "", "MIG-ab"),
        ({}, "GPU-x, GPU-y", "GPU-y"),
        ({}, "3,2", "2"),
        ({}, "", "1"),
    ],
)
def test_torchs_device_as_the_driver_knows_it(
    properties: dict[str, str], visible: str, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(**properties))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu.selector("cuda:1") == which


class Smi:
    """A stand-in for subprocess.run that answers as nvidia-smi would."""

    def __init__(self, *, refuses: str = "", code: int = 0, out: str = "") -> None:
        self.refuses, self.code, self.out = refuses, code, out
        self.commands: list[list[str]] = []

    def __call__(self, command: list[str], **_: Any) -> Any:
        self.commands.append(command)
        if self.refuses and self.refuses in command[3]:
            return subprocess.CompletedProcess(command, 2, f'Field "{self.refuses}.active" is not a valid field to query.\n', "")
        return subprocess.CompletedProcess(command, self.code, self.out, "")


LINE = "87, 31, 1024, 143771, 612.34, 700.00, 1980, 1980, 2619, 41, 0x0000000000000044\n"


def test_nvidia_smi_figures_have_their_units() -> None:
    run = Smi(out=LINE)
    assert gpu.NvidiaSmi("GPU-1", run).read() == {
        "util_pct": 87,
        "memory_util_pct": 31,
        "memory_bytes": 2**30,
        "memory_total_bytes": 143771 * 2**20,
        "power_w": 612.34,
        "power_limit_w": 700,
        "sm_mhz": 1980,
        "sm_max_mhz": 1980,
        "memory_mhz": 2619,
        "temperature_c": 41,
        "throttle": ["SwPowerCap", "HwThermalSlowdown"],
    }
    assert run.commands[0][:3] == ["nvidia-smi", "-i", "GPU-1"]


def test_an_older_driver_is_asked_by_the_older_name_from_then_on() -> None:
    run = Smi(refuses="clocks_event_reasons", out=LINE)
    smi = gpu.NvidiaSmi("0", run)
    assert smi.read()["throttle"] == smi.read()["throttle"] == ["SwPowerCap", "HwThermalSlowdown"]
    assert ["clocks_event" in command[3] for command in run.commands] == [True, False, False]


def test_what_nvidia_smi_does_not_know_is_absent() -> None:
    line = "[N/A], [Not Supported], 10, 20, [Unknown Error], 700.00, 1980, N/A, 2619, 41, [N/A]"
    assert set(gpu.parse(line)) == {
        "memory_bytes",
        "memory_total_bytes",
        "power_limit_w",
        "sm_mhz",
        "memory_mhz",
        "temperature_c",
    }


def test_nvidia_smi_that_fails_gives_nothing() -> None:
    run = Smi(code=9, out="NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")
    assert gpu.NvidiaSmi("0", run).read() == {}
    assert len(run.commands) == 1

    def absent(*_: Any, **__: Any) -> Any:
        raise FileNotFoundError

    assert gpu.NvidiaSmi("0", absent).read() == {}

    def stuck(command: list[str], timeout: float, **_: Any) -> Any:
        raise subprocess.TimeoutExpired(command, timeout)

    assert gpu.NvidiaSmi("0", stuck).read() == {}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is an NVIDIA GPU here")
def test_no_gpu_is_no_figures_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "selector", lambda on: "0")
    assert gpu.find("cuda:0") is None


def test_nvidia_smi_is_asked_where_the_bindings_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(gpu, "selector", lambda on: "0")
    monkeypatch.setattr(gpu.NvidiaSmi, "read", lambda self: {"util_pct": 1})
    assert isinstance(gpu.find("cuda:0"), gpu.NvidiaSmi)


def test_a_sampler_reads_now_and_then_by_itself() -> None:
    sampler = telemetry.Sampler("cpu", period_s=0.05)
    first = sampler.read()
    assert first["device"] == "cpu"
    assert first["threads"] == torch.get_num_threads()
    assert first == sampler.read(), "between two readings the last one is given"
    sampler.start()
    until = time.monotonic() + 10
    while sampler.read()["read_ns"] == first["read_ns"] and time.monotonic() < until:
        time.sleep(0.01)
    later = sampler.read()
    sampler.close()
    assert later["read_ns"] > first["read_ns"]
    assert not sampler._thread.is_alive()
    assert sampler.energy_mj() is None
    assert None not in later.values()
    if Path("/proc/stat").exists():
        assert len(later["cores_pct"]) == len(os.sched_getaffinity(0))
        assert later["rss_bytes"] > 50e6


def test_with_a_gpu_its_figures_are_not_the_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = SimpleNamespace(read=lambda: {"memory_bytes": 7, "sm_mhz": 1000}, energy_mj=lambda: 55)
    monkeypatch.setattr(gpu, "find", lambda on: fake)
    sampler = telemetry.Sampler("cuda:0")
    found = sampler.read()
    assert (found["memory_bytes"], found["sm_mhz"], sampler.energy_mj()) == (7, 1000, 55)
    assert not {"memory_total_bytes", "mhz", "threads", "quota_cpus"} & set(found)


@pytest.mark.parametrize(
    ("reading", "marks"),
    [
        ({}, []),
        ({"throttle": ["ApplicationsClocksSetting", "SyncBoost"], "others": 0}, []),
        ({"throttle": ["HwThermalSlowdown"]}, ["throttled"]),
        ({"throttle": ["CgroupQuota"]}, ["throttled"]),
        ({"others": 2}, ["contended"]),
        ({"cores_pct": [100.0, 100.0], "threads": 2, "other_cores": 0.1, "throttle": []}, []),
        ({"cores_pct": [100.0, 100.0], "threads": 2, "other_cores": 0.5, "throttle": []}, ["contended"]),
        ({"cores_pct": [100.0, 100.0], "threads": 1, "other_cores": 1.0, "throttle": []}, []),
        ({"cores_pct": [100.0, 100.0], "threads": 1, "other_cores": 1.6, "throttle": ["Thermal"]}, ["throttled", "contended"]),
    ],
)
def test_marks_of_samples(reading: dict[str, Any], marks: list[str]) -> None:
    assert telemetry.marks(reading) == marks


@pytest.mark.parametrize(
    ("reading", "waited", "marks"),
    [
        ({"cores_pct": [100.0, 100.0], "threads": 2, "other_cores": 0.1}, 0.1, []),
        ({"cores_pct": [100.0, 100.0], "threads": 2, "other_cores": 0.1}, 0.11, ["contended"]),
        ({"threads": 2}, 0.5, ["contended"]),
        ({"threads": 2, "throttle": ["Thermal"]}, 0.5, ["throttled", "contended"]),
        ({"cores_pct": [100.0, 100.0], "sm_mhz": 1980}, 0.5, []),  # a GPU's times are its own
    ],
)
def test_samples_that_waited_for_a_core_are_contended(reading: dict[str, Any], waited: float, marks: list[str]) -> None:
    assert telemetry.marks(reading, waited) == marks


def test_the_wait_is_of_all_threads(tmp_path: Path) -> None:
    for thread, counts in ("7", "100 30 4"), ("8", "5 12 1"):
        (tmp_path / thread).mkdir()
        (tmp_path / thread / "schedstat").write_text(f"{counts}\n")
    (tmp_path / "9").mkdir()  # it has ended
    assert processor.waited_ns(tmp_path) == 42
    assert processor.waited_ns(tmp_path / "absent") == 0


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system does not say how long threads wait")
def test_more_threads_than_cores_wait_for_about_as_long_as_they_have_no_core() -> None:
    """Three processes on one core: each has it for a third of the time, and waits for two thirds."""
    code = """
import os, sys, time
from kinetop.traces.live.worker.processor import waited_ns
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
end = time.monotonic() + 1.5
while time.monotonic() < end - 1.0:
    pass
began, before = time.monotonic_ns(), waited_ns()
while time.monotonic() < end:
    pass
print((waited_ns() - before) / (time.monotonic_ns() - began))
"""
    together = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    shares = [float(process.communicate(timeout=60)[0]) for process in together]
    assert all(0.4 < share <= 1.01 for share in shares), shares
