"""What tests share: where the real traces lie, and a cache folder of their own."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import settings

from kinetop.traces import schema
from kinetop.traces.reading import child, importer
from kinetop.traces.report import ImportReport
from kinetop.traces.trace import Trace, TraceSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parent.parent
settings.register_profile("kinetop", deadline=None)  # a busy machine is no fault
settings.load_profile("kinetop")
HAZARDS = ROOT / "tests" / "data" / "hazards"


@pytest.fixture(scope="session", autouse=True)
def _shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test touches the user's cache; all tests of a run, in all its processes, share one, so that a trace is imported once."""
    base = tmp_path_factory.getbasetemp()
    run = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KINETOP_CACHE_DIR", str(run / "cache"))
        yield


class _ImportedHere:
    """Stands for the process that imports: does what it would in this one, and says it in the same lines."""

    pid, returncode = 0, 0

    def __init__(self, order: dict[str, Any], talk: Any) -> None:
        self.stdout = self._lines(order["requests"], order["jobs"])

    def _lines(self, requests: list[dict[str, Any]], jobs: int) -> Iterator[str]:
        for place, request in enumerate(requests):
            told = _Told()
            result = child._one(request, jobs, told)
            yield from (json.dumps(message) for message in [*told.messages, {"place": place, **result}])

    def __enter__(self) -> _ImportedHere:
        return self

    def __exit__(self, *error: object) -> None:
        self.stdout.close()

    def kill(self) -> None:
        """Nothing runs between two lines."""

    def wait(self) -> int:
        return self.returncode


class _Told(child._Progress):
    """Keeps what an import says of its progress."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    def note(self, name: str, done_bytes: int, events: int) -> None:
        self.messages.append({"bytes": done_bytes, "total_bytes": done_bytes, "events": events, "file": name})


_START_PROCESS = importer._child


@pytest.fixture(scope="session", autouse=True)
def _imports_here() -> Iterator[None]:
    """Import in this process: one of its own takes 0.75 s of a core to start, fifty times what a small trace takes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importer, "_child", _ImportedHere)
        yield


@pytest.fixture
def import_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Import in a process of its own after all, for tests of that."""
    monkeypatch.setattr(importer, "_child", _START_PROCESS)


@pytest.fixture(scope="session")
def hazards() -> Path:
    """Folder of the small broken traces."""
    return HAZARDS


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder with `traces/` and `reference/`; tests that need it skip where it is absent."""
    folder = Path(os.environ.get("KINETOP_SHARED", ROOT.parent / "shared"))
    if not (folder / "traces").is_dir():
        pytest.skip("the real traces are not here: set KINETOP_SHARED to the folder that holds traces/ and reference/")
    return folder


Rows = list[dict[str, Any]]


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., TraceSet]:
    """Make a trace set of event rows (columns of the event table, unset ones null), one trace for each list of them."""
    count = 0

    def make(*traces: Rows, **header: Any) -> TraceSet:
        nonlocal count
        parts = []
        for rank, rows in enumerate(traces):
            count += 1
            path = tmp_path / f"{count}.parquet"
            event_table(rows).with_columns(rank=pl.lit(rank, pl.Int32)).write_parquet(path)
            parts.append(Trace(path, path, rank, header, ImportReport(len(rows))))
        return TraceSet(tuple(parts))

    return make


def event_table(rows: Rows) -> pl.DataFrame:
    """Return rows as an event table, numbered in the order given."""
    kinds = {"int": pl.Int64, "uint": pl.UInt64, "float": pl.Float64, "text": pl.String, "json": pl.String}
    table = pl.DataFrame(rows, schema={name: kinds[kind] for name, kind in schema.COLUMNS.items()}, orient="row")
    return table.with_columns(
        pl.int_range(pl.len(), dtype=pl.UInt64).alias("event_id"),
        pl.col("device").cast(pl.Int32),
        pl.col(*schema.DICTIONARY_COLUMNS).cast(pl.Categorical),
    )


