"""The live screen on recorded and on told frames: what it shows, what its keys order, what it survives."""

from __future__ import annotations

import asyncio
import threading
import time
from array import array
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from textual.widgets import Input, Static

from kinetop.analysis import live_findings, parts, trials
from kinetop.traces.live import journal, session
from kinetop.traces.live.link import Start
from kinetop.traces.live.worker.case import Case
from kinetop.traces.live.worker.frames import Frame
from kinetop.tui import live_feed
from kinetop.tui.live_app import LiveApp
from kinetop.tui.live_feed import Feed, FeedOptions
from kinetop.tui.live_now import WINDOWS_SHOWN
from kinetop.tui.messages import Captured
from kinetop.tui.options import Options
from kinetop.tui.screens.case import CaseScreen
from kinetop.tui.screens.live import LiveScreen
from kinetop.tui.screens.variants import VariantsScreen
from kinetop.tui.widgets.choice import Choice
from kinetop.tui.widgets.live_table import LiveTable
from kinetop.tui.widgets.panes import Panes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from textual.pilot import Pilot

Link = Any
CASE = Case.of("2,4/2,512,64", dtype="fp32")
NASTY = "[/x] \x1b[31m\nout of memory 中文"
T_NS = 1_790_000_000_000_000_000


def said(kind: str, **members: Any) -> Frame:
    return Frame({"kind": kind, "t_ns": T_NS, "seq": 1, **members})


def variant(name: str, why_not: str = "") -> dict[str, Any]:
    told = {"name": name, "title": name, "group": "eager", "about": f"about {name}", "modes": ["forward"]}
    return {**told, "available": not why_not, "why_not": why_not or None}


HELLO = said(
    "hello",
    environment={"host": "box", "device_name": "NVIDIA H200", "torch": "2.13.0"},
    variants=[variant("eager"), variant("sdpa:math"), variant("sdpa:cudnn", "it needs CUDA"), variant("linear")],
)


def state(name: str, word: str, why: str = "", case: Case = CASE) -> Frame:
    return said("state", variant=name, case=case.to_dict(), state=word, why=why)


def samples(name: str, us: int, count: int = 12, case: Case = CASE, marks: tuple[str, ...] = ()) -> Frame:
    header = {"variant": name, "case": case.to_dict(), "round": 1, "marks": list(marks), "timer": "perf_counter"}
    return replace(said("samples", **header), columns={"ns": array("q", [us * 1000 + 10 * n for n in range(count)])})


def app_on(made: Link, **options: Any) -> LiveApp:
    feed = {"start": Start(), "case": CASE, "variants": "eager,sdpa:*", **options}
    return LiveApp(Feed(FeedOptions(**feed), made))


async def until(pilot: Pilot[Any], holds: Callable[[], Any], patience_s: float = 120) -> None:
    end = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > end:
            raise AssertionError("it did not come to pass")
        await pilot.pause(0.02)
    await pilot.pause()


def cells(app: LiveApp, column: str) -> dict[str, Any]:
    frame = app.screen.query_one("#variants", LiveTable).frame
    return {} if frame is None else dict(frame.select("variant", column).iter_rows())


def say(app: LiveApp, link: Link, *frames: Any) -> None:
    for frame in frames:
        app.feed._loop.call_soon_threadsafe(link.say, frame)  # type: ignore[union-attr]


# What it shows


