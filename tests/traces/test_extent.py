"""When a trace takes place, where its stamps contradict each other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import kinetop

if TYPE_CHECKING:
    from pathlib import Path

FAR_US = 9e15
"""Two stamps this far on both sides of zero are further apart than 64 bits of nanoseconds."""


@pytest.mark.parametrize("starts_us", [[-FAR_US, FAR_US], [-FAR_US, 0, FAR_US], [-FAR_US, 100, 200]])
def test_stamps_that_lie_centuries_apart_make_no_span(tmp_path: Path, starts_us: list[float]) -> None:
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "dur": 5, "args": {"device": 0, "stream": 7}}
    path = tmp_path / "far.json"
    path.write_text(json.dumps({"traceEvents": [{**kernel, "ts": start} for start in starts_us]}))
    trace = kinetop.open(path, cache=False)
    first_ns, end_ns = trace.extent.select("first_ns", "end_ns").row(0)
    assert 0 <= end_ns - first_ns < 10**9
    [(kernels, span_us, busy_us)] = kinetop.summary(trace).select("kernels", "span_us", "busy_us").rows()
    assert 0 < busy_us <= span_us < 1e6
    assert kernels < len(starts_us)
    assert "impossible-timestamp" in {notice.code for notice in trace.warnings}
