"""The small list to choose from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import App

from kinetop.tui.screens.pick import PickScreen

if TYPE_CHECKING:
    from collections.abc import Mapping

CHOICES = ["name", "family", "[/x]"]


class Pick(App[None]):
    """An app that only chooses."""

    def __init__(self, about: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.given: list[str | None] = []
        self.about = about

    def on_mount(self) -> None:
        self.push_screen(PickScreen("group by", CHOICES, "name", self.about), self.given.append)

    def lines(self) -> list[str]:
        """Return what stands inside the frame."""
        strips = ["".join(segment.text for segment in strip) for strip in self.screen._compositor.render_strips()]
        return [line.split("│")[1][1:].rstrip() for line in strips if "│" in line]


async def test_a_choice_is_given_back_and_escape_gives_none() -> None:
    for keys, given in ((("j", "enter"), "family"), (("escape",), None)):
        app = Pick()
        async with app.run_test() as pilot:
            await pilot.pause()
            await pilot.press(*keys)
            await pilot.pause()
        assert app.given == [given]


async def test_the_cursor_needs_no_colour() -> None:
    app = Pick()
    async with app.run_test() as pilot:
        await pilot.pause()
        assert app.lines() == ["▌name", " family", " [/x]"]
        await pilot.press("down", "down")
        await pilot.pause()
        assert app.lines() == [" name", " family", "▌[/x]"]


async def test_what_a_choice_means_stands_beside_it_on_one_line() -> None:
    app = Pick({"name": "what a kernel is called", "family": "x" * 200})
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        name, family, none = app.lines()
    assert name == "▌name    what a kernel is called"
    assert family.startswith(" family  xxx")
    assert family.endswith("…")
    assert none == " [/x]"