@pytest.mark.parametrize("size", [(80, 24), (100, 30), (140, 40)])
async def test_a_recorded_session_shows_the_figures_of_the_analyses(
    size: tuple[int, int], screen_text: Callable[..., str]
) -> None:
    from kinetop.traces.live.recording import Recording

    recording = Recording()
    for frame in session.frames(session.demo()):
        recording.add(frame)
    case = recording.cases[-1]
    recording.trials = {
        key: replace(trial, windows=trial.windows[-WINDOWS_SHOWN:])
        for key, trial in recording.trials.items()
        if key[1] == case.text
    }
    wanted = trials.table(recording, resamples=50)
    app = LiveApp(Feed(FeedOptions(pace=0)))
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app.feed.now.ended and not app.feed._board.late and len(cells(app, "n")) == wanted.height)
        assert cells(app, "median_us") == dict(wanted.select("variant", "median_us").iter_rows())
        first = wanted["variant"][0]
        text = screen_text(app)
        assert f"▌{first}" in text
        split = parts.split(recording.events(first, case.text))
        largest = split.sort("share_pct")["share_pct"][-1]
        assert f"{largest:.0f} %" in text
        assert len(app.feed.now.findings) == len(live_findings.find(recording))
        assert "the session ends here" in text
        assert app.feed.now.problems == {}
        assert ("of peak" in text or "useful" in text) == (size[0] > 80)
        assert max(map(len, text.splitlines())) <= size[0]


async def test_every_state_with_its_reason_and_hostile_texts(link: Link, screen_text: Callable[..., str]) -> None:
    words = ["COLD", "COMPILING", "RUNNING", "THROTTLED", "CONTENDED", "FAILED", "UNAVAILABLE", "PAUSED"]
    names = [f"v{at}[/b]" for at in range(len(words))]
    hello = said("hello", environment={"host": NASTY, "torch": NASTY}, variants=[variant(name) for name in names])
    frames = [hello, *(state(name, word, NASTY) for name, word in zip(names, words, strict=True))]
    app = app_on(link([*frames, said("log", line=NASTY), said("link", event="restarted", why=NASTY, attempt=2)]), variants="v*")
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: len(cells(app, "status")) == len(words) and app.feed.now.link.get("attempt") == 2)
        text = screen_text(app)
        for word in words:
            assert f"{word.lower()}: [/x]" in text
        assert "\x1b" not in text
        assert "worker restarted (2)" in text
        await pilot.press("t", "t")
        assert r"[/x] \x1b[31m\nout of memory 中文" in screen_text(app)


async def test_a_variant_of_which_nothing_was_heard_and_one_that_is_not_here(link: Link) -> None:
    app = app_on(link([HELLO, samples("eager", 100)]), variants="eager,sdpa:*,nothing")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: len(cells(app, "status")) == 3)
        assert cells(app, "status")["sdpa:math"] == "cold"
        assert cells(app, "status")["sdpa:cudnn"] == "unavailable: it needs CUDA"
        assert "nothing" in app.feed.now.problems["variants"]


async def test_compiling_says_for_how_long(link: Link) -> None:
    doing = {"what": "prepare", "variant": "eager", "since_ns": T_NS - 8_000_000_000}
    app = app_on(link([HELLO, state("eager", "COMPILING"), said("beat", doing=doing)]))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: cells(app, "status").get("eager") == "compiling 8 s")


async def test_ascii_and_a_wide_screen(link: Link, screen_text: Callable[..., str]) -> None:
    app = LiveApp(Feed(FeedOptions(pace=0)), Options(ascii=True))
    async with app.run_test(size=(140, 40)) as pilot:
        await until(pilot, lambda: app.feed.now.ended and app.feed.now.chosen.ops is not None)
        assert screen_text(app).isascii()
        assert app.screen.query_one("#live-side").display
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert not app.screen.query_one("#live-side").display


# What the keys order


async def test_it_measures_what_was_asked_and_begins_after_the_hello(link: Link) -> None:
    made = link([HELLO])
    app = app_on(made)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: made.told("start"))
        (start,) = made.told("start")
        assert Case.from_dict(start["case"]) == CASE
        assert start["variants"] == ["eager", "sdpa:math", "sdpa:cudnn"]
        say(app, made, HELLO)  # of a restarted worker, which the link tells what to do
        await pilot.pause(0.3)
        assert len(made.told("start")) == 1


