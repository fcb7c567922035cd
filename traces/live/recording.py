"""What a worker has said so far: trials, their samples and windows, telemetry, and what there was to ignore."""

from __future__ import annotations

import re
from collections import Counter, deque
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any

from .worker.case import Case

if TYPE_CHECKING:
    from array import array
    from collections.abc import Mapping

    import polars as pl

    from .worker.frames import Frame

MAX_WINDOWS = 8
"""Windows of a trial that a bounded recording keeps."""
MAX_TRIALS = 256
"""Trials that a bounded recording keeps; the oldest go first."""
MAX_WINDOW_ROWS = 1 << 18
"""Events of a window that a bounded recording takes; a worker's windows hold a few thousand."""
MAX_NAMES = 1 << 18
"""Names of events that are remembered for later windows."""
MAX_TEXT = 4096
"""Characters that are kept of a reason or a line of the log."""
_WINDOW_COLUMNS = ("name", "kind", "start_ns", "dur_ns")
_STEP = "kinetop.step|"
_INT64 = range(-(2**63), 2**63)
_UNUSED_NAME = re.compile(r"-?\d{1,20}")
_NUMBERS = {
    "prepared": ("compile_s", "first_call_us", "flops_useful", "flops_executed", "bytes_min", "peak_bytes"),
    "telemetry": (
        *("util_pct", "memory_util_pct", "memory_bytes", "memory_total_bytes", "power_w", "power_limit_w", "energy_mj", "sm_mhz"),
        *("sm_max_mhz", "memory_mhz", "temperature_c", "pcie_rx_bytes_s", "pcie_tx_bytes_s", "nvlink_rx_bytes_s"),
        *("nvlink_tx_bytes_s", "load1", "rss_bytes", "mhz", "quota_cpus"),
    ),
}
"""Members that are a number or null; anything else in them is left out."""
_LISTS = {"prepared": ("expected",), "telemetry": ("cores_pct", "others")}
"""Members that are a list."""


class UnusableError(ValueError):
    """A frame says something that cannot be; the message says what."""


@dataclass(frozen=True, eq=False)
class Window:
    """One profiled window of a trial, as the profiler gave it."""

    variant: str
    case_text: str
    number: int
    steps: int
    begin_ns: int
    end_ns: int
    dropped: int
    """Launches of which no kernel was recorded."""
    pid: int
    kinds: tuple[str, ...]
    """Categories, by the numbers in the column `kind`."""
    columns: dict[str, array[Any]]
    """One row an event; see the docs of the worker."""
    names: dict[int, str]
    """Names of its events, by the numbers in the column `name`."""
    shapes: dict[str, str]
    """Shapes of an operator's inputs, by row, where they were recorded."""
    generation: int
    """Which worker it came from, counted from 0: the numbers of a new worker begin anew."""


