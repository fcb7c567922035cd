"""Each live finding, provoked on this CPU where that can be, and silent where all is well."""

from __future__ import annotations

import math
import tomllib
from array import array
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kinetop.analysis import live_findings
from kinetop.analysis.live_rules import RULES
from kinetop.analysis.seen import Seen
from kinetop.traces.live.recording import Recording
from kinetop.traces.live.worker.case import Case
from kinetop.traces.live.worker.frames import Frame, Reader, pack

if TYPE_CHECKING:
    from collections.abc import Callable

    Windowed = Callable[..., Recording]

CASE = Case.of("1,4/2,48,16", dtype="fp32")
SOUND = {"error": {"max_abs": 1e-7, "mean_abs": 1e-8, "bound": 1e-5, "nan_rows": 0, "reference": "fp64", "ok": True}}


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture
def sdpa(torch: Any) -> Callable[..., Any]:
    return torch.nn.functional.scaled_dot_product_attention


def tensors(torch: Any, case: Case = CASE) -> tuple[Any, Any, Any]:
    kind = {"fp32": torch.float32, "bf16": torch.bfloat16}[case.dtype]
    shapes = (
        (case.q_heads, case.q_len, case.qk_dim),
        (case.kv_heads, case.kv_len, case.qk_dim),
        (case.kv_heads, case.kv_len, case.v_dim),
    )
    return tuple(torch.randn(case.batch, *shape, dtype=kind) for shape in shapes)


def found(recording: Recording, variant: str = "mine") -> dict[str, live_findings.Finding]:
    return {finding.code: finding for finding in live_findings.find(recording) if finding.variant == variant}


def test_every_rule_has_a_text_and_every_text_a_rule() -> None:
    path = Path(live_findings.__file__).parent / "rules" / "live.toml"
    texts = tomllib.loads(path.read_text())
    assert set(texts) == set(RULES)
    assert all(
        set(text) == {"level", "title", "fix"} and text["level"] in {"error", "warning", "info"} for text in texts.values()
    )


def test_the_page_lists_every_finding_and_every_variant() -> None:
    from kinetop.traces.live.worker import catalog

    page = (Path(__file__).parents[2] / "docs" / "live.md").read_text()
    assert not [code for code in RULES if f"| `{code}` |" not in page]
    assert not [name for name in catalog.built_in() if f"| `{name}` |" not in page]


def test_a_healthy_variant_has_none(windowed: Windowed, torch: Any, sdpa: Any) -> None:
    q, k, v = tensors(torch)
    prepared = {**SOUND, "first_call_us": 30.0, "expected": ["flash_attention"], "unexpected": ["aten::bmm"]}
    made = windowed(CASE, {"mine": lambda: sdpa(q, k, v, is_causal=True, enable_gqa=True)}, prepared)
    made.add(Frame(samples(CASE, "mine"), {"ns": array("q", [20_000] * 30)}))
    assert found(made) == {}


def test_mask_clone(windowed: Windowed, torch: Any) -> None:
    scores, future = torch.randn(4, 48, 48), torch.ones(48, 48, dtype=torch.bool).triu(1)
    calls = {
        "mine": lambda: scores.masked_fill(future, -math.inf),
        "in place": lambda: scores.masked_fill_(future, -math.inf),
        "a clone elsewhere": scores.clone,
    }
    made = windowed(CASE, calls)
    assert "aten::clone inside aten::masked_fill: 1 a step" in found(made)["mask-clone"].evidence
    assert not {"mask-clone"} & {*found(made, "in place"), *found(made, "a clone elsewhere")}


def test_math_fallback_says_why(windowed: Windowed, torch: Any, sdpa: Any) -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    case = CASE.with_(dtype="bf16")
    q, k, v = tensors(torch, case)

    def by_name() -> Any:
        with sdpa_kernel(SDPBackend.MATH):
            return sdpa(q, k, v, is_causal=True, enable_gqa=True)

    narrow = v[..., :8].contiguous()
    made = windowed(case, {"sdpa:math": by_name, "flash": lambda: sdpa(q, k, v, enable_gqa=True)})
    made_narrow = windowed(case.with_(v_dim=8), {"mine": lambda: sdpa(q, k, narrow, enable_gqa=True)})
    by_name_found = found(made, "sdpa:math")["math-fallback"]
    assert "in fp32" in by_name_found.title
    assert "casts to fp32 and back" in by_name_found.evidence
    assert by_name_found.fix.startswith("It was asked for by name.")
    assert "Flash wants one head size, here it is 16 for q and k, 8 for v" in found(made_narrow)["math-fallback"].fix
    assert "math-fallback" not in found(made, "flash")


