"""Figures and names as people see them."""

from __future__ import annotations

import math
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from kinetop.tui.format import ABSENT, cell, clean, duration, percent, plural, size


@given(st.text(st.characters(exclude_categories=[])), st.integers(0, 40))
def test_a_clean_name_fits_and_holds_nothing_a_terminal_acts_on(name: str, width: int) -> None:
    shown = clean(name, width)
    assert cell_len(shown) <= width
    assert not {unicodedata.category(char) for char in shown} & {"Cc", "Cs", "Zl", "Zp"}
    assert "\u202e" not in shown


def test_harmless_names_stay_as_they_are() -> None:
    for name in ("[bold]gemm[/x]", "aten::mm", "核 kernel", "a\\b", " two  spaces "):
        assert clean(name) == name


def test_escapes_are_visible() -> None:
    assert clean("a\x1b[31m\n\x00\x9b\u202e") == "a\\x1b[31m\\n\\x00\\x9b\\u202e"


def test_long_and_wide_names_are_cut_by_cells() -> None:
    assert clean("k" * 5_000, 10) == "k" * 9 + "…"
    assert clean("核" * 10, 10) == "核" * 4 + "…"
    assert clean("核" * 5, 10) == "核" * 5
    assert clean("abc", 0) == ""


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (None, "us", ABSENT),
        (math.nan, "pct", ABSENT),
        (math.inf, "ratio", ABSENT),
        (1234567.8912, "us", "1,234,567.891"),
        (1234567, "ns", "1,234,567"),
        (-5, "count", "-5"),
        (71.44, "pct", "71.4"),
        (2**34, "bytes", "16.0 GiB"),
        (512, "bytes", "512 B"),
        (1.0, "ratio", "1.00"),
        (-0.00614, "ratio", "-0.0061"),
        (7.8e-7, "ratio", "7.8e-07"),
        (0.0, "ratio", "0.00"),
        (291.04, "GB/s", "291.0"),
        (1234567, "id", "1234567"),
        (True, "flag", "yes"),
        (False, "flag", "no"),
        ("a\nb", "text", "a\\nb"),
        ([1, 2], "text", "[1, 2]"),
    ],
)
def test_cells(value: object, unit: str, shown: str) -> None:
    assert cell(value, unit) == shown


def test_durations_sizes_shares_and_counts() -> None:
    assert [duration(us) for us in (0, 0.001, 999.9, 1000, -2_000_000, math.nan)] == [
        "0.000 µs", "0.001 µs", "999.900 µs", "1.000 ms", "-2.000 s", ABSENT,
    ]  # fmt: skip
    assert [size(count) for count in (0, 1023, 1024, 5 * 2**40)] == ["0 B", "1,023 B", "1.0 KiB", "5.0 TiB"]
    assert (percent(None), percent(100.0)) == (ABSENT, "100.0 %")
    assert (plural(0, "row"), plural(1, "row")) == ("0 rows", "1 row")
