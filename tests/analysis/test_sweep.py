"""Sweeps: sizes, the best variant, crossovers, the frontier, and the table to dispatch on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kinetop.analysis import sweep, trials
from kinetop.traces.live.worker.case import Case

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

BASE = Case.of("1,4,64,8", dtype="fp32")
SIZES = (512, 1024, 2048, 4096)


def at(size: int) -> Case:
    return BASE.with_(q_len=size, kv_len=size)


@pytest.fixture
def table(told: Callable[..., Any]) -> pl.DataFrame:
    """Eager takes size^2 ns, fused 1,000,000 + size^2 / 4 ns: they cross at sqrt(4/3) * 1000 = 1154.7; eager fails at 4096."""
    spoken: list[Any] = []
    for size in SIZES:
        eager = {"ns": [size * size] * 12} if size < 4096 else {"state": "FAILED", "why": "out of memory"}
        right = {"error": {"max_abs": 0.0, "bound": 1.0, "ok": True}, "peak_bytes": size}
        fused = {"ns": [1_000_000 + size * size // 4] * 12, "prepared": right}
        wrong = {"ns": [1000] * 12, "prepared": {"error": {"max_abs": 9.0, "bound": 1.0, "ok": False}}}
        spoken += [at(size), {"eager": eager, "fused": fused, "wrong": wrong, "linear": {"ns": [900] * 12}}]
    return trials.table(told(*spoken, declared={"linear": {"exact": False}}))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("seq=512:4096:x2", (512, 1024, 2048, 4096)),
        ("seq=512:4000", (512, 1024, 2048)),
        ("batch=1:7:+2", (1, 3, 5, 7)),
        ("dim=128, 64,64", (64, 128)),
        ("heads=8", (8,)),
    ],
)
def test_axes_are_read(text: str, values: tuple[int, ...]) -> None:
    assert sweep.axis(text) == sweep.Axis(text.partition("=")[0], values)


@pytest.mark.parametrize(
    "text", ["", "seq", "seq=", "seq=a", "len=1:2", "seq=8:4", "seq=0:4", "seq=1:9:x1", "seq=1:9:+0", "seq=1,"]
)
def test_what_is_no_axis_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"seq|size"):
        sweep.axis(text)


def test_an_endless_sweep_is_refused() -> None:
    with pytest.raises(ValueError, match="over 1,000 sizes"):
        sweep.axis("seq=1:100000:+1")


def test_sizes_are_put_into_cases() -> None:
    decode = Case.of("1,8/2,64,8", mode="decode", dtype="fp32")
    assert [case.shape_text for case in sweep.spread([decode], [sweep.axis("seq=128,256")])] == ["1,8/2,128,8", "1,8/2,256,8"]
    chunk = BASE.with_(kv_len=128)
    assert sweep.spread([chunk], [sweep.axis("seq=256")])[0].shape_text == "1,4,64/256,8"
    assert sweep.spread([BASE], [sweep.axis("dim=16")])[0].shape_text == "1,4,64,16"
    assert len(sweep.spread([BASE, BASE], [sweep.axis("seq=64,128"), sweep.axis("batch=1,2")])) == 4
    assert sweep.spread([BASE], []) == [BASE]
    with pytest.raises(ValueError, match="share key heads by 4"):
        sweep.spread([decode], [sweep.axis("heads=6")])
    with pytest.raises(ValueError, match="kv_len >= q_len"):
        sweep.spread([chunk], [sweep.axis("seq=32")])


def test_the_best_is_the_fastest_that_is_right_and_the_same_function(table: pl.DataFrame) -> None:
    best = sweep.choose(table).best.to_dicts()
    assert [row["variant"] for row in best] == ["eager", "eager", "fused", "fused"]
    assert [row["second"] for row in best] == ["fused", "fused", "eager", None]
    assert best[2]["lead_pct"] == pytest.approx(100 * (4194.304 / (1000 + 4194.304 / 4) - 1))
    assert [row["tie"] for row in best] == [False, False, False, None]


def test_two_that_overlap_are_a_tie(told: Callable[..., Any]) -> None:
    made = trials.table(told(BASE, {"a": {"ns": list(range(1000, 1040))}, "b": {"ns": list(range(1001, 1041))}}))
    assert sweep.choose(made).best["tie"].to_list() == [True]


def test_the_crossover_lies_where_the_curves_meet(table: pl.DataFrame) -> None:
    (cross,) = sweep.choose(table).crossovers.to_dicts()
    assert (cross["before"], cross["after"], cross["low"], cross["high"]) == ("eager", "fused", 1024, 2048)
    assert cross["at"] == pytest.approx(1154.7, rel=0.05)


def test_the_frontier_is_the_largest_that_ran_and_what_failed_next(table: pl.DataFrame) -> None:
    reach = {row["variant"]: row for row in sweep.choose(table).frontier.to_dicts()}
    assert (reach["eager"]["largest"], reach["eager"]["failed_at"], reach["eager"]["why"]) == (2048, 4096, "out of memory")
    assert (reach["fused"]["largest"], reach["fused"]["failed_at"], reach["fused"]["peak_bytes"]) == (4096, None, 4096)


def test_a_program_dispatches_on_the_json(table: pl.DataFrame) -> None:
    made = sweep.choose(table, environment={"torch": "2.13", "secret": "x"}).dispatch
    read = json.loads(json.dumps(made))
    assert (read["schema"], read["environment"]) == ("kinetop.dispatch/1", {"torch": "2.13"})
    assert sweep.lookup(read, at(512)) == "eager"
    assert sweep.lookup(read, at(600)) == "eager"
    assert sweep.lookup(read, at(100_000)) == "fused"
    assert sweep.lookup(read, at(512), available={"fused"}) == "fused"
    assert sweep.lookup(read, at(512), available={"other"}) is None
    assert sweep.lookup(read, at(512).with_(dtype="bf16")) is None
    assert sweep.lookup(read, at(512).with_(device="cpu:0")) == "eager"


def test_lines_of_different_cases_do_not_mix(told: Callable[..., Any]) -> None:
    def line(batch: int, first: str) -> list[Any]:
        other = {"a": "b", "b": "a"}[first]
        cases = [at(size).with_(batch=batch) for size in (64, 128)]
        return [cases[0], {first: {"ns": [100]}, other: {"ns": [200]}}, cases[1], {first: {"ns": [300]}, other: {"ns": [200]}}]

    made = sweep.choose(trials.table(told(*line(1, "a"), *line(2, "b"))), along="seq")
    assert [(row["others"], row["before"], row["after"]) for row in made.crossovers.to_dicts()] == [
        ("batch=1", "a", "b"),
        ("batch=2", "b", "a"),
    ]


def test_one_size_has_no_crossover_and_nothing_measured_no_best(told: Callable[..., Any]) -> None:
    made = sweep.choose(trials.table(told(BASE, {"a": {"state": "FAILED", "why": "x"}})))
    assert made.best.is_empty()
    assert made.crossovers.is_empty()
    assert made.dispatch["entries"] == []
    with pytest.raises(ValueError, match="an axis is one of"):
        sweep.choose(trials.table(told(BASE, {"a": {"ns": [1]}})), along="depth")
