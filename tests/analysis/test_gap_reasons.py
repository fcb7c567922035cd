"""Sentences: each planted cause is what the top gap says, with its evidence; unknown where there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import kinetop
from kinetop.analysis.gaps import CAUSES, gaps
from kinetop.analysis.idle import idle
from kinetop.analysis.work import scoped
from kinetop.traces.synthetic import Plan, write
from kinetop.traces.trace import TraceSet

if TYPE_CHECKING:
    from pathlib import Path

Made = Callable[..., TraceSet]
US = 1_000
SEEDS = range(5)


def gpu(start: int, end: int, correlation: int | None = None, **more: Any) -> dict[str, Any]:
    row = {"ph": "X", "cat": "kernel", "name": f"k{start}", "process": "0", "thread": "7", "device": 0, "stream": 7}
    return {**row, "ts_ns": start * US, "dur_ns": (end - start) * US, "correlation": correlation, **more}


def host(start: int, end: int, name: str = "cudaLaunchKernel", correlation: int | None = None, **more: Any) -> dict[str, Any]:
    row = {"ph": "X", "cat": "cuda_runtime", "name": name, "process": "42", "thread": "42"}
    return {**row, "ts_ns": start * US, "dur_ns": (end - start) * US, "correlation": correlation, **more}


def op(start: int, end: int, name: str, cat: str = "cpu_op", **more: Any) -> dict[str, Any]:
    return host(start, end, name, cat=cat, **more)


TWO = [gpu(100, 110, 1), host(90, 95, correlation=1), gpu(150, 160, 2)]
"""Kernels with a gap from 110 to 150; the launch of the second is for each test to add."""


def only(trace: TraceSet) -> tuple[str, str]:
    (row,) = idle(trace, rank=0).select("cause", "why").rows()
    return row


def test_the_host_was_late(made: Made) -> None:
    rows = [
        *TWO,
        host(135, 143, correlation=2),
        op(112, 144, "aten::linear"),
        op(90, 170, "train.py(3): step", "python_function"),
    ]
    assert only(made(rows)) == (
        "host late",
        "Thread 42 took 33.0 us more until its next launch had returned, in aten::linear (train.py(3): step).",
    )
    assert only(made([*TWO, host(135, 143, correlation=2)]))[1].endswith("; the trace does not say with what.")


def test_a_synchronising_call_and_what_follows_from_it(made: Made) -> None:
    item = op(96, 142, "aten::item")
    sat = [*TWO, host(97, 140, "cudaStreamSynchronize"), item, host(143, 148, correlation=2)]
    assert only(made(sat)) == (
        "sync",
        "Thread 42 sat 30.0 us in cudaStreamSynchronize in aten::item and launched nothing meanwhile.",
    )
    after = [*TWO, host(97, 112, "cudaStreamSynchronize"), op(96, 113, "aten::item"), host(120, 127, correlation=2)]
    row = gaps(scoped(made(after))).row(0, named=True)
    # The call lasted 15 us: the host had been that far ahead, and gave it up. Until the launch returned 15 us passed.
    assert (row["sync_ns"], row["after_sync_ns"], row["host_late_ns"], row["launch_latency_ns"]) == (2 * US, 15 * US, 0, 23 * US)
    long = [*TWO, host(104, 112, "cudaStreamSynchronize"), op(103, 113, "aten::item"), host(130, 146, correlation=2)]
    row = gaps(scoped(made(long))).row(0, named=True)
    assert (row["sync_ns"], row["after_sync_ns"], row["host_late_ns"], row["launch_latency_ns"]) == (
        2 * US,
        8 * US,
        26 * US,
        4 * US,
    )
    wake = [*TWO, host(60, 112, "cudaStreamSynchronize"), op(59, 113, "aten::item"), host(140, 148, correlation=2)]
    assert only(made(wake))[1] == (
        "cudaStreamSynchronize in aten::item had waited until the queue was empty; "
        "thread 42 took 36.0 us more until its next launch had returned; the trace does not say with what."
    )


def test_a_batch_is_waited_for(made: Made) -> None:
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    rows = [*TWO, op(105, 140, name, "user_annotation"), host(141, 145, correlation=2)]
    assert only(made(rows)) == ("data loader", f"Thread 42 waited 30.0 us for a batch in {name}.")


def test_a_collective_of_the_host_and_who_came_last(made: Made) -> None:
    def rank(came: int) -> list[dict[str, Any]]:
        return [*TWO, op(came, 141, "gloo:all_reduce"), host(142, 146, correlation=2)]

    assert only(made(rank(112))) == ("collective", "Thread 42 sat 29.0 us in gloo:all_reduce.")
    said = "Thread 42 sat 29.0 us in gloo:all_reduce; rank 1 came to it last, 25.0 us after this one."
    assert only(made(rank(112), rank(137))) == ("collective", said)


def test_on_its_way_and_inside_a_replay(made: Made) -> None:
    late = [*TWO, host(111, 113, correlation=2)]
    assert only(made(late)) == ("launch latency", "cudaLaunchKernel had returned, and k150 started 37.0 us later.")
    replay = [gpu(100, 110, 1), gpu(150, 160, 1), host(90, 95, "cudaGraphLaunch", 1)]
    assert only(made(replay)) == ("graph", "Inside one replay (cudaGraphLaunch), between k100 and k150.")


def test_launched_before_and_what_it_waited_for(made: Made) -> None:
    def gap(length: int, stream: int, *more: dict[str, Any]) -> str:
        rows = [
            gpu(100, 110, 1),
            gpu(110 + length, 160, 2, stream=stream),
            host(80, 85, correlation=1),
            host(90, 95, correlation=2),
        ]
        cause, why = only(made([*rows, *more]))
        assert cause == "dependency"
        return why

    start = "k{} had been launched 15.0 us before the gap"
    assert gap(5, 8) == start.format(115) + "; k100, which ended last, ran on stream 7."
    assert gap(5, 7) == start.format(115) + "; its turn came after k100 on the same stream."
    assert gap(40, 8) == "Unknown: " + start.format(150) + ", and the trace does not say what it waited for."
    told = op(88, 89, "Stream Wait Event", "cuda_sync", stream=8, wait_on_stream=20)
    assert gap(40, 8, told) == start.format(150) + "; its stream 8 waited for an event of stream 20."


def test_an_order_to_wait_holds_for_the_next_launch_only(made: Made) -> None:
    rows = [gpu(100, 110, 1), gpu(150, 160, 2), host(80, 85, correlation=1), host(90, 95, correlation=2)]
    told = op(70, 71, "Stream Wait Event", "cuda_sync", stream=7, wait_on_stream=20)
    assert only(made([*rows, told]))[1].startswith("Unknown:")


def test_unknown(made: Made) -> None:
    assert only(made(TWO)) == ("no record", "Unknown: the trace holds no launch call of k150.")
    trace = made([gpu(100, 110), host(90, 130, "cudaFree")])
    assert idle(trace, window="trace")["why"][0] == "Unknown: nothing follows in this window."


def test_streams_say_whose_work_and_which_rank_they_waited_for(made: Made) -> None:
    def rank(begun: int) -> list[dict[str, Any]]:
        reduce = gpu(begun, 150, 3, stream=9, name="ncclDevKernel_AllReduce", collective="allreduce", seq=4, process_group="0")
        launches = [host(80, 82, correlation=1), host(84, 86, correlation=3), host(88, 90, correlation=2)]
        return [gpu(100, 110, 1), reduce, gpu(151, 160, 2), *launches]

    waited = "k151 was launched 61.0 us before it started and waited: ncclDevKernel_AllReduce of stream 9 ended 1.0 us before"
    streams = idle.ask(made(rank(112), rank(130)), rank=0).tables["streams"]
    assert streams.filter(pl.col("stream") == 7)["why"].item() == f"{waited}; rank 1 started that 18.0 us after this one."
    assert streams.filter(pl.col("stream") == 9)["why"].item() is None
    streams = idle.ask(made(rank(112))).tables["streams"]
    assert streams.filter(pl.col("stream") == 7)["why"].item() == f"{waited}."


def planted(folder: Path, seed: int, *causes: str) -> Any:
    write(Plan(ranks=2, steps=3, layers=8, seed=seed, causes=causes), folder)
    return idle.ask(kinetop.open(folder), rank=0)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_planted_data_loader_is_what_the_top_gap_says(tmp_path: Path, seed: int) -> None:
    found = planted(tmp_path, seed, "data-loader")
    top = found.main.row(0, named=True)
    assert top["cause"] == found.tables["causes"]["cause"][0] == "data loader"
    assert top["data_loader_us"] > 8_000
    assert "for a batch in enumerate(DataLoader)#" in top["why"]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_planted_sync_is_what_the_top_gap_of_the_forward_says(tmp_path: Path, seed: int) -> None:
    found = planted(tmp_path, seed, "sync")
    assert found.tables["causes"]["cause"][0] == "after sync"
    # Between steps every trace of the generator waits for its batch; the plant is in the layers.
    inside = found.main.filter(pl.col("cause") != "data loader").row(0, named=True)
    assert inside["cause"] == "after sync"
    assert inside["why"].startswith("cudaStreamSynchronize in aten::_local_scalar_dense had waited until the queue was empty;")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_planted_all_reduce_is_what_the_compute_stream_waited_for(tmp_path: Path, seed: int) -> None:
    streams = planted(tmp_path, seed, "exposed-all-reduce").tables["streams"]
    row = streams.filter(pl.col("stream") == 7).row(0, named=True)
    assert row["longest_us"] > 6_000
    assert "and waited: ncclDevKernel_AllReduce_Sum_bf16_RING_LL of stream 24 ended" in row["why"]


def test_every_cause_has_a_sentence_and_hostile_names_are_cut(made: Made) -> None:
    name = "\x1b[31m[/red]\n" + "文" * 5000
    rows = [*TWO, host(135, 143, correlation=2), op(112, 144, name), op(90, 170, name, "python_function")]
    rows += [gpu(200, 210, 9, name=name)]
    found = gaps(scoped(made(rows)))
    assert set(CAUSES) >= {cause.replace(" ", "_") for cause in found["cause"]}
    for why in idle(made(rows))["why"]:
        assert len(why) < 400
        assert why.isprintable()
