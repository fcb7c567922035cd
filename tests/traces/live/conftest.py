"""Workers that misbehave as a test wants it, and what there is to ask of a link."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kinetop.traces.live.link import Start
from kinetop.traces.live.vitals import Timeouts

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinetop.traces.live.link import Link
    from kinetop.traces.live.worker.frames import Frame

ROOT = Path(__file__).resolve().parents[3]
FAKE = """#!{python}
import json, os, signal, sys, threading, time
sys.path.insert(0, {src!r})
from kinetop.traces.live.worker import frames
commands = sys.stdin.buffer
commands.read(int(commands.readline()))
count = 0
life = {life!r}
with open(life, "a") as file:
    file.write(f"{{os.getpid()}}\\n")
lives = len(open(life).readlines())
seen = open(life + ".commands", "a", buffering=1)

def say(kind, columns=None, **members):
    global count
    count += 1
    sys.stdout.buffer.write(frames.pack({{"kind": kind, "t_ns": time.time_ns(), "seq": count, **members}}, columns))
    sys.stdout.buffer.flush()

def beat(what="waiting", variant=None, limit_s=None, since_ns=None):
    say("beat", doing={{"what": what, "variant": variant, "since_ns": since_ns or time.time_ns(), "limit_s": limit_s}})

def samples(variant="eager"):
    say("samples", {{"ns": ("i64", [1000, 2000])}}, variant=variant, case=case, round=1)

def told():
    line = commands.readline()
    if not line:
        sys.exit(0)
    seen.write(f"{{lives}} {{line.decode()}}")
    return json.loads(line)

def hello():
    assert told()["do"] == "hello"
    say("hello", protocol=1, environment={{}}, variants=[])
    return told()

{body}
"""


@pytest.fixture
def fake(tmp_path: Path) -> Callable[..., Start]:
    """Make a worker of a script's text, and return how it is started."""

    def make(body: str, **rest: Any) -> Start:
        path = tmp_path / "python"
        body = "\n".join(("case = {}", body))
        path.write_text(FAKE.format(python=sys.executable, src=str(ROOT / "src"), life=str(tmp_path / "life"), body=body))
        path.chmod(0o755)
        return Start(python=str(path), **rest)

    return make


@pytest.fixture
def lives(tmp_path: Path) -> Callable[[], list[int]]:
    """Process ids of the fake workers that there were."""
    return lambda: [int(line) for line in (tmp_path / "life").read_text().split()]


@pytest.fixture
def told(tmp_path: Path) -> Callable[[], list[str]]:
    """Commands that the fake workers took, each with the number of the worker before it."""
    return lambda: (tmp_path / "life.commands").read_text().splitlines()


@pytest.fixture
def quick() -> Timeouts:
    """Time-outs for workers that answer at once."""
    return Timeouts(start_s=20, silence_s=2, stop_s=0.5, restarts=2, backoff_s=0.01)


@pytest.fixture
def torch() -> None:
    """Skip where torch is absent, without importing it here."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed: pip install 'kinetop[live]'")


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An `ssh` that runs its command with a shell of this machine, elsewhere, and notes its arguments."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "ssh"
    script.write_text(
        f"#!{sys.executable}\nimport json, os, sys\njson.dump(sys.argv, open({str(tmp_path / 'argv')!r}, 'w'))\n"
        f"os.chdir({str(folder)!r})\nos.execvp('sh', ['sh', '-c', sys.argv[-1]])\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return tmp_path


class Ask:
    """What tests ask of a link."""

    @staticmethod
    async def until(link: Link, stop: Callable[[Frame], bool], within_s: float = 30) -> list[Frame]:
        """Return the link's frames up to the one that stops it."""
        seen: list[Frame] = []

        async def take() -> None:
            async for frame in link.frames():
                seen.append(frame)
                if stop(frame):
                    return

        try:
            await asyncio.wait_for(take(), within_s)
        except TimeoutError:
            pytest.fail(f"not in {within_s} s; there came {[Ask.short(frame) for frame in seen if frame.kind != 'beat'][-20:]}")
        return seen

    @staticmethod
    def short(frame: Frame) -> str:
        """A frame in a few words."""
        header = frame.header
        return " ".join(
            str(header[key]) for key in ("kind", "event", "variant", "state", "why", "line", "message") if header.get(key)
        )

    @staticmethod
    def event(name: str) -> Callable[[Frame], bool]:
        """Tell whether a frame is an event of the link."""
        return lambda frame: frame.kind == "link" and frame.header["event"] == name

    @staticmethod
    def kind(name: str) -> Callable[[Frame], bool]:
        """Tell whether a frame is of a kind."""
        return lambda frame: frame.kind == name

    @staticmethod
    def alive(pid: int) -> bool:
        """Tell whether a process runs; a zombie does not."""
        done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
        return done.returncode == 0 and not done.stdout.strip().startswith("Z")


@pytest.fixture
def ask() -> type[Ask]:
    """What tests ask of a link."""
    return Ask
