"""The bridge to HolisticTraceAnalysis: the same frames and figures as its own load; skipped where HTA is not installed."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

import kinetop
from kinetop.analysis import hta_bridge
from kinetop.traces.errors import TraceError

if TYPE_CHECKING:
    from pathlib import Path

NAMES = [
    "alexnet_cuda_sync",  # whole microseconds, waits with a stream
    "diff_control",  # several steps
    "h100_bert",  # fractions, rounded
    "mi300_qwen",  # stream 0
    "b200_vllm_eager",
    "cupti_counters",  # hardware counters
    "triton_cpu_ops_with_stream",
]

needs_hta = pytest.mark.skipif(hta_bridge.version() is None, reason="HolisticTraceAnalysis (extra hta) is not installed")


@pytest.fixture(autouse=True)
def _no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")


def loaded(path: Path) -> Any:
    from hta.trace_analysis import TraceAnalysis

    return TraceAnalysis(trace_files={0: os.fspath(path)})


def said(analysis: Any, api: str) -> Any:
    """What an analysis of HTA gives, or how it stops."""
    with hta_bridge.quiet():
        try:
            made = getattr(analysis, api)(visualize=False)
        except (AssertionError, IndexError, ValueError) as error:
            return type(error).__name__
    frames = made if isinstance(made, tuple) else (made,)
    return [frame.round(3).to_json(orient="split") for frame in frames]


def texts(analysis: Any, column: str, rank: int) -> list[Any]:
    values = analysis.t.traces[rank][column].tolist()
    return [analysis.t.symbol_table.sym_table[value] for value in values] if column in {"cat", "name"} else values


@needs_hta
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_the_bridged_object_gives_what_htas_own_load_gives(shared: Path, name: str) -> None:
    path = shared / "traces" / f"{name}.json.gz"
    with hta_bridge.quiet():
        own, trace = loaded(path), kinetop.open(path)
        bridged = kinetop.to_hta(trace)
    rank = trace.traces[0].rank
    assert set(own.t.traces[0].columns) == set(bridged.t.traces[rank].columns)
    for column in set(own.t.traces[0].columns) - {"bytes"}:  # ROCm writes bytes as text, and HTA leaves it so
        mine, theirs = texts(bridged, column, rank), texts(own, column, 0)
        assert str(mine) == str(theirs) or mine == pytest.approx(theirs, abs=0.001, nan_ok=True), column
    own.t.traces[rank] = own.t.traces.pop(0)
    for api in ("get_temporal_breakdown", "get_comm_comp_overlap", "get_gpu_kernel_breakdown"):
        assert said(bridged, api) == said(own, api), api


@needs_hta
def test_several_files_of_one_rank_are_refused(hazards: Path) -> None:
    path = hazards / "01_baseline_clean.json"
    one = kinetop.open(path)
    with pytest.raises(TraceError, match="one file a rank"):
        kinetop.to_hta(kinetop.TraceSet((one.traces[0], one.traces[0])))


def test_without_hta_one_sentence_says_what_to_install(hazards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hta_bridge, "version", lambda: None)
    with pytest.raises(TraceError, match=r"kinetop\[hta\]"):
        kinetop.to_hta(kinetop.open(hazards / "01_baseline_clean.json"))


def test_the_version_is_known_without_loading_it() -> None:
    assert (hta_bridge.version() is None) == (find_spec("hta") is None)
