"""Workers that die, hang, babble and will not end: the link says so and goes on, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from kinetop.traces.live.link import Link, Start
from kinetop.traces.live.worker.case import Case

if TYPE_CHECKING:
    from kinetop.traces.live.vitals import Timeouts

CASE = Case.of("1,1,16,8", dtype="fp32")
WELL = """
case = hello().get("case", {})
beat()
samples()
while True: told()
"""
FIRST_TIME = """
order = hello()
case = order.get("case", {})
if lives == 1:
    beat("sampling", "bad", 60)
    samples("good")
%s
beat()
samples("good" if "bad" in order.get("without", {}) or not order.get("case") else "bad")
while True: told()
"""


def first_time(does: str) -> str:
    """A worker whose first life ends at the variant `bad`, as the text says."""
    return FIRST_TIME % "\n".join("    " + line for line in does.strip().splitlines())


def begun(start: Start, *, timeouts: Timeouts) -> Link:
    link = Link(start, timeouts=timeouts)
    link.send("start", case=CASE, variants=["good", "bad"])
    return link


async def goes_on(start, timeouts, ask, event: str, why: str, *, blamed: str | None = "bad", within_s: float = 30):
    """Start a worker that comes to grief, and check that it is said, blamed and that the next measures."""
    link = begun(start, timeouts=timeouts)
    try:
        seen = await ask.until(link, ask.event("restarted"), within_s)
        (grief,) = [frame for frame in seen if ask.event(event)(frame)]
        assert why in grief.header["why"]
        assert grief.header["variant"] == blamed
        failed = [frame.header for frame in seen if frame.kind == "state"]
        assert [(one["variant"], one["state"], one["why"]) for one in failed] == (
            [(blamed, "FAILED", grief.header["why"])] if blamed else []
        )
        await ask.until(link, lambda frame: frame.kind == "samples" and (not blamed or frame.header["variant"] == "good"))
        return seen
    finally:
        await link.close()


@pytest.mark.parametrize(
    ("does", "why"),
    [
        (
            "sys.stdout.buffer.write(frames.pack({'kind': 'samples', 'variant': 'x'})[:9]); sys.stdout.flush(); os._exit(3)",
            "exit code 3",
        ),
        ("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL, which the system does when memory runs out"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("sys.stderr.write('terminate called\\n'); sys.stderr.flush(); os.abort()", "SIGABRT: terminate called"),
        ("sys.exit(0)", "exit code 0"),
        (
            "sys.stdout.buffer.write(b'hello world, this is no frame'); sys.stdout.flush(); time.sleep(60)",
            "no frame begins with b'hello world",
        ),
        ("sys.stdout.buffer.write(frames.MAGIC + b'\\xff' * 8); sys.stdout.flush(); time.sleep(60)", "no frame begins with"),
        ("os.close(1); time.sleep(60)", "SIGKILL"),
    ],
    ids=["mid-frame", "killed", "segfault", "abort", "exit", "garbage", "absurd size", "closed"],
)
async def test_a_worker_that_is_lost_is_said_blamed_and_replaced(does, why, fake, quick, ask, lives) -> None:
    await goes_on(fake(first_time(does)), quick, ask, "lost", why)
    assert len(lives()) == 2
    assert not any(map(ask.alive, lives()))


async def test_a_worker_that_hangs_is_ended_whatever_it_ignores(fake, quick, ask, lives) -> None:
    ignores = (
        "for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT): signal.signal(number, signal.SIG_IGN)\ntime.sleep(600)"
    )
    seen = await goes_on(fake(first_time(ignores)), quick, ask, "hung", "no sign of life for 2 s (sampling bad)")
    assert seen
    assert not any(map(ask.alive, lives()))


async def test_a_stopped_worker_is_ended(fake, quick, ask, lives) -> None:
    await goes_on(fake(first_time("os.kill(os.getpid(), signal.SIGSTOP)")), quick, ask, "hung", "no sign of life")
    assert not any(map(ask.alive, lives()))


async def test_a_variant_that_takes_too_long_is_ended_while_the_worker_beats(fake, quick, ask) -> None:
    does = "began = time.time_ns()\nwhile True: beat('compiling', 'bad', 0.8, began); time.sleep(0.1)"
    await goes_on(fake(first_time(does)), quick, ask, "timeout", "compiling bad took more than 0.8 s")


async def test_the_users_own_limit_goes_before_the_variants(fake, quick, ask) -> None:
    does = "began = time.time_ns()\nwhile True: beat('compiling', 'bad', 900, began); time.sleep(0.1)"
    timeouts = dataclasses.replace(quick, variant_s=0.6)
    await goes_on(fake(first_time(does)), timeouts, ask, "timeout", "compiling bad took more than 0.6 s")


async def test_nobody_is_blamed_for_an_end_between_variants(fake, quick, ask) -> None:
    await goes_on(fake(first_time("beat(); os._exit(5)")), quick, ask, "lost", "exit code 5", blamed=None)


async def test_headers_that_say_nonsense_do_no_harm(fake, quick, ask) -> None:
    body = """
