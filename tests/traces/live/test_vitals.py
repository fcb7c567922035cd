"""When a worker is given up, and what the next one is told; without any process."""

from __future__ import annotations

import json

import pytest

from kinetop.traces.live.orders import Orders
from kinetop.traces.live.vitals import Timeouts, Vitals
from kinetop.traces.live.worker.case import Case

TIMEOUTS = Timeouts(start_s=100, silence_s=10)
CASE = Case.of("1,2,16,8")


def at(what: str, variant: str | None, limit_s: float | None, for_s: float = 0.0) -> dict[str, object]:
    """A beat of a worker that has been at something for a while, by its own clock."""
    now = 10**18
    return {"t_ns": now, "doing": {"what": what, "variant": variant, "limit_s": limit_s, "since_ns": now - round(for_s * 1e9)}}


def test_before_it_answers_only_its_age_counts() -> None:
    vitals = Vitals()
    vitals.beat(at("importing torch", None, 1, 90))
    vitals.tick(99)
    vitals.heard()
    assert vitals.overdue(TIMEOUTS) is None
    vitals.tick(2)
    end = vitals.overdue(TIMEOUTS)
    assert (end.event, end.why, end.variant) == ("hung", "no answer in 100 s", None)


def test_silence_is_counted_from_the_last_sign_of_life() -> None:
    vitals = Vitals()
    vitals.answered = True
    vitals.beat(at("sampling", "eager", None))
    for _ in range(5):
        vitals.tick(9)
        assert vitals.overdue(TIMEOUTS) is None
        vitals.heard()
    vitals.tick(11)
    end = vitals.overdue(TIMEOUTS)
    assert (end.event, end.why, end.variant) == ("hung", "no sign of life for 10 s (sampling eager)", "eager")


@pytest.mark.parametrize(
    ("said_s", "ticks_s", "limit_s", "own_s", "late"),
    [(3, 1, 5, None, False), (3, 3, 5, None, True), (3, 3, 5, 9, False), (3, 0, 50, 2, True)],
)
def test_a_variant_has_its_limit_or_the_users(said_s, ticks_s, limit_s, own_s, late) -> None:
    vitals = Vitals()
    vitals.answered = True
    vitals.beat(at("compiling", "flex:causal", limit_s, said_s))
    vitals.tick(ticks_s)
    end = vitals.overdue(Timeouts(silence_s=10, variant_s=own_s))
    assert (end is not None) == late
    assert not late or end.event == "timeout"
    vitals.beat(at("waiting", None, None, 1000))
    assert vitals.overdue(Timeouts(silence_s=10, variant_s=own_s)) is None


def test_orders_hold_over_workers() -> None:
    orders = Orders({"seed": 3})
    assert orders.first() == '{"do":"hello","seed":3}\n'
    assert orders.give("capture", {"variant": "eager"}, at_once=False) == ""
    assert orders.give("start", {"case": CASE, "variants": ["*"]}, at_once=False) == ""
    assert [json.loads(line)["do"] for line in orders.again().splitlines()] == ["start", "capture"]
    orders.give("pause", {}, at_once=True)
    orders.give("focus", {"variant": "eager"}, at_once=True)
    assert [json.loads(line)["do"] for line in orders.again().splitlines()] == ["start", "focus", "pause"]
    orders.blame("flex", "it hung")
    assert json.loads(orders.again().splitlines()[0])["without"] == {"flex": "it hung"}
    other = json.loads(orders.give("start", {"case": CASE.with_(batch=2), "variants": ["*"]}, at_once=True))
    assert "without" not in other
    assert [json.loads(line)["do"] for line in orders.again().splitlines()] == ["start"]


def test_a_benchmark_that_is_over_is_not_done_again_and_live_rounds_are() -> None:
    orders = Orders({})
    orders.give("bench", {"case": CASE, "variants": ["eager"]}, at_once=True)
    assert orders.case == CASE.to_dict()
    orders.done()
    assert (orders.again(), orders.case) == ("", {})
    orders.give("start", {"case": CASE, "variants": ["eager"]}, at_once=True)
    orders.done()
    assert json.loads(orders.again())["do"] == "start"


DUMP = """Fatal Python error: Segmentation fault

Thread 0x00007f01 (most recent call first):
  File "doing.py", line 93 in keep_beating

Current thread 0x00007f02 (most recent call first):
  File "mine.py", line 7 in attention
  File "timing.py", line 20 in once

Extension modules: torch._C, torch._C._fft (total: 2)"""


def test_of_a_crash_it_is_said_where() -> None:
    vitals = Vitals()
    vitals.last_lines.extend(line.strip() for line in DUMP.splitlines() if line)
    assert vitals.last_words("it was ended by SIGSEGV") == 'it was ended by SIGSEGV: File "mine.py", line 7 in attention'
    vitals.last_lines.clear()
    vitals.last_lines.append("out of memory")
    assert vitals.last_words("it ended") == "it ended: out of memory"
