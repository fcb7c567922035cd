"""Call trees against the definition, for nested and crossing ranges of several threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

import kinetop
from kinetop.traces.calls import calls, tree

if TYPE_CHECKING:
    from pathlib import Path

KINDS = {"part": pl.Int32, "process": pl.String, "thread": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64}
Span = tuple[str, int, int]


def framed(spans: list[Span]) -> pl.DataFrame:
    rows = [(0, "p", thread, start, start + dur) for thread, start, dur in spans]
    return pl.DataFrame(rows, schema=KINDS, orient="row").with_row_index("number")


def around(spans: list[Span], thread: str, time: int) -> list[tuple[int, int, int]]:
    """Ranges that contain a moment, the innermost last."""
    return sorted(
        (start, -dur, row) for row, (lane, start, dur) in enumerate(spans) if lane == thread and start <= time < start + dur
    )


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 25), st.integers(0, 15)), max_size=25))
def test_against_the_definition(spans: list[Span]) -> None:
    made = tree(framed(spans))
    own = dict.fromkeys(range(len(spans)), 0)
    for thread in "ab":
        for time in range(45):
            if open_ones := around(spans, thread, time):
                own[open_ones[-1][2]] += 1
    assert dict(made.select("number", "self_ns").rows()) == own
    numbers = made["number"].to_list()
    for number, parent, depth in made.select("number", "parent", "depth").rows():
        thread, start, dur = spans[number]
        before = [one for one in around(spans, thread, start) if one < (start, -dur, number)]
        assert parent == (None if not before else numbers.index(before[-1][2]))
        assert depth == (0 if parent is None else made["depth"][parent] + 1)
        assert parent is None or parent < numbers.index(number)


def test_every_thread_sums_to_the_time_any_range_is_open(shared: Path) -> None:
    trace = kinetop.open(shared / "traces" / "h100_qwen.json.gz")
    made = calls(trace)
    assert made.height > 10_000
    marks = made.sort("start_ns").select(
        "part", "process", "thread", "start_ns", "end_ns",
        reached=pl.col("end_ns").cum_max().shift(1).over("part", "process", "thread"),
    )  # fmt: skip
    new = (pl.col("end_ns") - pl.max_horizontal("start_ns", "reached")).clip(0)
    wanted = marks.group_by("part", "process", "thread").agg(new.sum().alias("open_ns")).sort("process", "thread")
    got = made.group_by("part", "process", "thread").agg(open_ns=pl.col("self_ns").sum()).sort("process", "thread")
    assert got.equals(wanted)
