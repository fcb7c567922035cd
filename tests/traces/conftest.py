"""What the tests of the importer share: a small trace, and reading bytes as one without a process of their own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from kinetop.traces import export
from kinetop.traces.reading import pipeline
from kinetop.traces.reading.document import Document
from kinetop.traces.report import ImportReport, Notice
from kinetop.traces.store import read_metadata
from kinetop.traces.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SMALL: list[dict[str, Any]] = [
    {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": 'py\thon "q" é😀'}},
    *(
        {
            "ph": "X", "cat": "kernel", "name": f"k{i}", "pid": 0, "tid": 7, "ts": 100 + 10 * i, "dur": 5.25,
            "args": {"stream": 7, "device": 0, "correlation": i, "x": [i]},
        }
        for i in range(5)
    ),
    {"ph": "s", "id": 3, "pid": 0, "tid": 7, "ts": 110, "cat": "ac2g", "name": "ac2g"},
]  # fmt: skip
"""Events of every usual kind, in little."""


@dataclass(frozen=True)
class Read:
    """What an import made of some bytes."""

    events: list[dict[str, Any]]
    notices: list[Notice]
    header: dict[str, Any]
    trace: Trace

    @property
    def codes(self) -> dict[str, int]:
        """How often each finding was met."""
        return {notice.code: notice.count for notice in self.notices}

    @property
    def names(self) -> list[Any]:
        """The events' names."""
        return [event.get("name") for event in self.events]


@pytest.fixture
def small() -> list[dict[str, Any]]:
    """A few events."""
    return [dict(event) for event in SMALL]


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Read]:
    """Import bytes in this process; raises what the import raises, and sees that it left nothing behind."""
    count = 0

    def run(data: bytes | Path, *, member: str | None = None, jobs: int = 1, name: str = "trace.json") -> Read:
        nonlocal count
        count += 1
        if isinstance(data, bytes):
            path = tmp_path / f"{count}-{name}"
            path.write_bytes(data)
        else:
            path = data
        out = tmp_path / f"{count}.parquet"
        try:
            pipeline.import_file(path, out, member=member, jobs=jobs, progress=lambda *_: None)
        finally:
            assert not list(tmp_path.glob(".*.part"))
        said = read_metadata(out)
        trace = Trace(path, out, said["rank"], said["header"], ImportReport.from_dict(said["report"]))
        return Read(list(export.events(trace)), trace.report.notices, trace.header, trace)

    return run


@pytest.fixture
def cut_small(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """Let slices and pieces be of a few bytes, so that small traces cross their borders and take the fast path."""

    def cut(slice_bytes: int, piece_bytes: int) -> None:
        monkeypatch.setattr(Document.slices, "__defaults__", (slice_bytes,))
        monkeypatch.setattr(pipeline, "PIECE_BYTES", piece_bytes)

    return cut


def document(events: list[str], before: str = '"schemaVersion": 1, ', after: str = "") -> bytes:
    """Return a trace document with these texts as its events."""
    return ("{" + before + '"traceEvents": [\n' + ",\n".join(events) + "\n]" + after + "}").encode("utf-8", "surrogateescape")


@pytest.fixture
def wrap() -> Callable[..., bytes]:
    """Make a trace document of event texts."""
    return document


@pytest.fixture
def texts(small: list[dict[str, Any]]) -> list[str]:
    """The few events as texts."""
    return [json.dumps(event) for event in small]