def test_mask_rebuilt(windowed: Windowed, torch: Any) -> None:
    scores, places = torch.randn(4, 48, 48), torch.arange(48)
    future = torch.ones(48, 48, dtype=torch.bool).triu(1)
    calls = {
        "mine": lambda: scores.masked_fill_(torch.ones(48, 48, dtype=torch.bool).triu(1), -math.inf),
        "by position": lambda: torch.where(torch.arange(48)[:, None] >= torch.arange(48), scores, -math.inf),
        "built before": lambda: scores.masked_fill_(future, -math.inf),
        "only compared": lambda: places >= 3,
        "scores cut": scores.tril,
    }
    made = windowed(CASE, calls)
    assert "aten::triu" in found(made)["mask-rebuilt"].evidence
    assert "aten::arange" in found(made, "by position")["mask-rebuilt"].evidence
    for sound in ("built before", "only compared", "scores cut"):
        assert "mask-rebuilt" not in found(made, sound)


def test_kv_repeated(windowed: Windowed, torch: Any, sdpa: Any) -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = tensors(torch)

    def math_path() -> Any:
        with sdpa_kernel(SDPBackend.MATH):
            return sdpa(q, k, v, enable_gqa=True)

    def expanded(tensor: Any) -> Any:
        return tensor[:, :, None].expand(-1, -1, 2, -1, -1).reshape(1, 4, 48, 16)

    calls = {
        "mine": lambda: sdpa(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)),
        "expand": lambda: sdpa(q, expanded(k), expanded(v)),
        "flag": lambda: sdpa(q, k, v, enable_gqa=True),
        "math with the flag": math_path,
    }
    made = windowed(CASE, calls)
    assert found(made)["kv-repeated"].evidence.startswith("4 query heads share 2; 2 a step")
    assert "kv-repeated" in found(made, "expand")
    assert "layout-copies" not in found(made)  # the same copies are not told twice
    for sound in ("flag", "math with the flag"):
        assert "kv-repeated" not in found(made, sound)


def test_upper_left_causal(windowed: Windowed, torch: Any, sdpa: Any) -> None:
    from torch.nn.attention.bias import causal_lower_right

    from kinetop.traces.live.worker.numerics import compare
    from kinetop.traces.live.worker.variant import Inputs

    case = Case.of("1,2,8/48,16", dtype="fp32")
    q, k, v = tensors(torch, case)
    calls = {
        "mine": lambda: sdpa(q, k, v, is_causal=True),
        "right": lambda: sdpa(q, k, v, attn_mask=causal_lower_right(8, 48)),
    }
    for variant, call in calls.items():
        made = windowed(case, {variant: call}, compare(call(), case, Inputs(q, k, v)))
        seen = found(made, variant)
        assert ("upper-left-causal" in seen) == (variant == "mine")
        assert "wrong-numerics" not in seen
        if variant == "mine":
            assert "q_len 8, kv_len 48" in seen["upper-left-causal"].evidence


def test_upper_left_causal_in_code_of_ones_own(windowed: Windowed, torch: Any, sdpa: Any) -> None:
    from kinetop.traces.live.worker.target import intercept

    q, k, v = (torch.randn(1, 2, length, 16) for length in (8, 48, 48))

    def call(length: int) -> Callable[[], Any]:
        def run() -> Any:
            with intercept():
                return sdpa(q, k[:, :, :length], v[:, :, :length], is_causal=True)

        return run

    made = windowed(CASE, {"mine": call(48), "square": call(8)})
    assert "attn|1,2,8/48,16|fp32|upper-left|no mask" in found(made)["upper-left-causal"].evidence
    assert "upper-left-causal" not in found(made, "square")


