"""Another kernel behind SDPA: it is there while its variant is built and called, and at no other time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kinetop.traces.live.link import Start
from kinetop.traces.live.measure import measure
from kinetop.traces.live.worker import catalog, probes
from kinetop.traces.live.worker.case import Case
from kinetop.traces.live.worker.variants import external, flash_impl

torch = pytest.importorskip("torch", reason="torch is not installed")
attention = pytest.importorskip("torch.nn.attention")
if not hasattr(attention, "activate_flash_attention_impl"):
    pytest.skip("this torch cannot exchange the flash kernel", allow_module_level=True)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

THREE = catalog.built_in()["sdpa-flash:3"]
PLUGIN = """
from contextlib import contextmanager
from kinetop.traces.live.worker.variant import Built, Variant
inside = False

@contextmanager
def setting():
    global inside
    assert not inside
    inside = True
    yield
    inside = False

def build(wanted):
    def made(case, inputs):
        assert inside is wanted
        def call():
            assert inside is wanted
            return inputs.q @ inputs.k.mT @ inputs.v
        return Built(call)
    return made

variants = [
    Variant("mine:within", "mine", "mine", "It needs a setting.", build(True), within=setting, exact=False),
    Variant("mine:without", "mine", "mine", "It must not have it.", build(False), exact=False),
    Variant("mine:refused", "mine", "mine", "It cannot have it.", build(True), within=lambda: 1 / 0, exact=False),
]
"""


class Handle:
    """What torch keeps of an implementation that is active."""

    def __init__(self, name: str, log: list[str]) -> None:
        self._name, self._log = name, log
        log.append(f"{name} on")

    def remove(self) -> None:
        self._log.append(f"{self._name} off")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Stand-ins for the implementations, and what happens to them."""
    from torch.nn.attention import _registry

    said: list[str] = []
    made = {name: (lambda name=name: Handle(name, said)) for name in ("FA3", "MINE")}
    monkeypatch.setattr(_registry, "_FLASH_ATTENTION_IMPLS", made)
    yield said
    attention.restore_flash_attention_impl(_raise_warn=False)


def test_the_implementation_is_active_within_only(log: list[str]) -> None:
    with THREE.within():
        assert attention.current_flash_attention_impl() == "FA3"
    assert attention.current_flash_attention_impl() is None
    assert log == ["FA3 on", "FA3 off"]


def test_what_the_user_activated_comes_back_even_after_an_error(log: list[str]) -> None:
    attention.activate_flash_attention_impl("MINE")
    with pytest.raises(ZeroDivisionError), THREE.within():
        raise ZeroDivisionError
    assert attention.current_flash_attention_impl() == "MINE"
    assert log == ["MINE on", "MINE off", "FA3 on", "FA3 off", "MINE on"]


def test_why_it_cannot_be_had_is_said(log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert THREE.missing() == "flash_attn_interface is not installed"
    assert flash_impl._missing("FA4", "flash_attn.cute")() == "this torch knows no FA4, only FA3, MINE"
    monkeypatch.setattr(probes, "installed", lambda _: True)
    assert THREE.missing() is None
    monkeypatch.delattr(attention, "list_flash_attention_impls")
    assert "cannot exchange" in str(THREE.missing())


@pytest.mark.parametrize(
    ("number", "capability", "said"),
    [
        (3, (8, 0), "capability 8.0"),
        (3, (10, 0), "capability 10.0"),
        (4, (12, 0), "capability 12.0"),
        (4, (9, 0), "bf16 and fp16"),
    ],
)
def test_its_limits_are_said(number: int, capability: tuple[int, int], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external.probes, "capability", lambda: capability)
    dtype = "fp32" if "bf16" in said else "bf16"
    case = Case.of("1,2,8,64", device="cuda", dtype=dtype)
    assert said in str(catalog.built_in()[f"sdpa-flash:{number}"].why_not(case))


def test_what_runs_in_torchs_own_kernel_is_not_as_expected() -> None:
    assert "pytorch_flash" in THREE.unexpected


def test_a_variant_is_built_called_and_profiled_in_its_setting(tmp_path: Path) -> None:
    (tmp_path / "needs_setting.py").write_text(PLUGIN)
    start = Start(plugins=("needs_setting",), environment={"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"})
    case = Case.of("1,1,8,8", dtype="fp32")
    recording = measure(start, [case], ["mine:*"], samples=3, min_time_ms=0, trace_dir=tmp_path)
    found: dict[str, Any] = {trial.variant: trial for trial in recording.trials.values()}
    assert [found[name].why for name in ("mine:within", "mine:without")] == ["", ""]
    assert [found[name].seen for name in ("mine:within", "mine:without")] == [3, 3]
    assert [len(found[name].windows) for name in ("mine:within", "mine:without")] == [1, 1]
    assert len(recording.captured) == 2
    assert "ZeroDivisionError" in found["mine:refused"].why
