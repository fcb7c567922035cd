"""Whether two runs can be compared at all, and each reason why not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .trials import CASE_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from .benchmark import Run

_SAME = ("device_name", "cpu_name", "driver", "cuda", "hip", "threads")
_FREE_FLAGS = re.compile(r".*(_VISIBLE_DEVICES|_HOME|_DIR|_PATH|_VERSION|_LOG_LEVEL|_DEBUG)|(TORCH|PYTORCH)_LOGS")
"""Variables that choose among like devices, folders and what is logged."""
_TIMING = {"timer": "timer", "cold_cache": "cold cache"}


def differences(new: Run, old: Run) -> list[str]:
    """Return each reason why two runs cannot be compared; none where they can.

    What only one of them tells is no reason.

    Args:
        new: the run to judge.
        old: the baseline.
    """
    here, there = new.environment, old.environment
    found = [*_differing(_SAME, here, there), *_differing(("torch", "cudnn"), _versions(here), _versions(there))]
    flags, old_flags = _mapping(here.get("flags")), _mapping(there.get("flags"))
    named = sorted(name for name in {*flags, *old_flags} if not _FREE_FLAGS.fullmatch(name))
    found += _differing(named, flags, old_flags, absent=bool(flags and old_flags))
    return found + _cases(new, old)


def _differing(names: Iterable[str], new: Mapping[str, Any], old: Mapping[str, Any], *, absent: bool = False) -> Iterator[str]:
    for name in names:
        now, before = new.get(name), old.get(name)
        if now != before and (absent or (now is not None and before is not None)):
            yield f"{name} is {_said(now)}, in the baseline {_said(before)}"


def _said(value: Any) -> str:
    return "not set" if value is None else str(value)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _versions(environment: Mapping[str, Any]) -> dict[str, str | None]:
    """Return versions without what makes no difference: torch's patch and build, the patch of cuDNN (90501 is 9.5.1)."""
    torch, cudnn = environment.get("torch"), environment.get("cudnn")
    return {
        "torch": None if torch is None else ".".join(str(torch).split("+")[0].split(".")[:2]),
        "cudnn": f"{cudnn // 10_000}.{cudnn // 100 % 100}" if isinstance(cudnn, int) and cudnn >= 10_000 else cudnn,
    }


def _cases(new: Run, old: Run) -> list[str]:
    """Return why no trial of the two can be compared, or what was measured in another way."""
    trials, old_trials = ({(trial["variant"], trial["case"]): trial for trial in run.trials} for run in (new, old))
    common = [(trial, old_trials[key]) for key, trial in trials.items() if key in old_trials]
    if not common:
        members = [column.name for column in CASE_COLUMNS] + ["variant"]
        seen = {name: [{trial.get(name) for trial in run.trials} for run in (new, old)] for name in members}
        apart = [
            f"{name} is {_listed(now)}, in the baseline {_listed(before)}"
            for name, (now, before) in seen.items()
            if not now & before
        ]
        return apart or ["the two have no variant on the same case in common"]
    ways = [
        {name: {_mapping(each.get("timing")).get(name) for each in side} - {None} for name in _TIMING}
        for side in zip(*common, strict=True)
    ]
    return [
        f"{title} is {_listed(ways[0][name])}, in the baseline {_listed(ways[1][name])}"
        for name, title in _TIMING.items()
        if ways[0][name] and ways[1][name] and not ways[0][name] & ways[1][name]
    ]


def _listed(values: set[Any]) -> str:
    return " ".join(sorted(map(_said, values))) or "nothing"
