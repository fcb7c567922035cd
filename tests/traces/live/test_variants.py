"""Variants: each computes what it says, refuses with a reason what it cannot, and runs the ops that it expects."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinetop.traces.live.worker import catalog, inputs, numerics, probes, profile, ranges, timing
from kinetop.traces.live.worker.case import Case
from kinetop.traces.live.worker.variant import Built, Inputs, Variant
from kinetop.traces.live.worker.variants import calls, choice, compiled, scaled, scores, sparse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

torch = pytest.importorskip("torch", reason="torch is not installed")

pytestmark = [
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),  # torch says it once a process
    pytest.mark.filterwarnings("ignore:`torch.jit"),  # of inductor's own code
]
VARIANTS = catalog.built_in()
PLAIN = [name for name, variant in VARIANTS.items() if "compiled" not in variant.tags and variant.group != "package"]
COMPILED = [name for name, variant in VARIANTS.items() if "compiled" in variant.tags]
NOT_ON_A_CPU = {"sdpa:efficient", "sdpa:cudnn", "sdpa-flash:3", "sdpa-flash:4", "varlen"}
BOUNDS = {"fp64": 1e-12, "fp32": 1e-5, "bf16": 6e-2, "fp16": 8e-3}
CASES = [
    Case.of("2,4/2,64,16", dtype="fp32"),
    Case.of("2,4,64,16", dtype="fp32", causal=False),
    Case.of("1,4,37/101,24", dtype="fp32"),
    Case.of("1,6/2,130,16/24", dtype="fp32", window=20),
    Case.of("1,4/1,33/77,8", dtype="bf16", window=9, causal=False),
    Case.of("1,4,50/30,16", dtype="fp32", causal=False),
    Case.of("1,2,600,32", dtype="bf16"),
    Case.of("1,1,1,1", dtype="fp64"),
    Case.of("2,4/2,64,16", dtype="fp32", mode="backward"),
    Case.of("2,4,64,16", dtype="bf16", mode="backward", causal=False),
    Case.of("1,4/2,37/50,16", dtype="fp64", mode="backward", window=7),
    Case.of("2,4/2,99,16", dtype="fp16", mode="decode"),
    Case.of("2,4/2,99,16", dtype="fp32", mode="decode", window=10),
]
ODD = Case.of("1,4/2,37/50,16", dtype="fp64", window=7)


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def by_queries(case: Case, made: Inputs) -> Any:
    """Attention query by query over the keys that the case lets it see: no mask is made."""
    group = case.q_heads // case.kv_heads
    k, v = (tensor.repeat_interleave(group, 1) for tensor in (made.k, made.v))
    rows = []
    for query in range(case.q_len):
        seen = slice(case.first_key(query), case.last_key(query) + 1)
        weights = torch.softmax(made.q[:, :, query, None] @ k[:, :, seen].mT / case.qk_dim**0.5, -1)
        rows.append(weights @ v[:, :, seen])
    return torch.cat(rows, 2)


def double(made: Inputs) -> Inputs:
    learns = made.q.requires_grad
    return Inputs(*(tensor.detach().double().requires_grad_(learns) for tensor in (made.q, made.k, made.v)))


def wanted(variant: Variant, case: Case, made: Inputs) -> tuple[Any, list[Any]]:
    """What a variant should give, in fp64, and the gradients of q, k and v."""
    exact = double(made)
    assert variant.exact or variant.reference is not None
    output = by_queries(case, exact) if variant.reference is None else variant.reference(case, exact)
    if case.mode != "backward":
        return output, []
    return output, list(torch.autograd.grad(output, (exact.q, exact.k, exact.v), made.grad.double()))


def check(variant: Variant, case: Case, built: Callable[[Case, Inputs], Built] | None = None) -> Built:
    made = inputs.make(case, 0)
    ready = (built or variant.build)(case, made)
    result = timing.step(case, ready, made)()
    result, gradients = result if case.mode == "backward" else (result, [])
    output, exact_gradients = wanted(variant, case, made)
    found = ready.output(result)
    assert found.shape == output.shape
    bound = BOUNDS[case.dtype] * variant.tolerance
    assert float((found.double() - output).detach().abs().max()) < bound
    for one, other in zip(gradients, exact_gradients, strict=True):
        assert float((one.double() - other).abs().max()) < 5 * bound
    return ready


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.text)
@pytest.mark.parametrize("name", PLAIN)
def test_it_computes_what_it_says_or_refuses(name: str, case: Case) -> None:
    variant = VARIANTS[name]
    if why := catalog.refusal(variant, case):
        assert 5 < len(why) < 160
        assert not why.endswith(".")
        return
    check(variant, case)


def test_every_variant_that_a_cpu_can_run_is_checked() -> None:
    checked = {name for name in PLAIN for case in CASES if not catalog.refusal(VARIANTS[name], case)}
    assert set(PLAIN) - checked == NOT_ON_A_CPU


@pytest.mark.parametrize("name", [name for name in PLAIN if not VARIANTS[name].exact])
def test_a_function_of_its_own_is_compared_with_its_own_reference(name: str) -> None:
    variant = VARIANTS[name]
    shape = "2,4,64,16" if name.startswith("mha") else "2,4/2,65,16"
    modes = [mode for mode in ("forward", "backward") if mode in variant.modes]
    for case in [Case.of(shape, dtype=dtype, mode=mode) for dtype in ("fp32", "bf16") for mode in modes]:
        made = inputs.make(case, 0)
        built = variant.build(case, made)
        result = timing.step(case, built, made)()
        result, gradients = result if case.mode == "backward" else (result, None)
        output = built.output(result)
        error = numerics.compare(output, case, made, variant.tolerance, gradients, variant.reference)["error"]
        assert error["ok"], (case.text, error)
        assert error["reference"] == "fp64 of its own function"
        assert (case.mode == "backward") == ("grad_max_abs" in error)
        assert not numerics.compare(output * 1.1, case, made, variant.tolerance, None, variant.reference)["error"]["ok"]
    long = Case.of("1,64,20000,16")
    large = torch.zeros(1).expand(1, 64, 20000, 16)
    assert "its function" in numerics.compare(large, long, made, function=variant.reference)["error_skipped"]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kv_heads, kv_len = draw(st.integers(1, 2)), draw(st.integers(1, 150))
    mode = draw(st.sampled_from(["forward", "backward", "decode"]))
    causal, window = draw(st.booleans()), draw(st.none() | st.integers(1, 160))
    longest = kv_len if causal or window else 150
    dim = draw(st.integers(1, 20))
    return Case(
        batch=draw(st.integers(1, 2)),
        q_heads=kv_heads * draw(st.integers(1, 3)),
        kv_heads=kv_heads,
        q_len=1 if mode == "decode" else draw(st.integers(1, longest)),
        kv_len=kv_len,
        qk_dim=dim,
        v_dim=draw(st.just(dim) | st.integers(1, 20)),
        dtype=draw(st.sampled_from(["fp64", "fp32"])),
        causal=causal,
        window=window,
        mode=mode,
    )


@settings(max_examples=60, deadline=None)
@given(case=cases())
def test_any_case_is_right_or_refused(case: Case) -> None:
    for name in PLAIN:
        if not catalog.refusal(VARIANTS[name], case):
            check(VARIANTS[name], case)


@settings(max_examples=60, deadline=None)
@given(case=cases(), block_q=st.integers(1, 40), block_k=st.integers(1, 40))
def test_the_share_of_blocks_is_that_of_the_mask(case: Case, block_q: int, block_k: int) -> None:
    visible = calls.visible(case)
    mask = torch.ones(case.q_len, case.kv_len, dtype=torch.bool) if visible is None else visible
    computed = 0
    for rows in mask.split(block_q):
        for block in rows.split(block_k, 1):
            computed += block.numel() if bool(block.any()) else 0
    assert calls.block_share(case, block_q, block_k) == pytest.approx(computed / mask.numel())


def test_shares_of_what_skips_and_of_what_does_not() -> None:
    long = Case.of("1,2,4096,64")
    assert VARIANTS["eager"].executed is None
    assert scaled.skipped(long) == pytest.approx(0.5 + 511 / 8192 + 1 / 8192, abs=0.02)
    assert scaled.skipped(long.with_(window=64)) == 1  # under a mask nothing is skipped
    assert VARIANTS["window:chunked"].executed(long.with_(window=64)) == pytest.approx(128 / 4096, rel=0.02)  # type: ignore[misc]
    assert VARIANTS["sparse:block"].executed(long) < 0.06  # type: ignore[misc]
    assert VARIANTS["flex:document"].executed(long) < VARIANTS["flex:causal"].executed(long)  # type: ignore[misc]
    square = VARIANTS["linear"].flops(long.with_(causal=False)) / (4.0 * 2 * 4096**2 * 64)  # type: ignore[misc]
    assert square < 0.05


PATTERN_CASES = {
    "decode:static": Case.of("1,4/2,64,16", dtype="fp32", mode="decode"),
    "decode:cat": Case.of("1,4/2,64,16", dtype="fp32", mode="decode"),
    "mha": Case.of("1,4,64,16", dtype="fp32", causal=False),
    "mha:weights": Case.of("1,4,64,16", dtype="fp32"),
    "nested": Case.of("2,4,64,16", dtype="fp32", causal=False),
}
DEFAULT = Case.of("1,4/2,64,16", dtype="fp32", window=9)
CAUSAL = Case.of("1,4/2,64,16", dtype="fp32")


def names_of(case: Case, built: Built) -> set[str]:
    call = timing.step(case, built, inputs.make(case, 0))
    call()
    with profile.recording("cpu") as profiler, profile.started(profiler, "cpu"), ranges.taking():
        call()
    return {event.name() for event in profile.events(profiler)}


def unmet(variant: Variant, names: set[str]) -> list[str]:
    """Expected patterns that nothing fits, and unexpected ones that something does."""
    missing = [f"no {pattern}" for pattern in variant.expected if not any(re.search(pattern, name) for name in names)]
    return missing + [name for pattern in variant.unexpected for name in names if re.search(pattern, name)]


@pytest.mark.parametrize("name", sorted(set(PLAIN) - NOT_ON_A_CPU))
def test_the_ops_that_it_expects_run_and_no_others(name: str) -> None:
    variant = VARIANTS[name]
    tried = [case for case in (PATTERN_CASES.get(name, DEFAULT), CAUSAL) if not catalog.refusal(variant, case)]
    assert tried
    for case in tried:
        names = names_of(case, variant.build(case, inputs.make(case, 0)))
        assert not unmet(variant, names)


def test_what_is_not_expected_is_seen() -> None:
    case = CAUSAL.with_(v_dim=24)  # on a CPU auto falls to math
    auto = VARIANTS["sdpa:auto"].build(case, inputs.make(case, 0))
    assert auto.backend == "math"
    assert "aten::_scaled_dot_product_attention_math" in unmet(VARIANTS["sdpa:auto"], names_of(case, auto))
    eager = VARIANTS["eager"].build(CAUSAL, inputs.make(CAUSAL, 0))
    assert "aten::clone" in unmet(VARIANTS["eager-inplace"], names_of(CAUSAL, eager))


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("eager", {"qk", "scale", "mask", "softmax", "pv"}),
        ("eager-inplace", {"qk", "scale", "mask", "softmax", "pv"}),
        ("baddbmm", {"qk", "softmax", "pv"}),
        ("gqa:repeat", {"copy", "fused"}),
        ("gqa:flag", {"fused"}),
        ("window:chunked", {"layout", "copy", "fused"}),
        ("linear", {"features", "state", "qk", "pv"}),
    ],
)
def test_own_code_names_its_parts(name: str, parts: set[str]) -> None:
    case = CAUSAL if name == "linear" else DEFAULT
    names = names_of(case, VARIANTS[name].build(case, inputs.make(case, 0)))
    assert {found.removeprefix(ranges.PART) for found in names if found.startswith(ranges.PART)} == parts


REFUSALS = [
    ("sdpa:cudnn", CAUSAL, "CUDA only"),
    ("sdpa:flash", CAUSAL.with_(v_dim=24), "same last dimension"),
    ("sdpa:flash", CAUSAL.with_(device="cuda"), "torch finds no cuda device here"),
    ("eager", CAUSAL.with_(graph=True), "graphs need a CUDA device"),
    ("eager", Case.of("1,2,9/5,8", causal=False, window=3), "no key"),
    ("eager-inplace", CAUSAL.with_(mode="backward"), "no backward"),
    ("decode:cat", CAUSAL, "no forward"),
    ("flex:causal", CAUSAL.with_(mode="backward"), "no backward on a CPU"),
    ("flex:causal", DEFAULT, "flex:window"),
    ("flex:causal", Case.of("1,4,40,16"), "past the end"),
    ("flex:causal", CAUSAL.with_(causal=False), "flex:full"),
    ("flex:window", CAUSAL, "no window"),
    ("flex:full", CAUSAL, "hides keys"),
    ("flex:alibi", CAUSAL.with_(dtype="fp64"), "fp64"),
    ("gqa:flag", Case.of("1,4,64,16"), "as many key heads"),
    ("linear", DEFAULT, "no window"),
    ("varlen", CAUSAL, "CUDA only"),
    ("nested", Case.of("1,4,64,16"), "causal backend on a CPU"),
    ("mha", CAUSAL, "self-attention"),
]


@pytest.mark.parametrize(("name", "case", "said"), REFUSALS)
def test_why_not_is_said(name: str, case: Case, said: str) -> None:
    assert said in str(catalog.refusal(VARIANTS[name], case))


def test_without_a_compiler_compiled_variants_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CXX", raising=False)
    assert {catalog.refusal(VARIANTS[name], CAUSAL) for name in ("compile:eager", "flex:causal")} == {
        "no C++ compiler (g++ or clang++) is found"
    }
    assert catalog.refusal(VARIANTS["eager"], CAUSAL) is None


def test_only_one_backend_is_allowed_inside_and_all_as_before_after() -> None:
    before = [getattr(torch.backends.cuda, f"{switch}_enabled")() for switch in choice.SWITCHES.values()]
    with choice.Only("math"):
        assert torch.backends.cuda.math_sdp_enabled()
        assert not torch.backends.cuda.flash_sdp_enabled()
    assert [getattr(torch.backends.cuda, f"{switch}_enabled")() for switch in choice.SWITCHES.values()] == before


@pytest.mark.parametrize(
    ("build", "backend"),
    [
        (dict(q=(1, 4, 8, 16), k=(1, 4, 8, 16)), "flash"),
        (dict(q=(1, 4, 8, 16), k=(1, 2, 8, 16), gqa=True), "flash"),
        (dict(q=(1, 4, 8, 16), k=(1, 4, 8, 24)), "math"),
        (dict(q=(1, 4, 2, 8, 16), k=(1, 4, 2, 8, 16)), "math"),
        (dict(q=(1, 4, 8, 16), k=(1, 4, 8, 16), dropout=0.5), "math"),
    ],
)
def test_the_backend_that_auto_takes_is_told(build: dict[str, Any], backend: str) -> None:
    q, v = torch.randn(build.pop("q")), torch.randn(build.pop("k"))
    k = torch.randn(*v.shape[:-1], q.shape[-1])
    assert choice.taken(q, k, v, **build) == backend


@pytest.mark.parametrize(
    "name", ["sdpa:auto", "gqa:flag", "gqa:repeat", "gqa:expand", "window:mask", "decode:cat", "decode:static"]
)
def test_the_backend_shown_is_the_one_that_runs(name: str) -> None:
    ops = {"flash": "aten::_scaled_dot_product_flash_attention_for_cpu", "math": "aten::_scaled_dot_product_attention_math"}
    mode = "decode" if name.startswith("decode") else "forward"
    for v_dim, backend in ((16, "flash"), (24, "math")):
        case = Case.of(f"1,4/2,64,16/{v_dim}", dtype="fp32", window=9 if name == "window:mask" else None, mode=mode)
        built = VARIANTS[name].build(case, inputs.make(case, 0))
        assert built.backend == backend
        assert ops[backend] in names_of(case, built)


def test_causal_is_bottom_right_where_torch_has_it_upper_left() -> None:
    assert scaled.arguments(Case.of("1,2,8,16")) == {"is_causal": True}
    given = scaled.arguments(Case.of("1,2,3/8,16"))
    assert "is_causal" not in given
    assert given["attn_mask"].sum(-1).tolist() == [6, 7, 8]
    assert scaled.arguments(Case.of("1,2,8,16", mode="decode")) == {}


def test_documents_cover_the_sequence_and_sparse_blocks_keep_the_diagonal() -> None:
    case = Case.of("1,1,100,8")
    lengths = torch.bincount(scores.documents(case, "cpu")).tolist()
    assert sum(lengths) == 100
    assert lengths == sorted(lengths)
    assert len(set(lengths)) == scores.DOCUMENTS
    assert bool(sparse.pattern(case, "cpu").diagonal().all())


@pytest.mark.slow
@pytest.mark.skipif(probes.compiling_why_not(CAUSAL) is not None, reason="no C++ compiler")
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_variants_compute_what_they_say_by_what_they_expect(name: str) -> None:
    variant = VARIANTS[name]
    case = {"flex:window": DEFAULT, "flex:full": CAUSAL.with_(causal=False)}.get(name, Case.of("1,4/2,19/37,16/8", dtype="fp32"))
    ready = check(variant, case)
    assert ready.backend
    assert not unmet(variant, names_of(case, ready))


@pytest.mark.slow
@pytest.mark.skipif(probes.compiling_why_not(CAUSAL) is not None, reason="no C++ compiler")
def test_falling_back_to_eager_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    with pytest.raises(RuntimeError, match="made no graph"):
        VARIANTS["compile:eager"].build(CAUSAL, inputs.make(CAUSAL, 0))


@pytest.mark.slow
@pytest.mark.skipif(probes.compiling_why_not(CAUSAL) is not None, reason="no C++ compiler")
def test_each_compiled_function_has_recompilations_of_its_own() -> None:
    def add(x: Any, count: Any) -> Any:
        return x + count

    functions = [compiled.compiled(add) for _ in range(12)]  # dynamo gives up at 8 of one code object
    results = [function(torch.ones(number + 1), number).sum().item() for number, function in enumerate(functions)]
    assert results == [(number + 1) ** 2 for number in range(12)]


def test_looking_for_packages_imports_none(tmp_path: Any) -> None:
    for name in ("flash_attn", "xformers", "flashinfer", "sageattention", "kernels"):
        (tmp_path / name / "ops").mkdir(parents=True)
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('it was imported')")
        (tmp_path / name / "flash_attn_interface.py").write_text("")
    code = f"""
import sys
sys.path[:0] = [{str(tmp_path)!r}, "src"]
from kinetop.traces.live.worker import catalog
from kinetop.traces.live.worker.case import Case
why = {{name: catalog.refusal(variant, Case.of("1,2,8,8")) for name, variant in catalog.all_variants().items()}}
for name in ("flash-attn:2", "xformers", "flash-attn:3", "hub:flash-attn2"):
    print(why[name])
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env={"HF_HOME": str(tmp_path)}
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == ["it is CUDA only", "it is CUDA only", "flash_attn_interface is not installed"]
    assert "is not in the hub's cache" in lines[3]
    assert lines[4] == "False"