async def test_the_case_form(link: Link) -> None:
    made = link([HELLO, samples("eager", 100)])
    app = app_on(made)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: cells(app, "n").get("eager"))
        await pilot.press("p")
        form = app.screen
        assert isinstance(form, CaseScreen)
        field = form.query_one("#case-shape", Input)
        for wrong, why in (("2,4", "a shape is"), ("2,3/2,64,8", "no multiple"), ("1,1,9/4,8", "kv_len >= q_len")):
            field.value = wrong
            await pilot.press("enter")
            assert app.screen is form
            assert why in str(form.query_one("#case-said", Static).render())
        field.value = "1,8/2,128,64"
        await pilot.press("down", "right", "down", "right", "down", *"64", "down", "right")
        form.query_one("#case-mode", Choice).value = "decode"
        await pilot.press("enter")
        await until(pilot, lambda: len(made.told("start")) == 2)
        wanted = Case.of("1,8/2,128,64", dtype="bf16", causal=False, window=64, mode="decode")
        assert Case.from_dict(made.told("start")[-1]["case"]) == wanted
        await until(pilot, lambda: app.feed.now.wish.case == wanted and not cells(app, "n").get("eager"))


async def test_the_variants_list_shows_why_not(link: Link, screen_text: Callable[..., str]) -> None:
    made = link([HELLO])
    app = app_on(made)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.feed.now.variants)
        await pilot.press("v")
        assert isinstance(app.screen, VariantsScreen)
        await pilot.pause()
        assert "unavailable: it needs CUDA" in screen_text(app)
        await pilot.press("n", "G", "space", "enter")
        await until(pilot, lambda: len(made.told("start")) == 2)
        assert made.told("start")[-1]["variants"] == ["linear"]
        await pilot.press("v", "a", "enter")
        await until(pilot, lambda: len(made.told("start")) == 3)
        assert made.told("start")[-1]["variants"] == ["eager", "sdpa:math", "linear"]


async def test_cursor_baseline_pause_and_sort(link: Link) -> None:
    made = link([HELLO, samples("eager", 100), samples("sdpa:math", 400)])
    app = app_on(made)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: len([n for n in cells(app, "n").values() if n]) == 2)
        assert cells(app, "vs_base")["sdpa:math"] == pytest.approx(0.25, rel=0.01)
        await pilot.press("down")
        await until(pilot, lambda: app.feed.now.chosen.variant == "sdpa:math")
        assert made.told("focus")[-1] == {"variant": "sdpa:math"}
        await pilot.press("b")
        await until(pilot, lambda: cells(app, "vs_base")["eager"] == pytest.approx(4, rel=0.01))
        await pilot.press("b", "space")
        await until(pilot, lambda: made.told("pause"))
        await until(pilot, lambda: app.feed.now.wish.paused)
        await pilot.press("space")
        await until(pilot, lambda: made.told("resume"))
        table = app.screen.query_one("#variants", LiveTable)
        table.sort_by("median_us", descending=True)
        await pilot.pause()
        assert table.ordered is not None
        assert table.ordered["variant"][0] == "sdpa:math"
        say(app, made, samples("eager", 900, count=200))
        await until(pilot, lambda: table.ordered is not None and table.ordered["variant"][0] == "eager")


async def test_record_writes_a_session_that_replays(
    link: Link, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, screen_text: Callable[..., str]
) -> None:
    monkeypatch.chdir(tmp_path)
    made = link([HELLO, samples("eager", 100)])
    app = app_on(made)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: cells(app, "n").get("eager"))
        await pilot.press("r")
        await until(pilot, lambda: app.feed.now.recording_to)
        assert "● rec kinetop-live-" in screen_text(app)
        say(app, made, samples("eager", 300, count=5))
        await until(pilot, lambda: cells(app, "n").get("eager") == 17)
        await pilot.press("r")
        await until(pilot, lambda: not app.feed.now.recording_to)
    (path,) = tmp_path.glob("*.parquet")
    kinds = [frame.kind for frame in session.frames(path)]
    assert kinds.count("hello") == 1
    assert kinds.count("samples") == 1
    again = LiveApp(Feed(FeedOptions(session=path, pace=0)))
    async with again.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: cells(again, "n").get("eager") == 5)