case = hello().get("case", {})
say("beat", doing=7); say("beat", doing={"since_ns": "x", "limit_s": "long", "variant": [1]}); say("beat")
say(None); say("error", variant=None)
say("captured", variant="eager", path="/etc/passwd"); say("hello"); say("done", what=3)
samples()
while True: told()
"""
    link = begun(fake(body), timeouts=quick)
    seen = await ask.until(link, ask.kind("samples"))
    await link.close()
    assert [frame.header["event"] for frame in seen if frame.kind == "link"] == ["started"]


async def test_what_a_login_shell_prints_first_goes_to_the_log(fake, quick, ask) -> None:
    link = begun(
        fake("sys.stdout.write('Welcome to box\\nKTP is near\\n'); sys.stdout.flush(); time.sleep(0.2)" + WELL), timeouts=quick
    )
    seen = await ask.until(link, ask.kind("samples"))
    await link.close()
    assert [frame.header["line"] for frame in seen if frame.kind == "log"] == ["Welcome to box", "KTP is near"]


async def test_a_worker_that_never_lives_is_given_up_with_its_last_words(fake, quick, ask, lives) -> None:
    link = begun(fake("sys.exit('bash: python3: command not found')"), timeouts=quick)
    seen = await ask.until(link, ask.event("stopped"))
    await link.close()
    assert "command not found" in seen[-1].header["why"]
    assert len(lives()) == 1


async def test_an_error_before_the_answer_is_why_it_is_given_up(fake, quick, ask) -> None:
    body = "told(); say('error', variant=None, message='there is no torch in X'); sys.stderr.write('noise\\n'); os._exit(69)"
    link = begun(fake(body), timeouts=quick)
    seen = await ask.until(link, ask.event("stopped"))
    await link.close()
    assert seen[-1].header["why"] == "there is no torch in X"


async def test_a_worker_that_never_answers_is_given_up(fake, quick, ask, lives) -> None:
    link = begun(fake("while True: beat(); time.sleep(0.1)"), timeouts=dataclasses.replace(quick, start_s=1))
    seen = await ask.until(link, ask.event("stopped"))
    await link.close()
    assert seen[-1].header["why"] == "no answer in 1 s"
    assert not any(map(ask.alive, lives()))


async def test_workers_that_die_one_after_the_other_are_given_up(fake, quick, ask, lives) -> None:
    link = begun(fake("hello(); beat(); os._exit(4)"), timeouts=quick)
    seen = [frame async for frame in link.frames()]
    await link.close()
    assert [frame.header["event"] for frame in seen if frame.kind == "link"] == [
        "started",
        "lost",
        *["restarted", "lost"] * 2,
        "stopped",
    ]
    assert len(lives()) == 3


async def test_no_such_program_is_said(quick, ask) -> None:
    link = Link(Start(python="/no/such/python"), timeouts=quick)
    seen = await ask.until(link, ask.event("stopped"))
    await link.close()
    assert "/no/such/python" in seen[-1].header["why"]


async def test_a_flood_stalls_neither_the_loop_nor_the_end(fake, quick, ask, lives) -> None:
    link = begun(fake("case = hello().get('case', {})\nwhile True: samples(); sys.stderr.write('noise\\n' * 50)"), timeouts=quick)
    worst, count, end = 0.0, 0, time.monotonic() + 3

    async def tick() -> None:
        nonlocal worst
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.005)
            worst = max(worst, time.monotonic() - began - 0.005)

    ticking = asyncio.create_task(tick())
    lines = 0
    async for frame in link.frames():
        count += frame.kind == "samples"
        lines += frame.kind == "log"
        if time.monotonic() > end:
            break
    ticking.cancel()
    began = time.monotonic()
    await link.close()
    assert count > 500
    assert lines < 200 * 5
    assert worst < 1.5  # that it is fair, not how fast: other processes share this machine
    assert time.monotonic() - began < 10
    assert not any(map(ask.alive, lives()))


async def test_a_slow_consumer_makes_the_worker_wait_and_is_not_called_a_hang(fake, quick, ask) -> None:
    link = begun(
        fake("case = hello().get('case', {})\nwhile True: samples()"), timeouts=dataclasses.replace(quick, silence_s=1.0)
    )
    await ask.until(link, ask.kind("samples"))
    await asyncio.sleep(2.5)
    seen = await ask.until(link, lambda frame: frame.kind == "link" or frame.header.get("seq", 0) > 2000)
    await link.close()
    assert not [frame for frame in seen if frame.kind == "link"]


async def test_closing_ends_a_worker_that_ignores_everything_and_its_children(fake, quick, ask, tmp_path) -> None:
    body = """
