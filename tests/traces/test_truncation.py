"""A trace cut off at any byte: the whole events before the cut are kept and it is said, or nothing is left and that is said."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
import zstandard

from kinetop.traces.errors import UnreadableError

EVENTS: list[dict[str, Any]] = [
    {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1.5, "dur": 2, "args": {"stream": 7}},
    {"ph": "M", "name": "process_name", "pid": "a b", "tid": 0, "args": {"name": 'py\\thon "q" é😀'}},
    {
        "ph": "X", "name": 'x, {"ph": 1}, {"name": "y"', "pid": 1, "tid": 2, "ts": 3, "dur": 1,
        "args": {"l": [{"name": "n", "ph": "q"}, {"name": "m"}], "Input Dims": [[1, 2], []]},
    },
    {"ph": "X", "cat": "kernel", "name": "end", "pid": 0, "tid": 7, "ts": 9, "dur": 2, "args": {}},
]  # fmt: skip
TEXTS = [json.dumps(event, ensure_ascii=False) for event in EVENTS]
HEAD = '{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "x y"}], "traceEvents": [\n'
WHOLE = (HEAD + ",\n".join(TEXTS) + '\n], "distributedInfo": {"rank": 3}, "z": [1, {"a": "b"}]}').encode()
BARE = ("[" + ",\n".join(TEXTS) + "]").encode()


def ends(data: bytes) -> list[int]:
    """Where each event ends."""
    return [data.index(text.encode()) + len(text.encode()) for text in TEXTS]


@pytest.mark.parametrize("cut", [None, (64, 64)], ids=["whole", "pieces"])
@pytest.mark.parametrize("data", [WHOLE, BARE], ids=["object", "array"])
def test_every_byte(data, cut, read, cut_small):
    if cut:
        cut_small(*cut)
    for length in range(100 if cut else 1, len(data), 13 if cut else 1):
        count = sum(end <= length for end in ends(data))
        if not count:
            with pytest.raises(UnreadableError, match=r"cut off|is not a list") as caught:
                read(data[:length])
            assert "byte" in str(caught.value)
            continue
        found = read(data[:length])
        assert found.events == EVENTS[:count], length
        # A list in the args of the last event may look like the end of the array: then the event is what cannot be read.
        assert set(found.codes) & {"truncated", "unclosed-array", "unreadable-event"}, length


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
def test_every_byte_of_a_compressed_trace(compress, read):
    data = compress(WHOLE)
    kept = set()
    for length in range(4, len(data)):
        try:
            found = read(data[:length])
        except UnreadableError as error:
            assert f"compressed byte {length}" in str(error)
            continue
        assert found.events == EVENTS[: len(found.events)]
        assert any(code.startswith("damaged-") for code in found.codes)
        assert f"{length:,}" in found.notices[0].message
        kept.add(len(found.events))
    assert compress is zstandard.compress or kept == {1, 2, 3, 4}


def test_damage_in_the_middle_keeps_what_came_before(read):
    many = [{**EVENTS[0], "name": f"{i * 7919 % 9973}"} for i in range(8_000)]
    data = bytearray(gzip.compress(json.dumps(many).encode()))
    data[len(data) // 2] ^= 255
    found = read(bytes(data))
    whole = 0
    while found.events[whole] == many[whole]:
        whole += 1
    assert whole > 3000
    assert found.codes["damaged-gzip"] == 1
