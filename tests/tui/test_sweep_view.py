"""The sweep: one case after the other through the live worker, what it shows, how it ends, what it writes."""

from __future__ import annotations

import json
import time
from array import array
from typing import TYPE_CHECKING, Any

import pytest
from textual.widgets import Input, Static

from kinetop.analysis.sweep import lookup
from kinetop.traces.live.link import Start
from kinetop.traces.live.worker.case import Case
from kinetop.traces.live.worker.frames import Frame
from kinetop.tui.live_app import LiveApp
from kinetop.tui.live_feed import Feed, FeedOptions
from kinetop.tui.screens.live import LiveScreen
from kinetop.tui.screens.sweep import SweepScreen
from kinetop.tui.widgets.tables import Tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from textual.pilot import Pilot

Link = Any
CASE = Case.of("1,4,256,64", dtype="fp32")
NAMES = ("eager", "sdpa:flash")


def frame(kind: str, **members: Any) -> Frame:
    return Frame({"kind": kind, "t_ns": 1_790_000_000_000_000_000, **members})


HELLO = frame("hello", environment={"host": "box"}, variants=[{"name": name, "available": True} for name in NAMES])


def measured(do: str, members: dict[str, Any]) -> Iterator[Frame]:
    """Answer a bench as a worker would: eager grows with the square and fails at 1024, flash has a fixed cost."""
    if do != "bench":
        return
    case = Case.from_dict(members["case"])
    for name in members["variants"]:
        about = {"variant": name, "case": members["case"]}
        if name == "eager" and case.kv_len >= 1024:
            yield frame("state", **about, state="FAILED", why="out of memory")
            continue
        ns = case.kv_len**2 if name == "eager" else 20_000 + 100 * case.kv_len
        error = {"max_abs": 0.0, "bound": 1.0, "nan_rows": 0, "ok": True}
        yield frame("prepared", **about, backend=name, peak_bytes=case.kv_len * 1000, error=error)
        header = frame("samples", **about, round=1, marks=[]).header
        yield Frame(header, {"ns": array("q", [ns + n for n in range(20)])})
        yield frame("state", **about, state="RUNNING", why="")
    yield frame("done", what="bench")


def app_on(link: Link) -> LiveApp:
    return LiveApp(Feed(FeedOptions(start=Start(), case=CASE, variants="*"), link))


async def until(pilot: Pilot[Any], holds: Callable[[], Any]) -> None:
    end = time.monotonic() + 30
    while not holds():
        if time.monotonic() > end:
            raise AssertionError("it did not come to pass")
        await pilot.pause(0.02)
    await pilot.pause()


async def swept(pilot: Pilot[Any], app: LiveApp, text: str) -> None:
    await until(pilot, lambda: app.feed.now.wish.variants)
    await pilot.press("w")
    app.screen.query_one(Input).value = text
    await pilot.press("enter")


def complete(app: LiveApp, cases: int) -> bool:
    now = app.feed.now.sweep
    return bool(now and not now.running and now.choice and now.choice.best.height == cases and not app.feed._board.late)


@pytest.mark.parametrize("size", [(80, 24), (140, 40)])
async def test_it_goes_through_the_cases_and_says_which_to_choose(
    link: Link, size: tuple[int, int], screen_text: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = link([HELLO], measured)
    app = app_on(made)
    async with app.run_test(size=size) as pilot:
        await swept(pilot, app, "seq=128:1024:x2")
        await until(pilot, lambda: complete(app, 4))
        assert [Case.from_dict(order["case"]).kv_len for order in made.told("bench")] == [128, 256, 512, 1024]
        assert len(made.told("start")) == 2, "live goes on after a sweep"
        text = screen_text(app)
        assert "measured 4 of 4 cases" in text
        assert "16.39 µs ●" in text
        assert "262.1 µs ▓" in text
        assert "failed" in text
        assert ("│" in text) == (size[1] > 30)
        choice = app.feed.now.sweep.choice  # type: ignore[union-attr]
        assert choice is not None
        assert choice.best["variant"].to_list() == ["eager", "sdpa:flash", "sdpa:flash", "sdpa:flash"]
        (crossing,) = choice.crossovers.to_dicts()
        assert (crossing["low"], crossing["high"]) == (128, 256)
        assert choice.frontier.filter(variant="eager")["failed_at"].to_list() == [1024]
        await pilot.press("m")
        assert "peak memory" in screen_text(app)
        await pilot.press("t")
        assert app.screen.query_one(Tables).current == "crossovers"
        await pilot.press("d")
        await pilot.pause()
        table = json.loads((tmp_path / "kinetop-dispatch.json").read_text())
        assert lookup(table, CASE.with_(q_len=130, kv_len=130)) == "eager"
        assert lookup(table, CASE.with_(q_len=900, kv_len=900)) == "sdpa:flash"
        await pilot.press("escape")
        assert isinstance(app.screen, LiveScreen)
        assert {case.kv_len for case in app.feed.now.cases} == {128, 256, 512, 1024}
        assert app.feed.now.wish.case == CASE


async def test_a_range_that_cannot_be_is_refused_and_nothing_is_measured(link: Link) -> None:
    made = link([HELLO], measured)
    app = app_on(made)
    async with app.run_test(size=(80, 24)) as pilot:
        for text, why in (("rows=1", "a sweep runs along"), ("heads=0:4", "no sizes"), ("seq=x", "sizes are")):
            await swept(pilot, app, text)
            assert why in str(app.screen.query_one("#sweep-said", Static).render())
            await pilot.press("escape")
        assert not made.told("bench")


async def test_escape_stops_a_sweep_and_keeps_what_was_measured(link: Link, screen_text: Callable[..., str]) -> None:
    def only_first(do: str, members: dict[str, Any]) -> Iterator[Frame]:
        if do == "bench" and members["case"]["kv_len"] == 128:
            yield from measured(do, members)

    made = link([HELLO], only_first)
    app = app_on(made)
    async with app.run_test(size=(100, 30)) as pilot:
        await swept(pilot, app, "seq=128:1024:x2")
        await until(pilot, lambda: len(made.told("bench")) == 2 and app.feed.now.sweep and app.feed.now.sweep.done == 1)
        assert "1 of 4" in screen_text(app)
        await pilot.press("escape")
        await until(pilot, lambda: "stopped after 1 of 4 cases" in screen_text(app))
        assert isinstance(app.screen, SweepScreen)
        assert made.orders[-1][0] == "start"
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, LiveScreen))


async def test_a_replay_lays_out_the_recorded_cases(link: Link) -> None:
    app = LiveApp(Feed(FeedOptions(pace=0)))
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: app.feed.now.ended and app.feed.now.cases)
        await pilot.press("w")
        await until(pilot, lambda: app.feed.now.sweep and app.feed.now.sweep.choice)
        assert app.feed.now.sweep is not None
        assert not app.feed.now.sweep.running
