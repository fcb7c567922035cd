"""The rules of live findings, one function each: given a trial and what its windows show, the evidence, or nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from . import expected

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kinetop.traces.live.recording import Trial
    from kinetop.traces.live.worker.case import Case

    from .seen import Seen

_LARGE_PCT = 10.0
"""Share of the step, or of the samples, from which something is worth a line."""
_COLD_FACTOR = 5.0
_LAUNCH_FACTOR = 1.2
_FEW_SAMPLES = 5
_REPEATS = "^aten::(repeat_interleave|repeat|_unsafe_index|index_select)$"
_MATH = "^aten::_scaled_dot_product_attention_math"
"""It repeats keys by itself, whatever its caller does."""
_UPPER_LEFT = r"^attn\|.*\|upper-left\|"
"""Range of a call that `--target` intercepted, see `worker/target.py`."""
_RAISE_LIMIT = "The recompile limit was reached: raise torch._dynamo.config.recompile_limit, or call torch._dynamo.reset()."


@dataclass(frozen=True)
class Subject:
    """One trial under examination."""

    trial: Trial
    seen: Seen | None
    """Its windows; None where there are none yet."""
    log: Sequence[str] = ()
    """What the worker logged, about any variant."""

    @property
    def case(self) -> Case:
        """What was measured."""
        return self.trial.case


@dataclass(frozen=True)
class Evidence:
    """Why a rule holds, and the words that its text needs."""

    text: str
    words: Mapping[str, str] = field(default_factory=dict)


RULES: dict[str, Callable[[Subject], Evidence | None]] = {}
"""By code, in the order they are tried."""


def _rule(code: str) -> Callable[[Callable[[Subject], Evidence | None]], Callable[[Subject], Evidence | None]]:
    def declare(function: Callable[[Subject], Evidence | None]) -> Callable[[Subject], Evidence | None]:
        RULES[code] = function
        return function

    return declare


def _windowed(code: str) -> Callable[[Callable[[Subject, Seen], Evidence | None]], Callable[[Subject, Seen], Evidence | None]]:
    """Declare a rule that needs windows."""

    def declare(function: Callable[[Subject, Seen], Evidence | None]) -> Callable[[Subject, Seen], Evidence | None]:
        RULES[code] = lambda subject: None if subject.seen is None else function(subject, subject.seen)
        return function

    return declare


@_rule("wrong-numerics")
def wrong_numerics(subject: Subject) -> Evidence | None:
    """Return how far the output is off, where the comparison failed."""
    error = subject.trial.prepared.get("error")
    if not isinstance(error, dict) or error.get("ok") is not False or _is_upper_left(subject):
        return None
    return Evidence(_error_text(error))


@_rule("upper-left-causal")
def upper_left_causal(subject: Subject) -> Evidence | None:
    """Return the lengths, where is_causal was given unequal ones: told by the call itself, or by SDPA's result being wrong."""
    if subject.seen is not None and (calls := subject.seen.marked(_UPPER_LEFT)):
        return Evidence(f"scaled_dot_product_attention was called so: {calls[0]}")
    if not _is_upper_left(subject):
        return None
    error = subject.trial.prepared["error"]
    case = subject.case
    return Evidence(f"q_len {case.q_len:,}, kv_len {case.kv_len:,}, no mask is built or passed; {_error_text(error)}")


def _is_upper_left(subject: Subject) -> bool:
    case, error, seen = subject.case, subject.trial.prepared.get("error"), subject.seen
    wrong = isinstance(error, dict) and error.get("ok") is False
    if not (wrong and seen is not None):
        return False
    unequal = case.causal and case.q_len != case.kv_len and seen.share("^aten::scaled_dot_product_attention$") is not None
    return unequal or bool(seen.marked(_UPPER_LEFT))


def _error_text(error: Mapping[str, Any]) -> str:
    if error.get("why"):
        rows = f"{error['nan_rows']:,} " if error.get("nan_rows") else ""
        return f"{rows}{error['why']}"
    parts = [f"largest error {_number(error.get('max_abs'))}, bound {_number(error.get('bound'))}"]
    if error.get("nan_rows"):
        parts.append(f"{error['nan_rows']:,} rows hold NaN")
    if error.get("reference"):
        parts.append(f"reference {error['reference']}")
    return ", ".join(parts)


def _number(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, int | float) else "unknown"


@_windowed("mask-clone")
def mask_clone(_: Subject, seen: Seen) -> Evidence | None:
    """Return what the clones inside masked_fill cost."""
    share = seen.share("^aten::clone$", inside=r"^aten::masked_fill$")
    return Evidence(f"aten::clone inside aten::masked_fill: {share}") if share else None


