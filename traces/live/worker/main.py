"""The worker's main thread: commands in, measurements out."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from . import catalog, environment, failure, probes, target, telemetry
from .case import Case
from .doing import Doing, Voice, keep_beating
from .inbox import Inbox
from .loader import no_torch
from .loop import JOBS, Bench
from .stand import Stand

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .loop import Live
    from .variant import Variant

PROTOCOL = 1
_DETAIL_LINES = 12
UNUSABLE = 69
"""Exit code when nothing can be measured here."""


class Worker:
    """Takes commands and does what they say; between them it goes on with its job."""

    def __init__(self, inbox: Inbox, voice: Voice, doing: Doing) -> None:
        self._inbox, self._voice, self._doing = inbox, voice, doing
        self._variants: dict[str, Variant] = {}
        self._seed = 0
        self._stand: Stand | None = None
        self._job: Live | Bench | None = None
        self._pieces: Iterator[float] | None = None
        self._paused = False
        self._sampler: telemetry.Sampler | None = None
        self._told_ns = 0
        self._does = {
            **{"hello": self._hello, "start": self._start, "bench": self._start, "focus": self._focus},
            **{"pause": self._pause, "resume": self._resume, "capture": self._capture, "probe": self._probe, "quit": self._quit},
        }

    def run(self) -> None:
        """Work until told to end; what goes wrong with a command or a job ends it, is said, and the next is taken."""
        wait_s: float | None = None
        while True:
            order = self._inbox.take(wait_s)
            wait_s = self._go_on() if order is None else self._obey(order)

    def _obey(self, order: Mapping[str, Any]) -> float:
        do = order["do"]
        try:
            self._does.get(do, self._unknown)(order)
        except Exception as error:
            self._error(f"{do}: {_words(error)}", error)
            if do == "hello":
                os._exit(UNUSABLE)
            if do in JOBS:
                self._give_up(bench=do == "bench")
        return 0.0

    def _go_on(self) -> float | None:
        """Do the next piece of the job, and return how long commands may be waited for then: None for ever."""
        if self._pieces is None or self._paused:
            return None
        try:
            return next(self._pieces)
        except StopIteration:
            self._pieces = None
        except Exception as error:
            self._error(_words(error), error)
            self._give_up(bench=isinstance(self._job, Bench))
        return None

    def _hello(self, order: Mapping[str, Any]) -> None:
        self._doing.at("importing torch")
        _import_torch(self._voice)
        self._doing.at("looking at the machine")
        self._seed = int(order.get("seed") or 0)
        plugins = order.get("plugins") or ()
        self._variants = catalog.all_variants(plugins)
        for broken in filter(None, (self._variants.get(f"plugin:{name}") for name in plugins)):
            self._voice.say("error", variant=None, message=f"--plugin {broken.title}: {broken.missing()}", type="", detail="")
        if spec := order.get("target"):
            self._add_target(str(spec), order.get("setup"))
        described = environment.describe()
        self._voice.say(
            "hello", protocol=PROTOCOL, environment=described, variants=[_said(one) for one in self._variants.values()]
        )
        self._doing.rest()

    def _add_target(self, spec: str, setup: str | None) -> None:
        try:
            found = target.load(spec, setup)
        except (Exception, SystemExit) as error:  # importing the user's module may do anything
            self._error(f"--target {spec}: {_words(error)}", error)
            return
        self._variants[found.name] = found

    def _start(self, order: Mapping[str, Any]) -> None:
        self._stop()
        self._paused = False
        case = Case.from_dict(order["case"])
        sampler = self._sampler_of("cpu" if probes.device_why_not(case) else case.device)
        self._stand = Stand(self._voice, self._doing, self._variants, case, self._seed, sampler)
        self._job = job = JOBS[order["do"]](self._stand, order)
        self._pieces = job.pieces()

    def _sampler_of(self, device: str) -> telemetry.Sampler:
        if self._sampler is None or self._sampler.device != device:
            if self._sampler is not None:
                self._sampler.close()
            self._sampler = telemetry.Sampler(device)
            self._sampler.start()
        return self._sampler

    def tell(self) -> None:
        """Say what the machine does, where there is a new reading; called in the beats' thread."""
        reading = self._sampler.read() if self._sampler is not None else {}
        read_ns = reading.pop("read_ns", 0)
        if read_ns != self._told_ns:
            self._told_ns = read_ns
            self._voice.say("telemetry", **reading)

    def _stop(self) -> None:
        self._pieces = self._job = None
        if self._stand is not None:
            self._stand.close()
            self._stand = None

    def _give_up(self, *, bench: bool) -> None:
        """End a job that cannot go on; of a benchmark the host waits for the end."""
        self._stop()
        if bench:
            self._voice.say("done", what="bench")

    def _focus(self, order: Mapping[str, Any]) -> None:
        if self._job is not None:
            self._job.focus = str(order["variant"])

    def _pause(self, _: Mapping[str, Any]) -> None:
        self._paused = True
        for name in list(self._stand.ready) if self._stand else []:
            self._of(name).state(name, "PAUSED")

    def _resume(self, _: Mapping[str, Any]) -> None:
        self._paused = False
        for name in list(self._stand.ready) if self._stand else []:
            self._of(name).state(name, "RUNNING")

    def _of(self, name: str) -> Stand:
        if self._stand is None:
            raise ValueError(f"{name} is not running")
        return self._stand

    def _capture(self, order: Mapping[str, Any]) -> None:
        name = str(order["variant"])
        send = bool(order.get("send_traces"))
        self._of(name).capture(name, str(order["path"]), int(order.get("steps") or 3), send=send)

    def _probe(self, order: Mapping[str, Any]) -> None:
        """Say of every variant that cannot run a case why; one of another mode is asked about its own."""
        case = Case.from_dict(order["case"])
        for name, variant in self._variants.items():
            mode = case.mode if case.mode in variant.modes else variant.modes[0]
            asked = case.with_(mode=mode, q_len=1 if mode == "decode" else case.q_len)
            if why := catalog.refusal(variant, asked):
                self._voice.say("state", variant=name, state="UNAVAILABLE", why=why, case=case.to_dict())

    def _quit(self, _: Mapping[str, Any]) -> NoReturn:
        self._doing.at("ending")
        os._exit(0)  # not through exit handlers: pools of compilers and device runtimes may wait long in theirs

    def _unknown(self, order: Mapping[str, Any]) -> None:
        raise ValueError("there is no such command" + (f": {order['line']}" if "line" in order else ""))

    def _error(self, message: str, error: BaseException) -> None:
        detail = failure.detail(error, _DETAIL_LINES)
        self._voice.say("error", variant=None, message=message, type=type(error).__name__, detail=detail)


