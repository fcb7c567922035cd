"""What to look at: the first findings on the overview, and where they lead."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest
from textual.content import Content

import kinetop
from kinetop.analysis.findings import findings
from kinetop.traces.synthetic import Plan, write
from kinetop.tui.app import KinetopApp
from kinetop.tui.options import Options
from kinetop.tui.screens.overview import FINDINGS
from kinetop.tui.widgets.links import Links

if TYPE_CHECKING:
    from pathlib import Path


Settle = Callable[[Any], Awaitable[str]]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job whose all-reduce nothing hides."""
    folder = tmp_path_factory.mktemp("job")
    return write(Plan(ranks=1, steps=2, layers=8, causes=("exposed-all-reduce",)), folder)[0].path


@pytest.mark.parametrize("size", [(80, 24), (140, 40)])
async def test_the_overview_says_what_to_look_at(size: tuple[int, int], job: Path, settled: Settle) -> None:
    app = KinetopApp([job])
    async with app.run_test(size=size) as pilot:
        lines = [line for line in (await settled(pilot)).splitlines() if line[:4].strip().isdigit()]
        found = findings(kinetop.open(job))["what"].head(FINDINGS)
        assert len(found) > 0
        assert [line[4:].rstrip("…") for line in lines] == [
            text[: len(line) - 4].rstrip("…") if not line.endswith("…") else text[: len(line) - 5]
            for text, line in zip(found, lines, strict=True)
        ]
        assert app.focused is not None
        assert app.focused.id == "kernels"


async def test_enter_opens_the_evidence_and_escape_leads_back(job: Path, settled: Settle) -> None:
    app = KinetopApp([job])
    async with app.run_test(size=(100, 30)) as pilot:
        await settled(pilot)
        await pilot.press("f", "enter")
        text = await settled(pilot)
        assert app.current_mode == "overlap"
        assert "/ family = 'all-reduce'" in text
        await pilot.press("escape")
        await settled(pilot)
        assert app.current_mode == "overview"
        await pilot.press("f")
        assert app.focused is not None
        assert app.focused.id == "kernels"


async def test_the_findings_view_leads_there_too(job: Path, settled: Settle) -> None:
    app = KinetopApp([job], Options(view="findings"))
    async with app.run_test(size=(100, 30)) as pilot:
        assert "exposed-all-reduce" in await settled(pilot)
        await pilot.press("enter")
        await settled(pilot)
        assert app.current_mode == "overlap"


async def test_a_healthy_trace_says_so(tmp_path: Path, settled: Settle) -> None:
    app = KinetopApp([write(Plan(ranks=1, steps=1, layers=8), tmp_path)[0].path])
    async with app.run_test(size=(80, 24)) as pilot:
        assert "What to look at   nothing stands out" in await settled(pilot)
        assert not app.screen.query_one(Links).display
        await pilot.press("f")
        assert not isinstance(app.focused, Links)


async def test_hostile_text_is_shown_as_it_is(hazards: Path, settled: Settle) -> None:
    app = KinetopApp([hazards / "01_baseline_clean.json"])
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        app.screen.query_one(Links).show([(Content("[/x] [bold]"), ("kernels", ""))])
        assert "[/x] [bold]" in await settled(pilot)
