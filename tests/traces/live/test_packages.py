"""Variants of other packages, against stand-ins with the same call forms: layouts, windows, shared heads, gradients.

They show that the calls are made as the packages document them, not that the packages are as fast or as right as they say.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from kinetop.traces.live.worker import catalog, inputs, numerics, probes, timing
from kinetop.traces.live.worker.case import Case
from kinetop.traces.live.worker.variants import external, flash_attn, packages

torch = pytest.importorskip("torch", reason="torch is not installed")

VARIANTS = catalog.built_in()
CASES = [
    Case.of("2,4/2,12,8", dtype="fp32"),
    Case.of("1,4,5/12,8", dtype="fp32"),
    Case.of("1,4/2,12,8", dtype="fp32", causal=False),
    Case.of("1,4/2,9/12,8", dtype="fp32", window=4),
    Case.of("1,4/2,12,8", dtype="fp32", mode="decode"),
    Case.of("1,4/2,12,8", dtype="fp32", mode="decode", window=3),
    Case.of("2,4/2,12,8", dtype="fp32", mode="backward"),
    Case.of("2,2,12,8", dtype="fp32", mode="backward", window=5),
]


def attention(q: Any, k: Any, v: Any, *, causal: bool, left: int = -1, upper_left: bool = False) -> Any:
    """Attention over [B, H, S, D] by a mask: bottom-right causal, and a window to the left."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    own = torch.arange(q.shape[2])[:, None] + (0 if upper_left else k.shape[2] - q.shape[2])
    key = torch.arange(k.shape[2])
    mask = (key <= own) if causal else torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
    mask = mask & (key >= own - left) if left >= 0 else mask
    scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~mask, -torch.inf)
    return scores.softmax(-1) @ v


def swapped(*tensors: Any) -> list[Any]:
    return [tensor.transpose(1, 2) for tensor in tensors]


def flash(q: Any, k: Any, v: Any, causal: bool = False, window_size: tuple[int | None, int | None] = (-1, -1)) -> Any:
    left, right = window_size
    assert right in {0, -1, None}
    return attention(*swapped(q, k, v), causal=causal, left=-1 if left is None else left).transpose(1, 2)


class LowerTriangularFromBottomRightMask:
    left = -1


class LowerTriangularFromBottomRightLocalAttentionMask:
    def __init__(self, _window_size: int) -> None:
        self.left = _window_size - 1


def memory_efficient_attention(q: Any, k: Any, v: Any, attn_bias: Any = None) -> Any:
    groups = q.shape[2:-1]  # [B, S, G, H, D] where key heads are shared
    q, k, v = (tensor.flatten(2, -2) for tensor in (q, k, v))
    out = attention(*swapped(q, k, v), causal=attn_bias is not None, left=-1 if attn_bias is None else attn_bias.left)
    return out.transpose(1, 2).unflatten(2, groups)


def single_prefill(q: Any, k: Any, v: Any, causal: bool = False, window_left: int = -1) -> Any:
    assert q.is_contiguous() and k.is_contiguous() and v.is_contiguous()
    q, k, v = (tensor.transpose(0, 1)[None] for tensor in (q, k, v))
    return attention(q, k, v, causal=causal, left=window_left)[0].transpose(0, 1)


def single_decode(q: Any, k: Any, v: Any, window_left: int = -1) -> Any:
    assert q.dim() == 2
    return single_prefill(q[None], k, v, window_left=window_left)[0]


def sageattn(q: Any, k: Any, v: Any, tensor_layout: str = "HND", is_causal: bool = False) -> Any:
    assert tensor_layout == "HND"
    return attention(q, k, v, causal=is_causal, upper_left=True)


def stand_in(name: str, **members: Any) -> ModuleType:
    module = ModuleType(name)
    for member, value in members.items():
        setattr(module, member, value)
    return module


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins under the packages' names."""
    masks = (LowerTriangularFromBottomRightMask, LowerTriangularFromBottomRightLocalAttentionMask)
    kernels = {f"kernels-community/{name}": version for name, version in flash_attn.HUB.items()}

    def get_kernel(name: str, version: int) -> Any:
        assert kernels[name] == version
        return stand_in(name, flash_attn_func=flash)

    for module in (
        stand_in("flash_attn", flash_attn_func=flash),
        stand_in("flash_attn.cute", flash_attn_func=lambda *given, **named: (flash(*given, **named), None)),
        stand_in("flash_attn_interface", flash_attn_func=flash),
        stand_in("kernels", get_kernel=get_kernel),
        stand_in("xformers", __path__=[]),
        stand_in("xformers.ops", memory_efficient_attention=memory_efficient_attention, __path__=[]),
        stand_in("xformers.ops.fmha", __path__=[]),
        stand_in("xformers.ops.fmha.attn_bias", **{mask.__name__: mask for mask in masks}),
        stand_in("flashinfer", single_prefill_with_kv_cache=single_prefill, single_decode_with_kv_cache=single_decode),
        stand_in("sageattention", sageattn=sageattn),
    ):
        monkeypatch.setitem(sys.modules, module.__name__, module)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.text)
@pytest.mark.parametrize("name", [variant.name for module in (flash_attn, packages) for variant in module.VARIANTS])
def test_calls_are_made_as_the_package_reads_them(name: str, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    variant = VARIANTS[name]
    on_gpu = case.with_(device="cuda", dtype="bf16")
    monkeypatch.setattr(probes, "capability", lambda: (9, 0))
    if case.mode not in variant.modes or variant.why_not(on_gpu):
        assert name in {"flashinfer", "sage"}, "these alone have cases here that they refuse"
        return
    made = inputs.make(case, 0)
    built = variant.build(case, made)
    result = timing.step(case, built, made)()
    result, gradients = result if case.mode == "backward" else (result, None)
    error = numerics.compare(built.output(result), case, made, gradients=gradients)["error"]
    assert error["ok"], error


@pytest.mark.parametrize(
    ("name", "case", "capability", "said"),
    [
        ("flash-attn:2", Case.of("1,2,8,64", device="cuda"), (7, 5), "compute capability 7.5"),
        ("flash-attn:2", Case.of("1,2,8,64", device="cuda", dtype="fp32"), (9, 0), "bf16 and fp16 only"),
        ("flash-attn:2", Case.of("1,2,8,64/32", device="cuda"), (9, 0), "one head dimension"),
        ("flash-attn:2", Case.of("1,2,8,512", device="cuda"), (9, 0), "end at 256"),
        ("flash-attn:3", Case.of("1,2,8,64", device="cuda"), (8, 0), "compute capability 8.0"),
        ("flash-attn:3", Case.of("1,2,8,64", device="cuda"), (9, 0), "None"),
        ("flash-attn:4", Case.of("1,2,8,64", device="cuda"), (10, 0), "None"),
        ("flashinfer", Case.of("2,2,8,64", device="cuda"), (9, 0), "batch 1 only"),
        ("sage", Case.of("2,2,8,64", device="cuda", window=2), (9, 0), "no window"),
        ("sage", Case.of("2,2,4/8,64", device="cuda"), (9, 0), "upper-left"),
        ("sage", Case.of("2,2,8,64", device="cpu"), (9, 0), "CUDA only"),
    ],
)
def test_their_limits_are_said(
    name: str, case: Case, capability: tuple[int, int], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external.probes, "capability", lambda: capability)
    assert said in str(VARIANTS[name].why_not(case))
