"""What the live screen and the sweep draw, as pure functions of their figures."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import pytest

from kinetop.tui.format import ABSENT
from kinetop.tui.live_now import Chosen, Now
from kinetop.tui.render import live, live_machine, sweep

PARTS = (
    ("qk", 30.0, 30.0),
    ("mask", 12.0, 12.0),
    ("softmax", 22.0, 22.0),
    ("pv", 30.0, 30.0),
    ("copy", 5.5, 5.5),
    ("gaps", 0.5, 0.5),
)
ROW = {"median_us": 487.2, "low_us": 486.0, "high_us": 489.1, "p10_us": 480.0, "p90_us": 500.0, "n": 200, "throttled_pct": 12.0}


@dataclass
class Finding:
    variant: str
    title: str = "a copy"
    evidence: str = "seen twice"
    fix: str = "leave it out"
    level: str = "warning"


@pytest.mark.parametrize("width", [80, 100, 200])
def test_parts_keep_their_shares_and_fit(width: int) -> None:
    lines = live.parts_lines(Chosen("eager", parts=PARTS), "", width)
    text = "".join(line.plain for line in lines)
    for name, share in (
        ("QK", "30 %"),
        ("mask", "12 %"),
        ("softmax", "22 %"),
        ("PV", "30 %"),
        ("copy", "6 %"),
        ("gaps", "0.5 %"),
    ):
        assert name in text
        assert share in text
    assert all(line.cell_length <= width + 2 for line in lines)
    longest = {name: text.split(f"{name} ")[1].split(" ")[0].count("█") for name in ("QK", "mask", "PV")}
    assert longest["QK"] == longest["PV"]
    assert longest["QK"] > longest["mask"]


@pytest.mark.parametrize("width", [60, 80])
def test_many_parts_leave_room_for_their_bars_the_smallest_are_one(width: int) -> None:
    shares = {"qk": 34, "scale": 15, "mask": 3, "softmax": 5, "pv": 18, "copy": 11, "cast": 0.02, "layout": 0.1, "gaps": 13.58}
    parts = tuple((name, 10.0 * share, float(share)) for name, share in shares.items())
    lines = live.parts_lines(Chosen("eager", parts=parts), "", width)
    assert len(lines) == 2
    assert all(line.cell_length <= width + 2 for line in lines)
    text = " ".join(line.plain for line in lines)
    assert "QK █" in text
    assert "more" in text
    assert "cast" not in text
    whole = sum(float(share) for share in re.findall(r"([\d.]+) %", text))
    assert whole == pytest.approx(100, abs=2)


@pytest.mark.parametrize("width", [80, 120])
def test_parts_beside_the_baselines_are_on_one_scale(width: int) -> None:
    chosen = Chosen("sdpa", parts=(("fused", 200.0, 80.0), ("gaps", 50.0, 20.0)), base="eager", base_parts=PARTS)
    mine, base = live.parts_lines(chosen, "", width, most=1)
    assert mine.plain.startswith(" parts µs")
    assert base.plain.startswith(" eager")
    assert max(mine.cell_length, base.cell_length) <= width
    qk_us = next(us for name, us, _ in PARTS if name == "qk")
    bars = mine.plain.split("fused ")[1].split(" ")[0].count("█"), base.plain.split("QK ")[1].split(" ")[0].count("█")
    assert bars[0] / max(1, bars[1]) == pytest.approx(200 / qk_us, rel=0.5)


def test_what_is_found_in_several_variants_is_said_once() -> None:
    found = [Finding("eager"), Finding("linear", evidence="seen thrice"), Finding("sdpa", title="another")]
    text = "\n".join(line.plain for line in live.findings_page(found, "", 60))
    assert text.count("a copy") == 1
    assert "eager, linear" in text
    assert "seen twice (eager)" in text


def test_windows_are_marked_in_the_line_of_latency() -> None:
    chosen = Chosen("eager", row=ROW, latency_us=tuple(480.0 + n % 10 for n in range(40)), windows_at=(10, 39))
    (line,) = live.latency_lines(chosen, 200)
    marked = [(span.start, span.end) for span in line.spans if span.style == live.WINDOW_STYLE]
    assert marked == [(20, 21), (49, 50)]
    assert not [
        span for span in live.latency_lines(replace(chosen, windows_at=()), 200)[0].spans if span.style == live.WINDOW_STYLE
    ]


def test_parts_that_failed_or_are_not_there_yet_say_so() -> None:
    assert "ValueError" in live.parts_lines(Chosen("eager"), "ValueError: no", 80)[0].plain
    assert "no window" in live.parts_lines(Chosen("eager"), "", 80)[0].plain


def test_latency_shows_interval_count_and_what_disturbed_it() -> None:
    chosen = Chosen("eager", row=ROW, latency_us=tuple(480.0 + n % 10 for n in range(200)))
    (line,) = live.latency_lines(chosen, 100)
    assert f"487.2 µs  95 % 486.0 {ABSENT} 489.1  n 200" in line.plain
    assert "12 % throttled" in line.plain
    assert line.cell_length <= 100


def test_one_slow_call_does_not_press_the_line_flat() -> None:
    calm = [480.0 + 4 * (n % 6) for n in range(30)]
    marks = [
        live.latency_lines(Chosen("e", row=ROW, latency_us=tuple(values)), 120)[0].plain[11:40] for values in (calm, [*calm, 1e6])
    ]
    assert len(set(marks[1].strip())) > 2


def test_without_samples_the_reason_is_read_in_full() -> None:
    row = {"median_us": None, "why": "x", "status": f"unavailable: {'flash_attn_interface is not installed ' * 2}"}
    lines = live.latency_lines(Chosen("fa3", row=row), 60)
    assert len(lines) == 2
    assert lines[0].plain.startswith(" latency  unavailable: flash_attn")


def test_findings_of_the_chosen_come_first_and_others_are_counted() -> None:
    found = [Finding("eager"), Finding("linear")]
    assert "(+1 more" in live.finding_lines(found, "", Chosen("eager"), 80)[0].plain
    assert "2 about others" in live.finding_lines(found, "", Chosen("sdpa"), 80)[0].plain
    assert len(live.finding_lines(found, "", Chosen("eager"), 80, most=1)) == 1
    page = "\n".join(line.plain for line in live.findings_page(found, "", 40))
    assert "seen  seen twice" in page
    assert "do    leave it out" in page


def test_a_failure_stands_in_place_of_a_finding() -> None:
    chosen = Chosen("eager", row={"state": "FAILED", "status": "failed: out of memory"})
    assert live.finding_lines([Finding("eager")], "", chosen, 80)[0].plain == " ✗ failed: out of memory"


def test_the_worker_badge() -> None:
    assert live.badge(Now()) == "starting the worker"
    assert live.badge(Now(), replays=True) == "reading the session"
    here = Now(environment={"torch": "2"})
    assert live.badge(here) == ""
    assert (
        live.badge(replace(here, link={"event": "hung", "why": "eager took 60 s", "attempt": 1}))
        == "worker hung: eager took 60 s"
    )
    assert live.badge(replace(here, link={"event": "restarted", "attempt": 3})) == "worker restarted (3)"
    assert live.badge(replace(here, ended="the session ends here")) == "the session ends here"


def test_what_the_machine_does_not_give_is_left_out() -> None:
    gpu = {
        "util_pct": 98,
        "power_w": 612.0,
        "power_limit_w": 700.0,
        "sm_mhz": 1755,
        "temperature_c": 64,
        "throttle": ["SwPowerCap"],
    }
    names = [gauge.name for gauge in live_machine.gauges([gpu])]
    assert names == ["busy", "clock", "temp", "power", "throttle"]
    text = "\n".join(line.plain for line in live_machine.column([gpu] * 9, 40))
    assert "612/700 W" in text
    assert "SwPowerCap" in text
    assert live_machine.gauges([]) == []
    assert "no telemetry" in live_machine.line([], 80)[0].plain
    assert live_machine.line([gpu] * 9, 40)[0].cell_length <= 42
    assert "others" in [gauge.name for gauge in live_machine.gauges([{**gpu, "others": [7]}])]


GRID = sweep.Grid(
    "median",
    "us",
    (128, 256, 1024),
    ("eager", "flash"),
    {("eager", 128): 10.0, ("eager", 256): 40.0, ("flash", 128): 12.0, ("flash", 256): 13.0, ("flash", 1024): 30.0},
    {("eager", 1024): "failed"},
    {128: "eager", 256: "flash", 1024: "flash"},
)


def test_the_heat_map_marks_the_best_and_how_far_the_others_are() -> None:
    head, eager, flash, *_ = [line.plain for line in sweep.heat_map(GRID, 100)]
    assert head.split() == ["median", "128", "256", "1,024"]
    assert eager.split() == ["a", "eager", "10.00", "µs", "●", "40.00", "µs", "▓", "failed"]
    assert flash.split() == ["b", "flash", "12.00", "µs", "░", "13.00", "µs", "●", "30.00", "µs", "●"]


def test_small_sizes_leave_a_narrow_heat_map_first() -> None:
    lines = sweep.heat_map(GRID, 36)
    assert lines[0].plain.split() == ["median", "256", "1,024"]
    assert all(line.cell_length <= 36 for line in lines)


@pytest.mark.parametrize("width", [20, 80, 140])
def test_curves_end_at_their_values_and_fit(width: int) -> None:
    lines = [line.plain for line in sweep.curves(GRID, width, height=6)]
    assert len(lines) == 7
    assert "40.00 µs" in lines[0]
    assert "10.00 µs" in lines[5]
    assert lines[5][11] == "a"
    assert lines[6].split() == ["128", "1,024"]
    assert all(len(line) <= width or width < 24 for line in lines)


def test_curves_need_two_sizes() -> None:
    assert sweep.curves(replace(GRID, sizes=(128,)), 80) == []
    assert sweep.curves(replace(GRID, values={}), 80) == []


def test_progress() -> None:
    assert sweep.progress_line(2, 4, "case", 80).plain == " ██████████··········  2 of 4  case"
