"""Costs by closed formulas, against counting pairs and elements one by one."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetop.traces.live.worker import costs
from kinetop.traces.live.worker.case import Case
from kinetop.traces.live.worker.variant import Built, Variant

BLOG = Case.of("8,16,1024,64", causal=False)
"""The case of a published series: 34.4 GFLOP dense, 67 MB of q, k, v and output in bf16."""


def visible(case: Case) -> set[tuple[int, int]]:
    """Every (query, key) that the protocol's words allow."""
    pairs = set()
    for query, key in product(range(case.q_len), range(case.kv_len)):
        own = query + case.kv_len - case.q_len
        after = key > own and (case.causal or case.window is not None)
        before = case.window is not None and key <= own - case.window
        if not after and not before:
            pairs.add((query, key))
    return pairs


@st.composite
def cases(draw: st.DrawFn) -> Case:
    q_len, kv_len = draw(st.integers(1, 20)), draw(st.integers(1, 20))
    causal = draw(st.booleans()) and q_len <= kv_len
    window = draw(st.none() | st.integers(1, 25))
    heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    return Case(2, heads * group, heads, q_len, kv_len, draw(st.integers(1, 9)), draw(st.integers(1, 9)), "fp32", causal, window)


def variant(**members: object) -> Variant:
    return Variant("x", "x", "eager", "x", lambda case, inputs: Built(lambda: None), **members)  # type: ignore[arg-type]


@given(cases())
def test_pairs_are_those_that_a_mask_shows(case: Case) -> None:
    shown = visible(case)
    assert costs.pairs(case) == len(shown)
    assert costs.visible_keys(case) == len({key for _, key in shown})
    assert costs.useful(case) == 2 * 2 * case.q_heads * (case.qk_dim + case.v_dim) * len(shown)


@given(cases())
def test_the_case_names_the_same_keys(case: Case) -> None:
    named = {(query, key) for query in range(case.q_len) for key in range(case.first_key(query), case.last_key(query) + 1)}
    assert named == visible(case)


@given(cases())
def test_least_bytes_are_the_elements_touched(case: Case) -> None:
    keys = {key for _, key in visible(case)}
    q = case.batch * case.q_heads * case.q_len * case.qk_dim
    out = case.batch * case.q_heads * case.q_len * case.v_dim
    seen = sum(case.batch * case.kv_heads * (case.qk_dim + case.v_dim) for _ in keys)
    assert costs.least_bytes(case) == 4 * (q + seen + out)


@given(cases())
def test_grouped_heads_change_bytes_and_not_flops(case: Case) -> None:
    whole = case.with_(kv_heads=case.q_heads)
    assert costs.useful(whole) == costs.useful(case)
    if case.kv_heads < case.q_heads:
        assert costs.least_bytes(whole) > costs.least_bytes(case)


def test_published_case() -> None:
    assert costs.useful(BLOG) == 4 * 8 * 16 * 1024**2 * 64 == pytest.approx(34.4e9, rel=2e-3)
    assert costs.useful(BLOG.with_(causal=True)) == costs.useful(BLOG) * 1025 / 2048
    assert costs.least_bytes(BLOG) == pytest.approx(67e6, rel=2e-3)


def test_bottom_right_fraction_of_a_longer_cache() -> None:
    case = Case.of("1,1,96/1000,8")
    assert costs.pairs(case) / (96 * 1000) == (2 * 1000 - 96 + 1) / (2 * 1000)


def test_decode_reads_its_cache_once_and_of_a_window_only_the_end() -> None:
    case = Case.of("1,8/2,4096,64", mode="decode", dtype="bf16")
    assert costs.pairs(case) == 4096
    assert costs.least_bytes(case) == 2 * (2 * 4096 * 128 + 8 * 128)
    assert costs.least_bytes(case.with_(window=128)) == 2 * (2 * 128 * 128 + 8 * 128)


def test_what_a_variant_executes() -> None:
    case = BLOG.with_(causal=True)
    dense = costs.useful(BLOG)
    assert costs.executed(case, variant()) == dense
    assert costs.executed(case, variant(executed=lambda case: 0.5)) == dense / 2
    assert costs.executed(case, variant(flops=lambda case: 7.0)) == 7


def test_backward_is_forward_and_backward_together() -> None:
    case = BLOG.with_(mode="backward")
    dense = costs.useful(BLOG)
    assert costs.useful(case) == 3.5 * dense
    assert costs.executed(case, variant()) == 3.5 * dense
    assert costs.executed(case, variant(tags=frozenset({"materializes"}))) == 3 * dense
    one = costs.least_bytes(BLOG) // 4
    assert costs.least_bytes(case) == 4 * one + (5 + 3) * one
