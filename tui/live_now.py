"""What the live screen shows at one moment, made from the frames so far. No figure is computed here: the analyses are asked."""

from __future__ import annotations

import time
from collections import deque
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .live_status import BUSY, seconds, trouble, with_status
from .live_sweep import SweepNow
from .live_tape import Tape, reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    import polars as pl

    from kinetop.analysis.question import Column
    from kinetop.analysis.sweep import Choice
    from kinetop.analysis.trials import Kept
    from kinetop.traces.live.recording import Recording, Trial
    from kinetop.traces.live.worker.case import Case
    from kinetop.traces.live.worker.frames import Frame

    from .live_sweep import Sweep

SAMPLES_KEPT = 20_000
"""Samples of one trial that stay in memory; a recorded session has them all."""
SAMPLES_SHOWN = 600
TELEMETRY_SHOWN = 240
LOG_SHOWN = 300
ERRORS_SHOWN = 10
RESAMPLES = 300
"""Of an interval on the screen, which is drawn anew all the time; `bench` takes more."""
REST = {"table": 15, "parts": 40, "base parts": 40, "findings": 40, "sweep": 10}
"""A piece is not made again before this many times of what it took: the processors belong to what is measured."""
LEAST_REST_S = {"table": 0.75, "findings": 2.0}
"""Nor before so many seconds: nobody reads them faster."""
WINDOWS_SHOWN = 2
"""Windows of a trial that the figures on the screen are made from; `bench` takes all."""
QUIET = frozenset({"beat", "telemetry", "log", "link"})
"""Frames that change no figure of a trial."""


@dataclass(frozen=True)
class Wish:
    """What the user chose to see."""

    case: Case | None = None
    variants: tuple[str, ...] = ()
    """Names chosen; all of the session when empty."""
    chosen: str = ""
    """Variant whose details are shown."""
    baseline: str = ""
    paused: bool = False
    price_per_hour: float | None = None


@dataclass(frozen=True)
class Chosen:
    """Details of one variant."""

    variant: str = ""
    row: dict[str, Any] = field(default_factory=dict)
    """Its row of the table."""
    latency_us: tuple[float, ...] = ()
    """Its newest samples."""
    marked: tuple[bool, ...] = ()
    """Which of them were taken while throttled or beside other load."""
    windows_at: tuple[int, ...] = ()
    """Places among them before which a window was profiled."""
    parts: tuple[tuple[str, float, float], ...] = ()
    """Name, microseconds of a step, percent."""
    base: str = ""
    base_parts: tuple[tuple[str, float, float], ...] = ()
    """The baseline and its parts, where one was chosen that is not this variant."""
    ops: pl.DataFrame | None = None
    ops_columns: tuple[Column, ...] = ()


@dataclass(frozen=True)
class Now:
    """What there is to show."""

    wish: Wish = field(default_factory=Wish)
    environment: dict[str, Any] = field(default_factory=dict)
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Every variant that the worker knows, as `hello` told."""
    cases: tuple[Case, ...] = ()
    table: pl.DataFrame | None = None
    """One row a variant of the case."""
    columns: tuple[Column, ...] = ()
    chosen: Chosen = field(default_factory=Chosen)
    findings: tuple[Any, ...] = ()
    """Of the case, those of the chosen variant first."""
    telemetry: tuple[dict[str, Any], ...] = ()
    log: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    """What went wrong in the worker, oldest first."""
    link: dict[str, Any] = field(default_factory=dict)
    """The link's newest word about the worker."""
    doing: dict[str, Any] = field(default_factory=dict)
    duty_pct: float | None = None
    dropped: int = 0
    recording_to: Path | None = None
    problems: dict[str, str] = field(default_factory=dict)
    """Pieces that failed, with the reason."""
    ended: str = ""
    """Why no more frames come."""
    sweep: SweepNow | None = None