class Names:
    """The names of a worker's events, which it sends once: turns `window` frames into windows."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self.generation = -1
        """How many workers there were before this one."""

    def restart(self) -> None:
        """Forget the names: another worker has started."""
        self._texts.clear()
        self.generation += 1

    def window(self, frame: Frame, case_text: str) -> Window:
        """Return a frame's window.

        Args:
            frame: of the kind `window`; must come in the order sent.
            case_text: what was measured.

        Raises:
            UnusableError: its columns are not those of a window.
        """
        header = frame.header
        sent = {
            int(key): text for key, text in _dict(header, "names").items() if _UNUSED_NAME.fullmatch(key) and type(text) is str
        }
        room = MAX_NAMES - len(self._texts)
        lasting = {key: text for key, text in sent.items() if not text.startswith(_STEP)}  # a step's name is used once
        self._texts.update(list(lasting.items())[: max(room, 0)])
        columns = frame.columns
        if missing := [name for name in _WINDOW_COLUMNS if name not in columns]:
            raise UnusableError(f"a window without {', '.join(missing)}")
        if len({len(values) for values in columns.values()}) > 1:
            raise UnusableError("a window whose columns differ in length")
        used = set(columns["name"])
        names = {key: text for key in used if (text := sent.get(key) or self._texts.get(key)) is not None}
        kinds = header.get("kinds")
        return Window(
            variant=_text(header, "variant"),
            case_text=case_text,
            number=_int(header, "window"),
            steps=_int(header, "steps", 0),
            begin_ns=_int(header, "begin_ns", 0),
            end_ns=_int(header, "end_ns", 0),
            dropped=max(_int(header, "dropped", 0), 0),
            pid=_int(header, "pid", 0),
            kinds=tuple(str(kind) for kind in kinds) if isinstance(kinds, list) else (),
            columns=columns,
            names=names,
            shapes={key: text for key, text in _dict(header, "shapes").items() if type(text) is str},
            generation=max(self.generation, 0),
        )


@dataclass(eq=False)
class Trial:
    """One variant on one case, as far as it has come."""

    variant: str
    case: Case
    state: str = "COLD"
    """`COLD`, `COMPILING`, `RUNNING`, `THROTTLED`, `CONTENDED`, `FAILED`, `UNAVAILABLE` or `PAUSED`."""
    why: str = ""
    """Why it is in this state, where that was said."""
    prepared: dict[str, Any] = field(default_factory=dict)
    """Members of its `prepared` frame; a number of them is a number or null."""
    samples_ns: list[int] = field(default_factory=list)
    """Durations of single calls, oldest first."""
    marks: list[frozenset[str]] = field(default_factory=list)
    """What disturbed each sample: `throttled`, `contended`."""
    rounds: list[int] = field(default_factory=list)
    """The round each sample belongs to."""
    seen: int = 0
    """Samples that were ever taken; a bounded recording keeps the last of them."""
    energy_mj: float = 0.0
    """Energy of the samples for which it is known, together."""
    energy_samples: int = 0
    """How many these are."""
    timing: dict[str, Any] = field(default_factory=dict)
    """`timer`, `cold_cache` and `clock_mhz` of the last samples."""
    windows: list[Window] = field(default_factory=list)
    """Profiled windows, oldest first."""
    updated_ns: int = 0
    """When something was last said about it (Unix time)."""

    @property
    def backend(self) -> str:
        """What really ran, where it is known."""
        return str(self.prepared.get("backend") or "")

    @property
    def compile_s(self) -> float | None:
        """Seconds that compiling took."""
        return self.prepared.get("compile_s")


class Recording:
    """What has been said so far.

    Frames may come in any order and say anything: what cannot be used is counted in `ignored`, never raised.

    Args:
        limit: samples to keep of a trial, frames of telemetry, and a few other bounds: memory then does not grow with time.
            None keeps all.

    Example:
        >>> from kinetop.traces.live.worker.frames import Frame
        >>> from array import array
        >>> made, case = Recording(), Case.of("1,2,16,8")
        >>> header = {"kind": "samples", "variant": "eager", "case": case.to_dict(), "round": 1}
        >>> made.add(Frame(header, {"ns": array("q", [5000, 4000])}))
        >>> made.samples()["ns"].to_list()
        [5000, 4000]
    """

    def __init__(self, limit: int | None = None) -> None:
        if limit is not None and limit < 1:
            raise ValueError(f"limit is 1 or more, not {limit}")
        self.limit = limit
        self.environment: dict[str, Any] = {}
        """What the worker runs on."""
        self.variants: dict[str, dict[str, Any]] = {}
        """What the worker says of each variant, by name."""
        self.trials: dict[tuple[str, str], Trial] = {}
        """By variant and text of the case, in the order they were first heard of."""
        self.cases: list[Case] = []
        """In the order they were first heard of; the last is the current one."""
        self.telemetry: deque[dict[str, Any]] = deque(maxlen=limit)
        self.log: deque[str] = deque(maxlen=limit)
        self.errors: deque[dict[str, Any]] = deque(maxlen=limit)
        self.captured: deque[dict[str, Any]] = deque(maxlen=limit)
        self.link: dict[str, Any] = {}
        """The link's last word: `event`, `why`, `attempt`."""
        self.doing: dict[str, Any] = {}
        """What the worker said it does: `what`, `variant`, `since_ns`."""
        self.done: list[str] = []
        self.dropped = 0
        """Kernels that the profiler lost, over all windows."""
        self.duty_pct = 0.0
        """Share of the time that was profiled, as last said."""
        self.began_ns = 0
        self.last_ns = 0
        """Time of the first and the last frame (Unix time)."""
        self.frames = 0
        """Frames taken in."""
        self.ignored: Counter[str] = Counter()
        """What was left out because it could not be, by reason, with how often."""
        self._names = Names()

    def add(self, frame: Frame) -> None:
        """Take in a frame."""
        self.frames += 1
        header = frame.header
        t_ns = header.get("t_ns")
        if type(t_ns) is int and 0 < t_ns < 2**63:
            self.began_ns, self.last_ns = self.began_ns or t_ns, t_ns
        kind = frame.kind
        take = _TAKE.get(kind)
        try:
            if take is None:
                raise UnusableError("a frame of an unknown kind")
            take(self, frame)
        except UnusableError as error:
            self._ignore(str(error))

    def samples(self) -> pl.DataFrame:
        """Return the samples: variant, case (text), round, ns, throttled, contended."""
        import polars as pl

        trials = [trial for trial in self.trials.values() if trial.samples_ns]
        kinds = {"variant": pl.String, "case": pl.String, "round": pl.Int64, "ns": pl.Int64}
        made = [
            pl.DataFrame(
                {
                    "round": trial.rounds,
                    "ns": trial.samples_ns,
                    "throttled": ["throttled" in marks for marks in trial.marks],
                    "contended": ["contended" in marks for marks in trial.marks],
                }
            ).select(pl.lit(clean(trial.variant)).alias("variant"), pl.lit(clean(trial.case.text)).alias("case"), pl.all())
            for trial in trials
        ]
        return pl.concat(made) if made else pl.DataFrame(schema={**kinds, "throttled": pl.Boolean, "contended": pl.Boolean})

    def events(self, variant: str | None = None, case: str | None = None) -> pl.DataFrame:
        """Return the events of the windows kept.

        Args:
            variant: only of this one.
            case: only of the case with this text.

        Returns:
            `windows.EVENT_COLUMNS` of the event table, and variant, case, window (number) and step.
        """
        from . import windows

        return windows.events(
            window
            for (name, text), trial in self.trials.items()
            if variant in (None, name) and case in (None, text)
            for window in trial.windows
        )

    def trial(self, variant: str, case: Case | None = None) -> Trial | None:
        """Return the trial of a variant on a case (the current one when None), where there is one."""
        wanted = case or (self.cases[-1] if self.cases else None)
        return self.trials.get((variant, wanted.text)) if wanted else None

    def _ignore(self, why: str, count: int = 1) -> None:
        self.ignored[why if len(self.ignored) < 100 else "and more"] += count

    def _case(self, header: Mapping[str, Any]) -> Case:
        """The case a frame is about, given with its members or, once it is known, by its text; else the current one."""
        said = header.get("case")
        if isinstance(said, dict):
            try:
                return Case.from_dict(said)
            except (TypeError, ValueError) as error:
                raise UnusableError("a case that cannot be") from error
        known = self.cases[-1:] if said is None else [case for case in self.cases if case.text == said]
        if not known:
            raise UnusableError("a case that was not described")
        return known[0]

    def _trial(self, frame: Frame) -> Trial:
        header = frame.header
        variant, case = _text(header, "variant"), self._case(header)
        text = case.text
        found = self.trials.get((variant, text))
        if found is None:
            found = self.trials[variant, text] = Trial(variant, case)
            self._make_room()
        if not self.cases or self.cases[-1] != case:
            self.cases = [*(other for other in self.cases if other != case), case]
        found.updated_ns = self.last_ns
        return found

    def _make_room(self) -> None:
        if self.limit is None:
            return
        while len(self.trials) > MAX_TRIALS:
            _, text = gone = next(iter(self.trials))
            del self.trials[gone]
            if not any(case == text for _, case in self.trials):
                self.cases = [case for case in self.cases if case.text != text]

    def _hello(self, frame: Frame) -> None:
        self._names.restart()
        self.environment = _dict(frame.header, "environment")
        listed = frame.header.get("variants")
        named = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        self.variants = {one["name"]: one for one in named if type(one.get("name")) is str}

    def _beat(self, frame: Frame) -> None:
        self.doing = _dict(frame.header, "doing")

    def _state(self, frame: Frame) -> None:
        trial = self._trial(frame)
        trial.state, trial.why = _text(frame.header, "state"), _words(frame.header.get("why"))

    def _prepared(self, frame: Frame) -> None:
        trial = self._trial(frame)
        trial.prepared = self._checked("prepared", frame.header)
        if not isinstance(trial.prepared.get("error"), (dict, type(None))):
            del trial.prepared["error"]

    def _samples(self, frame: Frame) -> None:
        trial, header = self._trial(frame), frame.header
        values = frame.columns.get("ns")
        if values is None or values.typecode != "q":
            raise UnusableError("samples without ns")
        number, said = _int(header, "round", 0), header.get("marks")
        marks = frozenset(mark for mark in said if type(mark) is str) if isinstance(said, list) else frozenset()
        made = values[-self.limit :].tolist() if self.limit else values.tolist()
        if made and min(made) <= 0:
            kept = [value for value in made if value > 0]
            self._ignore("a sample that took no time", len(made) - len(kept))
            made = kept
        trial.seen += len(values)
        trial.samples_ns += made
        trial.marks += [marks] * len(made)
        trial.rounds += [number] * len(made)
        over = len(trial.samples_ns) - self.limit if self.limit else 0
        if over > 0:
            for kept_list in (trial.samples_ns, trial.marks, trial.rounds):
                del kept_list[:over]
        if is_number(header.get("energy_mj")):
            trial.energy_mj += header["energy_mj"]
            trial.energy_samples += len(values)
        trial.timing = {key: header.get(key) for key in ("timer", "cold_cache", "clock_mhz")}

    def _window(self, frame: Frame) -> None:
        trial = self._trial(frame)
        window = self._names.window(frame, trial.case.text)
        if self.limit and len(window.columns["name"]) > MAX_WINDOW_ROWS:
            raise UnusableError(f"a window of over {MAX_WINDOW_ROWS:,} events")
        trial.windows.append(window)
        if self.limit:
            del trial.windows[:-MAX_WINDOWS]
        self.dropped += window.dropped
        duty: Any = frame.header.get("duty_pct")
        if is_number(duty):
            self.duty_pct = float(duty)

    def _telemetry(self, frame: Frame) -> None:
        self.telemetry.append(self._checked("telemetry", frame.header))

    def _log(self, frame: Frame) -> None:
        self.log.append(_words(frame.header.get("line")))

    def _link(self, frame: Frame) -> None:
        self.link = frame.header

    def _error(self, frame: Frame) -> None:
        self.errors.append(frame.header)

    def _captured(self, frame: Frame) -> None:
        self.captured.append(frame.header)

    def _done(self, frame: Frame) -> None:
        self.done.append(_words(frame.header.get("what")))
        if self.limit:
            del self.done[: -self.limit]

    def _checked(self, kind: str, header: Mapping[str, Any]) -> dict[str, Any]:
        """A frame's members without those that are no numbers or lists where they must be."""
        wrong = [key for key in _NUMBERS[kind] if header.get(key) is not None and not is_number(header[key])]
        wrong += [key for key in _LISTS[kind] if header.get(key) is not None and not isinstance(header[key], list)]
        if wrong:
            self._ignore(f"a member of {kind} that cannot be", len(wrong))
        return {key: value for key, value in header.items() if key not in wrong}


