"""Checks on a device what can only be checked there, and leaves what it saw: recorded sessions, a bench result and figures.

Needs torch in the Python that runs it. Each check runs by itself with its share of the time; what fails is written down and the
next goes on. Measuring takes the standard library and torch only, so that a machine without Polars can do that part and another
one the figures.

    python bench/check_device.py --out checked --seconds 840
    python bench/check_device.py --out checked --figures-only     # make the figures of what is in the folder
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
import time
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kinetop.traces.live import session
from kinetop.traces.live.link import Link, Start
from kinetop.traces.live.worker.case import Case

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from kinetop.traces.live.worker.frames import Frame

CHECKS, RUN, LIVE, CAPTURE = "checks.json", "run.parquet", "live.parquet", "capture.json.gz"
FIGURES_S = 45.0
"""Seconds kept for the figures."""
LEAST_S = 4.0
"""A check that would get less is left out: torch alone takes seconds to import."""
LIVE_VARIANTS = ("eager", "sdpa:auto", "sdpa:flash", "linear")
EVERY = ("*",)
FUSED = ("sdpa:*", "flash-attn:*", "sdpa-flash:*", "varlen", "window:*", "eager")


@dataclass(frozen=True)
class Check:
    """One thing to measure, in a worker of its own."""

    name: str
    weight: float
    """Share of the time, beside those of the others."""
    case: Case
    variants: tuple[str, ...] = EVERY
    compiled: bool = False
    """Whether it takes the variants that compile, which take a minute, or the others."""
    live: bool = False
    """Whether it measures as the live screen does, and captures a deep window at last."""


@dataclass
class Outcome:
    """What became of a check."""

    name: str
    case: str
    limit_s: float
    seconds: float = 0.0
    failed: str = ""
    """Why it did not come to its end; empty when it did."""
    said: list[str] = field(default_factory=list)
    """What went wrong within it: errors of variants, workers that were lost."""


def plan(device: str) -> list[Check]:
    """Return the checks for a device, the ones that matter most first."""
    if not device.startswith("cuda"):
        small = Case.of("1,4/2,96,32", dtype="fp32", device=device)
        return [
            Check("forward", 3, small, ("eager", "sdpa:*", "linear", "flash-attn:*")),
            Check("backward", 2, small.with_(mode="backward"), ("eager", "sdpa:*")),
            Check("decode", 2, Case.of("1,4/2,96,32", dtype="fp32", device=device, mode="decode"), ("sdpa:*", "decode:*")),
            Check("graph", 1, small.with_(graph=True), ("sdpa:auto",)),
            Check("live", 4, small, LIVE_VARIANTS, live=True),
        ]

    def case(shape: str, **rest: Any) -> Case:
        return Case.of(shape, **{"dtype": "bf16", "device": device, **rest})

    base, small = case("4,32/8,4096,128"), case("1,8,128,64")
    return [
        Check("forward", 4, base),
        Check("live", 2.5, base, LIVE_VARIANTS, live=True),
        Check("launch bound", 1, small, ("eager", "sdpa:*", "linear")),
        Check("launch bound, graph", 1, small.with_(graph=True), ("eager", "sdpa:*", "linear")),
        Check("decode", 1.5, case("16,32/8,8192,128", mode="decode")),
        Check("backward", 2.5, case("2,16/4,2048,128", mode="backward")),
        Check("fp32", 1, case("2,16,1024,64", dtype="fp32"), ("eager", "sdpa:*")),
        Check("fp16, full", 1, case("4,16,2048,64", dtype="fp16", causal=False), FUSED),
        Check("window", 1.5, case("2,16/4,4096,128", window=512), FUSED),
        Check("unequal lengths", 1, case("2,16,512/4096,128"), FUSED),
        Check("compiled", 5, case("2,16/4,2048,128"), compiled=True),
        Check("compiled, window", 2, case("2,16/4,2048,128", window=256), ("flex:window", "flex:causal"), compiled=True),
        Check("compiled, backward", 3, case("2,16/4,2048,128", mode="backward"), ("compile:eager", "flex:causal"), compiled=True),
    ]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Runner:
    """Runs checks one after another within their time; they share a worker as long as nothing happens to it."""

    def __init__(self, out: Path, start: Start, seconds: float) -> None:
        self._out, self._start, self._began, self._seconds = out, start, time.monotonic(), seconds
        self._link: Link | None = None
        self._frames: AsyncIterator[Frame] | None = None
        self.outcomes: list[Outcome] = []
        self._compiled: dict[str, bool] = {}
        """Variants there are, and whether each compiles."""

    @property
    def left_s(self) -> float:
        """Seconds left for checks."""
        return self._seconds - FIGURES_S * min(1.0, self._seconds / 300) - (time.monotonic() - self._began)

    async def run(self, checks: Sequence[Check]) -> None:
        """Run all; nothing that happens in one ends the others."""
        with session.Writer(self._out / RUN) as run, session.Writer(self._out / LIVE) as live:
            for place, check in enumerate(checks):
                share_s = self.left_s * check.weight / sum(other.weight for other in checks[place:])
                outcome = Outcome(check.name, check.case.text, round(share_s, 1))
                self.outcomes.append(outcome)
                await self._one(check, outcome, live if check.live else run)
                say(f"{check.name}: {outcome.failed or 'done'}, {outcome.seconds:.0f} of {outcome.limit_s:.0f} s")
            await self._end_worker()

    async def _one(self, check: Check, outcome: Outcome, writer: session.Writer) -> None:
        began = time.monotonic()
        try:
            if outcome.limit_s < LEAST_S:
                outcome.failed = "no time was left"
            else:
                async with asyncio.timeout(outcome.limit_s):
                    await self._measure(check, outcome, writer)
        except TimeoutError:
            outcome.failed = "its time ran out; what it measured until then is kept"
        except Exception as error:  # whatever it is, the next check goes on
            outcome.failed = f"{type(error).__name__}: {error}"
        if outcome.failed or check.live:  # a live job does not end by itself
            await self._end_worker()
        outcome.seconds = round(time.monotonic() - began, 1)

    async def _end_worker(self) -> None:
        link, self._link, self._frames = self._link, None, None
        if link is not None:
            await link.close()

    async def _measure(self, check: Check, outcome: Outcome, writer: session.Writer) -> None:
        link, frames = self._worker()
        capture_at = time.monotonic() + outcome.limit_s * 0.75 if check.live else math.inf
        if self._compiled:
            self._order(link, check)
        async for frame in frames:
            writer.add(frame)
            note(frame, outcome)
            if frame.kind == "hello" and not self._compiled:
                self._compiled = {one["name"]: "compiled" in one["tags"] for one in frame.header["variants"]}
                self._order(link, check)
            if frame.kind in {"done", "captured"} or stopped(frame, outcome):
                return
            if time.monotonic() > capture_at:
                capture_at = math.inf
                link.send("capture", variant="sdpa:auto", path=str((self._out / CAPTURE).resolve()), steps=3)

    def _worker(self) -> tuple[Link, AsyncIterator[Frame]]:
        """Return the worker that is there, or a new one."""
        if self._link is None or self._frames is None:
            self._link = Link(self._start)
            self._frames = self._link.frames()
        return self._link, self._frames

    def _order(self, link: Link, check: Check) -> None:
        """Send what the check asks for.

        Raises:
            LookupError: there are no such variants.
        """
        wanted = [
            name
            for name, compiles in self._compiled.items()
            if compiles == check.compiled and any(fnmatch(name, pattern) for pattern in check.variants)
        ]
        if not wanted:
            raise LookupError(f"none of these variants is here: {', '.join(check.variants)}")
        if check.live:
            link.send("start", case=check.case, variants=wanted)
        else:
            link.send("bench", case=check.case, variants=wanted, samples=30, min_time_ms=50, windows=2)


def note(frame: Frame, outcome: Outcome) -> None:
    """Write down what goes wrong, and say what is done."""
    said = frame.header
    if frame.kind == "beat" and (doing := said.get("doing") or {}).get("variant"):
        sys.stderr.write(f"\r{outcome.name}: {doing['what']} {doing['variant']}\x1b[K\r" if sys.stderr.isatty() else "")
    elif frame.kind == "error":
        outcome.said.append(f"{said.get('variant') or 'worker'}: {said.get('type')}: {said.get('message')}")
    elif frame.kind == "link" and said["event"] not in {"started", "stopped"}:
        outcome.said.append(f"worker {said['event']}: {said['why']}")


def stopped(frame: Frame, outcome: Outcome) -> bool:
    """Return whether no worker can be had any more."""
    if frame.kind == "link" and frame.header["event"] == "stopped":
        outcome.failed = f"no worker can be had: {frame.header['why']}"
        return True
    return False


def finish(out: Path) -> list[str]:
    """Turn journals into sessions where that is possible; return why it is not."""
    troubles = []
    for name in (RUN, LIVE):
        kept = session.journal_of(out / name)
        try:
            if kept.exists():
                session.finish(kept, out / name)
        except Exception as error:  # the journal stays and can be replayed
            troubles.append(f"{kept.name} stays a journal: {type(error).__name__}: {error}")
    return troubles


def measure(asked: argparse.Namespace, checks: Sequence[Check]) -> None:
    """Measure, and leave the sessions and what became of the checks."""
    runner = Runner(asked.out, Start(python=asked.python), asked.seconds)
    try:
        asyncio.run(runner.run(checks))
    except Exception as error:  # the sessions could not be closed: their journals are there
        say(f"{type(error).__name__}: {error}")
    about = {"device": asked.device, "seconds": asked.seconds, "checks": [vars(outcome) for outcome in runner.outcomes]}
    (asked.out / CHECKS).write_text(json.dumps(about, indent=1))


def figures(out: Path) -> int:
    """Make the figures of what is in the folder; return the exit code."""
    for trouble in finish(out):
        say(trouble)
    try:
        from device_figures import write
    except ImportError as error:
        say(f"{error}: the figures are made elsewhere, with check_device.py --out {out} --figures-only")
        return 1
    make: Callable[[Path, Path, Path], list[str]] = write
    failed = make(out, session_in(out, RUN), session_in(out, LIVE))
    for text in failed:
        say(text)
    return int(bool(failed))


def session_in(out: Path, name: str) -> Path:
    """Return the session of that name in a folder, or the journal that it still is."""
    whole = out / name
    return whole if whole.exists() else session.journal_of(whole)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder that gets everything; made where it is not there")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, cpu, ...")
    parser.add_argument("--seconds", type=float, default=840, help="all of it together")
    parser.add_argument("--only", action="append", default=[], help="checks to run, by name or pattern; may be given again")
    parser.add_argument("--python", default=sys.executable, help="the Python with torch; this one when not given")
    parser.add_argument("--figures-only", action="store_true", help="measure nothing")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    if not asked.figures_only:
        checks = [one for one in plan(asked.device) if not asked.only or any(fnmatch(one.name, name) for name in asked.only)]
        if left := [name for name in (RUN, LIVE) if session_in(asked.out, name).exists()]:
            parser.error(f"{asked.out} holds {left[0]} of a former run: name another folder")
        if not checks:
            parser.error(f"there is no such check; there are: {', '.join(one.name for one in plan(asked.device))}")
        measure(asked, checks)
    sys.exit(figures(asked.out))


if __name__ == "__main__":
    main()
