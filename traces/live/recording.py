"""What a worker has said so far: trials, their samples and windows, telemetry, and what there was to ignore."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .members import (
    MARKS,
    MAX_TEXT,
    UnusableError,
    clean,
    environment,
    flat,
    integer,
    is_number,
    label,
    mapping,
    texts,
    time_ns,
    words,
    wrong,
)
from .names import Names, Window
from .worker.case import Case

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import polars as pl

    from .worker.frames import Frame

MAX_WINDOWS = 8
"""Windows of a trial that a bounded recording keeps."""
MAX_TRIALS = 256
"""Trials that a bounded recording keeps; the oldest go first."""
MAX_WINDOW_ROWS = 1 << 18
"""Events of a window that a bounded recording takes; a worker's windows hold a few thousand."""
MAX_LINES = 1000
"""Lines of the log, errors and the like that a bounded recording keeps."""
_PREPARED_NUMBERS = ("compile_s", "first_call_us", "flops_useful", "flops_executed", "bytes_min", "peak_bytes")
_TELEMETRY_NUMBERS = (
    *("util_pct", "memory_util_pct", "memory_bytes", "memory_total_bytes", "power_w", "power_limit_w", "energy_mj", "sm_mhz"),
    *("sm_max_mhz", "memory_mhz", "temperature_c", "pcie_rx_bytes_s", "pcie_tx_bytes_s", "nvlink_rx_bytes_s"),
    *("nvlink_tx_bytes_s", "load1", "rss_bytes", "mhz", "quota_cpus"),
)
_ERROR_NUMBERS = ("max_abs", "mean_abs", "bound", "nan_rows")
_SIZES = ("batch", "q_heads", "kv_heads", "q_len", "kv_len", "qk_dim", "v_dim")


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
    windows_at: list[int] = field(default_factory=list)
    """For each of these the samples that had been taken before it."""
    updated_ns: int = 0
    """When something was last said about it (Unix time)."""

    def extend(self, samples_ns: list[int], marks: frozenset[str], number: int, limit: int | None) -> None:
        """Append the samples of a round, and keep the last `limit`."""
        self.samples_ns += samples_ns
        self.marks += [marks] * len(samples_ns)
        self.rounds += [number] * len(samples_ns)
        over = len(self.samples_ns) - limit if limit else 0
        if over > 0:
            del self.samples_ns[:over], self.marks[:over], self.rounds[:over]

    @property
    def backend(self) -> str:
        """What really ran, where it is known."""
        return words(self.prepared.get("backend"))

    @property
    def compile_s(self) -> float | None:
        """Seconds that compiling took."""
        seconds: float | None = self.prepared.get("compile_s")
        return seconds


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
        few = None if limit is None else MAX_LINES
        self.environment: dict[str, Any] = {}
        """What the worker runs on."""
        self.variants: dict[str, dict[str, Any]] = {}
        """What the worker says of each variant, by name."""
        self.trials: dict[tuple[str, str], Trial] = {}
        """By variant and text of the case, in the order they were first heard of."""
        self.cases: list[Case] = []
        """In the order they were first heard of."""
        self.case: Case | None = None
        """The case that was heard of last."""
        self.telemetry: deque[dict[str, Any]] = deque(maxlen=limit)
        self.log: deque[str] = deque(maxlen=few)
        self.errors: deque[dict[str, Any]] = deque(maxlen=few)
        """`variant`, `message`, `type`, `detail`: texts, empty where not said; and `t_ns`."""
        self.captured: deque[dict[str, Any]] = deque(maxlen=few)
        """`variant` and `path` of deep windows."""
        self.done: deque[str] = deque(maxlen=few)
        self.link: dict[str, Any] = {}
        """The link's last word: `event`, `why`, `variant`: texts; and `attempt`."""
        self.doing: dict[str, Any] = {}
        """What the worker does: `what` and `variant` (texts), `since_ns`, `limit_s`."""
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
        if (t_ns := time_ns(frame.header)) is not None:
            self.began_ns, self.last_ns = self.began_ns or t_ns, t_ns
        try:
            take = _TAKE.get(frame.kind)
            if take is None:
                raise UnusableError("a frame of an unknown kind")
            take(self, frame)
        except UnusableError as error:
            self._ignore(str(error))

    def samples(self) -> pl.DataFrame:
        """Return the samples: variant, case (text), round, ns, throttled, contended."""
        import polars as pl

        kinds = {"round": pl.Int64, "ns": pl.Int64, "throttled": pl.Boolean, "contended": pl.Boolean}
        made = [pl.DataFrame(schema={"variant": pl.String, "case": pl.String, **kinds})]
        for trial in self.trials.values():
            marked = [[mark in marks for marks in trial.marks] for mark in ("throttled", "contended")]
            columns = pl.DataFrame([trial.rounds, trial.samples_ns, *marked], schema=kinds)
            whose = {"variant": pl.lit(clean(trial.variant)), "case": pl.lit(clean(trial.case.text))}
            made.append(columns.select(**whose, **{name: pl.col(name) for name in kinds}))
        return pl.concat(made)

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
        wanted = case or self.case
        return self.trials.get((variant, wanted.text)) if wanted else None

    def _ignore(self, why: str, count: int = 1) -> None:
        self.ignored[why] += count

    def _case(self, header: Mapping[str, Any]) -> Case:
        """The case a frame is about, given with its members or, once it is known, by its text; else the current one."""
        said = header.get("case")
        if said is None and self.case is not None:
            return self.case
        if isinstance(said, dict):
            try:
                case = Case.from_dict(said)
                if all(type(getattr(case, size)) is int for size in _SIZES) and len(case.text) < MAX_TEXT:
                    return case
            except (TypeError, ValueError) as error:
                raise UnusableError("a case that cannot be") from error
        for case in self.cases:
            if case.text == said:
                return case
        raise UnusableError("a case that cannot be" if isinstance(said, dict) else "a case that was not described")

    def _trial(self, header: Mapping[str, Any]) -> Trial:
        variant, case = label(header, "variant"), self._case(header)
        key = (variant, case.text)
        found = self.trials.get(key)
        if found is None:
            found = self.trials[key] = Trial(variant, case)
            if case not in self.cases:
                self.cases.append(case)
            self._make_room()
        self.case = case
        found.updated_ns = self.last_ns
        return found

    def _make_room(self) -> None:
        while self.limit is not None and len(self.trials) > MAX_TRIALS:
            _, text = oldest = next(iter(self.trials))
            del self.trials[oldest]
            if not any(case == text for _, case in self.trials):
                self.cases = [case for case in self.cases if case.text != text]

    def _hello(self, frame: Frame) -> None:
        self._names.restart()
        self.environment = environment(frame.header)
        listed = frame.header.get("variants")
        named = [_variant(one) for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        self.variants = {one["name"]: one for one in named if one["name"]}

    def _beat(self, frame: Frame) -> None:
        doing = mapping(frame.header, "doing")
        self.doing = {key: words(doing.get(key)) for key in ("what", "variant")} | _numbers(doing, "since_ns", "limit_s")

    def _state(self, frame: Frame) -> None:
        state, trial = label(frame.header, "state"), self._trial(frame.header)
        trial.state, trial.why = state, words(frame.header.get("why"))

    def _prepared(self, frame: Frame) -> None:
        trial = self._trial(frame.header)
        made = self._checked(frame.header, _PREPARED_NUMBERS, ("expected", "unexpected"))
        error = made.get("error")
        if isinstance(error, dict):
            made["error"] = _compared(error)
        elif error is not None:
            self._ignore("a member of prepared that cannot be")
            made["error"] = None
        made |= {key: texts(made.get(key)) for key in ("expected", "unexpected")}
        kept = ("error", "expected", "unexpected")
        trial.prepared = {**flat(made), **{key: made.get(key) for key in kept}}

    def _samples(self, frame: Frame) -> None:
        header, values = frame.header, frame.columns.get("ns")
        if values is None or values.typecode != "q":
            raise UnusableError("samples without ns")
        number, trial = integer(header, "round", 0), self._trial(header)
        lasting = values[-self.limit :] if self.limit else values
        made = [value for value in lasting if value > 0]
        if len(made) < len(lasting):
            self._ignore("a sample that took no time", len(lasting) - len(made))
        trial.extend(made, MARKS.intersection(texts(header.get("marks"))), number, self.limit)
        trial.seen += len(values)
        if values and is_number(energy := header.get("energy_mj")):
            trial.energy_mj += energy  # type: ignore[operator]
            trial.energy_samples += len(values)
        trial.timing = {
            "timer": words(header.get("timer")),
            "cold_cache": header.get("cold_cache") is True,
            **_numbers(header, "clock_mhz"),
        }

    def _window(self, frame: Frame) -> None:
        self._names.learn(frame)
        if self.limit and any(len(values) > MAX_WINDOW_ROWS for values in frame.columns.values()):
            raise UnusableError(f"a window of over {MAX_WINDOW_ROWS:,} events")
        case = self._case(frame.header)
        window = self._names.window(frame, case.text)
        trial = self._trial(frame.header)
        trial.windows.append(window)
        trial.windows_at.append(trial.seen)
        if self.limit:
            del trial.windows[:-MAX_WINDOWS], trial.windows_at[:-MAX_WINDOWS]
        self.dropped += window.dropped
        duty_pct = _numbers(frame.header, "duty_pct")["duty_pct"]
        self.duty_pct = self.duty_pct if duty_pct is None else float(duty_pct)

    def _telemetry(self, frame: Frame) -> None:
        made = self._checked(frame.header, _TELEMETRY_NUMBERS, ("cores_pct", "throttle", "others"))
        if cores := made.get("cores_pct"):
            made["cores_pct"] = [share for share in cores if is_number(share) and share >= 0]
        self.telemetry.append(made)

    def _log(self, frame: Frame) -> None:
        self.log.append(words(frame.header.get("line")))

    def _link(self, frame: Frame) -> None:
        self.link = _texts(frame.header, "event", "why", "variant") | _numbers(frame.header, "attempt")

    def _error(self, frame: Frame) -> None:
        self.errors.append(_texts(frame.header, "variant", "message", "type", "detail") | {"t_ns": self.last_ns})

    def _captured(self, frame: Frame) -> None:
        self.captured.append(_texts(frame.header, "variant", "path"))

    def _done(self, frame: Frame) -> None:
        self.done.append(words(frame.header.get("what")))

    def _checked(self, header: Mapping[str, Any], numbers: Iterable[str], lists: Iterable[str]) -> dict[str, Any]:
        """A frame's members without those that are no numbers or lists where they must be."""
        bad = wrong(header, numbers, lists)
        for key in bad:
            self._ignore(f"a {key} that cannot be")
        return {key: value for key, value in header.items() if key not in bad}


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


def _texts(members: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: words(members.get(key)) for key in keys}


def _numbers(members: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: members[key] if is_number(members.get(key)) else None for key in keys}


def _compared(error: Mapping[str, Any]) -> dict[str, Any]:
    """What a comparison with the reference gave, as far as it can be."""
    bad = wrong(error, _ERROR_NUMBERS, ())
    bad += [] if isinstance(error.get("ok"), bool) else ["ok"]
    return {key: value for key, value in flat(error).items() if key not in bad}


def _variant(said: dict[str, Any]) -> dict[str, Any]:
    made = _texts(said, "name", "title", "group", "about", "why_not")
    flags = {"available": said.get("available") is True, "exact": said.get("exact") is not False}
    return {**flat(said), **made, **flags, **{key: texts(said.get(key)) for key in ("modes", "tags")}}
