"""The importing screen: how far, cancel, and failures in one sentence."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kinetop.traces import trace as trace_module
from kinetop.traces.errors import CancelledError, UnreadableError
from kinetop.tui.app import KinetopApp
from kinetop.tui.messages import ImportProgress
from kinetop.tui.screens.importing import REDRAW_S, ImportingScreen, failure, progress, roughly

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.pilot import Pilot

HOSTILE = "rank[/x][red]\x1b[31m核\n.json.gz"
STATE = {"file": HOSTILE, "bytes": 50_000_000, "total_bytes": 200_000_000, "events": 1_234_567}


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def importing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put an import of the test's own in place of the real one."""

    def put(body: Callable[[Callable[[dict[str, Any]], None]], Any]) -> None:
        monkeypatch.setattr(trace_module, "open_traces", lambda *_, progress, **__: body(progress))

    return put


async def until(pilot: Pilot[int], true: Callable[[], bool]) -> None:
    """Wait until something holds; a minute means it never will."""
    began_s = time.monotonic()
    while not true():
        assert time.monotonic() - began_s < 60
        await pilot.pause(0.02)


def lines(state: dict[str, Any], elapsed_s: float, width: int = 76, *, cancelling: bool = False) -> list[str]:
    return [line.plain for line in progress(state, elapsed_s, width, cancelling=cancelling)]


def test_progress_says_file_share_size_events_speed_and_time_left() -> None:
    name, bar, figures, note = lines(STATE, 5.0)
    assert name == "rank[/x][red]\\x1b[31m核\\n.json.gz"
    assert bar.endswith("25 %")
    assert bar.count("█") == (76 - 7) // 4
    assert figures == "47.7 MiB of 190.7 MiB   1,234,567 events   9.5 MiB/s   15 s left"
    assert note == ""


def test_progress_before_the_first_news_and_without_a_size() -> None:
    assert lines({}, 0.0)[0] == "reading …"
    assert lines({**STATE, "total_bytes": None}, 5.0)[2] == "47.7 MiB   1,234,567 events   9.5 MiB/s"
    assert "left" not in lines(STATE, 0.2)[2]  # a speed over a fifth of a second says nothing
    assert lines({**STATE, "bytes": 300_000_000}, 5.0)[1].endswith("100 %")


@pytest.mark.parametrize(("seconds", "text"), [(0.2, "1 s"), (59.6, "60 s"), (600, "10 min"), (9000, "2.5 h")])
def test_time_left_is_rough(seconds: float, text: str) -> None:
    assert roughly(seconds) == text


def test_a_fault_of_our_own_says_where() -> None:
    try:
        raise KeyError("[/x]\x1b[31m")
    except KeyError as error:
        text = failure(error).plain
    assert "test_importing.py, line" in text
    assert "\x1b" not in text


@pytest.mark.parametrize("size", [(80, 24), (140, 40)])
async def test_how_far_it_is(size: tuple[int, int], importing: Callable[..., None], screen_text: Any, snapshot: Any) -> None:
    stop = threading.Event()

    def body(tell: Callable[[dict[str, Any]], None]) -> None:
        tell(STATE)
        stop.wait(600)
        raise UnreadableError("over")

    importing(body)
    app = KinetopApp([Path("run.json.gz")])
    async with app.run_test(size=size) as pilot:
        try:
            await until(pilot, lambda: "1,234,567 events" in screen_text(app))
            screen = app.screen
            assert isinstance(screen, ImportingScreen)
            screen._began_s = time.monotonic() - 3600  # long enough that the clock of the test does not show
            screen._draw()
            await pilot.pause()
            text = screen_text(app)
            snapshot(f"importing_{size[0]}x{size[1]}", text.replace(text.splitlines()[-1], "").rstrip())
            assert "esc cancel" in text.splitlines()[-1]
        finally:
            stop.set()


