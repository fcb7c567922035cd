"""Which file is which rank: names, claims that collide, no claims at all, clocks that differ."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kinetop.traces.ranks import as_set
from kinetop.traces.reading.inputs import natural, rank_in_name

NAMES = [
    ("rank0.json", 0), ("rank_12.json.gz", 12), ("rank-10.Jan_01.pt.trace.json", 10), ("trace.rank=3.json", 3),
    ("RANK 7.json", 7),
    ("worker5.pt.trace.json", 5), ("host_123.worker2.json", 2), ("tp1.json", 1), ("run-TP-0.json.gz", 0), ("gpu3_trace.json", 3),
    ("dp2_rank9.json", 9), ("trace_r4.json", 4), ("a.json", None), ("trace.1690000000000.json", None), ("frank5.json", 5),
    ("group7.json", None), ("rank123456.json", None), ("r2d2.json", None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "rank"), NAMES)
def test_names(name, rank):
    assert rank_in_name(Path("run") / name) == rank


def test_a_hive_folder_speaks_for_its_file():
    assert rank_in_name(Path("out/rank=6/trace-0.parquet")) == 6
    assert rank_in_name(Path("rank7/trace.json")) is None


def test_ten_comes_after_two():
    assert sorted(["r10", "r2", "r1a", "r1"], key=natural) == ["r1", "r1a", "r2", "r10"]


def kernel(start_us: int, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": "k", "ts_ns": start_us * 1000, "dur_ns": 10_000, "stream": 7, "device": 0, **more}


def traces(made, *starts: int, claims: list[int | None]):
    """One trace for each start, with the rank it claims in its header."""
    found = made(*([kernel(start)] for start in starts)).traces
    return [
        replace(
            trace,
            path=Path(f"{place}.json"),
            rank=claim or 0,
            header={} if claim is None else {"distributedInfo": {"rank": claim}},
        )
        for place, (trace, claim) in enumerate(zip(found, claims, strict=True))
    ]


def ranked(made, starts, claims, names):
    opened = traces(made, *starts, claims=claims)
    return as_set(opened, names)


def test_claims_count_more_than_names(made):
    found = ranked(made, (0, 0), [1, 0], [0, 1])
    assert [(trace.path.name, trace.rank) for trace in found.traces] == [("1.json", 0), ("0.json", 1)]
    assert not found.notices


def test_without_claims_the_names_count(made):
    found = ranked(made, (0, 0, 0), [None, None, None], [0, 2, 10])
    assert [trace.rank for trace in found.traces] == [0, 2, 10]
    assert [notice.message for notice in found.notices] == ["Ranks 0, 2, 10 taken from the file names."]


def test_all_claim_rank_zero(made):
    found = ranked(made, (0, 0), [0, 0], [0, 1])
    assert [trace.rank for trace in found.traces] == [0, 1]
    assert found.notices[0].code == "rank-from-name"
    assert "All 2 traces claim rank 0" in found.notices[0].message


def test_without_any_hint_the_order_counts(made):
    found = ranked(made, (5, 0, 9), [None] * 3, [None] * 3)
    assert [(trace.path.name, trace.rank) for trace in found.traces] == [("0.json", 0), ("1.json", 1), ("2.json", 2)]
    assert [notice.code for notice in found.notices] == ["rank-from-order"]


@pytest.mark.parametrize(("starts", "said"), [((500, 0), "different time windows"), ((5, 0), "overlap")])
def test_one_rank_with_two_files_has_two_windows(made, starts, said):
    opened = made(*([kernel(start), kernel(start + 100)] for start in starts)).traces
    opened = [
        replace(trace, path=Path(f"{i}.json"), rank=4, header={"distributedInfo": {"rank": 4}}) for i, trace in enumerate(opened)
    ]
    found = as_set(opened, [None, None])
    assert [(trace.path.name, trace.rank, trace.window) for trace in found.traces] == [("1.json", 4, 0), ("0.json", 4, 1)]
    assert [notice.code for notice in found.notices] == ["rank-claimed-twice"]
    assert said in found.notices[0].message


@pytest.mark.parametrize("skew_us", [350, -350, 5, 0])
def test_clocks(made, skew_us):
    """Each collective ends at one real moment; below 20 us it is the spread of the end, not skew."""
    parts = [
        [kernel(1000 * seq + offset, seq=seq, process_group="0", collective="allreduce", comms_id=1) for seq in range(1, 6)]
        for offset in (0, skew_us)
    ]
    found = as_set(made(*parts).traces, [None, None])
    far = abs(skew_us) >= 20
    assert [trace.clock_offset_ns for trace in found.traces] == [0, skew_us * 1000 if far else 0]
    skewed = [notice for notice in found.notices if notice.code == "clock-skew"]
    assert len(skewed) == far
    if far:
        assert f"350 us {'ahead of' if skew_us > 0 else 'behind'} rank 0" in skewed[0].message
        assert skewed[0].count == 5


def run(start_us: int, first: int, clock_us: int) -> list[dict[str, Any]]:
    """Five collectives, numbered from `first`."""
    same = {"process_group": "0", "collective": "allreduce", "comms_id": 1}
    return [kernel(start_us + 1000 * place + clock_us, seq=first + place, **same) for place in range(5)]


@pytest.mark.parametrize("second", [6, 1], ids=["numbers go on", "numbers begin anew"])
def test_clocks_of_each_window_of_a_rank(second, made):
    found = made(run(0, 1, 0), run(10**6, second, 0), run(0, 1, 350), run(10**6, second, 350)).traces
    claims = ({"rank": place // 2, "header": {"distributedInfo": {"rank": place // 2}}} for place in range(4))
    found = as_set([replace(trace, **claim) for trace, claim in zip(found, claims, strict=True)], [None] * 4)
    assert [(trace.rank, trace.window, trace.clock_offset_ns) for trace in found.traces] == [
        (0, 0, 0), (0, 1, 0), (1, 0, 350_000), (1, 1, 350_000)
    ]  # fmt: skip


def test_clocks_of_collectives_that_were_written_twice(made):
    found = as_set(made(run(0, 1, 0) * 2, run(0, 1, 350) * 2).traces, [None, None])
    assert [trace.clock_offset_ns for trace in found.traces] == [0, 350_000]


def test_an_impossible_time_does_not_move_a_window(made):
    epoch_us = 1_700_000_000_000_000
    found = made(*([kernel(epoch_us + 10_000 * window + 10 * place) for place in range(5)] for window in (1, 0))).traces
    odd = made([kernel(0), *(kernel(epoch_us + 20_000 + 10 * place) for place in range(5))]).traces
    found = as_set([*(replace(trace, rank=0, header={"distributedInfo": {"rank": 0}}) for trace in (*odd, *found))], [None] * 3)
    assert "different time windows" in found.notices[0].message
    starts = [trace.events.select("ts_ns").collect()["ts_ns"].max() for trace in found.traces]
    assert starts == sorted(starts)


def test_broken_claims_are_none(read, wrap, texts):
    for claim in ('"x"', "-1", "1.5", "null", "99999999999", "[]"):
        assert read(wrap(texts, after=f', "distributedInfo": {{"rank": {claim}}}')).trace.rank == 0
    assert read(wrap(texts, after=', "distributedInfo": {"rank": "5"}')).trace.rank == 5


def test_a_name_that_contradicts_its_trace_is_said(made):
    opened = [
        replace(trace, path=Path(f"rank{name}.json"))
        for trace, name in zip(traces(made, 0, 100, claims=[1, 3]), (3, 1), strict=True)
    ]
    found = as_set(opened, [3, 1])
    assert [trace.rank for trace in found.traces] == [1, 3]
    assert [(one.code, one.count) for one in found.notices] == [("rank-name-differs", 2)]
    assert found.notices[0].message == (
        "rank3.json is rank 1 by what the trace says and rank 3 by its name; the trace counts (so for 2 traces)."
    )
    assert as_set(opened[:1], [3]).notices[0].code == "rank-name-differs"
    assert not as_set(opened[:1], [1]).notices
    worker = replace(opened[0], path=Path("worker_85866.pt.trace.json"))  # 85866 is a process
    assert not as_set([worker], [85866]).notices


@pytest.mark.parametrize(("size", "missing"), [(4, 2), ("4", 2), (2, 0), (None, 0), (-4, 0), (True, 0), ("many", 0)])
def test_ranks_of_the_job_that_are_not_here_are_counted(made, size, missing):
    opened = [
        replace(trace, header={"distributedInfo": {"rank": trace.rank, "world_size": size}})
        for trace in traces(made, 0, 100, claims=[0, 2])
    ]
    found = as_set(opened, [None, None])
    assert [one.count for one in found.notices if one.code == "ranks-absent"] == ([missing] if missing else [])
    assert not as_set(opened[:1], [None]).notices
