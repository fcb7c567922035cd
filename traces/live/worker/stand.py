"""The place where variants are tried: each is made ready, sampled and profiled here, and what goes wrong is its own and said."""

from __future__ import annotations

import gc
import os
import re
import sys
import tempfile
import time
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import catalog, device, failure, numerics, probes, processor, profile, ready, telemetry, timing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .case import Case
    from .doing import Doing, Voice
    from .variant import Variant

BROKEN_DEVICE = 70
"""Exit code when a device's context is broken for good: only a new process can go on."""
_DETAIL_LINES = 12


class Stand:
    """Variants of one case: what state each is in, and those that can be called."""

    def __init__(
        self, voice: Voice, doing: Doing, variants: Mapping[str, Variant], case: Case, seed: int, sampler: telemetry.Sampler
    ) -> None:
        self.voice, self.doing, self.variants, self.case, self.seed = voice, doing, variants, case, seed
        self._telemetry = sampler
        self.ready: dict[str, ready.Ready] = {}
        self.states: dict[str, tuple[str, str]] = {}
        self.timer = timing.Timer(case)
        self.windows = profile.Windows(case)

    def close(self) -> None:
        """Give back what the variants hold; compiled code is forgotten, so that the next case has all its recompilations."""
        self.ready.clear()
        numerics.forget()
        if "torch._dynamo" in sys.modules:
            sys.modules["torch._dynamo"].reset()
        self._free()

    def state(self, name: str, state: str, why: str = "") -> None:
        """Say a variant's state when it is a new one."""
        if self.states.get(name) != (state, why):
            self.states[name] = (state, why)
            self.voice.say("state", variant=name, state=state, why=why, case=self.case.to_dict())

    def choose(self, order: Mapping[str, Any]) -> list[str]:
        """Return the variants that a command asks for and that can run the case, compiled ones last; of the others say why not.

        Raises:
            ValueError: it asks for a variant that there is not.
        """
        asked = catalog.select(",".join(order["variants"]), self.variants)
        without = order.get("without") or {}
        for name in asked:
            self.state(name, *(("FAILED", str(without[name])) if name in without else ("COLD", "")))
        able = [name for name in asked if name not in without and not self._refused(name)]
        return sorted(able, key=lambda name: "compiled" in self.variants[name].tags)

    def _refused(self, name: str) -> bool:
        with self.at("looking at", name):
            if why := catalog.refusal(self.variants[name], self.case):
                self.state(name, "UNAVAILABLE", why)
        return self.states[name][0] != "COLD"

    @contextmanager
    def at(self, what: str, name: str) -> Iterator[None]:
        """Do something of a variant within; what it raises makes it FAILED and is said, and the others go on."""
        self.doing.at(what, name, self.variants[name].timeout_s)
        try:
            yield
        except (Exception, SystemExit) as error:  # a user's callable may do anything
            self._failed(name, error)
        finally:
            self.doing.rest()

    def _failed(self, name: str, error: BaseException) -> None:
        message, detail = failure.message(error), failure.detail(error, _DETAIL_LINES)
        self.voice.say("error", variant=name, message=message, type=type(error).__name__, detail=detail)
        self.state(name, "FAILED", failure.sentence(error))
        self.ready.pop(name, None)
        traceback.clear_frames(error.__traceback__)  # they hold tensors; a variant that ran out of memory gives it back here
        self._free()
        self._end_if_broken()

    def _free(self) -> None:
        gc.collect()
        module: Any = getattr(sys.modules.get("torch"), device.kind(self.case.device), None)
        if hasattr(module, "empty_cache") and probes.device_why_not(self.case) is None:
            module.empty_cache()

    def _end_if_broken(self) -> None:
        """End the process when the device answers no more (an illegal access, an assertion): the host starts another."""
        if device.kind(self.case.device) == "cpu":
            return
        try:
            device.synchronize(self.case.device)
        except RuntimeError as error:
            sys.stderr.write(f"{error}\n")
            os._exit(BROKEN_DEVICE)

    def prepare(self, name: str) -> None:
        """Make a variant ready and say what was found out about it."""
        variant = self.variants[name]
        compiled = "compiled" in variant.tags
        self.state(name, "COMPILING" if compiled else "COLD")
        with self.at("compiling" if compiled else "preparing", name), variant.within():
            made, found = ready.prepare(variant, self.case, self.seed, self.timer)
            self.voice.say("prepared", variant=name, case=self.case.to_dict(), **found)
            self.ready[name] = made
            self.state(name, "RUNNING")

    def sample(self, name: str, count: int, number: int) -> None:
        """Take samples of a variant.

        Args:
            name: of the variant.
            count: how many samples.
            number: of the round.
        """
        with self.at("sampling", name), self.variants[name].within():
            before_mj, began_ns, waited_ns = self._telemetry.energy_mj(), time.perf_counter_ns(), processor.waited_ns()
            taken = self.ready[name].sample(self.timer, count)
            waited_ns, took_ns = processor.waited_ns() - waited_ns, time.perf_counter_ns() - began_ns
            after_mj = self._telemetry.energy_mj()
            reading = self._telemetry.read()
            marks = telemetry.marks(reading, waited_ns / took_ns)
            self.voice.say(
                "samples",
                columns={"ns": ("i64", taken)},
                variant=name,
                case=self.case.to_dict(),
                round=number,
                cold_cache=self.timer.cold_cache,
                marks=marks,
                clock_mhz=reading.get("sm_mhz", reading.get("mhz")),
                energy_mj=None if before_mj is None or after_mj is None else after_mj - before_mj,
                timer=self.timer.name,
            )
            self.state(name, next((mark.upper() for mark in ("throttled", "contended") if mark in marks), "RUNNING"))

    def window(self, name: str, *, shapes: bool, memory: bool) -> None:
        """Take a profiled window of a variant."""
        made = self.ready[name]
        with self.at("profiling", name), self.variants[name].within():
            made.windows += 1
            try:
                header, columns = self.windows.take(
                    name, made.call, self.windows.steps(made.call_ns), shapes=shapes, memory=memory, reset=made.reset
                )
            except profile.ProfilerBusyError as error:  # its latency can be had all the same
                made.window_fails = True
                self.voice.say("error", variant=name, message=str(error), type=type(error).__name__, detail="")
                return
            self.voice.say(**{**header, "case": self.case.to_dict()}, columns=columns)

    def capture(self, name: str, path: str, steps: int, *, send: bool) -> None:
        """Record some steps deeply, as a Chrome trace.

        Args:
            name: of the variant.
            path: of the trace.
            steps: how many.
            send: whether the trace goes to the host, which has no access to this machine's files.
        """
        made = self.ready.get(name)
        if made is None:
            self.voice.say("error", variant=name, message="it is not running, so there is nothing to capture", type="", detail="")
            return
        with self.at("capturing", name), made.variant.within(), tempfile.TemporaryDirectory() as scratch:
            target = Path(scratch) / Path(path).name if send else Path(path)
            profile.deep(made.step, target, steps, on=self.case.device, variant=name)
            body = target.read_bytes() if send else b""
            self.voice.say("captured", variant=name, path=path, trace_bytes=target.stat().st_size, body=body)


def file_name(case: Case, name: str) -> str:
    """Return a name for a variant's trace that any file system takes."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", f"{name} {case.text}") + ".json.gz"


def order_of(names: list[str], number: int, seed: int) -> list[str]:
    """Return the names in the random order of one round."""
    return [name for _, name in timing.interleave(names, 1, seed=hash((seed, number)))]
