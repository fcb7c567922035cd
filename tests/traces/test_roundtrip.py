"""JSON to Parquet and back gives the same events, by the fast path and by the slow one."""

from __future__ import annotations

import gzip
import json
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kinetop.traces import export, schema
from kinetop.traces.reading import pipeline

if TYPE_CHECKING:
    from pathlib import Path


def exact(text: str) -> Any:
    """Parse JSON with every digit kept."""
    return json.loads(text, parse_float=Decimal)


def to_ns(event: dict[str, Any]) -> dict[str, Any]:
    """What must come out: times that are numbers lose what is below a nanosecond, all else is as written."""
    made = dict(event)
    for key in ("ts", "dur"):
        value = made.get(key)
        if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
            ns = int((Decimal(value) * 1000).to_integral_value(ROUND_HALF_UP))
            made[key] = Decimal(ns) / 1000 if -(2**63) <= ns < 2**63 else float(value)
    return made


def floats(value: Any) -> Any:
    """Args are held as doubles where they have a fraction, as every JSON reader holds them."""
    if isinstance(value, dict):
        return {key: floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return [floats(item) for item in value]
    return float(value) if isinstance(value, Decimal) else value


def same(found: Any, text: str) -> None:
    """Compare an import with the JSON text that it was made from."""
    document = exact(text)
    events = document["traceEvents"] if isinstance(document, dict) else document
    got = [exact(line) for line in export._texts(found.trace, None)]
    assert len(got) == len(events)
    for mine, event in zip(got, events, strict=True):
        want = to_ns(event)
        for key in ("ts", "dur"):
            found_time, time = mine.pop(key, ...), want.pop(key, ...)
            assert (float(found_time) if isinstance(time, float) else found_time) == time, event
        assert floats(mine) == floats(want)


def valid(path: Path) -> str | None:
    """The text of a trace when it is plain JSON that an import takes as it is."""
    data = path.read_bytes()
    try:
        text = (gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data).decode("utf-8")
        document = json.loads(text, parse_constant=lambda word: 1 / 0)
    except (ValueError, OSError, EOFError, ZeroDivisionError):
        return None
    return text if isinstance(document, list) or "traceEvents" in document else None


@pytest.mark.parametrize("path", ["fast", "slow"])
def test_every_hazard_that_is_json(path, hazards, read, cut_small, monkeypatch):
    cut_small(3000, 1500)
    if path == "slow":
        monkeypatch.setattr(pipeline._Run, "_try", lambda *_: None)
    texts = {
        file.name: text for file in sorted(hazards.rglob("*.json*")) if file.stat().st_size < 100_000 and (text := valid(file))
    }
    texts.pop("EXPECTED.json", None)
    assert len(texts) > 40
    for text in texts.values():
        same(read(text.encode()), text)


@pytest.mark.slow
def test_the_real_traces(shared, read):
    files = [file for file in sorted((shared / "traces").rglob("*.json.gz")) if file.stat().st_size < 30_000]
    assert files
    for file in files:
        if text := valid(file):
            same(read(file), text)


NUMBERS = [
    "0", "-0", "-1", "1.5", "1e3", "1.5e-3", "0.0001", "0.0005", "-1.0025", "1669783687464181.123", "1669783687464181.1235",
    "9223372036854775.807", "9223372036854775.808", "-9223372036854775.808", "9223372036854775807", "18446744073709551616",
    "1e30",
    "123456789012345678901234567890", "0.00000000000000000001", "1" + "0" * 200,
]  # fmt: skip
VALUES = [
    *NUMBERS, "9007199254740993", "-9223372036854775809", "2147483648", "256.0", "1.7976931348623157e308", "1e-320",
    '"7"', '""', '" 7"', '"a\\u00e9\\n\\"q\\""', '"\\ud83d\\ude00"', '"\\u0000"',
    '"\\/"', '"[1]"', '"{}"', '"null"', '"nan"', '"inf"',
    '"1e999999999"', '"1e900000"', '"-0x10"', '"1.5"', '"1669783687464181.1235"',
    "null", "true", "false", "[]", "{}", "[1.10]", '[ 1 , "a", null]', '{"b": {"c": [ ]}}',
]  # fmt: skip
KEYS = [arg.key for arg in schema.ARGS]
ODD_KEYS = [
    "", " ", "a.b", "A", "a", "É", "é", "ß", "SS", "😀", "'", '\\"', "\\\\", "$.x", "*", "[0]", "args", "ph", "a:stream",
    "has_args",
    "stream~2", "Stream", "STREAM", "\\n", "x" * 200, "x" * 201, "%s", "--", "traceEvents", "name",
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: value[:25])
def test_each_value_in_each_place(value, read, cut_small):
    """In times, ids, texts, known args of every kind and unknown ones; among events whose values are usual."""
    usual = '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 2, "args": {"stream": 7, "x": 1}}'
    heads = [
        f'{{"ph": "X", "name": "k", "{key}": {value}}}'
        for key in ("ts", "dur", "pid", "tid", "id", "cat", "s", "bp", "odd", "args")
    ]
    args = [
        f'{{"ph": "X", "ts": 1, "args": {{"{key}": {value}}}}}'
        for key in ("stream", "device", "Addr", "blocks per SM", "grid", "kind", "x")
    ]
    text = "[" + ",\n".join([usual, *heads, *args, usual]) + "]"
    same(read(text.encode()), text)
    cut_small(300, 150)
    same(read(text.encode()), text)


@pytest.mark.parametrize("key", ODD_KEYS, ids=repr)
def test_each_name_of_a_member(key, read, cut_small):
    text = (
        f'[{{"ph": "X", "ts": 1, "args": {{"{key}": 1, "stream": 2}}}}, {{"ph": "X", "ts": 1, "args": {{"{key}": "x"}}}},'
        f'\n{{"ph": "X", "ts": 1, "k{key}": [1]}}, {{"ph": "X", "ts": 2}}]'
    )
    same(read(text.encode()), text)
    cut_small(60, 40)
    same(read(text.encode()), text)


def test_nulls_stay_on_the_fast_path(read, cut_small, monkeypatch):
    """A null in some events, of members with a column and without, must neither be lost nor cost the slow path."""
    walked = []
    monkeypatch.setattr(pipeline.Walker, "walk", _noted(pipeline.Walker.walk, walked))
    events = [
        {
            "ph": "X",
            "name": f"f{i}",
            "ts": i,
            "dur": 1,
            "args": {"Python parent id": i or None, "odd": None if i % 2 else i, "stream": 7},
        }
        for i in range(200)
    ]
    text = json.dumps(events, indent=1)
    cut_small(1 << 12, 1 << 11)
    same(read(text.encode()), text)
    assert sum(walked) <= 1 << 12, "all but the first slices and the last piece go the fast path"


def test_a_refusal_that_breaks_off_inside_a_character(read, cut_small):
    """What DuckDB says about a value that it refuses quotes a part of it, cut anywhere."""
    dur = {"": [], "¾": [None, None, -1000000000000000.0], "00\x80\x80": None}
    events = [{"ph": "X", "odd": None, "ts": 0, "pid": 0, "dur": dur}, {"ph": "X"}]
    text = json.dumps(events * 20, ensure_ascii=False)
    cut_small(1 << 12, 1 << 11)
    same(read(text.encode()), text)


@pytest.mark.parametrize("value", [1, True, "true", None])
def test_a_name_like_the_mark_of_a_null(value, read, cut_small):
    events = [{"ph": "X", "name": "k", "ts": i, "dur": 1, "args": {"x": None} if i % 2 else {"x~null": value}} for i in range(30)]
    text = json.dumps(events)
    cut_small(1 << 9, 1 << 8)
    same(read(text.encode()), text)


@pytest.mark.parametrize(
    "args", [{"a": {"b": None}, "b": None}, {"x~null": 1, "x": None}, {"stream": None}, {"bytes": None, "Bytes": None}]
)
def test_nulls_in_odd_places(args, read, cut_small):
    events = [{"ph": "X", "name": "k", "cat": None if i == 3 else "kernel", "ts": i, "dur": 1, "args": args} for i in range(30)]
    text = json.dumps(events)
    cut_small(1 << 9, 1 << 8)
    same(read(text.encode()), text)


def _noted(walk, walked):
    def noting(self, piece):
        walked.append(len(piece.data))
        return walk(self, piece)

    return noting


def test_names_that_differ_in_case_only(read, cut_small):
    text = (
        '[{"ph": "X", "ts": 1, "args": {"bytes": 1, "Bytes": 2, "BYTES": 3, "bYtes": "4", "stream": 1, "Stream": 2, "x": 1}},'
        '{"ph": "X", "Ph": "Y", "PH": 1, "name": "m", "Name": "n", "ts": 1, "TS": 2, "Args": {"a": 1}, "args": {"A": 1, "a": 2}}]'
    )
    same(read(text.encode()), text)
    cut_small(60, 40)
    same(read(text.encode()), text)


def test_more_names_than_get_a_column(read, cut_small):
    events = [
        f'{{"ph": "X", "ts": {i}, "args": {{{", ".join(f"{chr(34)}k{i}-{j}{chr(34)}: {j}" for j in range(20))}}}}}'
        for i in range(40)
    ]
    text = "[" + ",\n".join(events) + "]"
    cut_small(4000, 2000)
    same(read(text.encode()), text)


def test_what_python_itself_cannot_parse_is_kept_or_counted(read, tmp_path, cut_small):
    """The fast path has no limit of nesting or digits; writing JSON must not fail where it took such a value."""
    usual = '{"ph": "X", "name": "k", "ts": 1, "args": {"stream": 1}}'
    for value in ("[" * 5000 + "]" * 5000, "9" * 5000):
        odd = f'{{"ph": "X", "name": "odd", "ts": 1, "args": {{"y": {{"stream": 2}}, "stream": 3, "x": {value}}}}}'
        text = "[" + ",\n".join([usual, odd, usual]) + "]"
        for cut in ((1 << 20, 1 << 19), (60, 40)):
            cut_small(*cut)
            out = tmp_path / "in.json"
            out.write_text(text)
            parquet = tmp_path / "out.parquet"
            made = pipeline.import_file(out, parquet, member=None, jobs=1, progress=lambda *_: None)
            from kinetop.traces.trace import Trace

            trace = Trace(out, parquet, 0, made.header, made.report)
            count = export.write_json(trace, tmp_path / "back.json")
            lost = sum(notice.count for notice in made.report.notices if notice.code == "unreadable-event")
            assert count + lost == 3


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=8)
)
ANY = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=6
)
EVENT = st.fixed_dictionaries(
    {"ph": st.sampled_from("XiMCsf")},
    optional={
        "name": st.one_of(st.text(max_size=12), ANY),
        "cat": st.sampled_from(["kernel", "cpu_op", "é"]),
        "pid": st.one_of(st.integers(-5, 2**65), st.text(max_size=4), ANY),
        "tid": st.one_of(st.integers(-5, 2**65), st.text(max_size=4)),
        "ts": st.one_of(st.integers(-(10**15), 10**15), st.decimals(0, 10**15, places=3).map(float), ANY),
        "dur": st.one_of(st.integers(-5, 10**9), ANY),
        "args": st.dictionaries(
            st.one_of(st.sampled_from(KEYS), st.sampled_from(["x", "X", "y"]), st.text(max_size=5)), ANY, max_size=4
        ),
        "id": ANY,
        "odd": ANY,
    },
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(events=st.lists(EVENT, min_size=1, max_size=6), layout=st.sampled_from([None, 1]), tight=st.booleans(), tiny=st.booleans())
def test_any_event(events, layout, tight, tiny, read, cut_small):
    cut_small(*((50, 30) if tiny else (1 << 20, 1 << 19)))
    text = json.dumps(events, indent=layout, separators=(",", ":") if tight else None, ensure_ascii=False)
    text = text.encode("utf-8", "replace").decode()
    same(read(text.encode()), text)


def test_integers_in_columns_of_fractions_keep_their_digits(read, wrap, cut_small):
    cut_small(3000, 1500)
    values = [2**53 + 1, -(2**63) - 1, 10**30, "7", 0.5, 3, 9007199254740991]
    texts = [
        json.dumps(
            {"ph": "X", "name": "k", "pid": 0, "tid": 0, "ts": at, "dur": 1, "args": {"blocks per SM": values[at % len(values)]}}
        )
        for at in range(200)
    ]
    same(read(wrap(texts)), wrap(texts).decode())
