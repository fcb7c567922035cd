"""A broken event costs at most itself: which events survive, and what is said, with count and offset."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from kinetop.traces.errors import UnreadableError
from kinetop.traces.reading import pipeline

EVENT = (
    '{"ph": "X", "cat": "kernel", "name": "k2", "pid": 0, "tid": 7, "ts": 120, "dur": 5.25, '
    '"args": {"stream": 7, "correlation": 2, "x": [2]}}'
)

Case = tuple[str, str, dict[str, Any]]
"""What stands in the event, what is put there instead, and which members must come out."""

MENDED: dict[str, list[Case]] = {
    "bad-escape": [
        ("k2", r"C:\p\d", {"name": r"C:\p\d"}),
        ("k2", r"C:\temp\new\u1", {"name": r"C:\temp\new\u1"}),
        ("k2", r"D:\new", {"name": r"D:\new"}),
        ("k2", r"a\qb", {"name": r"a\qb"}),
        ("k2", r"a\u12", {"name": r"a\u12"}),
        ("k2", r"a\x1b[0m", {"name": r"a\x1b[0m"}),
        ("k2", r"\d\t", {"name": r"\d\t"}),
        ("k2", "C:\\dir\\", {"name": "C:\\dir\\"}),
        ("k2", r"\\server\share", {"name": r"\\server\share"}),
        ("k2", r"C:\\a\qb", {"name": r"C:\a\qb"}),
        ("[2]", r'"D:\new\table"', {"x": r"D:\new\table"}),
        ("[2]", r'{"a": ["x\ y"]}', {"x": {"a": [r"x\ y"]}}),
        ('"x"', r'"a\q"', {r"a\q": [2]}),
        ('"kernel"', r'"ker\nel\x"', {"cat": r"ker\nel\x"}),
        ('"pid": 0', r'"pid": "a\q"', {"pid": r"a\q"}),
    ],
    "bad-number": [
        *(
            ("[2]", word, {"x": None})
            for word in ("inf", "-inf", "Infinity", "-Infinity", "NaN", "nan", "-nan", "nan(ind)", "-nan(0x8)")
        ),
        *(("[2]", word, {"x": None}) for word in ("1.#INF", "-1.#IND", "1.#QNAN0", "1.#INF00", "undefined", "None")),
        ("[2]", '[1, [NaN, {"b": inf}]]', {"x": [1, [None, {"b": None}]]}),
        ("[2]", "007", {"x": 7}),
        ("[2]", "1_000", {"x": 1000}),
        ("[2]", "[7L, 2.5f]", {"x": [7, 2.5]}),
        ('"correlation": 2', '"correlation": 2UL', {"correlation": 2}),
        ("[2]", "0xFF", {"x": 255}),
        ("[2]", "True", {"x": True}),
        ('"correlation": 2', '"correlation": +2', {"correlation": 2}),
        ('"stream": 7', '"stream": inf', {"stream": None}),
        ('"pid": 0', '"pid": nan', {"pid": None}),
        ("120", "NaN", {"ts": None}),
        ("120", "120.", {"ts": 120}),
        ("120", "+120", {"ts": 120}),
        ("5.25", ".25", {"dur": 0.25}),
        ("5.25", "-inf", {"dur": None}),
        ('"k2"', "nan", {"name": None}),
    ],
    "unescaped-quote": [
        ("k2", 'a "b" c', {"name": 'a "b" c'}),
        ("k2", 'a"b', {"name": 'a"b'}),
        ("k2", '"ab', {"name": '"ab'}),
        ("k2", 'ab"', {"name": 'ab"'}),
        ("k2", 'a", "b', {"name": 'a", "b'}),
        ("k2", 'getattr(x, "name")', {"name": 'getattr(x, "name")'}),
        ("k2", r'\"a\" "b"', {"name": '"a" "b"'}),
        ("[2]", '"say "hi" now"', {"x": 'say "hi" now'}),
        ("[2]", '["say "hi" now", 1]', {"x": ['say "hi" now', 1]}),
        ("[2]", '{"f": "say "hi""}', {"x": {"f": 'say "hi"'}}),
        ('"x"', '"a "b" c"', {'a "b" c': [2]}),
    ],
    "stray-comma": [("}}", "},}", {}), ("}}", ",}}", {}), ("[2]", "[2,]", {"x": [2]})],
    "missing-value": [("[2]", "", {"x": None}), ('"pid": 0', '"pid": ', {"pid": None})],
    "control-character": [("k2", "a\x01b\nc\td", {"name": "a\x01b\nc\td"}), ("[2]", '"a\x00b"', {"x": "a\x00b"})],
    "invalid-utf8": [
        ("k2", "a\udcff\udcfeb", {"name": "a\ufffd\ufffdb"}),
        ('"x"', '"a\udcff"', {"a\ufffd": [2]}),
        ("[2]", '["\udcc3"]', {"x": ["\ufffd"]}),
    ],
    "invalid-unicode": [("k2", r"a\ud800b", {"name": "a\ufffdb"}), ("[2]", r'["\udc00"]', {"x": ["\ufffd"]})],
    "duplicate-member": [
        ('"pid": 0', '"pid": 1, "pid": 0', {"pid": 0}),
        ('"stream": 7', '"stream": 8, "stream": 7', {"stream": 7}),
        ("[2]", '{"a": 1, "a": 2}', {"x": {"a": 2}}),
    ],
}

CASES = [(code, *case) for code, cases in MENDED.items() for case in cases]


def texts_with(texts: list[str], place: int, text: str) -> list[str]:
    return [*texts[:place], text, *texts[place + 1 :]]


PLACES = (0, 3, 6)
"""The first event, one in the middle, and the last."""


CUTS = ((16 << 20, 1 << 19), (150, 100))
"""Sizes of slices and pieces: as usual, and so small that borders lie everywhere."""


def member(event: dict[str, Any], key: str) -> Any:
    return event[key] if key in event else event["args"][key]


@pytest.mark.parametrize(("code", "old", "new", "want"), CASES, ids=[f"{code} {new[:20]!r}" for code, _, new, _ in CASES])
def test_what_is_broken_in_a_known_way_is_mended(code, old, new, want, read, wrap, texts, cut_small):
    assert old in EVENT
    broken = EVENT.replace(old, new, 1) if old != "}}" else EVENT[:-2] + new
    for place in PLACES:
        data = wrap(texts_with(texts, place, broken))
        for cut in CUTS:
            cut_small(*cut)
            found = read(data)
            mine = found.events.pop(place)
            assert found.events == [json.loads(text) for i, text in enumerate(texts) if i != place]
            assert {key: member(mine, key) for key in want} == want
            assert mine["ph"] == "X"
            if code == "stray-comma" and cut[0] == 150:
                continue  # the fast path's reader takes it, and nothing is lost
            notice = next(notice for notice in found.notices if notice.code == code)
            assert (notice.count, notice.offset) == (1, data.index(broken.encode("utf-8", "surrogateescape")))
            assert set(found.codes) <= {code, "no-timestamp"}


LOST = {
    "missing brace": EVENT[:-1],
    "missing braces": EVENT[:-2],
    "missing quote": EVENT.replace('k2"', "k2"),
    "missing colon": EVENT.replace('"name":', '"name"'),
    "missing comma": EVENT.replace('"pid": 0,', '"pid": 0'),
    "unquoted key": EVENT.replace('"name"', "name"),
    "extra bracket inside": EVENT.replace("[2]", "[2]]"),
    "single quotes": EVENT.replace('"k2"', "'k2'"),
    "python": repr(json.loads(EVENT)),
    "tuple": EVENT.replace("[2]", "(1, 2)"),
    "decimal comma": EVENT.replace("5.25", "5,25"),
    "comment": EVENT.replace('"pid"', '/* x */ "pid"'),
    "byte outside a text": EVENT.replace('"x"', '\udcff"x"'),
    "half": EVENT[:40],
    "nested objects": EVENT.replace("[2]", 'bad, "y": [{"name": "a", "id": 1}, {"name": "b"}, {"ph": "q"}]'),
}


@pytest.mark.parametrize("kind", LOST)
@pytest.mark.parametrize("place", PLACES)
def test_what_cannot_be_mended_costs_one_event(kind, place, read, wrap, texts, cut_small):
    data = wrap(texts_with(texts, place, LOST[kind]), after=', "distributedInfo": {"rank": 3}')
    for cut in CUTS:
        cut_small(*cut)
        found = read(data)
        assert found.events == [json.loads(text) for i, text in enumerate(texts) if i != place]
        assert sum(found.codes.get(code, 0) for code in ("unreadable-event", "truncated")) == 1
        assert set(found.codes) <= {"unreadable-event", "truncated", "unreadable-member"}
        if place < 6:
            assert found.header["distributedInfo"] == {"rank": 3}
            assert found.notices[0].offset == data.index(LOST[kind].encode("utf-8", "surrogateescape"))


@pytest.mark.parametrize("element", ["null", "[]", '"x"', "5", "true", '[{"ph": "X"}]'])
def test_elements_that_are_no_events_are_counted(element, read, wrap, texts, small):
    found = read(wrap([element, *texts[:3], element, *texts[3:], element]))
    assert found.events == small
    assert found.codes == {"not-an-event": 3}


BETWEEN = {
    "a brace": ("}", "garbage"),
    "a bracket": ("]", "garbage"),
    "brackets": ("]]}", "garbage"),
    "words": (", hello", "garbage"),
    "html": (", <b>x</b>", "garbage"),
    "nan": (", nan", "garbage"),
    "a comment": (" // hi", "garbage"),
    "a comma": (",", "stray-comma"),
}


@pytest.mark.parametrize("kind", BETWEEN)
def test_what_stands_between_events_costs_none(kind, read, wrap, texts, small):
    text, code = BETWEEN[kind]
    for place in (0, 3):
        found = read(wrap(texts_with(texts, place, texts[place] + text)))
        assert found.events == small
        assert found.codes == {code: 1}


def test_missing_commas_cost_nothing(read, small):
    found = read(("[" + "\n".join(map(json.dumps, small)) + "]").encode())
    assert found.events == small
    assert found.codes == {"missing-comma": len(small) - 1}


def test_an_event_inside_half_of_another_is_kept(read, wrap, texts, small):
    """Two threads wrote at one time."""
    found = read(wrap(texts_with(texts, 2, texts[2][:40] + texts[2])))
    assert found.events == small
    assert found.codes == {"unreadable-event": 1}


def test_several_broken_events_are_each_counted(read, wrap, texts, cut_small):
    broken = [EVENT.replace("k2", r"C:\p\d"), '{"ph": bad}', EVENT.replace("[2]", "inf")]
    events = [text for pair in zip(texts[:6], broken * 2, strict=True) for text in pair]
    data = wrap(events)
    for cut in ((16 << 20, 1 << 19), (64, 64), (300, 120)):
        cut_small(*cut)
        found = read(data)
        assert len(found.events) == 10
        assert found.codes == {"bad-escape": 2, "unreadable-event": 2, "bad-number": 2}
        assert [notice.offset for notice in found.notices] == [data.index(text.encode()) for text in broken]


def test_a_bracket_that_is_missing_is_added(read, small):
    text = json.dumps({"traceEvents": small})
    found = read((text[:-2] + "}").encode())
    assert found.events == small
    assert found.codes == {"unclosed-array": 1}


HEADER: dict[str, tuple[str, Any, set[str]]] = {
    "nan": ('"a": NaN', None, {"mended-member"}),
    "inf in a list": ('"a": [{"id": 0, "x": inf}]', [{"id": 0, "x": None}], {"mended-member"}),
    "python": ('"a": None', None, {"mended-member"}),
    "escape": (r'"a": "C:\q"', r"C:\q", {"mended-member"}),
    "comma": ('"a": [1,]', [1], {"mended-member"}),
    "control": ('"a": "x\ny"', "x\ny", set()),
    "half a pair": (r'"a": "\ud800"', "\ufffd", {"invalid-unicode"}),
    "no UTF-8": ('"a": "\udcff"', "\ufffd", {"invalid-unicode"}),
    "twice": ('"a": 1, "a": 2', 2, {"duplicate-member"}),
    "a word": ('"a": bad', ..., {"unreadable-member"}),
    "no value": ('"a": ', ..., {"unreadable-member"}),
    "quotes": ('"a": "x "y" z"', ..., {"unreadable-member"}),
    "no comma": ('"a": {} "b": 2', {}, set()),
    "unquoted": ("a: 1", ..., {"unreadable-member"}),
    "single quotes": ("'a': 1", ..., {"unreadable-member"}),
    "a number": ("5", ..., {"unreadable-member"}),
    "a text": ('"a"', ..., {"unreadable-member"}),
    "wrong bracket": ('"a": [1}', ..., {"unreadable-member"}),
    "open bracket": ('"a": [1', ..., {"unreadable-member"}),
    "too deep": ('"a": ' + "[" * 3000 + "]" * 3000, ..., {"unreadable-member"}),
    "a number too long": ('"a": ' + "9" * 6000, None, {"mended-member"}),
}


@pytest.mark.parametrize("kind", HEADER)
def test_a_broken_member_of_the_header_costs_no_event(kind, read, wrap, texts, small):
    text, want, codes = HEADER[kind]
    for data in (
        wrap(texts, before=text + ', "schemaVersion": 1, ', after=', "distributedInfo": {"rank": 3}'),
        wrap(texts, before='"schemaVersion": 1, ', after=f", {text}, " + '"distributedInfo": {"rank": 3}'),
    ):
        found = read(data)
        assert found.events == small
        assert found.header.get("a", ...) == want
        assert found.header["schemaVersion"] == 1
        assert found.header["distributedInfo"] == {"rank": 3}
        assert found.trace.rank == 3
        assert set(found.codes) == codes


def test_a_member_too_large_for_a_header_is_left_out_and_what_follows_is_read(monkeypatch, read, wrap, texts, small, cut_small):
    from kinetop.traces.reading import document

    monkeypatch.setattr(document, "_HEADER_BYTES", 2000)
    large = json.dumps({"large": [{"name": "abc", "ts": [i, "]}"]} for i in range(1000)]})[1:-1]
    for slice_bytes, piece_bytes in ((1000, 200), (1 << 20, 1 << 19)):
        cut_small(slice_bytes, piece_bytes)
        for data in (
            wrap(texts, before=large + ", ", after=', "distributedInfo": {"rank": 3}'),
            wrap(texts, before="", after=f', {large}, "distributedInfo": {{"rank": 3}}'),
        ):
            found = read(data)
            assert found.events == small
            assert found.header == {"distributedInfo": {"rank": 3}}
            assert found.codes == {"large-member": 1}


def test_a_header_that_never_ends_is_said(read):
    with pytest.raises(UnreadableError, match="cut off at byte"):
        read(b'{"a": "' + b"x" * 1000)


SLOW = {
    "a text of 10 MB, cut off by a quote": lambda: EVENT.replace("k2", "k" * (10 << 20) + '" "'),
    "one event of 8 MB": lambda: EVENT.replace("k2", "k" * (8 << 20)),
    "quotes in a text of 1 MB": lambda: EVENT.replace("k2", 'a "b" ' * 170_000),
    "100,000 texts and a broken one": lambda: EVENT.replace("[2]", "[" + '"a", ' * 100_000 + '"b "c" d"]'),
    "100,000 digits": lambda: EVENT.replace("[2]", "1" * 100_000),
    "100,000 backslashes": lambda: EVENT.replace("k2", "\\q" * 50_000),
    "100,000 open braces": lambda: '{"ph":' * 100_000,
    "a million zeros": lambda: EVENT.replace("[2]", "0" * 1_000_000),
    "a member for each of 20,000 names": lambda: EVENT.replace('"x": [2]', ", ".join(f'"n{i}": {i}' for i in range(20_000))),
}


@pytest.mark.parametrize("kind", SLOW)
def test_hostile_sizes_take_no_hostile_time(kind, read, wrap, texts):
    """Each of these took minutes or for ever where a rule looks at the same text again and again."""
    begun = time.process_time()
    found = read(wrap(texts_with(texts, 3, SLOW[kind]())))
    assert time.process_time() - begun < 20
    assert found.names[0] == "process_name"
    assert found.names[-1] == "ac2g"


def test_the_slow_path_takes_over_where_the_fast_one_refuses(monkeypatch, read, wrap, texts, cut_small):
    """The same events come out with the fast path and without it."""
    cut_small(150, 100)
    data = wrap(texts * 3)
    fast = read(data)
    monkeypatch.setattr(pipeline._Run, "_try", lambda *_: None)
    slow = read(data)
    assert slow.events == fast.events
    assert slow.trace.events.collect().equals(fast.trace.events.collect())


@pytest.mark.parametrize("old", ['"x": [2]', '"stream": 7', '"pid": 0', '"ts": 120'])
def test_an_integer_of_more_digits_than_python_reads_costs_no_event(old, read, wrap, texts, small):
    key = old.split('"')[1]
    assert old in texts[3]
    found = read(wrap([*texts[:3], texts[3].replace(old, f'"{key}": -' + "9" * 5000), *texts[4:]]))
    assert found.names == [event["name"] for event in small]
    assert found.codes["bad-number"] == 1
    assert member(found.events[3], key) is None
