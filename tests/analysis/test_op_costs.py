"""Costs of operators against counting, multiply-add by multiply-add and element by element."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinetop.analysis.attention_shapes import Shape, cost_of, flops, least_bytes, shape_of, visible_pairs
from kinetop.analysis.op_calls import ELEMENTS, read_call
from kinetop.analysis.op_costs import FORMULAS, cost
from kinetop.traces.live.worker import costs as live
from kinetop.traces.live.worker.case import Case

sizes = st.integers(1, 5)
types = st.sampled_from([("float", 4), ("c10::BFloat16", 2), ("double", 8), ("c10::Float8_e4m3fn", 1)])


def call(
    name: str, dims: list[Any], kind: str = "float", strides: list[Any] | None = None, values: list[str] | None = None
) -> Any:
    kinds = [kind if isinstance(one, list) and one else "" for one in dims]
    texts = [json.dumps(one) if one is not None else None for one in (dims, kinds, strides, values)]
    return read_call(name, *texts)


@settings(deadline=None)
@given(sizes, sizes, sizes, sizes, types)
def test_products(batch: int, m: int, k: int, n: int, kind: tuple[str, int]) -> None:
    counted = sum(2 for _ in product(range(batch), range(m), range(n), range(k)))
    moved = kind[1] * batch * (m * k + k * n + m * n)
    found = cost(call("aten::bmm", [[batch, m, k], [batch, k, n]], kind[0]))
    assert (found.flops, found.bytes, found.dtype) == (counted, moved, ELEMENTS[kind[0]][0])
    one = cost(call("aten::mm", [[m, k], [k, n]], kind[0]))
    assert (batch * one.flops, batch * one.bytes) == (counted, moved)
    biased = cost(call("aten::addmm", [[n], [m, k], [k, n]], kind[0]))
    assert biased.bytes == one.bytes + n * kind[1]
    linear = cost(call("aten::linear", [[batch, m, k], [n, k], [n]], kind[0]))
    assert linear.flops == counted
    assert cost(call("aten::matmul", [[batch, 1, m, k], [k, n]], kind[0])).flops == counted


def test_products_that_say_more() -> None:
    unread = cost(call("aten::addmm", [[4], [2, 3], [3, 4], [], []], values=["", "", "", "0", "1"]))
    assert unread.bytes == cost(call("aten::mm", [[2, 3], [3, 4]])).bytes
    fp8 = call(
        "aten::_scaled_mm", [[16, 32], [32, 8], [], [], [], [], [], []], "c10::Float8_e4m3fn", values=[""] * 6 + ["15", ""]
    )
    assert cost(fp8).bytes == 16 * 32 + 32 * 8 + 16 * 8 * 2
    grouped = cost(call("aten::_grouped_mm", [[10, 4], [3, 4, 6], [3]]))
    assert grouped.flops == 2 * 10 * 4 * 6
    assert cost(call("aten::mm", [[2, 3], [4, 5]])) is None
    assert cost(call("aten::mm", [[], []])) is None
    assert cost(read_call("aten::mm")) is None


@settings(deadline=None)
@given(sizes, sizes, sizes, st.integers(3, 7), st.integers(1, 3), st.integers(1, 2), st.integers(0, 2), st.integers(1, 2))
def test_convolutions(batch: int, inner: int, outer: int, width: int, taps: int, step: int, pad: int, gap: int) -> None:
    places = [at for at in range(-pad, width + pad - gap * (taps - 1)) if (at + pad) % step == 0]
    counted = sum(2 for _ in product(range(batch), range(outer), places, range(inner), range(taps)))
    dims = [[batch, inner, width], [outer, inner, taps], []]
    how = ["", "", "", f"[{step}]", f"[{pad}]", f"[{gap}]", "False", "[0]", "1"]
    forward = cost(call("aten::convolution", [*dims, [], [], [], [], [], []], values=how))
    assert forward.flops == counted
    assert forward.bytes == 4 * (batch * inner * width + outer * inner * taps + batch * outer * len(places))
    mask = ["", "", "", "[0]", f"[{step}]", f"[{pad}]", f"[{gap}]", "False", "[0]", "1", "[True, True, False]"]
    if places:
        grads = [[batch, outer, len(places)], dims[0], dims[1], *[[]] * 8]
        assert cost(call("aten::convolution_backward", grads, values=mask)).flops == 2 * counted


@settings(deadline=None)
@given(sizes, sizes, sizes, st.integers(1, 6), st.integers(1, 3), st.integers(1, 3))
def test_transposed_convolutions(batch: int, inner: int, outer: int, width: int, taps: int, step: int) -> None:
    reached = {at * step + tap for at in range(width) for tap in range(taps)}
    how = ["", "", "", f"[{step}]", "[0]", "[1]", "True", "[0]", "1"]
    found = cost(call("aten::convolution", [[batch, inner, width], [inner, outer, taps], *[[]] * 7], values=how))
    assert found.flops == 2 * batch * inner * width * outer * taps
    assert found.bytes == 4 * (batch * inner * width + inner * outer * taps + batch * outer * (max(reached) + 1))


def test_groups_count_their_own_channels() -> None:
    how = ["", "", "[1, 1]", "[2, 2]", "[1, 1]", "4"]
    found = cost(call("aten::cudnn_convolution", [[2, 8, 16, 16], [12, 2, 3, 3], *[[]] * 4], values=how))
    assert found.flops == 2 * (2 * 12 * 8 * 8) * 2 * 9


@settings(deadline=None)
@given(st.lists(sizes, min_size=1, max_size=3), types, st.data())
def test_elements_and_reductions(dims: list[int], kind: tuple[str, int], data: st.DataObject) -> None:
    count = len(list(product(*map(range, dims))))
    assert cost(call("aten::relu", [dims], kind[0])).bytes == 2 * count * kind[1]
    added = cost(call("aten::add", [dims, dims[-1:]], kind[0]))
    assert (added.flops, added.bytes) == (count, (2 * count + dims[-1]) * kind[1])
    compared = cost(call("aten::lt", [dims, dims], kind[0]))
    assert compared.bytes == 2 * count * kind[1] + count
    assert cost(call("aten::copy_", [dims, dims], kind[0])).flops == 0
    dim = data.draw(st.integers(-len(dims), len(dims) - 1))
    left = {tuple(n for at, n in enumerate(index) if at != dim % len(dims)) for index in product(*map(range, dims))}
    summed = cost(call("aten::sum", [dims, [], [], []], kind[0], values=["", f"[{dim}]", "False", ""]))
    assert (summed.flops, summed.bytes) == (count, (count + len(left)) * kind[1])
    whole = cost(call("aten::mean", [dims, [], [], []], kind[0], values=["", "[]", "False", ""]))
    assert whole.bytes == (count + 1) * kind[1]


def test_repeated_elements_are_read_once() -> None:
    spread = cost(call("aten::mul", [[64, 32], [64, 32]], strides=[[32, 1], [0, 1]]))
    assert spread.bytes == 4 * (64 * 32 + 32 + 64 * 32)


def test_what_is_not_said_stays_unknown() -> None:
    assert cost(call("aten::sum", [[4, 4], [], [], []])).bytes is None
    assert cost(call("aten::convolution", [[1, 2, 8, 8], [2, 2, 3, 3], *[[]] * 7])) is None
    assert cost(call("aten::cat", [[[4], [4]], []])) is None
    assert cost(call("something::new", [[4, 4]])) is None
    lists = read_call("aten::mm", "[[4,4],[4,4]]", '["TensorList","c10::Unheard"]')
    assert cost(lists) is None


@settings(deadline=None)
@given(st.sampled_from(sorted(FORMULAS)), st.recursive(st.none() | st.integers() | st.text(max_size=3), st.lists), st.data())
def test_nothing_in_a_trace_breaks_a_formula(name: str, value: Any, data: st.DataObject) -> None:
    dims = data.draw(st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=12))
    values = data.draw(
        st.lists(st.sampled_from(["", "0", "-1", "[0]", "[1, 1]", "[]", "True", "x", "[True, False, True]", "1e9"]), max_size=12)
    )
    found = cost(call(name, dims, values=values))
    assert found is None or ((found.flops is None or found.flops >= 0) and (found.bytes is None or found.bytes >= 0))
    assert cost(read_call(name, json.dumps(value), json.dumps(value), json.dumps(value), json.dumps(value))) is None


# ---- attention ---------------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(sizes, sizes, st.integers(1, 9), st.integers(1, 9), st.booleans(), st.booleans(), st.none() | st.integers(1, 9))
def test_visible_pairs(batch: int, heads: int, q_len: int, kv_len: int, causal: bool, bottom: bool, window: int | None) -> None:
    shape = Shape(batch, heads, heads, q_len, kv_len, 3, 2, "bf16", causal, window if causal else None, bottom)
    first = kv_len - q_len if bottom else 0
    seen = 0
    for query, key in product(range(q_len), range(kv_len)):
        near = window is None or key > first + query - window
        seen += not causal or (key <= first + query and near)
    found = visible_pairs(shape)
    if found is None:
        assert window is not None
        assert not bottom
        assert q_len > kv_len
    else:
        assert found == seen
        assert flops(shape, found) == sum(2 * (3 + 2) for _ in range(batch * heads * seen))


@settings(deadline=None)
@given(sizes, st.sampled_from([1, 2, 4]), sizes, st.integers(0, 4), st.booleans(), st.none() | st.integers(1, 9))
def test_the_live_benchmark_counts_alike(batch: int, group: int, q_len: int, more: int, causal: bool, window: int | None) -> None:
    case = Case(batch, 2 * group, 2, q_len, q_len + more, 4, 6, causal=causal, window=window if causal else None)
    shape = Shape(batch, 2 * group, 2, q_len, q_len + more, 4, 6, "bf16", causal, case.window, bottom_right=True)
    assert cost_of(shape)[0] == live.useful(case)
    if case.window is None and not causal:
        assert least_bytes(shape) == live.least_bytes(case)
        backward = Shape(batch, 2 * group, 2, q_len, q_len + more, 4, 6, "bf16", causal, backward=True)
        both = case.with_(mode="backward")
        assert flops(shape, visible_pairs(shape)) + flops(backward, visible_pairs(backward)) == live.useful(both)
        assert least_bytes(shape) + least_bytes(backward) == live.least_bytes(both)


QKV = [[2, 8, 16, 64], [2, 2, 32, 64], [2, 2, 32, 48]]


@pytest.mark.parametrize(
    ("name", "at", "causal", "mask"),
    [
        ("aten::scaled_dot_product_attention", 0, 5, 3),
        ("aten::_scaled_dot_product_flash_attention", 0, 4, None),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", 0, 4, 5),
        ("aten::_scaled_dot_product_efficient_attention", 0, 6, 3),
        ("aten::_scaled_dot_product_cudnn_attention", 0, 6, 3),
        ("aten::_scaled_dot_product_flash_attention_backward", 1, 11, None),
        ("aten::_scaled_dot_product_efficient_attention_backward", 1, 11, 4),
        ("aten::_scaled_dot_product_cudnn_attention_backward", 1, 14, 8),
    ],
)
def test_arguments_of_the_backends(name: str, at: int, causal: int, mask: int | None) -> None:
    dims: list[Any] = [[]] * at + QKV + [[]] * 14
    values = [""] * len(dims)
    values[causal] = "True"
    found = shape_of(call(name, dims, "c10::Half", values=values))
    assert found is not None
    assert found.text == "B2 Hq8 Hkv2 Sq16 Sk32 D64 Dv48"
    assert (found.causal, found.backward, found.dtype) == (True, at == 1, "fp16")
    values[causal] = "False"
    assert shape_of(call(name, dims, values=values)).causal is False
    if mask is not None:
        dims[mask] = [2, 1, 16, 32]
        assert shape_of(call(name, dims, values=values)).causal is None


def test_arguments_of_packed_sequences() -> None:
    values = ["", "", "", "", "", "16", "16", "0.", "True", "False"]
    even = call("aten::_flash_attention_forward", [[48, 8, 64], [48, 8, 64], [48, 8, 64], [4], [4], *[[]] * 5], values=values)
    found = shape_of(even)
    assert found is not None
    assert (found.batch, found.q_len, found.kv_len) == (3, 16, 16)
    uneven = call("aten::_flash_attention_forward", [[40, 8, 64], [40, 8, 64], [40, 8, 64], [4], [4], *[[]] * 5], values=values)
    found = shape_of(uneven)
    assert found is not None
    assert (found.q_len, found.tokens, cost_of(found)) == (None, 40, (None, 40 * 8 * 64 * 4 * 4))
    paged = call("vllm::unified_attention_with_output", [[888, 8, 64], [888, 1, 64], [888, 1, 64], [888, 8, 64]])
    found = shape_of(paged)
    assert found is not None
    assert cost_of(found) == (None, None)