@_windowed("math-fallback")
def math_fallback(subject: Subject, seen: Seen) -> Evidence | None:
    """Return what runs, where SDPA took its math path."""
    share = seen.share(_MATH)
    if share is None:
        return None
    casts = seen.share("^aten::_to_copy$", inside=_MATH, outside="^aten::(mul|where)$")
    raised = subject.case.dtype in {"bf16", "fp16"} and casts is not None
    text = f"aten::_scaled_dot_product_attention_math: {share}"
    if raised:
        text += f"; casts to fp32 and back: {casts}"
    kernels = seen.gpu.filter(pl.col("name").str.contains("sgemm"))["name"]
    if len(kernels) and raised:
        text += f"; {kernels[0]} runs in fp32"
    return Evidence(text, {"precision": " in fp32" if raised else "", "why": _why_math(subject, seen)})


def _why_math(subject: Subject, seen: Seen) -> str:
    """Return the first known reason for which no fused backend took the case."""
    case, on_gpu = subject.case, subject.case.device.startswith("cuda")
    said = subject.trial.prepared.get("backend_why")
    masked = bool(seen.marked(r"^attn\|.*\|mask\|math$")) or "mask" in subject.trial.variant
    reasons = (
        (bool(said), f"Why: {str(said).rstrip('.')}."),
        (subject.trial.variant.endswith(":math"), "It was asked for by name."),
        (on_gpu and case.dtype == "fp64", "Fused kernels take no fp64."),
        (on_gpu and case.dtype == "fp32", "Flash and cuDNN take fp16 and bf16, not fp32."),
        (case.qk_dim != case.v_dim, f"Flash wants one head size, here it is {case.qk_dim} for q and k, {case.v_dim} for v."),
        (case.qk_dim > 256, f"Flash takes heads of up to 256 elements, not {case.qk_dim}."),
        (case.causal and case.q_len != case.kv_len, "Flash takes is_causal only where q_len and kv_len are equal."),
        (on_gpu and masked, "A mask was passed, which flash refuses."),
    )
    return next((text for holds, text in reasons if holds), "No fused backend took these inputs.")


@_windowed("mask-rebuilt")
def mask_rebuilt(_: Subject, seen: Seen) -> Evidence | None:
    """Return what building masks in the step costs."""
    names = "tril|triu"
    drawn = seen.share(f"^aten::({names})_?$") and seen.share("^aten::(ones|full|new_ones|new_full|ones_like|full_like)$")
    if drawn is None:  # or compared from positions, as block masks are
        compared = seen.share("^aten::(ge|le|gt|lt)$", outside="^aten::(_safe_softmax|softmax)$")
        if compared is None or seen.share("^aten::arange$") is None:
            return None
        names = "arange|ge|le|gt|lt"
    share = seen.share(
        f"^aten::({names}|ones|full|where|logical_not|logical_and|bitwise_and|__and__)_?$", outside=r"^aten::\w*softmax$"
    )
    ran = seen.names.filter(pl.col("name").str.contains(f"^aten::({names}|ones|full|where)_?$"))["name"]
    return Evidence(f"{', '.join(sorted(ran))}: {share}")


@_windowed("kv-repeated")
def kv_repeated(subject: Subject, seen: Seen) -> Evidence | None:
    """Return what repeating keys and values costs, where there are fewer of them than query heads."""
    case = subject.case
    if case.kv_heads == case.q_heads:
        return None
    share = seen.share(_REPEATS, outside=_MATH) or seen.share(
        "^aten::clone$",
        inside=r"^aten::(reshape|flatten|contiguous|expand)$",
        outside=rf"^aten::(matmul|masked_fill|einsum)$|kinetop\.part\|(pv|qk)$|{_MATH}",
    )
    if share is None:
        return None
    copied = case.batch * case.q_heads * case.kv_len * (case.qk_dim + case.v_dim) * case.element_bytes
    return Evidence(f"{case.q_heads} query heads share {case.kv_heads}; {share}; {copied / 2**20:,.1f} MiB written in each call")


@_windowed("growing-kv")
def growing_kv(subject: Subject, seen: Seen) -> Evidence | None:
    """Return what appending to the cache costs in a decode case."""
    case = subject.case
    share = seen.share("^aten::cat$") if case.mode == "decode" else None
    if share is None:
        return None
    copied = case.batch * case.kv_heads * case.kv_len * (case.qk_dim + case.v_dim) * case.element_bytes
    return Evidence(f"aten::cat: {share}; {copied / 2**20:,.2f} MiB copied for one token")


