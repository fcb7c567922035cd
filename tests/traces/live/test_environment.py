"""The environment says what makes two measurements comparable, and nothing that may be secret."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from kinetop.traces.live.worker import environment, permissions

if TYPE_CHECKING:
    from pathlib import Path

torch = pytest.importorskip("torch", reason="torch is not installed")

MEMBERS = {
    *("host", "python", "torch", "cuda", "cudnn", "driver", "hip", "device", "device_name", "devices", "device_count"),
    *("cpu_name", "cpus", "threads", "memory_bytes", "priority_order", "flags", "git_sha", "profiler", "compiler", "os"),
    "permissions",
}


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("TORCH_HUB_API_KEY", "secret")
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    found: dict[str, object] = json.loads(json.dumps(environment.describe("cpu")))
    return found


def test_it_has_the_members_of_the_protocol(described: dict[str, object]) -> None:
    assert set(described) == MEMBERS
    assert described["torch"] == str(torch.__version__)
    assert described["threads"] == torch.get_num_threads()
    assert described["device"] == "cpu"
    assert described["profiler"] == {"ok": True, "why_not": None}


def test_flags_are_settings_and_no_secrets(described: dict[str, object]) -> None:
    flags = described["flags"]
    assert isinstance(flags, dict)
    assert flags["OMP_WAIT_POLICY"] == "passive"
    assert flags["float32_matmul_precision"] == torch.get_float32_matmul_precision()
    assert flags["flash_sdp"] is True
    assert "secret" not in json.dumps(described)


def test_backends_have_names(described: dict[str, object]) -> None:
    order = described["priority_order"]
    if not hasattr(torch._C, "_get_sdp_priority_order"):
        assert order is None
    else:
        assert isinstance(order, list)
        assert {"flash_attention", "math"} <= set(order)


def test_what_torch_or_the_machine_lacks_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch._C, "_get_sdp_priority_order", raising=False)
    monkeypatch.delattr(torch.backends.cuda, "cudnn_sdp_enabled", raising=False)
    monkeypatch.setenv("PATH", os.devnull)
    found = environment.describe("cpu")
    assert found["priority_order"] is None
    assert found["git_sha"] is None
    assert found["compiler"] is None or found["compiler"].startswith("triton")
    assert "cudnn_sdp" not in found["flags"]


def test_permissions_are_read_where_the_system_tells_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permissions, "DRIVER", tmp_path / "params")
    monkeypatch.setattr(permissions, "PERF", tmp_path / "paranoid")
    assert permissions.look("cpu") == {"gpu_counters": None, "perf_event_paranoid": None, "gpu_figures": None}
    (tmp_path / "params").write_text("ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\n")
    (tmp_path / "paranoid").write_text("4\n")
    assert permissions.look("cpu") == {"gpu_counters": False, "perf_event_paranoid": 4, "gpu_figures": None}
