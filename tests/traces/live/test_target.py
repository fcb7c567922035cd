"""The user's own code as a variant: how it is named, given its arguments, and how its attention calls are seen."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kinetop.traces.live.worker import catalog, inputs, numerics, profile, ranges, target, timing
from kinetop.traces.live.worker.case import Case

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

torch = pytest.importorskip("torch", reason="torch is not installed")
F = torch.nn.functional

SOURCE = """
import torch
import torch.nn.functional as F

def attend(q, k, v, is_causal=False):
    return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)

def open_attend(query, key, value):
    return F.scaled_dot_product_attention(query, key, value), None

def step():
    step.calls = getattr(step, "calls", 0) + 1

def factory():
    factory.made = getattr(factory, "made", 0) + 1
    layer = torch.nn.Linear(4, 4)
    def train():
        layer(torch.ones(2, 4)).sum().backward()
        return layer.weight.grad
    return train

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(8, 24)
    def forward(self, x, causal=True):
        q, k, v = self.qkv(x).unflatten(-1, (2, 12)).transpose(1, 2).chunk(3, -1)
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

block = Block()

def arguments():
    return torch.ones(2, 5, 8)

def named(case):
    return {"x": torch.ones(case.batch, 5, 8), "causal": False}

number = 7
"""
CASE = Case.of("2,4,16,8", dtype="fp32")


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Path of a file with targets; its folder is the working directory."""
    path = tmp_path / "mine_of_test.py"
    path.write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield str(path)
    for name in ("mine_of_test", "kinetop_target_mine_of_test"):
        sys.modules.pop(name, None)


def run(spec: str, setup: str | None = None, case: Case = CASE) -> Any:
    variant = target.load(spec, setup)
    assert catalog.refusal(variant, case) is None
    made = inputs.make(case, 0)
    return timing.step(case, variant.build(case, made), made)()


def test_a_function_of_q_k_v_gets_the_case(mine: str) -> None:
    variant = target.load(f"{mine}:attend")
    assert (variant.name, variant.group, variant.exact) == ("target:attend", "target", True)
    for case in (CASE, CASE.with_(causal=False), CASE.with_(mode="backward")):
        made = inputs.make(case, 0)
        built = variant.build(case, made)
        result = timing.step(case, built, made)()
        result, gradients = result if case.mode == "backward" else (result, None)
        assert numerics.compare(built.output(result), case, made, gradients=gradients)["error"]["ok"]
    assert "no window" in str(catalog.refusal(variant, CASE.with_(window=3)))


def test_one_that_is_not_told_causal_is_not_compared(mine: str) -> None:
    variant = target.load(f"{mine}:open_attend")
    assert not variant.exact
    made = inputs.make(CASE, 0)
    built = variant.build(CASE, made)
    assert built.output(built.call()).shape == made.q.shape


def test_a_module_by_name_is_found_from_the_working_directory(mine: str) -> None:
    assert run("mine_of_test:step") is None
    assert sys.modules["mine_of_test"].step.calls == 2  # once to see whether it makes a step, once as one


def test_a_factory_is_called_once_and_its_step_may_train(mine: str) -> None:
    grown = run(f"{mine}:factory")
    assert grown.abs().sum() > 0
    assert sys.modules["kinetop_target_mine_of_test"].factory.made == 1


@pytest.mark.parametrize(
    ("setup", "shape"),
    [
        ("{mine}:arguments", (2, 2, 5, 4)),
        ("{mine}:named", (2, 2, 5, 4)),
        ("x=fp32[3,5,8]", (3, 2, 5, 4)),
        ("fp32[1,7,8]", (1, 2, 7, 4)),
    ],
)
@pytest.mark.parametrize("name", ["block", "Block", "block.forward"])
def test_a_module_gets_what_setup_makes(mine: str, setup: str, shape: tuple[int, ...], name: str) -> None:
    assert run(f"{mine}:{name}", setup.format(mine=mine)).shape == shape


