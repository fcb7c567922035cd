"""Choosing variants by pattern, and plug-ins: what they add, and that a broken one is said and stops nothing."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kinetop.traces.live.worker import catalog, inputs, numerics
from kinetop.traces.live.worker.case import Case
from kinetop.traces.live.worker.variant import Built, Inputs, Variant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[3]
GOOD = """
from kinetop.traces.live.worker.variant import Built, Variant

def build(case, inputs):
    return Built(lambda: inputs.q @ inputs.k.mT @ inputs.v)

def variants():
    return [Variant("mine:plain", "mine", "plug-in", "Products only.", build, exact=False)]

as_list = [Variant("mine:list", "mine", "plug-in", "Products only.", build)]
taken = [Variant("mine:first", "mine", "plug-in", "", build), Variant("eager", "mine", "plug-in", "", build)]
wrong = ["eager"]
number = 7
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Make an importable module of a source and return its name."""
    made: list[str] = []

    def make(source: str) -> str:
        name = f"kinetop_test_plugin_{len(made)}"
        (tmp_path / f"{name}.py").write_text(source)
        importlib.invalidate_caches()
        made.append(name)
        return name

    monkeypatch.syspath_prepend(tmp_path)
    yield make
    for name in made:
        sys.modules.pop(name, None)


def test_names_and_patterns_are_chosen_in_their_order_each_once() -> None:
    names = catalog.built_in()
    assert catalog.select("linear, sdpa:*,eager,linear", names)[:3] == ["linear", "sdpa:auto", "sdpa:math"]
    assert catalog.select("linear,sdpa:*,eager,linear", names)[-1] == "eager"
    assert catalog.select("*", names) == list(names)
    assert catalog.select("", names) == []
    assert catalog.select("sdpa:[fm]*", names) == ["sdpa:math", "sdpa:flash"]


def test_an_unknown_name_is_an_error_that_names_what_is_near() -> None:
    with pytest.raises(ValueError, match="no variant 'sdpa:flsh'; near it: sdpa:flash"):
        catalog.select("eager,sdpa:flsh", catalog.built_in())
    with pytest.raises(ValueError, match=r"no variant 'nothing:\*'"):
        catalog.select("nothing:*", catalog.built_in())


def test_every_variant_says_who_it_is() -> None:
    for name, variant in catalog.built_in().items():
        assert name == variant.name
        assert variant.title and variant.about.endswith("."), name
        assert variant.group in {"eager", "compiled", "sdpa", "flex", "sparse", "linear", "decode", "layout", "package"}
        assert variant.expected, name
        assert set(variant.modes) <= {"forward", "backward", "decode"}
        assert variant.exact or variant.reference is not None, name


def test_the_page_lists_every_variant_as_it_describes_itself() -> None:
    page = (ROOT / "docs" / "live.md").read_text()
    for variant in catalog.built_in().values():
        assert f"| `{variant.name}` | {variant.about}" in page


def test_the_plugin_of_the_page_works(module: Callable[[str], str]) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    source = (ROOT / "docs" / "variants.md").read_text().split("```python\n")[1].split("```")[0]
    found = catalog.all_variants([module(source)])["mine:plain"]
    case = Case.of("1,2,8,4", dtype="fp64", causal=False)
    made = inputs.make(case, 0)
    assert catalog.refusal(found, case) is None
    assert numerics.compare(found.build(case, made).call(), case, made)["error"]["ok"]
    assert catalog.refusal(found, case.with_(causal=True)) == "it masks nothing"


def test_a_plugin_adds_its_variants(module: Callable[[str], str]) -> None:
    name = module(GOOD)
    found = catalog.all_variants([name, f"{name}:as_list"])
    assert list(found)[-2:] == ["mine:plain", "mine:list"]
    assert list(found)[: len(catalog.built_in())] == list(catalog.built_in())
    assert found["mine:plain"].missing() is None


@pytest.mark.parametrize(
    ("source", "member", "said"),
    [
        ("import no_such_module_of_mine", "", "ModuleNotFoundError"),
        ("raise SystemExit(3)", "", "SystemExit"),
        ("def variants(): return 1 / 0", "", "ZeroDivisionError"),
        ("x = 1", "", "has no attribute 'variants'"),
        (GOOD, ":wrong", "str, not"),
        (GOOD, ":number", "TypeError"),
        (GOOD, ":taken", "the name 'eager' is taken"),
    ],
)
def test_a_broken_plugin_is_a_variant_that_says_why(module: Callable[[str], str], source: str, member: str, said: str) -> None:
    name = module(source) + member
    found = catalog.all_variants([name])
    assert set(found) == {*catalog.built_in(), f"plugin:{name}"}  # of two, one of them taken, neither is added
    broken = found[f"plugin:{name}"]
    assert said in str(broken.missing())
    assert catalog.refusal(broken, Case.of("1,1,1,1")) == broken.missing()
    with pytest.raises(RuntimeError, match="cannot be loaded"):
        broken.build(Case.of("1,1,1,1"), Inputs(None, None, None))


def test_installed_plugins_are_found_by_their_entry_point(module: Callable[[str], str], tmp_path: Path) -> None:
    name = module(GOOD)
    info = tmp_path / "kinetop_test_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: kinetop-test-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[kinetop.variants]\ngood = {name}:variants\nbad = {name}:absent\n")
    found = catalog.all_variants()
    assert "mine:plain" in found
    assert "absent" in str(found["plugin:bad"].missing())


def test_a_refusal_asks_first_whether_it_is_there_at_all() -> None:
    def build(case: Case, inputs: Inputs) -> Built:
        raise AssertionError

    def why_not(case: Case) -> Any:
        return "never asked" if case.mode == "forward" else None

    variant = Variant("x", "x", "plug-in", "", build, why_not=why_not, missing=lambda: "it is not there", modes=("forward",))
    case = Case.of("1,1,1,1", mode="backward", device="xla:7")
    assert catalog.refusal(variant, case) == "it is not there"
