"""What a worker was told, so that the next one can be told the same, without the variant that ended the last."""

from __future__ import annotations

import json
from typing import Any

from .worker.case import Case

JOBS = ("start", "bench")


class Orders:
    """The commands that still hold."""

    def __init__(self, hello: dict[str, Any]) -> None:
        self._hello = {"do": "hello", **hello}
        self._job: dict[str, Any] | None = None
        self._focus: dict[str, Any] | None = None
        self._paused = False
        self._waiting: list[dict[str, Any]] = []
        """Given while there was no worker; each holds once."""
        self._guilty: dict[str, dict[str, str]] = {}
        """Variants that ended a worker, and how, by the case they were at: another case may be within their means."""

    @property
    def case(self) -> dict[str, Any]:
        """Members of the case of the running job; empty when there is none."""
        return dict(self._job["case"]) if self._job else {}

    def give(self, do: str, members: dict[str, Any], *, at_once: bool) -> str:
        """Remember a command, and return the lines to send now.

        Args:
            do: the command.
            members: its members; a `case` may be a Case.
            at_once: whether there is a worker that takes it now; else one that comes later does.
        """
        order = {"do": do, **members}
        if isinstance(case := members.get("case"), Case):
            order["case"] = case.to_dict()
        if do in JOBS:
            self._job, self._focus, self._paused = order, None, False
        elif do == "focus":
            self._focus = order
        elif do in {"pause", "resume"}:
            self._paused = do == "pause"
        elif not at_once:
            self._waiting.append(order)
        return self._line(order) if at_once else ""

    def first(self) -> str:
        """Return the line that a new worker gets first."""
        return self._line(self._hello)

    def again(self) -> str:
        """Return the lines that a new worker gets once it has answered."""
        held = [self._job, self._focus, {"do": "pause"} if self._paused else None, *self._waiting]
        self._waiting = []
        return "".join(self._line(order) for order in held if order)

    def blame(self, variant: str, why: str) -> None:
        """Leave a variant out of the case it was at."""
        self._guilty.setdefault(_key(self.case), {})[variant] = why

    def done(self) -> None:
        """Take note that a benchmark is over: a new worker need not do it again."""
        if self._job and self._job["do"] == "bench":
            self._job = None

    def _line(self, order: dict[str, Any]) -> str:
        guilty = self._guilty.get(_key(order["case"]), {}) if order["do"] in JOBS else {}
        return json.dumps({**order, "without": guilty} if guilty else order, separators=(",", ":")) + "\n"


def _key(case: dict[str, Any]) -> str:
    return json.dumps(case, sort_keys=True)