@pytest.mark.parametrize(
    ("spec", "setup", "error", "said"),
    [
        ("mine", None, ValueError, "pkg.mod:fn or path/file.py:fn"),
        ("no_such_package.mod:fn", None, ImportError, "no_such_package"),
        ("{mine}:absent", None, ImportError, "has no absent"),
        ("absent.py:fn", None, ImportError, "no file absent.py"),
        ("{mine}:number", None, TypeError, "int, which cannot be called"),
        ("{mine}:block", None, TypeError, "needs x: say with --setup or --input"),
        ("{mine}:block", "x=fp31[1]", ValueError, "dtype is one of"),
        ("{mine}:block", "x=fp32[1,2] rubbish", ValueError, "rubbish"),
    ],
)
def test_what_cannot_be_loaded_is_said(mine: str, spec: str, setup: str | None, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said.replace("(", r"\(")):
        target.load(spec.format(mine=mine), setup)


def test_inputs_are_normal_of_the_dtype_and_shape(mine: str) -> None:
    (first,), named = target._tensors(target.parse_inputs("bf16[4, 100];k=fp64[7]"), "cpu")
    assert (first.dtype, tuple(first.shape)) == (torch.bfloat16, (4, 100))
    assert 0.8 < float(first.float().std()) < 1.2
    assert (named["k"].dtype, tuple(named["k"].shape)) == (torch.float64, (7,))


def calls_of(step: Any) -> Counter[str]:
    calls: Counter[str] = Counter()
    with target.intercept(calls):
        step()
    return calls


def test_calls_are_described() -> None:
    q, k = torch.randn(2, 4, 8, 16), torch.randn(2, 2, 12, 16)
    seen = calls_of(
        lambda: (
            F.scaled_dot_product_attention(q, q, q, is_causal=True),
            F.scaled_dot_product_attention(q, q, q, is_causal=True),
            F.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True),
            F.scaled_dot_product_attention(q.bfloat16(), q.bfloat16(), q.bfloat16(), torch.ones(8, 8, dtype=torch.bool)),
            F.scaled_dot_product_attention(q, q, torch.randn(2, 4, 8, 24)),
            F.scaled_dot_product_attention(q[0], q[0], q[0]),
        )
    )
    assert seen == {
        "attn|2,4,8,16|fp32|causal|no mask|flash": 2,
        "attn|2,4/2,8/12,16|fp32|upper-left|no mask|flash": 1,
        "attn|2,4,8,16|bf16|full|mask|flash": 1,
        "attn|2,4,8,16/24|fp32|full|no mask|math": 1,
        "attn|4x8x16|fp32|full|no mask|math": 1,
    }


def test_interception_changes_no_result_and_hides_no_error() -> None:
    q = torch.randn(1, 2, 8, 16)
    plain = F.scaled_dot_product_attention(q, q, q, is_causal=True)
    with target.intercept():
        assert torch.equal(F.scaled_dot_product_attention(q, q, q, is_causal=True), plain)
        with pytest.raises(RuntimeError):
            F.scaled_dot_product_attention(q, torch.randn(1, 2, 8, 12), q)


def test_calls_inside_modules_are_seen_while_a_window_is_taken_only(mine: str) -> None:
    variant = target.load(f"{mine}:block", "x=fp32[3,5,8]")
    made = inputs.make(CASE, 0)
    step = timing.step(CASE, variant.build(CASE, made), made)
    step()

    def names(window: bool) -> list[str]:
        with profile.recording("cpu") as profiler, profile.started(profiler, "cpu"):
            if window:
                with ranges.taking():
                    step()
            else:
                step()
        return [event.name() for event in profile.events(profiler) if event.name().startswith(target.CALL)]

    assert names(window=True) == ["attn|3,2,5,4|fp32|causal|no mask|flash"]
    assert names(window=False) == []
