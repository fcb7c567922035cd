"""The checks of the gate that know no noise: two runs of the same code give the same answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kinetop.traces.live.worker.case import Case

from .structure import Structure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NAMES = ("backend", "ops", "copies", "allocations", "peak", "numerics")
"""Names of the checks, in the order made."""
_PEAK_SLACK = 1.01, 4096
"""Peak memory may grow by this factor and these bytes: allocators round."""
_SHOWN = 4


@dataclass(frozen=True)
class Check:
    """One comparison of a trial with its baseline."""

    name: str
    ok: bool | None
    """None where one of the runs does not tell."""
    why: str
    """What differs, or that nothing does."""


def checks(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[Check]:
    """Yield the structural checks of a trial; what became less is no failure.

    Args:
        new: a trial of a document.
        old: the same trial of the baseline.
    """
    yield _backend(new.get("backend"), old.get("backend"))
    now, before = (Structure.from_dict(trial.get("structure") or {}) for trial in (new, old))
    if now.steps and before.steps:
        yield _counts("ops", "operators or kernels", {**now.ops, **now.kernels}, {**before.ops, **before.kernels})
        yield _counts("copies", "copies", now.copies, before.copies)
    else:
        yield from (Check(name, None, "no step was profiled in one of the runs") for name in ("ops", "copies"))
    yield _allocations(now, before, Case.from_dict(dict(new)))
    yield _peak(new.get("peak_bytes"), old.get("peak_bytes"))
    yield _numerics(new, old)


def _backend(now: str | None, before: str | None) -> Check:
    if not now or not before:
        return Check("backend", None, "one of the runs does not tell the backend")
    return Check("backend", now == before, f"backend {now}" if now == before else f"backend is {now}, was {before}")


def _counts(name: str, what: str, now: Mapping[Any, int], before: Mapping[Any, int]) -> Check:
    """Compare counts of one step; more of anything is a failure, less is told."""
    changed = {key: (before.get(key, 0), now.get(key, 0)) for key in {**before, **now} if now.get(key, 0) != before.get(key, 0)}
    more = {key: (old, new) for key, (old, new) in changed.items() if new > old}
    if not changed:
        return Check(name, ok=True, why=f"{what} are the same")
    shown = sorted((more or changed).items(), key=lambda item: (-abs(item[1][1] - item[1][0]), str(item[0])))
    told = ", ".join(f"{key} {new} times a step, was {old}" for key, (old, new) in shown[:_SHOWN])
    rest = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return Check(name, not more, f"{'more' if more else 'fewer'} {what}: {told}{rest}")


def _allocations(now: Structure, before: Structure, case: Case) -> Check:
    new, old = now.scores(case), before.scores(case)
    if new is None or old is None:
        return Check("allocations", None, "no window with memory in one of the runs")
    what = f"allocations of at least {case.batch * case.q_heads} x {case.q_len:,} x {case.kv_len:,} elements"
    return Check("allocations", new <= old, f"{what}: {new} a step" + ("" if new == old else f", was {old}"))


def _peak(now: int | None, before: int | None) -> Check:
    if now is None or before is None:
        return Check("peak", None, "one of the runs does not tell the peak memory")
    factor, slack = _PEAK_SLACK
    ok = now <= before * factor + slack
    return Check("peak", ok, f"peak memory {now:,} bytes" + ("" if now == before else f", was {before:,}"))


def _numerics(new: Mapping[str, Any], old: Mapping[str, Any]) -> Check:
    now, before = new.get("error_ok"), old.get("error_ok")
    if now is None:
        return Check("numerics", None, "the result was not compared with a reference")
    error, bound = new.get("max_abs_error"), new.get("error_bound")
    told = f"largest error {'not finite' if error is None else f'{error:.3g}'}" + (
        "" if bound is None else f", bound {bound:.3g}"
    )
    if not now and before is False:
        return Check("numerics", ok=True, why=f"wrong as in the baseline: {told}")
    return Check("numerics", now, told if now else f"the result is wrong: {told}")
