"""Hardware counters: ranges joined to what they measured, and tracks against sums written out moment by moment."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kinetop.analysis.counters import counters

if TYPE_CHECKING:
    from collections.abc import Callable

    import kinetop

THREAD = {"process": "9", "thread": "1"}


def tables(trace: kinetop.TraceSet, **options: Any) -> dict[str, pl.DataFrame]:
    return counters.ask(trace, **options).tables


def measured(at: int, name: str, args: str) -> dict[str, Any]:
    place = {"process": "0", "thread": "0"}
    return {"ph": "X", "cat": "cuda_profiler_range", "name": name, "ts_ns": 10**6 + at, "dur_ns": 1, "args": args, **place}


def launched(at: int, op: str, number: int) -> list[dict[str, Any]]:
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts_ns": at + 2, "dur_ns": 2, "correlation": number}
    return [{"ph": "X", "cat": "cpu_op", "name": op, "ts_ns": at, "dur_ns": 8, **THREAD}, {**call, **THREAD}]


def kernel(at: int, dur: int, name: str, number: int = 0, device: int = 0) -> dict[str, Any]:
    place = {"process": str(device), "thread": str(number), "device": device, "stream": number}
    return {"ph": "X", "cat": "kernel", "name": name, "ts_ns": at, "dur_ns": dur, "correlation": number, **place}


def sample(at: int, args: str, name: str = "GPU 0 Counters") -> dict[str, Any]:
    return {"ph": "C", "name": name, "process": "0", "thread": "0", "ts_ns": at, "args": args}


def test_ranges_of_a_real_trace(real: Callable[[str], kinetop.TraceSet]) -> None:
    """77 ranges, 77 launches and no kernel: joined by order, and kernels named after their operator say that it is right."""
    trace = real("cupti_counters.json.gz")
    found = tables(trace)
    joined = found["joined"].row(0, named=True)
    assert (joined["ranges"], joined["kernels"], joined["launches"], joined["joined"]) == (77, 0, 77, 77)
    assert joined["reason"] is None
    for table in ("kernels", "ops"):
        sums = found[table].group_by("counter").agg(pl.col("ranges").sum(), pl.col("total").sum())
        assert sums["ranges"].to_list() == [77] * 9
    args = (
        trace.events.filter(pl.col("cat") == "cuda_profiler_range")
        .select("args")
        .collect()["args"]
        .str.json_decode(pl.Struct({name: pl.Int64 for name in found["kernels"]["counter"].unique()}))
    )
    for name, total in args.struct.unnest().sum().row(0, named=True).items():
        assert found["kernels"].filter(pl.col("counter") == name)["total"].sum() == total
    pooled = found["kernels"].filter(pl.col("name").str.contains("max_pool_forward|uniform_kernel"))
    ops = found["ops"].filter(pl.col("op").is_in(["aten::max_pool2d_with_indices", "aten::uniform_"]))
    by_counter = [frame.group_by("counter").agg(pl.col("ranges", "total").sum()).sort("counter") for frame in (pooled, ops)]
    assert by_counter[0].height == 9
    whole = by_counter[0].join(by_counter[1], on="counter", suffix="_ops")
    assert whole.filter(pl.col("total") > pl.col("total_ops")).is_empty(), "an operator holds at least its own kernels"


def test_flops_of_a_real_trace(real: Callable[[str], kinetop.TraceSet]) -> None:
    found = tables(real("cupti_counters.json.gz"))
    totals = dict(found["kernels"].group_by("counter").agg(pl.col("total").sum()).rows())
    wanted = {key: totals[f"smsp__sass_thread_inst_executed_op_{key}_pred_on.sum"] for key in ("fadd", "fmul", "ffma", "hfma")}
    assert found["flops"]["fp32_flops"].sum() == wanted["fadd"] + wanted["fmul"] + 2 * wanted["ffma"] > 0
    assert found["flops"]["fp64_flops"].sum() == 0
    assert found["flops"]["fp16_flops"].sum() >= 2 * wanted["hfma"] > 0


def test_join_by_name_before_order(made: Callable[..., Any]) -> None:
    rows = [*launched(0, "aten::mm", 1), *launched(10, "aten::add", 2), *launched(20, "aten::mm", 3)]
    rows += [kernel(30, 5, "gemm", 1), kernel(40, 5, "add", 2), kernel(50, 5, "gemm", 3)]
    # One range is missing: by order, the second gemm would be taken for the addition.
    rows += [measured(1, "gemm", '{"x.sum":1}'), measured(2, "gemm", '{"x.sum":10}')]
    found = tables(made(rows))
    assert found["ops"].select("op", "total").rows() == [("aten::mm", 11.0)]
    assert found["joined"].select("ranges", "kernels", "launches", "joined", "reason").row(0) == (2, 3, 3, 2, None)
    assert found["joined"]["rule"].item().startswith("by name")


def test_what_does_not_match_is_said(made: Callable[..., Any]) -> None:
    rows = [*launched(0, "aten::mm", 1), *launched(10, "aten::add", 2)]
    found = tables(made([*rows, *(measured(n, "__missing__", '{"x.sum":1}') for n in range(3))]))
    assert found["kernels"].select("name", "ranges").rows() == [(None, 3)]
    assert found["ops"].select("op", "ranges", "total").rows() == [(None, 3, 3.0)]
    joined = found["joined"].row(0, named=True)
    assert (joined["joined"], joined["rule"]) == (0, None)
    assert joined["reason"] == (
        "3 ranges are not joined: the trace has 0 kernels, not as many of each name, and 2 launches for 3 ranges"
    )


def test_a_precision_that_is_not_wholly_counted_is_unknown(made: Callable[..., Any]) -> None:
    name = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
    args = {"fadd": 1, "fmul": 2, "ffma": 4, "dadd": 5}
    text = "{" + ",".join(f'"{name.format(key)}":{value}' for key, value in args.items()) + "}"
    flops = tables(made([measured(1, "k", text)]))["flops"].row(0, named=True)
    assert (flops["fp32_flops"], flops["fp64_flops"], flops["fp16_flops"]) == (11, None, None)


values = st.lists(st.tuples(st.integers(0, 60), st.integers(-5, 9)), min_size=1, max_size=8)
runs = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 15), st.sampled_from("ab"), st.integers(0, 1)), max_size=6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(values, runs, st.booleans())
def test_tracks_moment_by_moment(
    made: Callable[..., Any], points: list[tuple[int, int]], spans: list[tuple[int, int, str, int]], named: bool
) -> None:
    track = "GPU 1 Counters" if named else "power"
    rows = [sample(at, f'{{"sm %":{value},"note":"x"}}', track) for at, value in points]
    rows += [kernel(at, dur, name, number, device) for number, (at, dur, name, device) in enumerate(spans)]
    found = tables(made(rows))
    ordered = sorted(points, key=lambda point: point[0])  # the one written later holds where two are of one moment
    held = {at: value for (begin, value), (end, _) in pairwise(ordered) for at in range(begin, end)}
    mine = [(at, dur, name) for at, dur, name, device in spans if device == 1 or not named]
    busy = {moment for at, dur, _ in mine for moment in range(at, at + dur)}

    def mean(moments: list[int]) -> Any:
        inside = [held[moment] for moment in moments if moment in held]
        return pytest.approx(sum(inside) / len(inside)) if inside else None

    row = found["tracks"].row(0, named=True)
    assert (row["track"], row["counter"], row["samples"]) == (track, "sm %", len(points))
    assert (row["min"], row["max"]) == (min(value for _, value in points), max(value for _, value in points))
    assert row["mean"] == mean(list(held))
    assert row["busy_mean"] == mean(sorted(busy))
    assert row["idle_mean"] == mean(sorted(set(held) - busy))
    assert row["span_us"] == len(held) / 1000
    wanted = {name: [moment for at, dur, other in mine if other == name for moment in range(at, at + dur)] for name in "ab"}
    wanted = {name: moments for name, moments in wanted.items() if any(moment in held for moment in moments)}
    beside = {each["name"]: each for each in found["beside"].iter_rows(named=True)}
    assert set(beside) == set(wanted)
    for name, moments in wanted.items():
        assert beside[name]["mean"] == mean(moments)
        assert beside[name]["covered_us"] == sum(moment in held for moment in moments) / 1000


def test_tracks_by_series_window_and_device(made: Callable[..., Any]) -> None:
    rows = [kernel(0, 100_000, "k"), kernel(0, 100_000, "k", device=1)]
    rows += [sample(0, '{"a":1,"b":2.5}'), sample(50_000, '{"a":3}'), sample(100_000, '{"a":3,"b":0}')]
    rows += [sample(0, '{"a":7}', "GPU 1 Counters"), {**sample(5, "{}"), "bytes": 64, "args": None}]
    trace = made(rows)
    found = {(row["track"], row["counter"]): row for row in tables(trace)["tracks"].iter_rows(named=True)}
    assert set(found) == {("GPU 0 Counters", "a"), ("GPU 0 Counters", "b"), ("GPU 0 Counters", "bytes"), ("GPU 1 Counters", "a")}
    assert found["GPU 0 Counters", "a"]["mean"] == 2
    assert found["GPU 0 Counters", "b"]["mean"] == 2.5
    assert found["GPU 1 Counters", "a"]["mean"] is None, "a single moment has no mean over time"
    assert found["GPU 0 Counters", "bytes"]["last"] == 64
    cut = tables(trace, window="25us..75us")["tracks"]
    assert cut.filter(pl.col("counter") == "a")["mean"].to_list() == [2.0]
    assert set(tables(trace, device=1)["tracks"]["track"]) == {"GPU 1 Counters"}


def test_every_trace_answers(every_trace: kinetop.TraceSet) -> None:
    found = tables(every_trace)
    counts = every_trace.events.select(
        ranges=(pl.col("cat") == "cuda_profiler_range").sum(), samples=(pl.col("ph") == "C").sum()
    ).collect()
    assert found["joined"]["ranges"].sum() == counts["ranges"].item()
    assert found["tracks"].is_empty() == (counts["samples"].item() == 0)
