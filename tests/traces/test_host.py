"""What is read once is the same as what is read anew."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import kinetop
from kinetop.traces import schema
from kinetop.traces.host import CATS, kept, recorded

HAZARDS = Path("tests/data/hazards")
NAMES = ["01_baseline_clean", "60_two_gpus_one_process", "75_cpu_only", "69_step_gap_and_overlap"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cats", [CATS, schema.OP_CATS, schema.LAUNCH_CATS, ["python_function"], ["cuda_runtime", "kernel"]])
def test_kept_rows_are_those_of_the_trace(name: str, cats: frozenset[str]) -> None:
    trace = kinetop.open(HAZARDS / f"{name}.json", cache=False)
    columns = ("rank", "name", pl.coalesce("external_id", "external_id_legacy").alias("external_id"))
    assert_frame_equal(kept(trace, cats, *columns).collect(), recorded(trace, cats, *columns).collect())


def test_other_columns_are_read_from_the_trace() -> None:
    trace = kinetop.open(HAZARDS / "01_baseline_clean.json", cache=False)
    assert "input_dims" in kept(trace, schema.OP_CATS, "input_dims").collect().columns
    assert "host" not in vars(trace)