_TAKE = {
    "hello": Recording._hello,
    "beat": Recording._beat,
    "state": Recording._state,
    "prepared": Recording._prepared,
    "samples": Recording._samples,
    "window": Recording._window,
    "telemetry": Recording._telemetry,
    "log": Recording._log,
    "link": Recording._link,
    "error": Recording._error,
    "captured": Recording._captured,
    "done": Recording._done,
}


def is_number(value: Any) -> bool:
    """Whether a value is a finite number; True and False are none.

    >>> is_number(1), is_number(0.5), is_number(True), is_number(float("nan")), is_number("1")
    (True, True, False, False, False)
    """
    return (type(value) is int and value in _INT64) or (type(value) is float and isfinite(value))


def clean(text: str) -> str:
    r"""Return a text that can be written as UTF-8; halves of surrogate pairs, which JSON allows, become question marks.

    >>> clean("a\ud800")
    'a?'
    """
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _text(header: Mapping[str, Any], key: str) -> str:
    value = header.get(key)
    if type(value) is not str or not 0 < len(value) <= MAX_TEXT:
        raise UnusableError(f"a {key} that is no name")
    return value


def _int(header: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = header.get(key)
    if type(value) is int and value in _INT64:
        return value
    if default is None or value is not None:
        raise UnusableError(f"a {key} that is no number")
    return default


def _dict(header: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = header.get(key)
    return value if isinstance(value, dict) else {}


def _words(value: Any) -> str:
    return value[:MAX_TEXT] if isinstance(value, str) else ""
