"""Samples are calls: what is called, how often, in which order, and what is not timed."""

from __future__ import annotations

import gc
import time
from collections import Counter
from typing import Any

import pytest

from kinetop.traces.live.worker import inputs, timing
from kinetop.traces.live.worker.case import Case
from kinetop.traces.live.worker.variant import Built, Inputs

torch = pytest.importorskip("torch", reason="torch is not installed")

CASE = Case.of("1,2,8,4", dtype="fp32", causal=False)


def plain(made: Inputs) -> Built:
    return Built(lambda: (made.q @ made.k.mT / 2).softmax(-1) @ made.v)


@pytest.mark.parametrize("dtype", ["fp64", "fp32", "bf16", "fp16"])
def test_inputs_are_normal_seeded_and_leave_the_random_state_alone(dtype: str) -> None:
    case = Case.of("2,4/2,64/128,32/16", dtype=dtype)
    state = torch.get_rng_state()
    one, same, other = inputs.make(case, 1), inputs.make(case, 1), inputs.make(case, 2)
    assert torch.equal(torch.get_rng_state(), state)
    assert (one.q.shape, one.k.shape, one.v.shape) == ((2, 4, 64, 32), (2, 2, 128, 32), (2, 2, 128, 16))
    assert {one.q.dtype, one.k.dtype, one.v.dtype} == {inputs.dtype(dtype)}
    assert torch.equal(one.v, same.v)
    assert not torch.equal(one.v, other.v)
    assert abs(float(one.q.float().mean())) < 0.05
    assert float(one.q.float().std()) == pytest.approx(1, abs=0.05)
    assert one.grad is None and not one.q.requires_grad


def test_forward_runs_without_gradients() -> None:
    made = inputs.make(CASE, 0)
    result = timing.step(CASE, Built(lambda: made.q.requires_grad_() * 2), made)()
    assert not result.requires_grad


def test_backward_gives_the_gradients_and_accumulates_none() -> None:
    case = CASE.with_(mode="backward")
    made = inputs.make(case, 0)
    call = timing.step(case, plain(made), made)
    call()
    output, gradients = call()
    plain(made).call().backward(made.grad)
    assert output.shape == made.grad.shape
    for leaf, gradient in zip((made.q, made.k, made.v), gradients, strict=True):
        assert torch.allclose(leaf.grad, gradient)


def test_backward_of_an_output_that_does_not_depend_on_v_is_refused() -> None:
    case = CASE.with_(mode="backward")
    made = inputs.make(case, 0)
    with pytest.raises(ValueError, match="carry gradients"):
        timing.step(case, Built(lambda: made.q @ made.k.mT @ made.v.detach()), made)()


def test_a_sample_is_one_call_after_its_reset() -> None:
    seen: list[str] = []

    def call() -> Any:
        assert not gc.isenabled()
        seen.append("call")
        time.sleep(0.002)

    def reset() -> None:
        seen.append("reset")
        time.sleep(0.02)

    samples = timing.Timer(CASE).samples(call, 5, reset)
    assert seen == ["reset", "call"] * 5
    assert gc.isenabled()
    assert min(samples) >= 2_000_000
    assert sorted(samples)[0] < 20_000_000, "the reset was timed"


def test_collection_comes_back_after_a_failing_call() -> None:
    with pytest.raises(ZeroDivisionError):
        timing.Timer(CASE).samples(lambda: 1 // 0, 3)
    assert gc.isenabled()


@pytest.mark.parametrize(("each_s", "calls"), [(0.03, 3), (0.005, 5)])
def test_warm_up_is_three_calls_and_25_ms(each_s: float, calls: int) -> None:
    seen = 0

    def call() -> None:
        nonlocal seen
        seen += 1
        time.sleep(each_s)

    last = timing.Timer(CASE).warm_up(call)
    assert 3 <= seen <= calls
    assert last >= each_s * 1e9


def test_a_cpu_timer_says_what_it_is() -> None:
    timer = timing.Timer(CASE)
    assert (timer.name, timer.cold_cache) == ("perf_counter", False)


def test_rounds_have_every_variant_once_in_changing_order() -> None:
    names = ["a", "b", "c", "d"]
    order = list(timing.interleave(names, 200, seed=3))
    assert order == list(timing.interleave(names, 200, seed=3))
    rounds = [[name for number, name in order if number == at] for at in range(200)]
    assert all(sorted(one) == names for one in rounds)
    assert len({tuple(one) for one in rounds}) == 24
    firsts = Counter(one[0] for one in rounds)
    assert min(firsts.values()) > 25
