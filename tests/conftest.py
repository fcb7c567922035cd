"""What tests share: where the real traces lie, and a cache folder of their own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from kinetop.traces import schema
from kinetop.traces.report import ImportReport
from kinetop.traces.trace import Trace, TraceSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parent.parent
HAZARDS = ROOT / "tests" / "data" / "hazards"


@pytest.fixture(scope="session", autouse=True)
def _shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test touches the user's cache; all tests of a run, in all its processes, share one, so that a trace is imported once."""
    base = tmp_path_factory.getbasetemp()
    run = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KINETOP_CACHE_DIR", str(run / "cache"))
        yield


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