@_windowed("flex-uncompiled")
def flex_uncompiled(subject: Subject, seen: Seen) -> Evidence | None:
    """Return the operators that a compiled FlexAttention would not run."""
    flex = subject.trial.variant.startswith("flex") or seen.share("^FlexAttention") is not None
    if not flex or (batched := seen.share("^aten::bmm$")) is None or seen.share(r"^aten::_(safe_)?softmax$") is None:
        return None
    limit = next((line for line in reversed(subject.log) if "recompile_limit" in line or "cache_size_limit" in line), None)
    text = f"{len(seen.names):,} kinds of operators in a step; aten::bmm {batched}, with a softmax of its own"
    if limit is not None:
        text += f"; the worker logged: {' '.join(limit.split())[:200]}"
        return Evidence(text, {"fix": _RAISE_LIMIT})
    return Evidence(text, {"fix": "Call torch.compile(flex_attention, dynamic=False), once, and keep the compiled function."})


@_windowed("mha-materialises")
def mha_materialises(subject: Subject, seen: Seen) -> Evidence | None:
    """Return the size of the scores that the fast path of MultiheadAttention writes."""
    share = seen.share("^aten::_native_multi_head_attention$")
    if share is None or seen.share("^aten::(_softmax|_masked_softmax)$", inside="^aten::_native_multi_head_attention$") is None:
        return None
    case = subject.case
    scores = case.batch * case.q_heads * case.q_len * case.kv_len * case.element_bytes
    return Evidence(f"aten::_native_multi_head_attention runs bmm, softmax, bmm: {share}; scores take {scores / 2**20:,.1f} MiB")


@_windowed("launch-bound")
def launch_bound(_: Subject, seen: Seen) -> Evidence | None:
    """Return both times, where a GPU step takes the host longer than the GPU."""
    if not seen.on_gpu or seen.host_us <= _LAUNCH_FACTOR * seen.busy_us:
        return None
    kernels = seen.gpu.height / max(1, seen.count)
    return Evidence(
        f"the host needs {seen.host_us:,.1f} µs for a step, the GPU works {seen.busy_us:,.1f} µs in {kernels:.3g} pieces"
    )


@_windowed("layout-copies")
def layout_copies(subject: Subject, seen: Seen) -> Evidence | None:
    """Return the share of copies beside a fused kernel."""
    if subject.case.mode == "decode" or kv_repeated(subject, seen) is not None:  # a token is written, or told already
        return None
    fused, moved = seen.part_pct("fused"), seen.part_pct("copy", "cast")
    if fused == 0 or moved < _LARGE_PCT:
        return None
    return Evidence(f"copies and casts {moved:.1f} % of a step, the fused kernel {fused:.1f} %")


@_windowed("not-as-expected")
def not_as_expected(subject: Subject, seen: Seen) -> Evidence | None:
    """Return the patterns that were not met, forward cases only: patterns say nothing of gradients."""
    if subject.case.mode == "backward":
        return None
    wrong = [check for check in expected.checked(seen, subject.trial) if not check.ok]
    said = [
        f"nothing fits {check.pattern}"
        if check.kind == "expected"
        else f"{check.names[0]} runs {check.per_step:.3g} times a step"
        for check in wrong
    ]
    return Evidence("; ".join(said)) if said else None


@_rule("first-call-cold")
def first_call_cold(subject: Subject) -> Evidence | None:
    """Return the first call's time beside the median."""
    first, samples = subject.trial.prepared.get("first_call_us"), subject.trial.samples_ns
    if not isinstance(first, int | float) or len(samples) < _FEW_SAMPLES:
        return None
    median_us = sorted(samples)[len(samples) // 2] / 1000
    if first < _COLD_FACTOR * median_us:
        return None
    return Evidence(f"first call {first:,.1f} µs, median {median_us:,.1f} µs: {first / median_us:,.0f} times as long")


@_rule("throttled")
def throttled(subject: Subject) -> Evidence | None:
    """Return how many samples carry the mark."""
    clock = subject.trial.timing.get("clock_mhz")
    evidence = _marked(subject, "throttled")
    return Evidence(f"{evidence.text}, last clock {clock:,.0f} MHz") if evidence and isinstance(clock, int | float) else evidence


@_rule("contended")
def contended(subject: Subject) -> Evidence | None:
    """Return how many samples carry the mark."""
    return _marked(subject, "contended")


def _marked(subject: Subject, mark: str) -> Evidence | None:
    marks = subject.trial.marks
    count = sum(mark in each for each in marks)
    if not marks or 100 * count < _LARGE_PCT * len(marks):
        return None
    return Evidence(f"{count:,} of {len(marks):,} samples ({100 * count / len(marks):.0f} %)")


@_rule("lost-events")
def lost_events(subject: Subject) -> Evidence | None:
    """Return how many launches have no record of their work."""
    lost = sum(window.dropped for window in subject.trial.windows)
    return (
        Evidence(f"{lost:,} launches in {len(subject.trial.windows):,} windows have no record of their GPU work")
        if lost
        else None
    )