async def test_capture_opens_in_the_trace_views_and_o_leads_back(link: Link, hazards: Path, settled: Callable[..., Any]) -> None:
    def answer(do: str, members: dict[str, Any]) -> list[Frame]:
        return [said("captured", variant="eager", path=str(hazards / "01_baseline_clean.json"))] if do == "capture" else []

    made = link([HELLO, samples("eager", 100)], answer)
    app = app_on(made)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: cells(app, "n").get("eager"))
        await pilot.press("c")
        await until(pilot, lambda: app.current_mode == "ops")
        assert "01_baseline_clean.json" in await settled(pilot)
        (order,) = made.told("capture")
        assert order["variant"] == "eager"
        await pilot.press("o")
        await until(pilot, lambda: isinstance(app.screen, LiveScreen))
        await pilot.press("2")
        await until(pilot, lambda: app.current_mode == "kernels")
        await pilot.press("escape", "escape")
        await until(pilot, lambda: isinstance(app.screen, LiveScreen))


async def test_what_does_not_run_is_not_captured(link: Link) -> None:
    made = link([HELLO, state("eager", "FAILED", "no")])
    app = app_on(made)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: cells(app, "status").get("eager") == "failed: no")
        await pilot.press("c")
        await pilot.pause()
        assert not made.told("capture")


async def test_copy_panes_and_help(link: Link, settled: Callable[..., Any]) -> None:
    app = app_on(link([HELLO, samples("eager", 100)]))
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: cells(app, "n").get("eager"))
        await pilot.press("Y")
        assert app.clipboard.startswith("variant\tbackend\tmedian_us")
        await pilot.press("y")
        assert app.clipboard.startswith("eager\t")
        panes = app.screen.query_one(Panes)
        await pilot.press("enter")
        assert app.focused is panes.table("ops")
        await pilot.press("t")
        assert panes.current == "findings"
        assert app.focused is not None
        assert app.focused.id == "findings-page"
        await pilot.press("escape", "f1")
        assert "Choose which variants are measured" in await settled(pilot) or "Attention variants" in await settled(pilot)


async def test_a_replay_takes_no_orders_and_p_chooses_a_recorded_case(link: Link) -> None:
    app = LiveApp(Feed(FeedOptions(pace=0)))
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: app.feed.now.ended and app.feed.now.cases)
        await pilot.press("c")
        await pilot.press("p")
        await pilot.pause()
        first = app.feed.now.cases[0]
        app.screen.dismiss(first.text)
        await until(pilot, lambda: app.feed.now.wish.case == first)


# What it survives


async def test_quit_ends_the_worker_and_the_thread(link: Link) -> None:
    made = link([HELLO])
    app = app_on(made)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: made.told("start"))
        await pilot.press("q")
    assert made.closed
    assert not [thread for thread in threading.enumerate() if thread.name == "kinetop-feed"]


async def test_a_worker_that_cannot_start_says_why_and_the_app_lives(link: Link, screen_text: Callable[..., str]) -> None:
    made = link()
    made.say(said("link", event="stopped", why="torch is not installed: pip install torch", attempt=0))
    made.say(None)
    app = app_on(made)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: "pip install torch" in screen_text(app))
        await pilot.press("question_mark")
        await pilot.pause()


async def test_a_stream_that_breaks_keeps_what_was_measured(link: Link, screen_text: Callable[..., str]) -> None:
    made = link([HELLO, samples("eager", 100)])
    made.say(RuntimeError(NASTY))
    app = app_on(made)
    async with app.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: "RuntimeError: [/x]" in screen_text(app))
        assert cells(app, "n")["eager"] == 12


@pytest.mark.parametrize(("module", "name", "piece"), [(trials, "table", "table"), (live_findings, "find", "findings")])
async def test_a_piece_that_fails_is_shown_and_the_others_go_on(
    link: Link, monkeypatch: pytest.MonkeyPatch, screen_text: Callable[..., str], module: Any, name: str, piece: str
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError(NASTY)

    monkeypatch.setattr(module, name, broken)
    app = app_on(link([HELLO, samples("eager", 100), said("telemetry", device="cpu", load1=3.25)]))
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: app.feed.now.problems.get(piece) and app.feed.now.telemetry)
        await pilot.pause(0.1)
        text = screen_text(app)
        assert "3.25" in text
        assert r"ZeroDivisionError: [/x] \x1b[31m" in text


