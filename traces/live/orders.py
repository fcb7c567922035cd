"""What a worker was told, so that the next one can be told the same, without the variant that ended the last."""

from __future__ import annotations

import json
from typing import Any

from .worker.case import Case

JOBS = ("start", "bench")


class Orders:
    """The commands that still hold."""

    def __init__(self, hello: dict[str, Any]) -> None:
        self._hello = hello
        self._waiting: list[dict[str, Any]] = []
        """Given before there was a worker; each once."""
        self._job: dict[str, Any] | None = None
        self._focus: dict[str, Any] | None = None
        self._paused = False
        self._guilty: dict[str, set[str]] = {}
        """Variants that ended a worker, by the case they were at: another case may be within their means."""

    @property
    def case(self) -> dict[str, Any]:
        """Members of the case of the running job; empty when there is none."""
        return dict(self._job["case"]) if self._job else {}

    def give(self, order: dict[str, Any], *, at_once: bool) -> list[str]:
        """Remember a command.

        Args:
            order: `do` and the members.
            at_once: whether a worker takes it now; else one that comes later does.

        Returns:
            The lines to send now.
        """
        do = order["do"]
        if isinstance(order.get("case"), Case):
            order["case"] = order["case"].to_dict()
        if do in JOBS:
            self._job, self._focus = order, None
        elif do == "focus":
            self._focus = order
        elif do in {"pause", "resume"}:
            self._paused = do == "pause"
        elif not at_once:
            self._waiting.append(order)
        return [self._line(order)] if at_once else []

    def hello(self) -> str:
        """Return the line that a new worker gets first."""
        return self._line(self._hello)

    def again(self) -> list[str]:
        """Return the lines that a new worker gets once it has answered."""
        held = [self._job, self._focus, {"do": "pause"} if self._paused else None, *self._waiting]
        self._waiting = []
        return [self._line(order) for order in held if order]

    def blame(self, variant: str) -> None:
        """Leave a variant out of the case it was at."""
        self._guilty.setdefault(_key(self.case), set()).add(variant)

    def left_out(self) -> list[str]:
        """Return the variants left out of the running job, for what they did to a worker before."""
        asked = set(self._job["variants"]) if self._job else set()
        guilty = sorted(self._guilty.get(_key(self.case), ()))
        return [name for name in guilty if name in asked or any("*" in one for one in asked)]

    def done(self) -> None:
        """Take note that a benchmark is over: a new worker need not do it again."""
        if self._job and self._job["do"] == "bench":
            self._job = None

    def _line(self, order: dict[str, Any]) -> str:
        said = {**order, "without": self.left_out()} if order["do"] in JOBS else order
        return json.dumps(said, separators=(",", ":")) + "\n"


def _key(case: dict[str, Any]) -> str:
    return json.dumps(case, sort_keys=True)
