"""Errors against the reference: right answers pass, wrong ones do not, and what was not compared is said."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kinetop.traces.live.worker import inputs, numerics
from kinetop.traces.live.worker.case import Case
from kinetop.traces.live.worker.variant import Inputs

torch = pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture(autouse=True)
def fresh() -> Any:
    numerics.forget()
    yield
    numerics.forget()


def attend(case: Case, made: Inputs, *, shift: int = 0) -> Any:
    """SDPA with the case's mask, its diagonal shifted."""
    own = torch.arange(case.q_len)[:, None] + case.kv_len - case.q_len + shift
    keys = torch.arange(case.kv_len)
    mask = (keys <= own) if case.causal or case.window else torch.ones(case.q_len, case.kv_len, dtype=torch.bool)
    if case.window:
        mask = mask & (keys > own - case.window)
    return torch.nn.functional.scaled_dot_product_attention(made.q, made.k, made.v, attn_mask=mask, enable_gqa=True)


def error(case: Case, output: Any, made: Inputs, **rest: Any) -> dict[str, Any]:
    found: dict[str, Any] = numerics.compare(output, case, made, **rest)["error"]
    return found


def test_the_reference_is_attention_computed_number_by_number() -> None:
    case = Case.of("1,4/2,3/5,4/2", dtype="fp32", window=2)
    made = inputs.make(case, 0)
    got = numerics.Reference(case, made).output.values
    for head in range(4):
        for query in range(3):
            keys = range(case.first_key(query), case.last_key(query) + 1)
            dots = [sum(float(made.q[0, head, query, d]) * float(made.k[0, head // 2, key, d]) for d in range(4)) for key in keys]
            weights = [math.exp(dot / 2) for dot in dots]
            for place in range(2):
                summed = sum(weight * float(made.v[0, head // 2, key, place]) for weight, key in zip(weights, keys, strict=True))
                assert float(got[0, head, query, place]) == pytest.approx(summed / sum(weights), rel=1e-12)


@pytest.mark.parametrize("dtype", ["fp64", "fp32", "bf16", "fp16"])
@pytest.mark.parametrize("shape", ["2,4/2,64,32", "1,2,16/80,32/16"])
@pytest.mark.parametrize("rest", [{"causal": True}, {"causal": False}, {"causal": True, "window": 9}], ids=str)
def test_right_answers_are_within_the_bound(shape: str, dtype: str, rest: dict[str, Any]) -> None:
    case = Case.of(shape, dtype=dtype, **rest)
    made = inputs.make(case, 0)
    found = error(case, attend(case, made), made)
    assert found["ok"], found
    assert found["reference"] == "fp64"
    assert 0 < found["mean_abs"] <= found["max_abs"] <= found["bound"]


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_mask_that_is_one_key_off_is_found(dtype: str) -> None:
    case = Case.of("1,2,16/80,32", dtype=dtype)
    made = inputs.make(case, 0)
    assert not error(case, attend(case, made, shift=-1), made)["ok"]


@pytest.mark.parametrize(("dtype", "lower"), [("fp64", "fp32"), ("fp32", "fp16"), ("fp32", "bf16")])
def test_computing_in_a_lower_precision_is_found(dtype: str, lower: str) -> None:
    case = Case.of("2,4/2,256,64", dtype=dtype)
    made = inputs.make(case, 0)
    rounded = Inputs(*(tensor.to(inputs.dtype(lower)).to(inputs.dtype(dtype)) for tensor in (made.q, made.k, made.v)))
    if dtype == "fp64":  # its numbers were drawn in fp32
        rounded = Inputs(*(tensor.float() for tensor in (made.q, made.k, made.v)))
    assert not error(case, attend(case, rounded).to(inputs.dtype(dtype)), made)["ok"]


@pytest.mark.parametrize("dtype", ["fp64", "fp32", "bf16", "fp16"])
@pytest.mark.parametrize("shape", ["1,2,16,8", "2,2,7,4", "2,4/2,64,32"])
def test_fused_gradients_are_never_wrong_by_chance(shape: str, dtype: str) -> None:
    case = Case.of(shape, dtype=dtype, mode="backward", causal=False)
    for seed in range(6):
        made = inputs.make(case, seed)
        output = torch.nn.functional.scaled_dot_product_attention(made.q, made.k, made.v, enable_gqa=True)
        found = error(case, output, made, gradients=torch.autograd.grad(output, (made.q, made.k, made.v), made.grad))
        assert found["ok"], found


def test_blocks_of_queries_give_what_the_whole_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case.of("2,4/2,50,16", dtype="fp32", mode="backward")
    made = inputs.make(case, 0)
    whole = numerics.Reference(case, made)
    monkeypatch.setattr(numerics, "BLOCK_BYTES", 7 * case.batch * case.q_heads * case.kv_len * 8)
    blocks = numerics.Reference(case, made)
    assert torch.allclose(whole.output.values, blocks.output.values, rtol=0, atol=1e-14)
    assert whole.gradients and blocks.gradients
    for one, other in zip(whole.gradients, blocks.gradients, strict=True):
        assert torch.allclose(one.values, other.values, rtol=1e-10, atol=1e-13)


def test_rows_that_are_not_finite_are_counted_and_never_ok() -> None:
    case = Case.of("1,2,32,16", dtype="fp32")
    made = inputs.make(case, 0)
    output = attend(case, made)
    output[0, 1, 3, 5], output[0, 0, 7, 0] = math.nan, math.inf
    found = error(case, output, made)
    assert found["nan_rows"] == 2
    assert not found["ok"]
    assert math.isfinite(found["max_abs"])


def test_queries_that_see_no_key_are_left_out() -> None:
    case = Case.of("1,1,10/4,16", dtype="fp32", causal=False, window=4)
    made = inputs.make(case, 0)
    found = error(case, attend(case, made), made)
    assert found["ok"], found
    assert found["reference"] == "fp64, 4 of 10 queries"


def test_a_large_case_is_compared_on_a_sample_that_finds_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case.of("1,2,256,16", dtype="bf16")
    monkeypatch.setitem(numerics.FLOPS, "cpu", 2.0 * 2 * 32 * 256 * 20)
    made = inputs.make(case, 0)
    right = error(case, attend(case, made), made)
    assert right["reference"] == "fp64, 20 of 256 queries"
    assert right["ok"]
    assert not error(case, attend(case, made, shift=-1), made)["ok"]


@pytest.mark.parametrize(("limit", "why"), [("FLOPS", "fewer than 16 of 256 queries"), ("KEYS_BYTES", "keys and values alone")])
def test_beyond_the_cap_it_says_why_there_is_no_reference(limit: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case.of("1,2,256,16", dtype="bf16")
    monkeypatch.setattr(numerics, limit, {"cpu": 1e5} if limit == "FLOPS" else 1000)
    made = inputs.make(case, 0)
    found = numerics.compare(attend(case, made), case, made)
    assert found["error"] is None
    assert why in found["error_skipped"]


def test_gradients_are_compared_too() -> None:
    case = Case.of("1,4/2,32,16", dtype="fp32", mode="backward")
    made = inputs.make(case, 0)
    output = attend(case, made)
    gradients = torch.autograd.grad(output, (made.q, made.k, made.v), made.grad)
    right = error(case, output, made, gradients=gradients)
    assert right["ok"], right
    wrong = error(case, output, made, gradients=(gradients[0], gradients[1] * 1.01, gradients[2]))
    assert not wrong["ok"]
    assert wrong["grad_max_abs"] > wrong["grad_bound"] > 0
    broken = error(case, output, made, gradients=(gradients[0] * math.nan, *gradients[1:]))
    assert not broken["ok"] and broken["grad_max_abs"] is None


def test_a_looser_tolerance_is_a_factor_on_the_bound() -> None:
    case = Case.of("1,2,32,16", dtype="fp32")
    made = inputs.make(case, 0)
    output = attend(case, made)
    assert error(case, output, made, tolerance=10)["bound"] == pytest.approx(10 * error(case, output, made)["bound"])


def test_an_output_that_cannot_be_compared_is_wrong_and_says_why() -> None:
    case = Case.of("1,2,32,16", dtype="fp32")
    made = inputs.make(case, 0)
    other = error(case, attend(case, made).transpose(1, 2), made)
    assert other == {"ok": False, "why": "the output has the shape (1, 32, 2, 16), not (1, 2, 32, 16)"}
    assert error(case, None, made) == {"ok": False, "why": "it returns NoneType, no tensor"}


def test_without_a_reference_nan_is_wrong_all_the_same() -> None:
    output = torch.ones(2, 3, 4)
    fine = {"error": None, "error_skipped": "it is another function"}
    for right in (output, (output, None), None, {"loss": output}, torch.ones(()), torch.ones(2, dtype=torch.int64)):
        assert numerics.looked_at(right, "it is another function") == fine
    output[1, 2, 0] = torch.nan
    found = numerics.looked_at(output, "it is another function")["error"]
    assert (found["nan_rows"], found["ok"]) == (1, False)
    assert "not compared: it is another function" in found["why"]


def test_the_reference_is_kept_for_equal_inputs_only() -> None:
    case = Case.of("1,2,32,16", dtype="fp32")
    numerics.compare(attend(case, inputs.make(case, 0)), case, inputs.make(case, 0))
    kept = numerics._last
    numerics.compare(attend(case, inputs.make(case, 0)), case, inputs.make(case, 0))
    assert numerics._last is kept
    other = inputs.make(case, 1)
    assert error(case, attend(case, other), other)["ok"]
    assert numerics._last is not kept
