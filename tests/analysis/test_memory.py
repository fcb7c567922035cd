"""Memory: against an allocator that is simulated, event by event, and against the totals that real traces state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kinetop.analysis.memory import memory
from kinetop.traces.errors import FilterError

if TYPE_CHECKING:
    from collections.abc import Callable

    import kinetop

Rows = list[dict[str, Any]]
THREAD = {"process": "9", "thread": "1"}


def tables(trace: kinetop.TraceSet, **options: Any) -> dict[str, pl.DataFrame]:
    return memory.ask(trace, **options).tables


def instant(at: int, size: int, addr: int | None, total: int | None, reserved: int = 4096, **more: Any) -> dict[str, Any]:
    kind = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "memory_device": 0, "memory_device_type": 1}
    sizes = {"memory_bytes": size, "addr": addr, "total_allocated_bytes": total, "total_reserved_bytes": reserved}
    return {**kind, **THREAD, "ts_ns": 1000 * at, **sizes, **more}


def span(name: str, start: int, dur: int, cat: str = "cpu_op") -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "ts_ns": 1000 * start, "dur_ns": 1000 * dur, **THREAD}


@st.composite
def histories(draw: st.DrawFn) -> tuple[int, list[tuple[int, int, int]]]:
    """What was in use before, and (time, address, size) of each event; negative sizes are frees, some of unseen memory."""
    before, live, made, at = draw(st.integers(0, 3)), {}, [], 0
    unseen = [(90 + n, 100 * (n + 1)) for n in range(before)]
    start = sum(size for _, size in unseen)
    for _ in range(draw(st.integers(1, 25))):
        at += draw(st.integers(0, 3))
        choice = draw(st.integers(0, 3))
        if choice == 0 and live:
            address = draw(st.sampled_from(sorted(live)))
            made.append((at, address, -live.pop(address)))
        elif choice == 1 and unseen:
            address, size = unseen.pop()
            made.append((at, address, -size))
        else:
            address = min(set(range(40)) - set(live))
            live[address] = draw(st.integers(1, 50))
            made.append((at, address, live[address]))
    return start, made


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(histories(), st.integers(1, 9))
def test_against_a_simulated_allocator(
    made: Callable[..., Any], history: tuple[int, list[tuple[int, int, int]]], buckets: int
) -> None:
    start, changes = history
    rows, level, live, states = [], start, {}, [(start, {})]
    for at, address, size in changes:
        level += size
        live = {key: value for key, value in live.items() if key != address} | ({address: size} if size > 0 else {})
        states.append((level, live))
        rows.append(instant(at, size, address, level))
    found = tables(made(rows), buckets=buckets, largest=100)
    device = found["devices"].row(0, named=True)
    top = max(level for level, _ in states)
    held = next(live for level, live in states if level == top)
    assert (device["start_bytes"], device["peak_bytes"], device["end_bytes"]) == (start, top, level)
    assert device["net_bytes"] == level - start
    assert (device["unexplained_bytes"], device["jumps"]) == (0, 0)
    assert device["churn_bytes"] == sum(size for _, _, size in changes if size > 0)
    assert (device["allocations"], device["frees"]) == (sum(s > 0 for *_, s in changes), sum(s < 0 for *_, s in changes))
    assert sorted(found["live"]["bytes"]) == sorted(held.values())
    assert found["holders"]["bytes"].sum() == top
    assert found["holders"].filter(pl.col("source") == "not recorded")["bytes"].sum() == top - sum(held.values())
    assert found["ops"]["kept_bytes"].sum() == sum(live.values())
    curve = found["curve"]
    assert curve["allocated_bytes"][-1] == level
    assert curve["above_start_bytes"][-1] == level - start
    assert curve["peak_bytes"].max() == top
    assert (curve["allocations"].sum(), curve["frees"].sum()) == (device["allocations"], device["frees"])
    assert curve["start_us"].to_list()[1:] == curve["end_us"].to_list()[:-1]
    assert curve["end_us"][-1] == changes[-1][0] - changes[0][0] or curve.height == 1


@pytest.mark.parametrize(
    "name", ["cpu_only_memory", "a100_particle_transformer", "h100_bert", "h100_qwen", "mi300_qwen", "v100_ddp_rank1"]
)
def test_real_traces_reconcile(real: Callable[[str], kinetop.TraceSet], name: str) -> None:
    trace = real(f"{name}.json.gz")
    instants = trace.events.filter(pl.col("memory_bytes").is_not_null()).sort("ts_ns", "event_id").collect()
    found = tables(trace)
    devices = found["devices"]
    assert devices["allocations"].sum() + devices["frees"].sum() == instants.height
    assert devices["unexplained_bytes"].to_list() == [0] * devices.height
    assert devices["jumps"].sum() == 0
    assert devices.filter(pl.col("start_bytes") + pl.col("net_bytes") != pl.col("end_bytes")).is_empty()
    by_kind = instants.group_by("memory_device_type", maintain_order=True).agg(
        end=pl.col("total_allocated_bytes").last(), peak=pl.col("total_allocated_bytes").max()
    )
    assert sorted(devices["end_bytes"]) == sorted(by_kind["end"])
    assert sorted(devices["peak_bytes"]) == sorted(by_kind["peak"])
    ends = found["curve"].group_by("place").agg(pl.col("allocated_bytes").last()).join(devices, on="place")
    assert ends.filter(pl.col("allocated_bytes") != pl.col("end_bytes")).is_empty()
    sums = found["holders"].group_by("place").agg(pl.col("bytes").sum()).join(devices, on="place")
    assert sums.height == devices.height
    assert sums.filter(pl.col("bytes") != pl.col("peak_bytes")).is_empty()


def test_owners(made: Callable[..., Any]) -> None:
    rows = [
        span("nn.Module: Net_0", 0, 90, "python_function"),
        span("nn.Module: Linear_3", 5, 30, "python_function"),
        span("aten::linear", 10, 20),
        span("aten::empty", 12, 3),
        span("aten::empty", 50, 5),
        instant(13, 512, 1, 512),
        instant(52, 1024, 2, 1536),
        instant(95, 256, 3, 1792),
    ]
    found = tables(made(rows))["live"]
    owners = {row["bytes"]: (row["op"], row["module"]) for row in found.iter_rows(named=True)}
    assert owners == {512: ("aten::linear", "Linear_3"), 1024: ("aten::empty", "Net_0"), 256: (None, None)}
    device = tables(made(rows))["devices"].row(0, named=True)
    assert (device["peak_op"], device["peak_bytes"]) == (None, 1792)


def test_module_of_old_traces(made: Callable[..., Any]) -> None:
    rows = [{**span("aten::linear", 10, 20), "module_hierarchy": "Net.fc1"}, instant(13, 512, 1, 512)]
    assert tables(made(rows))["live"]["module"].to_list() == ["Net.fc1"]


def test_an_allocator_that_does_not_count(made: Callable[..., Any]) -> None:
    """CPU allocators of older PyTorch state a total of 0 throughout; some traces state none."""
    for total in (0, None):
        rows = [instant(1, 100, 1, total, 0), instant(2, 50, 2, total, 0), instant(3, -100, 1, total, 0)]
        found = tables(made([{**row, "memory_device": -1, "memory_device_type": 0} for row in rows]))
        device = found["devices"].row(0, named=True)
        unknown = ("start_bytes", "peak_bytes", "end_bytes", "unexplained_bytes", "jumps", "peak_reserved_bytes")
        assert {device[name] for name in unknown} == {None}
        assert (device["place"], device["peak_above_start_bytes"], device["net_bytes"]) == ("cpu", 150, 50)
        assert found["live"]["bytes"].to_list() == [100, 50]
        assert found["curve"]["above_start_bytes"][-1] == 50
        assert found["curve"]["allocated_bytes"].null_count() == found["curve"].height


def test_events_that_are_missing_are_said(made: Callable[..., Any]) -> None:
    rows = [instant(1, 100, 1, 100), instant(2, 100, 2, 500), instant(3, -100, 2, 400), instant(4, 5, 3, None)]
    device = tables(made(rows))["devices"].row(0, named=True)
    assert (device["unexplained_bytes"], device["jumps"]) == (300, 1)
    assert (device["start_bytes"], device["peak_bytes"], device["end_bytes"], device["net_bytes"]) == (0, 500, 405, 105)


def test_churn_by_life(made: Callable[..., Any]) -> None:
    rows = [span("aten::mm", 0, 9000), instant(10, 100, 1, 100), instant(20, -100, 1, 0), instant(30, 300, 1, 300)]
    trace = made([*rows, instant(5030, -300, 1, 0), {**instant(6000, 7, None, 0), "name": "[OutOfMemory]"}])
    op = tables(trace)["ops"].row(0, named=True)
    assert (op["op"], op["allocations"], op["churn_bytes"], op["short_lived"], op["short_lived_pct"]) == (
        "aten::mm",
        2,
        400,
        1,
        50,
    )
    assert (op["lifetime_median_us"], op["kept_bytes"]) == (2505, 0)
    device = tables(trace, short_us=6000.0)["devices"].row(0, named=True)
    assert (device["short_lived"], device["out_of_memory"]) == (2, 1)
    assert device["churn_gbps"] == pytest.approx(400 / 5_020_000, abs=1e-6)


def test_steps_and_windows(made: Callable[..., Any]) -> None:
    rows = [span(f"ProfilerStep#{n}", 100 * n, 100, "user_annotation") for n in (1, 2)]
    rows += [instant(110, 100, 1, 1100), instant(150, 50, 2, 1150), instant(210, 500, 3, 1650), instant(250, -500, 3, 1150)]
    trace = made(rows)
    whole = tables(trace)["devices"].row(0, named=True)
    assert (whole["peak_bytes"], whole["peak_step"], whole["churn_per_step_bytes"]) == (1650, 2, 325)
    for options in ({"step": "1"}, {"window": "0us..100us"}):
        first = tables(trace, **options)
        device = first["devices"].row(0, named=True)
        assert (device["start_bytes"], device["peak_bytes"], device["end_bytes"]) == (1000, 1150, 1150)
        assert device["churn_per_step_bytes"] == 150
        assert first["holders"]["bytes"].sum() == 1150
    second = tables(trace, step="2")
    assert second["devices"]["start_bytes"].item() == 1150
    assert second["live"]["bytes"].to_list() == [500, 100, 50], "what was allocated before the step is known all the same"
    with pytest.raises(FilterError):
        tables(trace, step="9")


def test_places(made: Callable[..., Any]) -> None:
    gpu = {"ph": "X", "cat": "kernel", "name": "k", "process": "0", "thread": "7", "stream": 7, "ts_ns": 0, "dur_ns": 10}
    kinds = [(1, 0), (1, 1), (6, 0), (0, -1), (77, 2)]
    rows = [instant(n, 10 + n, n, 10 + n, memory_device_type=kind, memory_device=index) for n, (kind, index) in enumerate(kinds)]
    trace = made([*rows, {**gpu, "device": 0}, {**gpu, "device": 1, "ts_ns": 20}])
    assert set(tables(trace)["devices"]["place"]) == {"cuda:0", "cuda:1", "hip:0", "cpu", "type77:2"}
    assert set(tables(trace, device=1)["devices"]["place"]) == {"cuda:1"}
    assert tables(trace)["curve"]["place"][-1] == "cpu"


def test_every_trace_answers(every_trace: kinetop.TraceSet) -> None:
    found = tables(every_trace)
    assert found["devices"].is_empty() == found["curve"].is_empty()
    known = found["devices"].drop_nulls("peak_bytes").select("rank", "place", "peak_bytes")
    sums = found["holders"].group_by("rank", "place").agg(pl.col("bytes").sum()).join(known, on=["rank", "place"])
    assert sums.filter(pl.col("bytes") != pl.col("peak_bytes")).is_empty()
