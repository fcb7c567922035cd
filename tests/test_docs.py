"""The pages under docs/ say what the code does."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kinetop.analysis.question import all_questions

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
NOT_CODES = frozenset({"utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be", "kinetop-slice"})


@pytest.fixture(scope="module")
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_build", ROOT / "docs" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_made_from_the_code_are_up_to_date(build: ModuleType) -> None:
    for name, text in build.pages().items():
        assert (ROOT / "docs" / name).read_text() == text, f"docs/{name} is out of date: run `just docs`"


def test_every_question_and_column_is_explained(build: ModuleType) -> None:
    text = build.questions_page()
    for name, question in all_questions().items():
        assert f"\n## {name}\n" in text
        for table in question.tables:
            for column in table.columns:
                assert f"| `{column.name}` | {column.unit} | {column.about}".replace("|", "") in text.replace("\\|", "").replace(
                    "|", ""
                )


def test_every_warning_code_is_explained() -> None:
    """Texts such as `negative-duration` that stand alone in the importer are codes."""
    page = (ROOT / "docs" / "formats.md").read_text()
    codes: set[str] = set()
    for path in [*(ROOT / "traces").glob("*.py"), *(ROOT / "traces" / "reading").glob("*.py")]:
        if path.name.startswith("synthetic"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and re.fullmatch(r"[a-z]+(-[a-z0-9]+)+", node.value)
            ):
                codes.add(node.value)
    assert {"negative-duration", "unclosed-array"} <= codes
    missing = {code for code in codes - NOT_CODES if f"`{code}`" not in page}
    assert not missing, f"docs/formats.md does not explain {', '.join(sorted(missing))}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), target
