"""Expected against observed: patterns of a variant, and the names that its windows hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from kinetop.analysis import expected
from kinetop.analysis.seen import Seen
from kinetop.traces.live.recording import Recording, Trial
from kinetop.traces.live.worker.case import Case
from kinetop.traces.live.worker.frames import Frame

if TYPE_CHECKING:
    from collections.abc import Callable

CASE = Case.of("1,2,48,16", dtype="fp32")


def window(*rows: tuple[str, str, int, int, int]) -> Seen:
    """Two steps of 100 us each, and rows of category, name, start, duration and correlation."""
    steps = [("user_annotation", f"kinetop.step|mine|1|{at}", at * 100_000, 100_000, 0) for at in (0, 1)]
    table = pl.DataFrame([*steps, *rows], schema=["cat", "name", "ts_ns", "dur_ns", "correlation"], orient="row")
    return Seen(table)


def checks(seen: Seen, **prepared: Any) -> dict[str, expected.Check]:
    return {check.pattern: check for check in expected.checked(seen, Trial("mine", CASE, prepared=prepared))}


def test_operators_and_kernels_are_counted_a_step() -> None:
    seen = window(
        ("cpu_op", "aten::bmm", 1_000, 10_000, 0),
        ("cpu_op", "aten::bmm", 20_000, 10_000, 0),
        ("cpu_op", "aten::clone", 120_000, 10_000, 0),
        ("cuda_runtime", "cudaLaunchKernel", 2_000, 1_000, 1),
        ("kernel", "flash_fwd_kernel<64>", 50_000, 20_000, 1),
        ("kernel", "of_another_step", 50_000, 20_000, 99),
    )
    found = checks(seen, expected=["^aten::bmm$", "flash_fwd", "cudnn"], unexpected=["clone", "of_another_step"])
    assert (found["^aten::bmm$"].per_step, found["^aten::bmm$"].ok) == (1.0, True)
    assert (found["flash_fwd"].names, found["flash_fwd"].per_step, found["flash_fwd"].ok) == (
        ("flash_fwd_kernel<64>",),
        0.5,
        True,
    )
    assert (found["cudnn"].names, found["cudnn"].ok) == ((), False)
    assert (found["clone"].kind, found["clone"].per_step, found["clone"].ok) == ("unexpected", 0.5, False)
    assert found["of_another_step"].ok


def test_patterns_of_a_plug_in_may_be_anything() -> None:
    seen = window(("cpu_op", "my::op[fast](", 1_000, 10_000, 0))
    found = checks(seen, expected=["my::op[fast](", 7, None], unexpected="not a list")
    assert list(found) == ["my::op[fast]("]
    assert found["my::op[fast]("].ok  # no regular expression: taken as a name


def test_without_a_window_there_is_nothing_to_check() -> None:
    made = Recording()
    made.add(Frame({"kind": "prepared", "variant": "mine", "case": CASE.to_dict(), "expected": ["bmm"]}))
    assert expected.check(made, made.trials["mine", CASE.text]) == []


def test_a_real_window(windowed: Callable[..., Recording]) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    q, k = torch.randn(2, 48, 16), torch.randn(2, 16, 48)
    made = windowed(CASE, {"mine": lambda: torch.bmm(q, k)}, {"expected": ["^aten::bmm$"], "unexpected": ["softmax"]})
    found = expected.check(made, made.trials["mine", CASE.text])
    assert [(check.kind, check.per_step, check.ok) for check in found] == [("expected", 1.0, True), ("unexpected", 0.0, True)]