def main(commands: BinaryIO, frames: int) -> None:
    """Run the worker until its commands end.

    Args:
        commands: a JSON object a line.
        frames: file descriptor that takes the frames.
    """
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    voice = Voice(frames)
    doing = Doing(voice)
    worker = Worker(Inbox(commands), voice, doing)
    threading.Thread(target=keep_beating, args=(doing, worker.tell), name="beats", daemon=True).start()
    worker.run()


def _import_torch(voice: Voice) -> None:
    try:
        import torch
    except ImportError as error:
        absent = isinstance(error, ModuleNotFoundError) and error.name == "torch"
        message = no_torch(sys.executable) if absent else f"torch cannot be imported by {sys.executable}: {error}"
        voice.say("error", variant=None, message=message, type="TorchMissing", detail="")
        os._exit(UNUSABLE)
    if torch.version.cuda and tuple(map(int, torch.version.cuda.split(".")[:2])) < (12, 6):
        # taking CUPTI down while graphs live hangs there (pytorch#75504); read when the first profiler starts
        os.environ.update(TEARDOWN_CUPTI="0", DISABLE_CUPTI_LAZY_REINIT="1")


def _said(variant: Variant) -> dict[str, Any]:
    why = variant.missing()
    return {
        "name": variant.name,
        "title": variant.title,
        "group": variant.group,
        "about": variant.about,
        "available": why is None,
        "why_not": why,
        "modes": list(variant.modes),
        "tags": sorted(variant.tags),
        "exact": variant.exact,
    }


def _words(error: BaseException) -> str:
    said = failure.message(error)
    return said if isinstance(error, ValueError) else f"{type(error).__name__} {said}"