class Board:
    """Takes frames in and says what they show; used by one thread at a time."""

    def __init__(self) -> None:
        self._recording: Recording | None = None
        self._problems: dict[str, str] = {}
        self._pieces: dict[str, tuple[Any, Any, float, Any]] = {}
        """Of each piece what it is about, what it was made from, when it may be made again, and the piece."""
        self.late = False
        """Whether a piece is older than what it is made from."""
        self._changes = 0
        """Frames that may change a figure of a trial."""
        self._heard = 0
        """Frames that may change anything that is shown."""
        self._troubles: deque[str] = deque(maxlen=ERRORS_SHOWN)
        self._tape = Tape()
        self._former: Kept | None = None

    @property
    def state(self) -> tuple[Any, ...]:
        """Differs when there is something else to show."""
        return self._heard, self._busy_s, self._tape.path, self.late, *sorted(self._problems.items())

    @property
    def _busy_s(self) -> int | None:
        """Whole seconds for which a variant has been made ready, which its row counts."""
        said = self.recording
        trial = said.trial(str(said.doing.get("variant")))
        since_s = seconds(said, trial.variant) if trial is not None and trial.state in BUSY else None
        return None if since_s is None else int(since_s)

    @property
    def recording(self) -> Recording:
        """All that was said so far."""
        if self._recording is None:
            from kinetop.traces.live.recording import Recording

            self._recording = Recording(limit=SAMPLES_KEPT)
        return self._recording

    def add(self, frames: Sequence[Frame]) -> None:
        """Take frames in; one that cannot be understood is reported and costs no other."""
        for frame in frames:
            self._changes += frame.kind not in QUIET
            self._heard += frame.kind != "beat"
            if text := trouble(frame):
                self._troubles.append(text)
            try:
                self.recording.add(frame)
            except Exception as error:  # a bad frame must not end the screen
                self._problems["frames"] = f"{frame.kind}: {reason(error)}"
            try:
                self._tape.add(frame)
            except Exception as error:  # a full disk: what was written stays, the screen goes on
                self._problems["recording"] = reason(error)
                self._ask("end of the recording", self._tape.stop, None)

    def record(self, path: Path | None) -> None:
        """Begin to record to a session file, or end that."""
        self._ask("recording", lambda: self._tape.start(path) if path else self._tape.stop(), None)

    def now(self, wish: Wish, ended: str = "") -> Now:
        """Return what there is to show."""
        said = self.recording
        case = wish.case or (said.cases[-1] if said.cases else None)
        wish = replace(wish, case=case)
        self.late = False
        about = (wish.case, wish.variants)
        asked = (*about, wish.baseline, wish.price_per_hour)
        version = (self._changes, self._busy_s)
        table, columns = self._made("table", asked, version, lambda: self._table(wish), (None, ()))
        chosen = self._chosen(wish, table)
        findings = self._made("findings", about, self._changes, lambda: self._findings(wish), ())
        return Now(
            wish=replace(wish, chosen=chosen.variant),
            environment=dict(said.environment),
            variants=dict(said.variants),
            cases=tuple(said.cases),
            table=table,
            columns=columns,
            chosen=chosen,
            findings=tuple(sorted(findings, key=lambda finding: finding.variant != chosen.variant)),
            telemetry=_tail(said.telemetry, TELEMETRY_SHOWN),
            log=_tail(said.log, LOG_SHOWN),
            errors=tuple(self._troubles),
            link=dict(said.link),
            doing=dict(said.doing),
            duty_pct=said.duty_pct,
            dropped=said.dropped,
            recording_to=self._tape.path,
            problems=dict(self._problems),
            ended=ended,
        )

    def swept(self, sweep: Sweep, wish: Wish) -> SweepNow:
        """Return how far a sweep has come and what it shows."""
        table, choice = self._made("sweep", id(sweep), self._changes, lambda: self._sweep(sweep, wish), (None, None))
        return SweepNow(
            axis=sweep.axis,
            cases=tuple(sweep.cases),
            variants=sweep.variants,
            done=min(max(0, sweep.at), len(sweep.cases)),
            running=sweep.running,
            cancelled=sweep.cancelled,
            table=table,
            choice=choice,
            problem=self._problems.get("sweep", ""),
        )

    # The pieces

    def _sweep(self, sweep: Sweep, wish: Wish) -> tuple[pl.DataFrame, Choice | None]:
        from kinetop.analysis import trials
        from kinetop.analysis.sweep import AXES, choose

        part, texts = copy(self.recording), {case.text for case in sweep.cases}
        part.trials = {key: trial for key, trial in part.trials.items() if key[1] in texts and key[0] in sweep.variants}
        table = trials.table(part, base=wish.baseline or None, price_per_hour=wish.price_per_hour, resamples=RESAMPLES)
        made = table.sort(AXES[sweep.axis.name][0], maintain_order=True)
        return made, choose(made, sweep.axis.name, self.recording.environment) if made.height else None

    def of(self, case: Case | None, variants: Sequence[str] = ()) -> Recording:
        """Return the recording with the trials of one case alone, of some variants where these are named."""
        part = copy(self.recording)
        part.trials = {
            (name, text): replace(trial, windows=trial.windows[-WINDOWS_SHOWN:])
            for (name, text), trial in part.trials.items()
            if case is not None and text == case.text and (not variants or name in variants)
        }
        return part

    def _table(self, wish: Wish) -> tuple[pl.DataFrame, tuple[Column, ...]]:
        from kinetop.analysis import trials

        self._former = self._former or trials.Kept()
        made = trials.table(
            self.of(wish.case, wish.variants),
            base=wish.baseline or None,
            price_per_hour=wish.price_per_hour,
            resamples=RESAMPLES,
            former=self._former,
        )
        return with_status(made, wish.variants, self.recording), trials.COLUMNS

    def _findings(self, wish: Wish) -> tuple[Any, ...]:
        from kinetop.analysis import live_findings

        return tuple(live_findings.find(self.of(wish.case, wish.variants)))

    def _chosen(self, wish: Wish, table: pl.DataFrame | None) -> Chosen:
        if table is None or table.is_empty() or wish.case is None:
            return Chosen()
        names = table["variant"].to_list()
        name = wish.chosen if wish.chosen in names else names[0]
        row = table.row(names.index(name), named=True)
        trial = self.recording.trials.get((name, wish.case.text))
        if trial is None:
            return Chosen(name, row)
        newest = trial.windows[-1] if trial.windows else None
        about = (name, wish.case)
        parts, ops, columns = self._made("parts", about, newest, lambda: self._windows(name, trial.case), ((), None, ()))
        base_parts = self._base_parts(wish, name)
        samples = trial.samples_ns[-SAMPLES_SHOWN:]
        first = trial.seen - len(samples)
        return Chosen(
            variant=name,
            row=row,
            latency_us=tuple(ns / 1000 for ns in samples),
            marked=_marked(trial, len(samples)),
            windows_at=tuple(at - first for at in trial.windows_at if first < at < trial.seen),
            base=wish.baseline,
            base_parts=base_parts,
            parts=parts,
            ops=ops,
            ops_columns=columns,
        )

    def _base_parts(self, wish: Wish, name: str) -> tuple[tuple[str, float, float], ...]:
        base = self.recording.trial(wish.baseline, wish.case) if wish.baseline not in {"", name} else None
        if base is None or not base.windows:
            return ()
        about = (base.variant, base.case)
        split: tuple[tuple[str, float, float], ...] = self._made(
            "base parts", about, base.windows[-1], lambda: self._windows(base.variant, base.case)[0], ()
        )
        return split

    def _windows(self, variant: str, case: Case) -> tuple[Any, ...]:
        from kinetop.analysis import live_findings, step_ops

        part = self.of(case, [variant])
        shown = live_findings.seen(part, part.trials[variant, case.text])  # the findings ask for it too
        if shown is None:
            return (), None, step_ops.COLUMNS
        ops = self._ask("ops", lambda: step_ops.step_ops(shown.events), None)
        return tuple(shown.parts.select("part", "dur_us", "share_pct").iter_rows()), ops, step_ops.COLUMNS

    def _made(self, piece: str, about: Any, version: Any, make: Callable[[], Any], none: Any) -> Any:
        """Return a piece, made again only when what it is made from changed; the last good one when that fails.

        Args:
            piece: its name.
            about: what it is about; the old one does not do for another.
            version: state of what it is made from; it is followed at the pace of `REST`.
            make: makes it.
            none: stands for it until then.
        """
        last = self._pieces.get(piece)
        fits = last is not None and last[0] == about
        if last is not None and fits:
            if last[1] == version:
                return last[3]
            if time.monotonic() < last[2]:
                self.late = True
                return last[3]
        begun_s = time.monotonic()
        answer = self._ask(piece, make, last[3] if last is not None and fits else none)
        ended_s = time.monotonic()
        rest_s = max(LEAST_REST_S.get(piece, 0.0), REST[piece] * (ended_s - begun_s))
        self._pieces[piece] = about, version, ended_s + rest_s, answer
        return answer

    def _ask(self, piece: str, make: Callable[[], Any], otherwise: Any) -> Any:
        try:
            answer = make()
        except Exception as error:  # shown in place of the piece; the others go on
            self._problems[piece] = reason(error)
            return otherwise
        self._problems.pop(piece, None)
        return answer


def _tail(values: Iterable[Any], count: int) -> tuple[Any, ...]:
    return tuple(deque(values, maxlen=count))


def _marked(trial: Trial, count: int) -> tuple[bool, ...]:
    return tuple(bool(marks) for marks in trial.marks[-count:]) if count else ()