def test_growing_kv(windowed: Windowed, torch: Any, sdpa: Any) -> None:
    case = Case.of("1,2,48,16", dtype="fp32", mode="decode")
    q, k, v = tensors(torch, case)
    key, value = k[:, :, :1], v[:, :, :1]

    def static() -> Any:
        k[:, :, -1:], v[:, :, -1:] = key, value
        return sdpa(q, k, v)

    calls = {"mine": lambda: sdpa(q, torch.cat([k, key], 2), torch.cat([v, value], 2)), "static": static}
    made = windowed(case, calls)
    assert found(made)["growing-kv"].evidence.startswith("aten::cat: 2 a step")
    assert "growing-kv" not in found(made, "static")


@pytest.mark.filterwarnings("ignore")  # torch warns of exactly this
def test_flex_uncompiled_and_the_recompile_limit(windowed: Windowed, torch: Any, sdpa: Any) -> None:
    from torch.nn.attention.flex_attention import flex_attention

    q, k, v = tensors(torch)
    made = windowed(
        CASE,
        {"mine": lambda: flex_attention(q, k, v, enable_gqa=True), "flex:fused": lambda: sdpa(q, k, v, enable_gqa=True)},
        steps=1,
    )
    assert "torch.compile(flex_attention" in found(made)["flex-uncompiled"].fix
    assert "flex-uncompiled" not in found(made, "flex:fused")
    line = "W0101 torch/_dynamo/convert_frame.py: torch._dynamo hit config.recompile_limit (8)"
    made.add(Frame({"kind": "log", "line": line}))
    assert "recompile_limit (8)" in found(made)["flex-uncompiled"].evidence
    assert "raise torch._dynamo.config.recompile_limit" in found(made)["flex-uncompiled"].fix


def test_mha_materialises(windowed: Windowed, torch: Any) -> None:
    tokens = torch.randn(1, 48, 64)
    layer = torch.nn.MultiheadAttention(64, 4, batch_first=True)

    def call(training: bool) -> Callable[[], Any]:
        def run() -> Any:
            layer.train(training)
            with torch.no_grad():
                return layer(tokens, tokens, tokens, need_weights=False)

        return run

    made = windowed(CASE, {"mine": call(training=False), "through SDPA": call(training=True)})
    assert "scores take" in found(made)["mha-materialises"].evidence
    assert "mha-materialises" not in found(made, "through SDPA")


def test_wrong_numerics(windowed: Windowed, torch: Any) -> None:
    from kinetop.traces.live.worker.numerics import compare
    from kinetop.traces.live.worker.variant import Inputs

    q, k, v = tensors(torch)
    output = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    for scale, wrong in ((1.0, False), (1.01, True)):
        prepared = compare(output * scale, CASE, Inputs(q, k, v))
        made = windowed(CASE, {"mine": lambda: q + q}, prepared)
        assert ("wrong-numerics" in found(made)) == wrong
    assert "bound" in found(made)["wrong-numerics"].evidence
    assert live_findings.find(made)[0].level == "error"


def test_an_output_that_could_not_be_compared_says_why(windowed: Windowed, torch: Any) -> None:
    from kinetop.traces.live.worker.numerics import compare, looked_at
    from kinetop.traces.live.worker.variant import Inputs

    q, k, v = tensors(torch)
    for prepared, said in (
        (compare(q.transpose(1, 2), CASE, Inputs(q, k, v)), "the output has the shape"),
        (looked_at(torch.full((2, 3), torch.nan), "it is its own"), "2 rows of its output hold NaN"),
    ):
        made = windowed(CASE, {"mine": lambda: q + q}, prepared)
        assert found(made)["wrong-numerics"].evidence.startswith(said)


def test_layout_copies(windowed: Windowed, torch: Any, sdpa: Any) -> None:
    case = Case.of("2,4,256,64", dtype="fp32")
    q, k, v = tensors(torch, case)
    table = torch.randn(2000, 2000).T
    calls = {"mine": lambda: (table.contiguous(), sdpa(q, k, v)), "plain": lambda: sdpa(q, k, v)}
    made = windowed(case, calls)
    assert "copies and casts" in found(made)["layout-copies"].evidence
    assert "layout-copies" not in found(made, "plain")


def test_not_as_expected(windowed: Windowed, torch: Any) -> None:
    q, k, _ = tensors(torch, CASE.with_(kv_heads=4))
    patterns = {"expected": ["_flash_attention", "^aten::bmm$"], "unexpected": ["^aten::clone$", "^aten::add$"]}
    made = windowed(CASE, {"mine": lambda: q @ k.transpose(-2, -1).clone()}, patterns)
    assert found(made)["not-as-expected"].evidence == "nothing fits _flash_attention; aten::clone runs 1 times a step"
    fine = windowed(CASE, {"mine": lambda: q @ k.transpose(-2, -1)}, {"expected": ["^aten::bmm$"], "unexpected": ["^aten::add$"]})
    assert "not-as-expected" not in found(fine)


