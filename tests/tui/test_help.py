"""Help and notices: pages over a view."""

from __future__ import annotations

from typing import Any

import pytest

from kinetop.traces.report import Notice
from kinetop.tui.app import KinetopApp
from kinetop.tui.screens.help import HelpScreen, NoticesScreen

HOSTILE = "[/x][red]\x1b[31m核\nname"
NOTICES = [
    Notice("clipped-end", 1, "One end was clipped.", level="info"),
    Notice("invalid-utf8", 12, f"12 names held bytes that are not UTF-8: {HOSTILE}", 1_234),
]
HELP = """Why the GPUs waited.

## Keys

| key | does |
|---|---|
| `/` | Filter the rows as you type |
| `\\|` | nothing |

## Columns of gaps

| column | unit | definition |
|---|---|---|
| dur_us | us | Length of the gap, over all streams of the device, from the end of the last activity to the start of the next. |
"""


def box(text: str) -> str:
    """Return the frame of a dialog without the view behind it."""
    lines = text.splitlines()
    top = next(at for at, line in enumerate(lines) if "╭" in line)
    bottom = next(at for at, line in enumerate(lines) if "╰" in line)
    left, right = lines[top].index("╭"), lines[top].rindex("╮") + 1
    return "\n".join(line[left:right] for line in lines[top : bottom + 1])


@pytest.mark.parametrize("size", [(80, 24), (140, 40)])
async def test_notices(size: tuple[int, int], settled: Any, snapshot: Any) -> None:
    app = KinetopApp()
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        app.push_screen(NoticesScreen(NOTICES))
        text = await settled(pilot)
        snapshot(f"notices_{size[0]}x{size[1]}", box(text))
        assert text.index("invalid-utf8, 12 times   first at byte 1,234") < text.index("clipped-end, 1 time")
        assert r"[/x][red]\x1b[31m核\nname" in text
        await pilot.press("escape")
        await settled(pilot)
        assert not isinstance(app.screen, NoticesScreen)


async def test_no_notices(settled: Any) -> None:
    app = KinetopApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        app.push_screen(NoticesScreen([]))
        assert "Nothing was repaired" in await settled(pilot)


async def test_a_long_page_scrolls_by_keys(settled: Any) -> None:
    app = KinetopApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        app.push_screen(NoticesScreen([Notice(f"code-{at}", at, "A sentence.") for at in range(40)]))
        assert "code-39" not in await settled(pilot)
        await pilot.press("G")
        assert "code-39" in await settled(pilot)
        await pilot.press("g", "j")
        assert "code-0" not in await settled(pilot)


@pytest.mark.parametrize("size", [(80, 24), (140, 40)])
async def test_help(size: tuple[int, int], settled: Any, snapshot: Any) -> None:
    app = KinetopApp()
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        app.push_screen(HelpScreen("idle", HELP))
        snapshot(f"help_{size[0]}x{size[1]}", box(await settled(pilot)))
        await pilot.press("f1")
        await settled(pilot)
        assert not isinstance(app.screen, HelpScreen)