async def test_frames_of_nonsense_are_survived(link: Link) -> None:
    odd = [
        Frame({}),
        Frame({"kind": 7}),
        said("state"),
        said("samples", variant="eager"),
        said("window", variant=None),
        said("hello"),
    ]
    app = app_on(link([*odd, HELLO, samples("eager", 100)]))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: cells(app, "n").get("eager") == 12)


async def test_no_frame_is_lost_while_a_picture_is_made(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    before = trials.table

    def slow(*arguments: Any, **options: Any) -> Any:
        time.sleep(0.2)
        return before(*arguments, **options)

    monkeypatch.setattr(trials, "table", slow)
    made = link([HELLO])
    app = app_on(made)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: made.told("start"))
        for _ in range(60):
            say(app, made, *[samples("eager", 100, count=1)] * 5)
            await asyncio.sleep(0.005)
        await until(pilot, lambda: cells(app, "n").get("eager") == 300)


async def test_only_changed_cells_are_drawn(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    made = link([HELLO, samples("eager", 100), samples("sdpa:math", 400)])
    app = app_on(made)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: len([n for n in cells(app, "n").values() if n]) == 2 and not app.feed._board.late)
        table = app.screen.query_one("#variants", LiveTable)
        drawn: list[Any] = []
        monkeypatch.setattr(table, "refresh", lambda *regions, **_: drawn.append(regions))
        assert table.frame is not None
        columns = table.columns
        table.show(table.frame.clone(), columns)
        assert drawn == []
        changed = table.frame.with_columns(status=table.frame["status"].replace("running", "paused").replace("cold", "paused"))
        table.show(changed, columns)
        regions = [region for call in drawn for region in call]
        assert regions
        assert all(region.height == 1 and region.x > 16 for region in regions)


async def test_what_befell_the_worker_stays_in_the_log(link: Link, screen_text: Callable[..., str]) -> None:
    lost = [said("link", event="lost", why=NASTY, attempt=0), said("link", event="restarted", why="", attempt=1)]
    failed = said("error", variant="eager", type="RuntimeError", message=NASTY, detail="")
    app = app_on(link([HELLO, *lost, failed, samples("eager", 100)]))
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: cells(app, "n").get("eager"))
        await pilot.press("t", "t")
        await pilot.pause()
        text = screen_text(app)
        assert "worker restarted" in text.splitlines()[0]
        assert r"worker lost: [/x] \x1b[31m" in text
        assert r"eager: RuntimeError: [/x]" in text


def journal_of(path: Path, frames: list[Frame]) -> Path:
    path.write_bytes(b"".join(map(journal.packed, frames)))
    return path


def test_a_long_session_that_is_read_at_once_waits_for_pictures_and_can_be_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_feed, "MOST_WAITING", 100)
    path = journal_of(tmp_path / "a.journal", [HELLO, *(said("log", line=str(n)) for n in range(20_000))])
    feed = Feed(FeedOptions(session=path, pace=0))
    most, told = [0], threading.Event()
    take = feed._take
    monkeypatch.setattr(feed, "_take", lambda: (most.append(len(feed._waiting)), take(), told.set()))
    feed.start()
    assert told.wait(30)
    feed.close()
    assert max(most) == 100
    assert not feed.now.ended


def test_a_replay_opens_no_file_that_the_session_names(tmp_path: Path) -> None:
    path = journal_of(tmp_path / "a.journal", [HELLO, said("captured", variant="eager", path="/dev/zero")])
    feed, heard = Feed(FeedOptions(session=path, pace=0)), []
    feed.listen(heard.append)
    feed.start()
    end = time.monotonic() + 30
    while not feed.now.ended and time.monotonic() < end:
        time.sleep(0.02)
    feed.close()
    assert feed.now.ended == "the session ends here"
    assert not [message for message in heard if isinstance(message, Captured)]
