"""The traces, each imported once for all tests of this folder, and windows of attention taken on this CPU."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kinetop
from kinetop.traces.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kinetop.traces.live.recording import Recording
    from kinetop.traces.live.worker.case import Case


@pytest.fixture(scope="session")
def real(shared: Path) -> Callable[[str], kinetop.TraceSet]:
    """Open a real trace by its name below `traces/`; skips where the folder is absent."""

    return lambda name: opened(shared / "traces" / name)


@cache
def opened(path: Path) -> kinetop.TraceSet:
    """Open a trace once for all tests: what one question worked out of it, such as its calls, is there for the next."""
    return kinetop.open(path)


_ROOT = Path(__file__).resolve().parents[2]


def _folders() -> Iterator[Any]:
    """Every hazard and every real trace or set of them, by the name that a test's report shows."""
    shared = Path(os.environ.get("KINETOP_SHARED", _ROOT.parent / "shared"))
    for folder in (_ROOT / "tests" / "data" / "hazards", shared / "traces"):
        paths = sorted(folder.iterdir()) if folder.is_dir() else []
        yield from (pytest.param(path, id=path.name) for path in paths if path.name not in {"EXPECTED.json", "README.md"})


@pytest.fixture(scope="session", params=_folders())
def every_trace(request: pytest.FixtureRequest) -> kinetop.TraceSet:
    """Each hazard and each real trace in turn, those aside that cannot be read at all."""
    try:
        return opened(request.param)
    except TraceError as error:
        pytest.skip(f"not a trace: {error}")


def _with_counters(clean: dict[str, Any]) -> dict[str, Any]:
    """Add counter tracks and CUPTI ranges to a trace, its work once more, and a call that waits for it."""
    events = clean["traceEvents"]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    start = min(event["ts"] for event in kernels)
    values = {f"smsp__sass_thread_inst_executed_op_f{what}_pred_on.sum": 2 for what in ("add", "mul", "fma")}
    ranged = {"ph": "X", "cat": "cuda_profiler_range", "pid": 1, "tid": 1, "dur": 1, "args": values}
    ranges = [{**ranged, "name": event["name"], "ts": start + at} for at, event in enumerate(kernels)]
    track = {"ph": "C", "name": "GPU 0 Counters", "pid": 1, "tid": 1}
    tracks = [{**track, "ts": start + at, "args": {"power": at}} for at in range(0, 400, 50)]
    later = [event for event in events if event.get("cat") in {"kernel", "cpu_op", "cuda_runtime"}]
    again = [{**event, "ts": event["ts"] + 1000, "args": {**event["args"]}} for event in later]
    for event in again:
        if "correlation" in event["args"]:
            event["args"]["correlation"] += 1000
    wait = {"ph": "X", "cat": "cuda_runtime", "name": "cudaDeviceSynchronize", "pid": 1, "tid": 1, "ts": start + 2000, "dur": 5}
    return {**clean, "traceEvents": [*events, *again, *ranges, *tracks, wait]}


_TELLING = (
    "01_baseline_clean.json",
    "52_graph_replay_shared_correlation.json",
    "57_comm_kernel_names.json",
    "69_step_gap_and_overlap.json",
    "71_memory_instants.json",
)


@pytest.fixture(scope="session")
def telling(hazards: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, kinetop.TraceSet]:
    """Small traces by name: one or the other has rows for each table of each question, those of memory snapshots aside."""
    planted = tmp_path_factory.mktemp("planted") / "counters.json"
    planted.write_text(json.dumps(_with_counters(json.loads((hazards / _TELLING[0]).read_text()))))
    paths = [*(hazards / name for name in _TELLING), planted]
    return {path.name: kinetop.open(path, cache=False) for path in paths}


@pytest.fixture
def windowed() -> Callable[..., Recording]:
    """Profile calls on this CPU with the worker's own profiler; what it would have sent becomes a recording."""
    pytest.importorskip("torch", reason="torch is not installed")
    from kinetop.traces.live.recording import Recording
    from kinetop.traces.live.worker import frames, profile

    def take(
        case: Case, calls: dict[str, Callable[[], Any]], prepared: dict[str, Any] | None = None, *, steps: int = 3
    ) -> Recording:
        made, taker = Recording(), profile.Windows(case)
        for variant, call in calls.items():
            call()
            about = {"variant": variant, "case": case.to_dict()}
            made.add(frames.Frame({"kind": "prepared", **about, **(prepared or {})}))
            header, columns = taker.take(variant, call, steps)
            names = dict(enumerate(profile._process.names.all))  # a worker sends a name once, and here a process is many workers
            for frame in frames.Reader().feed(frames.pack({**header, **about, "names": names}, columns)):
                made.add(frame)
        assert not made.ignored
        return made

    return take
