"""The picture of a roofline: what stands where, what is said of the rest, what a hostile name may do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from kinetop.tui.render.plain import plain
from kinetop.tui.render.roofline import CEILING, SLOPE, chart


def row(intensity: float | None, tflops: float | None, **more: Any) -> dict[str, Any]:
    """A row of the roofline table."""
    told = {"op": "aten::mm", "shape": "64x64 64x64", "dtype": "bf16", "device_us": 9.0, "device_name": "NVIDIA H200"}
    limits = {"peak_tflops": 989.0, "peak_gb_s": 4800.0, "compute_pct": 50.0, "bandwidth_pct": 10.0}
    return {**told, **limits, "intensity": intensity, "tflops": tflops, **more}


def field(rows: list[dict[str, Any]], width: int = 80, height: int = 24) -> list[str]:
    """The lines of the field alone, without scale and legend."""
    return [line.plain.split("│", 1)[1] for line in chart(rows, width, height) if "│" in line.plain]


def test_points_lie_below_the_roof_and_in_order() -> None:
    lines = field([row(500.0, 600.0), row(1.0, 2.0, op="aten::add")])
    places = {mark: (at, line.index(mark)) for at, line in enumerate(lines) for mark in "ab" if mark in line}
    assert places["a"][0] < places["b"][0]
    assert places["a"][1] > places["b"][1]
    for down, across in places.values():
        above = "".join(line[across] for line in lines[:down])
        assert CEILING in above or SLOPE in above
    assert any(CEILING in line for line in lines)


def test_what_has_no_place_is_counted() -> None:
    lines = [line.plain for line in chart([row(10.0, 5.0), row(None, None), row(0.0, 0.0)], 100, 20)]
    assert "2 rows without a place" in lines[-1]
    assert "989 TFLOP/s, 4,800 GB/s" in lines[-1]
    assert chart([row(None, None)], 80, 20) == []
    assert chart([], 80, 20) == []


def test_without_limits_there_is_no_roof() -> None:
    unknown = {"peak_tflops": None, "peak_gb_s": None, "compute_pct": None, "bandwidth_pct": None, "device_name": None}
    lines = chart([row(10.0, 5.0, **unknown)], 80, 20)
    assert not any(CEILING in line or SLOPE in line for line in field([row(10.0, 5.0, **unknown)]))
    assert "limits are not known" in lines[-1].plain


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(1e-9, 1e9), st.floats(1e-9, 1e6)), min_size=1, max_size=80),
    st.integers(20, 200),
    st.integers(5, 60),
    st.text(max_size=50),
)
def test_it_fits_whatever_comes(points: list[tuple[float, float]], width: int, height: int, name: str) -> None:
    lines = chart([row(*point, op=f"[/x]\x1b[31m{name}", shape=None) for point in points], width, height)
    assert len(lines) <= max(height, 6)
    for line in lines:
        assert cell_len(line.plain) <= width
        assert "\x1b" not in line.plain
        assert plain(line.plain).isascii()


@pytest.mark.parametrize("height", [10, 24, 40])
def test_the_highest_limit_is_inside(height: int) -> None:
    lines = field([row(1.0, 1.0), row(1.0, 1.0, peak_tflops=67.0)], height=height)
    assert sum(CEILING * 3 in line for line in lines) == 2
