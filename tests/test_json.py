"""Every JSON that a command writes says its schema, and docs/ explain each of its members."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import kinetop
from kinetop.analysis.coverage import COVERAGE_FIELDS
from kinetop.analysis.question import all_questions
from kinetop.tui.cli import app
from kinetop.tui.document import document
from kinetop.tui.examination import Check, Examination

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinetop.traces.trace import TraceSet

ROOT = Path(__file__).parent.parent
TRACE = ROOT / "tests" / "data" / "hazards" / "69_step_gap_and_overlap.json"
ENDINGS = {"us": ("_us",), "ns": ("_ns",), "pct": ("_pct", "pct"), "bytes": ("bytes",), "GB/s": ("gb_s", "gbps")}
"""How the name of a column with a unit ends."""


def documented(page: str, heading: str) -> set[str]:
    """Return the members that the section under a heading explains."""
    text = (ROOT / "docs" / page).read_text()
    section = re.search(rf"^#+ {re.escape(heading)}$(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    assert section is not None, f"docs/{page} has no section {heading}"
    cells = re.findall(r"^\| (.*?) \|", section[1], re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def members(value: Any, known: set[str], at: str = "") -> Iterator[str]:
    """Yield the paths of a document; what is explained as a whole is not looked into."""
    if at.removesuffix("[]") in known:
        return
    if isinstance(value, list):
        for each in value:
            yield from members(each, known, f"{at}[]")
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from members(each, known, f"{at}.{key}" if at else key)
    else:
        yield at


def run(*arguments: str) -> Any:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def check(made: Any, schema: str, known: set[str]) -> None:
    assert made["schema"] == schema
    assert set(members(made, known)) == set()


@pytest.fixture(scope="module")
def trace() -> TraceSet:
    return kinetop.open(TRACE, cache=False)


@pytest.mark.parametrize("name", list(all_questions()))
def test_the_document_of_a_question_is_explained(name: str, trace: TraceSet) -> None:
    question = all_questions()[name]
    made = document(question.ask(trace))
    columns = {table.name: {column.name for column in table.columns} for table in question.tables}
    assert set(made["coverage"]) == {field.name for field in COVERAGE_FIELDS}
    for table in columns.keys() & made.keys():
        assert all(set(row) <= columns[table] for row in made.pop(table))
    check(made, f"kinetop.{name}/{question.version}", documented("formats.md", "Questions"))
    page = (ROOT / "docs" / "questions.md").read_text()
    assert question.schema in page
    assert all(f"`{column}`" in page for names in columns.values() for column in names)


@pytest.mark.parametrize("name", list(all_questions()))
def test_the_unit_of_a_column_ends_its_name(name: str) -> None:
    for table in all_questions()[name].tables:
        for column in table.columns:
            assert column.name.endswith(ENDINGS.get(column.unit, ("",))), f"{table.name}.{column.name} is in {column.unit}"
            said = [unit for unit, endings in ENDINGS.items() if column.name.endswith(endings) and unit in {"us", "ns", "pct"}]
            assert said in ([], [column.unit]), f"{table.name}.{column.name} is in {column.unit}"


@pytest.mark.parametrize(
    ("arguments", "schema"),
    [
        (["info", str(TRACE)], "kinetop.info/1"),
        (["info"], "kinetop.info/1"),
        (["rules"], "kinetop.rules/1"),
        (["rules", "ampere_sgemm_128x64_nn"], "kinetop.rules/1"),
        (["sql", str(TRACE), "select name, dur_ns from events limit 3"], "kinetop.sql/1"),
        (["cache", "list"], "kinetop.cache/1"),
    ],
)
def test_the_document_of_a_command_is_explained(
    arguments: list[str], schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KINETOP_CACHE_DIR", str(tmp_path))
    if arguments[0] == "cache":
        kinetop.open(TRACE)
    known = documented("formats.md", f"`{schema}`") | {
        name for name in documented("formats.md", "Questions") if "[" in name or "." in name
    }
    check(run(*arguments, "--json"), schema, known - {"trace", "warnings"})


def test_the_document_of_convert_is_explained(tmp_path: Path) -> None:
    made = run("convert", str(TRACE), "-o", str(tmp_path / "out.parquet"), "--json")
    check(made, "kinetop.convert/1", documented("formats.md", "`kinetop.convert/1`"))


def test_the_documents_of_measurements_are_explained(tmp_path: Path) -> None:
    made = run("replay", "--demo", "--json")
    top = {name for name in documented("bench.md", "JSON: `kinetop.bench/1`") if name.isidentifier()}
    assert made["schema"] == "kinetop.bench/1"
    assert set(made) <= top
    path = tmp_path / "run.json"
    path.write_text(json.dumps(made))
    check(
        run("gate", str(path), "--baseline", str(path), "--json"), "kinetop.gate/1", documented("formats.md", "`kinetop.gate/1`")
    )


def test_the_document_of_doctor_is_explained() -> None:
    made = Examination((Check("torch", "ok", "2.0"),), {"torch": "2.0"}, ({"name": "eager"},)).document()
    check(made, "kinetop.doctor/1", documented("formats.md", "`kinetop.doctor/1`"))