HELLO = {
    "host": "box",
    "torch": "2.13.0+cpu",
    "device_name": "Some CPU",
    "cpu_name": "Some CPU",
    "threads": 2,
    "flags": {"OMP_NUM_THREADS": "2"},
    "git_sha": "abc",
}
Spoken = dict[str, Any]
_began_ns = itertools.count(1_700_000_000_000_000_000, 3_600_000_000_000)


@pytest.fixture(scope="session")
def told() -> Callable[..., Any]:
    """Make a recording of what a worker might say: `told(case, {"eager": {...}})`, several cases one after the other.

    Members of a variant, all optional: `ns` (list of samples, or of lists, one a round), `marks` (by round), `prepared`, `state`,
    `why`, `clock_mhz`, `energy_mj` (a round), and `ops`: rows (category, name, bytes) of one step, each worth a microsecond.
    """
    from kinetop.traces.live.recording import Recording

    def make(*spoken: Any, hello: Spoken | None = None, declared: Spoken | None = None) -> Recording:
        made, clock = Recording(), itertools.count(next(_began_ns), 1_000_000)

        def say(kind: str, columns: Spoken | None = None, **members: Any) -> None:
            header = {"kind": kind, "t_ns": next(clock), "seq": 0, **members}
            for frame in frames.Reader().feed(frames.pack(header, columns)):
                made.add(frame)

        from kinetop.traces.live.worker import frames

        listed = [{"name": name, **more} for name, more in (declared or {}).items()]
        say("hello", protocol=1, environment=HELLO | (hello or {}), variants=listed)
        for case, variants in zip(spoken[::2], spoken[1::2], strict=True):
            for variant, about in variants.items():
                _say_trial(say, {"variant": variant, "case": case.to_dict()}, about)
        assert not made.ignored
        return made

    return make


def _say_trial(say: Callable[..., None], whose: Spoken, about: Spoken) -> None:
    say("state", **whose, state=about.get("state", "RUNNING"), why=about.get("why", ""))
    say("prepared", **whose, **about.get("prepared", {}))
    rounds = about.get("ns", [])
    rounds = rounds if rounds and isinstance(rounds[0], list) else [rounds]
    marks = about.get("marks", [[]] * len(rounds))
    for number, (ns, disturbed) in enumerate(zip(rounds, marks, strict=True)):
        more = {key: about.get(key) for key in ("clock_mhz", "energy_mj")}
        timer = {"timer": "perf_counter", "cold_cache": False}
        if ns:
            say("samples", {"ns": ("i64", ns)}, **whose, round=number, marks=disturbed, **more, **timer)
    if about.get("ops"):
        _say_window(say, whose, about["ops"])


def _say_window(say: Callable[..., None], whose: Spoken, ops: list[tuple[str, str, int]], steps: int = 3) -> None:
    """Say a window in which the operations run one after the other in each step."""
    kinds = sorted({kind for kind, _, _ in ops} | {"user_annotation"})
    names: list[str] = []
    columns: dict[str, list[int]] = {name: [] for name in ("name", "kind", "start_ns", "dur_ns", "device_type", "nbytes")}
    for step in range(steps):
        begin = 10_000 + step * 1_000_000
        label = f"kinetop.step|{whose['variant']}|1|{step}"
        rows = [("user_annotation", label, 0, begin, 500_000)]
        rows += [(kind, name, size, begin + 1000 * (at + 1), 1000) for at, (kind, name, size) in enumerate(ops)]
        for kind, name, size, start_ns, dur_ns in rows:
            if name not in names:
                names.append(name)
            gpu = kind in {"kernel", "gpu_memcpy", "gpu_memset"}
            values = (names.index(name), kinds.index(kind), start_ns, dur_ns, int(gpu), size)
            for column, value in zip(columns, values, strict=True):
                columns[column].append(value)
    types = {"name": "u32", "kind": "u8", "device_type": "u8"}
    say(
        "window",
        {name: (types.get(name, "i64"), values) for name, values in columns.items()},
        **whose,
        **{"window": 1, "steps": steps, "begin_ns": 0, "end_ns": steps * 1_000_000, "dropped": 0, "duty_pct": 1.0, "pid": 7},
        kinds=kinds,
        names={str(number): name for number, name in enumerate(names)},
    )
