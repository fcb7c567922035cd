"""Results as text: sentences are written whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import kinetop
from kinetop.analysis.findings import findings
from kinetop.traces.synthetic import Plan, write
from kinetop.tui.output import Look
from kinetop.tui.text import report

if TYPE_CHECKING:
    from pathlib import Path

    from kinetop.analysis.question import Result


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Result:
    folder: Path = tmp_path_factory.mktemp("trace")
    file = write(Plan(ranks=1, events=20_000, causes=("data-loader",)), folder)[0]
    return findings.ask(kinetop.open(file.path, cache=False))


def test_a_pipe_gets_each_sentence_on_a_line_of_its_own(found: Result) -> None:
    lines = [line.strip() for line in report(found, ["findings"], Look()).splitlines()]
    rows = found.main.select("what", "why", "fix", "evidence").rows()
    assert rows
    for row in rows:
        for text in row:
            assert any(line.endswith(text) for line in lines), text


@pytest.mark.parametrize("width", [60, 80, 140])
def test_a_terminal_gets_them_wrapped_and_whole(found: Result, width: int) -> None:
    text = report(found, ["findings"], Look(width))
    assert max(map(len, text.splitlines())) <= width
    words = " ".join(text.split())
    for sentence in found.main["what"]:
        assert " ".join(sentence.split()) in words
