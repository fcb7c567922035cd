"""Breakdown, busy share and overlap against a look at every nanosecond of small invented traces."""

from __future__ import annotations

from collections import defaultdict

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from kinetop.analysis.breakdown import SHARES, busy_share, summary
from kinetop.analysis.overlap import overlap
from kinetop.analysis.work import DEVICE, Scope, Work
from kinetop.traces.trace import TraceSet

KINDS = [("compute", "gemm"), ("compute", "norm"), ("comm", "all-reduce"), ("comm", "send-recv"), ("memory", "copy")]
row = st.tuples(st.sampled_from([0, 1]), st.sampled_from([7, 20]), st.sampled_from(KINDS), st.integers(0, 25), st.integers(0, 9))
rows = st.lists(row, min_size=1, max_size=12)


def work_of(values: list) -> Work:
    """Work with one window per device, from its first start to its last end."""
    records = [
        {
            "part": 0,
            "rank": 0,
            "device": device,
            "stream": stream,
            "class": class_,
            "family": family,
            "kind": "memcpy" if class_ == "memory" else "kernel",
            "name": f"{family}_kernel",
            "start_ns": start,
            "end_ns": start + length,
            "dur_ns": length,
        }
        for device, stream, (class_, family), start, length in values
    ]
    gpu = pl.DataFrame(records, schema_overrides={"part": pl.Int32, "rank": pl.Int32, "device": pl.Int32}).sort(
        "device", "start_ns"
    )
    windows = (
        gpu.group_by(*DEVICE).agg(window_start_ns=pl.col("start_ns").min(), window_end_ns=pl.col("end_ns").max()).sort("device")
    )
    return Work(TraceSet(()), Scope(), gpu, windows, gpu)


def running(values: list, device: int) -> dict[int, list]:
    """Nanosecond -> what runs in it on the device."""
    at = defaultdict(list)
    for value in values:
        if value[0] == device:
            for t in range(value[3], value[3] + value[4]):
                at[t].append(value)
    return at


@given(rows)
@settings(max_examples=60, deadline=None)
def test_devices_and_breakdown(values: list) -> None:
    tables = summary.function(work_of(values), compat="none")
    for made, parts in zip(tables["devices"].iter_rows(named=True), tables["breakdown"].iter_rows(named=True), strict=True):
        mine = [v for v in values if v[0] == made["device"]]
        at = {t: {v[2][0] for v in found} for t, found in running(values, made["device"]).items()}
        span = max(v[3] + v[4] for v in mine) - min(v[3] for v in mine)
        wanted = {
            "busy": len(at),
            "span": span,
            "idle": span - len(at),
            "overlap": sum({"comm", "compute"} <= found for found in at.values()),
            "exposed_comm": sum("comm" in found and "compute" not in found for found in at.values()),
            "kernel_sum": sum(v[4] for v in mine if v[2][0] != "memory"),
            **{name: sum(name in found for found in at.values()) for name in ("compute", "comm", "memory")},
        }
        assert {name: made[f"{name}_us"] for name in wanted} == {name: value / 1000 for name, value in wanted.items()}
        assert (made["kernels"], made["copies"]) == (
            sum(v[2][0] != "memory" for v in mine),
            sum(v[2][0] == "memory" for v in mine),
        )
        assert (made["overlap_pct"] is None) == (wanted["comm"] == 0)
        assert parts["exposed_memory_us"] * 1000 == sum(found == {"memory"} for found in at.values())
        if span:
            assert abs(sum(parts[f"{name}_pct"] for name in SHARES) - 100) < 1e-9


@given(rows, st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_busy_share_is_exact(values: list, count: int) -> None:
    work = work_of(values)
    made = busy_share(work, count, by_class=True, streams=True)
    wanted: dict[tuple, int] = defaultdict(int)
    for device, low, high in work.windows.select("device", "window_start_ns", "window_end_ns").iter_rows():
        width = max(1, -(-(high - low) // count))
        for t, found in running(values, device).items():
            bucket = (t - low) // width
            assert bucket < count
            streams, classes = {v[1] for v in found}, {v[2][0] for v in found}
            both = {(v[1], v[2][0]) for v in found}
            for key in [(None, None), *((s, None) for s in streams), *((None, c) for c in classes), *both]:
                wanted[device, *key, bucket] += 1
    assert {r[:4]: r[4] for r in made.select("device", "stream", "class", "bucket", "busy_ns").iter_rows()} == dict(wanted)
    assert made["share"].is_between(0, 1).all()


@given(rows)
@settings(max_examples=60, deadline=None)
def test_overlap(values: list) -> None:
    tables = overlap.function(work_of(values))
    busy = {device: running(values, device) for device in (0, 1)}
    computing = {d: {t for t, found in at.items() if any(v[2][0] == "compute" for v in found)} for d, at in busy.items()}
    for made in tables["devices"].iter_rows(named=True):
        comm = {t for t, found in busy[made["device"]].items() if any(v[2][0] == "comm" for v in found)}
        assert made["comm_us"] * 1000 == len(comm)
        assert made["overlap_us"] * 1000 == len(comm & computing[made["device"]])
        assert made["exposed_comm_us"] * 1000 == len(comm - computing[made["device"]])
    for made in tables["kinds"].iter_rows(named=True):
        own = {t for t, found in busy[made["device"]].items() if any(v[2][1] == made["kind"] for v in found)}
        assert (made["own_us"] * 1000, made["hidden_us"] * 1000) == (len(own), len(own & computing[made["device"]]))
    for made in tables["kernels"].iter_rows(named=True):
        launches = [(v[0], set(range(v[3], v[3] + v[4]))) for v in values if v[2][1] == made["kind"]]
        assert (made["count"], made["own_us"] * 1000) == (len(launches), sum(len(times) for _, times in launches))
        assert made["hidden_us"] * 1000 == sum(len(times & computing[device]) for device, times in launches)
    for made in tables["beside"].iter_rows(named=True):
        launches = [(v[0], range(v[3], v[3] + v[4])) for v in values if v[2][1] == made["kind"]]
        families = (
            {v[2][1] for v in busy[d].get(t, []) if v[2][0] == "compute"} or {"nothing"} for d, times in launches for t in times
        )
        assert made["beside_us"] * 1000 == sum(made["family"] in found for found in families)
    kinds = sum(len({v[2][1] for v in values if v[2][0] == "comm" and v[0] == d}) for d in (0, 1))
    assert tables["kinds"].height == kinds