def samples(case: Case, variant: str, *marks: str) -> dict[str, Any]:
    return {"kind": "samples", "variant": variant, "case": case.to_dict(), "round": 1, "marks": list(marks), "clock_mhz": 1200.0}


@pytest.mark.parametrize("mark", ["throttled", "contended"])
def test_marks(mark: str) -> None:
    made = Recording()
    made.add(Frame(samples(CASE, "mine"), {"ns": array("q", [1000] * 19)}))
    made.add(Frame(samples(CASE, "mine", mark), {"ns": array("q", [1000])}))
    assert found(made) == {}
    made.add(Frame(samples(CASE, "mine", mark), {"ns": array("q", [1000] * 5)}))
    assert found(made)[mark].evidence.startswith("6 of 25 samples (24 %)")


def test_first_call_cold() -> None:
    made = Recording()
    made.add(Frame({"kind": "prepared", "variant": "mine", "case": CASE.to_dict(), "first_call_us": 900.0}))
    assert found(made) == {}
    made.add(Frame(samples(CASE, "mine"), {"ns": array("q", [100_000] * 5)}))
    assert found(made)["first-call-cold"].evidence == "first call 900.0 µs, median 100.0 µs: 9 times as long"
    made.add(Frame(samples(CASE, "mine"), {"ns": array("q", [300_000] * 20)}))
    assert found(made) == {}


def gpu_window(kernel_ns: int, dropped: int = 0) -> Recording:
    """A step of 100 us on the host that launches two kernels."""
    names = ["kinetop.step|mine|1|0", "aten::bmm", "cudaLaunchKernel", "gemm"]
    rows = [
        (0, 0, 0, 100_000, 0, 0, 9, 0), (1, 1, 1_000, 20_000, 0, 0, 9, 0), (2, 2, 2_000, 3_000, 0, 0, 9, 1),
        (2, 2, 8_000, 3_000, 0, 0, 9, 2),
        (3, 3, 50_000, kernel_ns, 1, 0, 7, 1), (3, 3, 50_000 + kernel_ns, kernel_ns, 1, 0, 7, 2),
    ]  # fmt: skip
    columns = ("name", "kind", "start_ns", "dur_ns", "device_type", "device", "resource", "correlation")
    types = ("u32", "u8", "i64", "i64", "u8", "i32", "i64", "u64")
    header = {
        "kind": "window", "variant": "mine", "case": CASE.to_dict(), "window": 1, "steps": 1, "begin_ns": 0, "end_ns": 200_000,
        "dropped": dropped, "duty_pct": 1.0, "pid": 9, "kinds": ["user_annotation", "cpu_op", "cuda_runtime", "kernel"],
        "names": dict(enumerate(names)),
    }  # fmt: skip
    made = Recording()
    values = zip(*rows, strict=True)
    for frame in Reader().feed(pack(header, {n: (t, list(v)) for n, t, v in zip(columns, types, values, strict=True)})):
        made.add(frame)
    return made


def test_launch_bound() -> None:
    evidence = found(gpu_window(10_000))["launch-bound"].evidence
    assert evidence == "the host needs 100.0 µs for a step, the GPU works 20.0 µs in 2 pieces"
    assert "launch-bound" not in found(gpu_window(90_000))


def test_lost_events() -> None:
    assert "3 launches in 1 windows" in found(gpu_window(90_000, dropped=3))["lost-events"].evidence
    assert "lost-events" not in found(gpu_window(90_000))


def test_windows_are_read_once_though_trials_are_copied(windowed: Windowed, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    q, _, _ = tensors(torch)
    made, read = windowed(CASE, {"mine": lambda: q + q}), []

    def counted(events: Any) -> Seen:
        read.append(events)
        return Seen(events)

    monkeypatch.setattr(live_findings, "Seen", counted)
    for _ in range(3):
        made.trials = {key: replace(trial) for key, trial in made.trials.items()}
        live_findings.find(made)
    assert len(read) == 1
