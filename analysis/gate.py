"""The gate: whether a run is worse than a baseline, first by what cannot be noise, then by time with an interval.

Two runs that cannot be compared (another device, driver, torch, …) are refused with every reason. For each case the gate then
looks at what is the same in every run of the same code: the backend, the operators and kernels of a step, copies, large
allocations, peak memory, right results. Time comes last and is called slower only where noise cannot explain it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from . import stats
from .benchmark import Run
from .comparable import differences
from .slowdown import THRESHOLD_PCT, Times, Timing, time_verdict
from .structural import Check, checks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCHEMA = "kinetop.gate/1"
_HISTORY = 10
"""Runs of a history whose spread is looked at."""

Outcome = Literal["FASTER", "SAME", "SLOWER", "UNDECIDED", "CHANGED", "FAILED", "MISSING", "NEW"]
FAILING = frozenset({"SLOWER", "CHANGED", "FAILED", "MISSING"})


@dataclass(frozen=True)
class Verdict:
    """What the gate says of one variant on one case."""

    variant: str
    case: str
    outcome: Outcome
    why: str
    time: Timing | None = None
    checks: tuple[Check, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether it lets the gate pass."""
        return self.outcome not in FAILING


@dataclass(frozen=True)
class GateResult:
    """What the gate says of a run."""

    new: str
    old: str
    """Ids of the runs."""
    threshold_pct: float
    verdicts: tuple[Verdict, ...] = ()
    refused: tuple[str, ...] = ()
    """Why the runs cannot be compared; there are no verdicts then."""
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 passed, 1 failed, 3 not comparable."""
        return 3 if self.refused else int(not all(verdict.ok for verdict in self.verdicts))

    @property
    def summary(self) -> str:
        """The result in a line."""
        if self.refused:
            return "not comparable: " + "; ".join(self.refused)
        counted = Counter(verdict.outcome for verdict in self.verdicts)
        return ("failed" if self.exit_code else "passed") + ": " + ", ".join(f"{n} {name}" for name, n in counted.most_common())

    def to_markdown(self) -> str:
        """Return the result as Markdown, for a pull request."""
        from .gate_report import markdown

        return markdown(self)

    def to_junit(self) -> str:
        """Return the result as JUnit XML: a test case for each variant and case; undecided ones are skipped."""
        from .gate_report import junit

        return junit(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain JSON values."""
        from .gate_report import as_dict

        return as_dict(self)


@dataclass(frozen=True)
class _Pair:
    """A trial in both runs."""

    new: Mapping[str, Any]
    old: Mapping[str, Any]
    history_us: tuple[float, ...]
    """Medians of the case in the baseline's earlier runs."""


def compare(
    new: Run,
    baseline: Run | Sequence[Run],
    threshold_pct: float = THRESHOLD_PCT,
    *,
    allow: Sequence[str] = (),
    seed: int = 0,
) -> GateResult:
    """Compare a run with a baseline.

    Args:
        new: the run to judge.
        baseline: a run, or several, the oldest first: the last that can be compared is taken, and how far the medians of all
            that can be lie apart counts as noise.
        threshold_pct: change of the median that matters.
        allow: names of structural checks that may differ (`structural.NAMES`).
        seed: of the resamples.

    Raises:
        ValueError: there is no baseline, or the threshold is not above 0.
    """
    runs = [baseline] if isinstance(baseline, Run) else list(baseline)
    if not runs or threshold_pct <= 0:
        raise ValueError("there is no baseline" if not runs else "the threshold is above 0 percent")
    fitting = [run for run in runs if run.id != new.id and not differences(new, run)] or runs[-1:]
    old = fitting[-1]
    if reasons := differences(new, old):
        return GateResult(new.id, old.id, threshold_pct, refused=tuple(reasons))
    new_trials, old_trials = _by_key(new), _by_key(old)
    history = [_by_key(run) for run in fitting[-_HISTORY:]] if len(fitting) > 1 else []
    pairs = {
        key: _Pair(new_trials[key], trial, tuple(_medians(history, key)))
        for key, trial in old_trials.items()
        if key in new_trials and _measured(trial) and _measured(new_trials[key])
    }
    timings = _timings(pairs, threshold_pct, seed)
    verdicts = [
        _verdict(key, new_trials.get(key), old_trials.get(key), timings.get(key), allow) for key in {**old_trials, **new_trials}
    ]
    return GateResult(
        new.id,
        old.id,
        threshold_pct,
        tuple(each for each in verdicts if each is not None),
        notes=tuple(_notes(new, old, timings)),
    )


def _by_key(run: Run) -> dict[tuple[str, str], Mapping[str, Any]]:
    return {(trial["variant"], trial["case"]): trial for trial in run.trials}


def _measured(trial: Mapping[str, Any]) -> bool:
    return bool(trial["samples_ns"]) and trial["state"] not in {"FAILED", "UNAVAILABLE"}


def _medians(runs: Sequence[Mapping[tuple[str, str], Mapping[str, Any]]], key: tuple[str, str]) -> list[float]:
    told = [run[key]["median_us"] for run in runs if key in run and _measured(run[key])]
    return [median for median in told if median is not None]


def _verdict(
    key: tuple[str, str],
    new: Mapping[str, Any] | None,
    old: Mapping[str, Any] | None,
    timing: Timing | None,
    allow: Sequence[str],
) -> Verdict | None:
    """Return the verdict of a case; None where it ran in neither run."""
    ran_before, runs_now = old is not None and _measured(old), new is not None and _measured(new)
    if not ran_before:
        return Verdict(*key, "NEW", "not in the baseline") if runs_now else None
    if new is None:
        return Verdict(*key, "MISSING", "the baseline has it, this run has not")
    if not runs_now:
        return Verdict(*key, "FAILED", f"{new['state']}: {new.get('why') or 'no samples'}")
    made = tuple(checks(new, old or {}))
    bad = [check for check in made if check.ok is False and check.name not in allow]
    if bad:
        return Verdict(*key, "CHANGED", "; ".join(check.why for check in bad), timing, made)
    return Verdict(*key, timing.outcome, timing.why, timing, made) if timing is not None else None


def _timings(pairs: Mapping[tuple[str, str], _Pair], threshold_pct: float, seed: int) -> dict[tuple[str, str], Timing]:
    """Return how the times of every pair compare; the second opinion is corrected for how many there are."""
    times = {key: (Times.of(pair.new), Times.of(pair.old)) for key, pair in pairs.items()}
    corrected = stats.holm([stats.mann_whitney(new.kept, old.kept) for new, old in times.values()])
    return {
        key: time_verdict(*times[key], threshold_pct=threshold_pct, p=p, history_us=pairs[key].history_us, seed=seed)
        for key, p in zip(times, corrected, strict=True)
    }


def _notes(new: Run, old: Run, timings: Mapping[tuple[str, str], Timing]) -> list[str]:
    ratios = [timing.ratio for timing in timings.values() if timing.ratio is not None]
    notes = []
    if len(ratios) > 2 and (min(ratios) > 1.02 or max(ratios) < 0.98):
        span = f"{min(ratios) - 1:+.1%} to {max(ratios) - 1:+.1%}"
        notes.append(f"every case moved the same way, by {span}: the machine, or what all cases share")
    versions = ((name, old.environment.get(name), new.environment.get(name)) for name in ("torch", "cudnn", "git_sha"))
    return [*notes, *(f"{name}: {was} before, {now} now" for name, was, now in versions if was and now and was != now)]