import subprocess
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(number, signal.SIG_IGN)
stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", stubborn])
hello(); samples(); say("child", pid=child.pid)
while True: beat(); time.sleep(0.1)
"""
    link = begun(fake(body), timeouts=quick)
    seen = await ask.until(link, ask.kind("child"))
    pids = [seen[-1].header["pid"], int((tmp_path / "life").read_text())]
    assert all(map(ask.alive, pids))
    await link.close()
    assert not any(map(ask.alive, pids))


async def test_no_process_but_ours_is_ended(fake, quick, ask) -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        await goes_on(fake(first_time("os._exit(3)")), quick, ask, "lost", "exit code 3")
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


async def test_a_cancelled_loop_leaves_no_process(fake, quick, ask, lives) -> None:
    async def never_closes() -> None:
        async for _ in begun(fake(WELL), timeouts=quick).frames():
            await asyncio.sleep(0)

    task = asyncio.create_task(never_closes())
    while not (lives_file := lives_or_none(lives)):
        await asyncio.sleep(0.05)
    task.cancel()
    supervisors = [one for one in asyncio.all_tasks() if one.get_name() == "kinetop link"]
    assert len(supervisors) == 1
    supervisors[0].cancel()
    await asyncio.wait(supervisors)
    assert not any(map(ask.alive, lives_file))


def lives_or_none(lives) -> list[int]:
    try:
        return lives()
    except FileNotFoundError:
        return []


async def test_a_worker_whose_host_is_killed_ends(fake, tmp_path, ask, lives) -> None:
    start = fake(WELL)
    host = f"""
import asyncio, sys
sys.path.insert(0, {str(next(p for p in map(str, sys.path) if p.endswith("src")))!r})
from kinetop.traces.live.link import Link, Start
async def main():
    link = Link(Start(python={start.python!r}))
    link.send("start", case={{}}, variants=[])
    async for frame in link.frames():
        if frame.kind == "samples": print("up", flush=True)
asyncio.run(main())
"""
    process = subprocess.Popen([sys.executable, "-c", host], stdout=subprocess.PIPE)
    assert await asyncio.to_thread(process.stdout.readline) == b"up\n"
    (worker,) = lives()
    assert ask.alive(worker)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    for _ in range(100):
        if not ask.alive(worker):
            break
        await asyncio.sleep(0.1)
    assert not ask.alive(worker)


async def test_the_next_worker_is_told_all_that_holds_without_the_guilty(fake, quick, ask, told) -> None:
    body = """
case = hello().get("case", {})
beat("sampling", "bad")
while True:
    order = told()
    if order["do"] == "pause" and lives == 1: os._exit(3)
    if order["do"] == "pause": samples()
"""
    link = Link(fake(body), timeouts=quick)
    link.send("start", case=CASE, variants=["good", "bad"], samples=5)
    await ask.until(link, ask.event("started"))
    link.send("focus", variant="good")
    link.send("pause")
    await ask.until(link, ask.kind("samples"))
    link.send("start", case=CASE.with_(batch=2), variants=["good", "bad"])
    link.send("start", case=CASE, variants=["bad"])
    link.send("resume")
    await link.close()
    second = [json.loads(line[2:]) for line in told() if line.startswith("2 ")]
    assert [order["do"] for order in second[:4]] == ["hello", "start", "focus", "pause"]
    guilt = {"bad": "it ended with exit code 3"}
    assert second[1] == {"do": "start", "case": CASE.to_dict(), "variants": ["good", "bad"], "samples": 5, "without": guilt}
    later = [order for order in second[4:] if order["do"] == "start"]
    assert ["without" in order for order in later] == [False, True][: len(later)]
