"""The filter language against Python's own string and number comparisons."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetop.analysis.filter import predicate
from kinetop.traces.errors import FilterError

NAMES = ["ncclAllReduce", "gemm f32", "[memory]", "aten::mm", "vec<4, float>", "a/b (c)", None]
FRAME = pl.DataFrame(
    {
        "name": NAMES,
        "cat": ["kernel"] * 3 + ["x"] * 4,
        "dur_ns": [100_000, 200_000, 50, 100_001, 1500, 7, 8],
        "start_ns": [10, 20, 30, 40, 50, 60, 70],
        "delay_ns": [-5, 0, 1000, 2000, 3, 4, 5],
        "stream": [7, 7, 20, None, 7, 7, 7],
        "share_pct": [50.0, 25.0, 10.0, 5.0, 5.0, 3.0, 2.0],
    },
    schema_overrides={"cat": pl.Categorical},
).with_row_index("row")


def kept(text: str, frame: pl.DataFrame = FRAME) -> list[int]:
    return frame.filter(predicate(text, frame.schema))["row"].to_list()


def refused(text: str) -> FilterError:
    with pytest.raises(FilterError) as caught:
        predicate(text, FRAME.schema)
    return caught.value


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("", [0, 1, 2, 3, 4, 5, 6]),
        ("  ", [0, 1, 2, 3, 4, 5, 6]),
        ("NCCL", [0]),
        ("[memory]", [2]),
        ("aten::mm", [3]),
        ("vec<4,", [4]),
        ("a/b", [5]),
        ("(c)", [0, 4, 5]),
        ('"(c)"', [5]),
        ("'gemm f32'", [1]),
        ("f32 gemm", [1]),
        ("/gemm|^NCCL/", [0, 1]),
        (r"/a\/b/", [5]),
        ("!nccl", [1, 2, 3, 4, 5, 6]),
        ("!!nccl", [0]),
        ("not /gemm|nccl/", [2, 3, 4, 5, 6]),
        ("!(nccl or gemm)", [2, 3, 4, 5, 6]),
        ("/gemm|nccl/ and !nccl", [1]),
        ("nccl | gemm & stream = 7", [0, 1]),
        ("nccl and dur > 100us", []),
        ("nccl and dur >= 100us", [0]),
        ("nccl dur >= 100us", [0]),
        ("dur > 100us and stream = 7", [1]),
        ("stream==7 & dur>100us", [1]),
        ("dur > 0.1ms", [1, 3]),
        ("dur > 100", [1, 3]),
        ("dur_ns > 100", [0, 1, 3, 4]),
        ("dur between 1us and 0.1ms", [0, 4]),
        ("dur between 1us and 0.1ms and stream = 7 or nccl", [0, 4]),
        ("stream in (7, 20) and !/gemm/", [0, 2, 4, 5, 6]),
        ("stream not in (7)", [2]),
        ("stream is null", [3]),
        ("cat = 'kernel'", [0, 1, 2]),
        ("cat like 'k%'", [0, 1, 2]),
        ("cat ILIKE 'K%'", [0, 1, 2]),
        ("cat ~ '^k'", [0, 1, 2]),
        ("name not like '%a%'", [0, 1, 2]),
        ("starts_with(name, 'nccl')", [0]),
        ("abs(delay) > 1us", [3]),
        ("-1ns < delay", [1, 2, 3, 4, 5, 6]),
        ("(dur + 1us) * 2 > 200us", [0, 1, 3]),
        ("share >= 10", [0, 1, 2]),
        ("nccl)", []),
        ("kernel<float> copy in", []),
    ],
)
def test_keeps(text: str, rows: list[int]) -> None:
    assert kept(text) == rows


def test_units_of_a_result_table() -> None:
    table = FRAME.select("row", "name", total_us=pl.col("dur_ns") / 1000, count="row")
    for text in ("total > 100us", "total > 0.1ms", "total > 100", "total_us > 100", "total > 100000ns"):
        assert kept(text, table) == [1, 3], text


def test_origin_shifts_start_and_end_only_when_named_without_their_unit() -> None:
    assert FRAME.filter(predicate("start >= 40ns", FRAME.schema, origin_ns=20))["row"].to_list() == [5, 6]
    assert FRAME.filter(predicate("start_ns >= 40", FRAME.schema, origin_ns=20))["row"].to_list() == [3, 4, 5, 6]


def test_words_look_at_every_text_column_where_there_is_no_name() -> None:
    frame = pl.DataFrame({"row": [0, 1], "cause": ["host late", "sync"], "op": ["aten::mm", None]})
    assert kept("late", frame) == [0]
    assert kept("MM", frame) == [0]
    with pytest.raises(FilterError, match="no text column"):
        predicate("late", {"row": pl.Int64()})


@pytest.mark.parametrize(
    ("text", "position", "says"),
    [
        ("nccl and durr > 5", 9, "did you mean dur"),
        ("foo is null", 0, "no column foo"),
        ("dur>100us&&x", 9, "must follow"),
        ("stream > 5us", 9, "5us is a duration"),
        ("dur >", 5, "must follow"),
        ("dur > and x", 5, "must follow"),
        ("dur between 1 and", 17, "must follow"),
        ("x /gemm", 2, "ends with a /"),
        ("/(/", 1, "unclosed group"),
        ("cat ~ '('", 0, "unclosed group"),
        ("(nccl", 0, "not closed"),
        ("(nccl))x", 6, "unmatched"),
        ("x and", 5, "must follow"),
        ("and x", 0, "must come before 'and'"),
        ("x or or y", 5, "must come before 'or'"),
        ("!", 1, "must follow"),
        ("name > 5", 0, "cannot be compared"),
        ("dur > 'x'", 0, "cannot be compared"),
        ("name = flash", 7, "'single quotes'"),
        ("dur in (select 1)", 14, "must follow"),
        ("sum(dur) > 3", 0, "no function sum"),
        ("read_csv('/etc/passwd') = 1", 0, "no function read_csv"),
        ("(" * 100, 50, "parentheses"),
        ("dur > 1e999999s", 6, "beyond every number"),
        ("dur > 1e99999999999999999999us", 6, "beyond every number"),
        ("dur > " + "(" * 500 + "1", 56, "50 parentheses"),
        ("dur > " + "1 + " * 3000 + "1", 407, "100 signs"),
        ("dur > " + "-" * 3000 + "1", 106, "100 signs"),
        ("\udcff", 0, "UTF-8"),
    ],
)
def test_refuses(text: str, position: int, says: str) -> None:
    error = refused(text)
    assert (error.position, says in str(error)) == (position, True), str(error)


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12)


@given(st.lists(TEXTS, min_size=1, max_size=8), TEXTS.filter(str.strip))
def test_a_quoted_text_is_a_substring_in_any_case(names: list[str], wanted: str) -> None:
    frame = pl.DataFrame({"row": range(len(names)), "name": names})
    quoted = '"' + wanted.replace('"', '""') + '"'
    found = kept(quoted, frame)
    assert {row for row, name in enumerate(names) if wanted in name} <= set(found)
    assert kept(f"!{quoted}", frame) == [row for row in range(len(names)) if row not in found]
    if wanted.isascii() and all(name.isascii() for name in names):
        assert found == [row for row, name in enumerate(names) if wanted.lower() in name.lower()]


@given(st.text(max_size=40))
def test_any_text_is_understood_or_refused_with_a_place(text: str) -> None:
    try:
        FRAME.filter(predicate(text, FRAME.schema))
    except FilterError as error:
        assert error.position is not None
        assert 0 <= error.position <= len(text)


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=8), st.integers(0, 10**6), st.sampled_from(["ns", "us", "ms", "s"]))
def test_a_duration_means_the_same_in_every_unit(durations_ns: list[int], amount: int, unit: str) -> None:
    limit_ns = amount * {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}[unit]
    frame = pl.DataFrame({"row": range(len(durations_ns)), "name": ["k"] * len(durations_ns), "dur_ns": durations_ns})
    expected = [row for row, dur in enumerate(durations_ns) if dur >= limit_ns]
    assert kept(f"dur >= {amount}{unit}", frame) == expected
    assert kept(f"dur_ns >= {amount}{unit}", frame) == expected