async def test_escape_cancels_and_goes_home(importing: Callable[..., None], screen_text: Any) -> None:
    ended = threading.Event()

    def body(tell: Callable[[dict[str, Any]], None]) -> None:
        try:
            while True:
                tell(STATE)
                time.sleep(0.01)
        finally:
            ended.set()

    importing(body)
    app = KinetopApp([Path("run.json.gz")])
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "1,234,567 events" in screen_text(app))
        await pilot.press("escape")
        await until(pilot, lambda: app.current_mode == "home")
        assert ended.is_set()
        assert app.traces is None


async def test_escape_before_the_import_has_begun_goes_home(importing: Callable[..., None]) -> None:
    begun = threading.Event()
    importing(lambda _: begun.set())
    app = KinetopApp()
    async with app.run_test(size=(80, 24)) as pilot:
        screen = ImportingScreen([Path("run.json.gz")])
        app._start_mode("importing", lambda: screen)
        await until(pilot, lambda: app.current_mode == "importing" and screen.is_mounted)
        screen.action_cancel()
        app._begin_import(screen)
        await until(pilot, lambda: app.current_mode == "home")
        assert not begun.is_set()


async def test_a_cancelled_import_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, import_process: None
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("KINETOP_CACHE_DIR", str(cache))
    event = '{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":%d,"dur":1,"args":{"device":0,"stream":7}}'
    path = tmp_path / "long.json"
    path.write_text('{"traceEvents":[' + ",".join(event % at for at in range(300_000)) + "]}")
    app = KinetopApp([path])
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: isinstance(app.screen, ImportingScreen) and app._import is not None)
        await pilot.press("escape")
        await until(pilot, lambda: app.current_mode == "home")
        assert app.traces is None
    assert [str(file) for file in cache.rglob("*") if file.is_file()] == []


async def test_no_message_makes_a_queue(importing: Callable[..., None], screen_text: Any, settled: Any) -> None:
    def body(tell: Callable[[dict[str, Any]], None]) -> None:
        raise UnreadableError("over")

    importing(body)
    drawn = 0
    app = KinetopApp([Path("run.json.gz")])
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        screen = ImportingScreen([Path("run.json.gz")])
        await app.push_screen(screen)
        draw = screen._draw

        def count() -> None:
            nonlocal drawn
            drawn += 1
            draw()

        screen._ticks.stop()
        screen._ticks = screen.set_interval(REDRAW_S, count)
        for events in range(5_000):
            screen.post_message(ImportProgress({**STATE, "events": events}))
        await until(pilot, lambda: "4,999 events" in screen_text(app))
        assert drawn <= 4


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (UnreadableError("run.json: cut off at byte 1,234; write it again."), "cut off at byte 1,234"),
        (FileNotFoundError(2, "No such file or directory", HOSTILE), "No such file or directory"),
        (MemoryError(), "not enough memory"),
        (RuntimeError("[/x]"), "kinetop itself failed"),
    ],
)
async def test_a_failure_is_one_sentence_and_can_be_tried_again(
    error: Exception, sentence: str, importing: Callable[..., None], settled: Any
) -> None:
    tries = 0

    def body(tell: Callable[[dict[str, Any]], None]) -> None:
        nonlocal tries
        tries += 1
        raise error

    importing(body)
    app = KinetopApp([Path("run.json")])
    async with app.run_test(size=(80, 24)) as pilot:
        text = await settled(pilot)
        assert "This cannot be opened." in text
        assert sentence in " ".join(text.split())
        assert "esc home" in text
        await pilot.press("r")
        await settled(pilot)
        assert tries == 2
        await pilot.press("escape")
        await settled(pilot)
        assert app.current_mode == "home"


async def test_a_file_that_is_no_trace(hazards: Path, settled: Any) -> None:
    app = KinetopApp([hazards / "19_zero_byte.json"])
    async with app.run_test(size=(80, 24)) as pilot:
        text = await settled(pilot)
        assert "This cannot be opened." in text
        assert "kinetop itself failed" not in text


def test_a_cancelled_import_is_no_failure() -> None:
    screen = ImportingScreen([Path("a"), Path("b")])
    assert screen.check_action("cancel", ()) is True
    assert screen.check_action("retry", ()) is False
    screen.error = CancelledError("stopped")
    assert screen.check_action("home", ()) is True
