"""Every layout and container of one trace gives the same events; what is no trace is said in one sentence."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import threading
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

import pytest
import zstandard

import kinetop
from kinetop.traces.errors import NotATraceError, UnreadableError

if TYPE_CHECKING:
    from collections.abc import Callable

SKIPPABLE = b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"
"""A zstd frame that holds no data."""


def zipped(**files: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


LAYOUTS: dict[str, Callable[[list[dict[str, Any]]], str]] = {
    **{
        f"indent {indent!r}": lambda events, indent=indent: json.dumps({"a": 1, "traceEvents": events, "b": [{}]}, indent=indent)
        for indent in (None, 0, 2, 4, "\t")
    },
    "compact": lambda events: json.dumps({"traceEvents": events}, separators=(",", ":")),
    "spaces before colons": lambda events: json.dumps({"traceEvents": events}, separators=(" , ", " : ")),
    "crlf": lambda events: json.dumps({"traceEvents": events}, indent=1).replace("\n", "\r\n"),
    "plain UTF-8": lambda events: json.dumps({"traceEvents": events}, ensure_ascii=False),
    "sorted keys": lambda events: json.dumps({"traceEvents": events}, sort_keys=True),
    "other order": lambda events: json.dumps({"traceEvents": [dict(reversed(event.items())) for event in events]}),
    "bare array": json.dumps,
    "bare array, unclosed": lambda events: json.dumps(events)[:-1],
    "bare array, comma last": lambda events: json.dumps(events)[:-1] + ",",
    "comma before the bracket": lambda events: json.dumps(events)[:-1] + ",\n]",
    "events last": lambda events: json.dumps({"deviceProperties": [{"id": 0, "x": "]}"}], "traceEvents": events}),
    "events first": lambda events: json.dumps({"traceEvents": events, "distributedInfo": {"rank": 0}, "s": "[{"}),
    "other arrays around": lambda events: json.dumps({"samples": events[:2], "traceEvents": events, "more": events[:1]}),
    "escaped key": lambda events: json.dumps({"traceEvents": events}).replace("traceEvents", "trace\\u0045vents"),
    "white space around": lambda events: " \n\t" + json.dumps({"traceEvents": events}) + "\n\n",
}

CONTAINERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "gzip members": lambda data: b"".join(gzip.compress(data[i : i + 100]) for i in range(0, len(data), 100)),
    "gzip, empty members": lambda data: gzip.compress(b"") + gzip.compress(data) + gzip.compress(b""),
    "gzip, zero padding": lambda data: gzip.compress(data) + bytes(70_000),
    "gzip in gzip": lambda data: gzip.compress(gzip.compress(data)),
    "gzip with a byte order mark": lambda data: gzip.compress(b"\xef\xbb\xbf" + data),
    "zstd": zstandard.compress,
    "zstd frames": lambda data: zstandard.compress(data[:200]) + zstandard.compress(data[200:]),
    "zstd, skippable frames": lambda data: SKIPPABLE + zstandard.compress(data[:99]) + SKIPPABLE + zstandard.compress(data[99:]),
    "gzip in zstd": lambda data: zstandard.compress(gzip.compress(data)),
    "bzip2": bz2.compress,
    "bzip2 streams": lambda data: bz2.compress(data[:200]) + bz2.compress(data[200:]),
    "xz": lzma.compress,
    "xz, padded": lambda data: lzma.compress(data) + bytes(8),
    "lzma": lambda data: lzma.compress(data, format=lzma.FORMAT_ALONE),
    "byte order mark": lambda data: b"\xef\xbb\xbf" + data,
    "two byte order marks": lambda data: b"\xef\xbb\xbf" * 2 + data,
    "zeros at the end": lambda data: data + bytes(5000),
    "zeros in front": lambda data: bytes(100) + data,
    **{
        name: lambda data, name=name: data.decode().encode(name)
        for name in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be")
    },
}


@pytest.mark.parametrize("cut", [None, (200, 100), (64, 64)], ids=["whole", "fast path", "tiny"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_one_trace_give_its_events(layout, cut, read, small, cut_small):
    if cut:
        cut_small(*cut)
    found = read(LAYOUTS[layout](small).encode())
    assert found.events == small
    assert set(found.codes) <= {"unclosed-array"}


@pytest.mark.parametrize("container", CONTAINERS)
def test_containers_of_one_trace_give_its_events(container, read, small):
    found = read(CONTAINERS[container](json.dumps({"traceEvents": small}, ensure_ascii=False).encode()))
    assert found.events == small
    assert set(found.codes) <= {"utf-16"}


def test_the_suffix_says_nothing(read, small):
    assert read(gzip.compress(json.dumps(small).encode()), name="a.zst").events == small
    assert read(json.dumps(small).encode(), name="a.gz").events == small


def test_members_of_a_gzip_may_begin_anywhere_in_a_block(read, small):
    """The magic bytes of a member may lie across two blocks of the file."""
    from kinetop.traces.reading.source import READ_BYTES

    text = json.dumps(small).encode()
    second = gzip.compress(text[50:])
    for over in (0, 1, 2):
        noise = gzip.compress(b"", mtime=0)
        fill = READ_BYTES - over - len(gzip.compress(text[:50])) - len(noise)
        # A member with a long comment fills the block up to `over` bytes before its end.
        padded = noise[:3] + b"\x10" + noise[4:10] + b"c" * (fill - 1) + b"\x00" + noise[10:]
        data = gzip.compress(text[:50]) + padded + second
        assert data[READ_BYTES - over :].startswith(second)
        assert read(data).events == small


def test_a_wrong_checksum_loses_no_event_and_is_said(read, small):
    data = bytearray(gzip.compress(json.dumps(small).encode()))
    for place in (-6, -2):
        data[place] ^= 255
        found = read(bytes(data))
        assert found.events == small
        assert found.codes["damaged-gzip"] == 1


def test_what_follows_the_compressed_data_is_said(read, small):
    for compress in (gzip.compress, zstandard.compress):
        found = read(compress(json.dumps(small).encode()) + b"garbage")
        assert found.events == small
        assert found.codes == {"trailing-bytes": 1}


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress, bz2.compress, lzma.compress])
def test_a_document_behind_a_compressed_one_is_not_passed_over(compress, read, small):
    text = json.dumps({"traceEvents": small}).encode()
    with pytest.raises(UnreadableError, match="second JSON document starts at byte"):
        read(compress(text) + text)


@pytest.mark.parametrize("log", ["[rank0]:W1201 done", "{done}", "[ 12.5] done"])
def test_a_line_of_a_log_behind_a_trace_is_no_document(log, read, small):
    for text in (json.dumps({"traceEvents": small}), json.dumps(small)):
        found = read(f"{text}\n{log}\n".encode())
        assert found.events == small
        assert found.codes == {"trailing-bytes": 1}


def test_utf_16_that_is_broken_is_counted(read, small):
    small[3]["name"] = "a?b"
    data = json.dumps(small).encode("utf-16-le").replace("?".encode("utf-16-le"), b"\x00\xd8")
    found = read(data)
    assert found.events[3]["name"] == "a\ufffdb"
    assert found.codes == {"utf-16": 1, "invalid-utf8": 1}


def test_what_is_no_trace_in_an_archive_costs_none(tmp_path, small):
    path = tmp_path / "run.zip"
    text = json.dumps({"traceEvents": small}).encode()
    path.write_bytes(zipped(**{"rank0.json": text, "config.json": b'{"lr": 1}', "../out/rank1.json": text}))
    found = kinetop.open(path, cache=False)
    assert [trace.member for trace in found.traces] == ["rank0.json", "../out/rank1.json"]
    assert [notice.count for notice in found.notices if notice.code == "unreadable-file"] == [1]


def test_two_files_of_one_name_in_an_archive_are_said(tmp_path, small):
    path = tmp_path / "run.zip"
    data = zipped(**{"a.json": json.dumps(small).encode(), "b.json": json.dumps(small).encode()})
    path.write_bytes(data.replace(b"b.json", b"a.json"))
    with pytest.raises(UnreadableError, match=r"2 files of one name, a\.json"):
        kinetop.open(path, cache=False)


def test_a_pipe_is_read_to_its_end(tmp_path, small):
    text = gzip.compress(json.dumps({"traceEvents": small}).encode())
    pipe = tmp_path / "rank3.json"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(text,))
    writer.start()
    found = kinetop.open(pipe)
    writer.join()
    assert found.traces[0].rank == 3
    assert found.events.collect().height == len(small)


def test_a_device_is_refused():
    with pytest.raises(UnreadableError, match="a device, not a file"):
        kinetop.open("/dev/zero")


def test_an_archive_opens_each_trace_in_it(tmp_path, small):
    path = tmp_path / "traces.zip"
    one, two = json.dumps({"traceEvents": small}), json.dumps({"traceEvents": small[:2], "distributedInfo": {"rank": 1}})
    path.write_bytes(
        zipped(**{"a.json": one.encode(), "b.json.gz": gzip.compress(two.encode()), "__MACOSX/._a.json": b"{", "c.txt": b"hi"})
    )
    found = kinetop.open(path)
    assert [trace.member for trace in found.traces] == ["a.json", "b.json.gz"]
    assert [trace.report.events for trace in found.traces] == [len(small), 2]


def test_an_archive_without_traces_or_with_a_lock_is_said(tmp_path):
    path = tmp_path / "x.zip"
    path.write_bytes(zipped(**{"notes.txt": b"hello"}))
    with pytest.raises(NotATraceError, match="holds no trace"):
        kinetop.open(path)
    locked = bytearray(zipped(**{"a.json": b"[]"}))
    locked[6] |= 1
    locked[locked.rindex(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(locked)
    with pytest.raises(UnreadableError, match="cannot be read"):
        kinetop.open(path)
    path.write_bytes(zipped(**{"a.json": b"[]"})[:40])
    with pytest.raises(UnreadableError, match="zip"):
        kinetop.open(path)


REFUSED = {
    "nothing": (b"", "empty"),
    "white space": (b" \n\t ", "white space"),
    "zeros": (bytes(4096), "white space"),
    "gzip of nothing": (gzip.compress(b""), "white space"),
    "gzip header": (gzip.compress(b"[]")[:10], "ends early at compressed byte 10"),
    "html": (b"<!DOCTYPE html><html></html>", "web page"),
    "elf": (b"\x7fELF" + bytes(60), "a program"),
    "pickle": (b"\x80\x04\x95" + bytes(60), "pickle"),
    "sqlite": (b"SQLite format 3\x00" + bytes(60), "SQLite"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
    "lz4": (b"\x04\x22\x4d\x18" + bytes(60), "LZ4"),
    "tar": (bytes(257).replace(b"\x00", b"a") + b"ustar" + bytes(300), "tar archive"),
    "tar in gzip": (gzip.compress(b"a" * 257 + b"ustar" + bytes(300)), "tar archive"),
    "zlib": (zlib.compress(b"[]" * 50), "unknown kind"),
    "text": (b"hello, this is a log\n" * 5, "plain text"),
    "a string": (b'"a"', "plain text"),
    "an object": (b"{}", "no traceEvents"),
    "other members": (b'{"a": 1, "b": 2}', "members: a, b"),
    "execution trace": (b'{"schema": "1.0", "nodes": []}', "execution trace"),
    "memory snapshot": (b'{"segments": [], "device_traces": []}', "memory snapshot"),
    "events are null": (b'{"traceEvents": null}', "not a list"),
    "events are an object": (b'{"traceEvents": {"0": {"ph": "X"}}}', "not a list"),
    "one event a line": (b'{"ph": "X", "name": "a"}\n{"ph": "X", "name": "b"}\n', "JSON lines"),
    "numbers": (b"[1, 2, 3]", "none of its 3 elements"),
    "nested": (b'[[{"ph": "X"}]]', "none of its 1 elements"),
    "objects": (b'[{"a": 1}, {"a": 2}]', "has a type"),
    "an open brace": (b"{", "cut off at byte 1"),
    "an open bracket": (b"[", "cut off after byte 1"),
    "nothing whole": (b'{"traceEvents": [{"ph": "X"', "cut off after byte 17"),
    "nothing readable": (b'{"traceEvents": [{"ph": bad bad}]}', "no event of it can be read"),
    "a python literal": (b"{'traceEvents': []}", "not JSON"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_trace_is_said_in_a_sentence(case, read):
    data, said = REFUSED[case]
    with pytest.raises(UnreadableError, match=said) as caught:
        read(data)
    assert "trace.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_empty_trace_is_a_trace(read):
    for text in (b"[]", b"[ \n ]", b'{"traceEvents": []}', b'{"traceEvents": [\n]}'):
        found = read(text)
        assert not found.events
        assert not found.notices


TWO = {
    **{
        form: form
        for form in (
            "{doc}{doc}",
            "{doc}\n{doc}",
            "{doc},{doc}",
            "{doc} garbage {doc}",
            "{array}{array}",
            "{array}\n{doc}",
            "{doc}{array}",
        )
    },
    "brace missing": "{unclosed}{doc}",
    "brace missing, on a line of its own": "{unclosed}\n{doc}",
    "cut inside an event": "{cut}{doc}",
    "cut inside an event, on a line of its own": "{cut}\n{doc}",
}


@pytest.mark.parametrize("form", TWO)
def test_a_second_document_is_never_passed_over(form, read, small):
    doc, array = json.dumps({"schemaVersion": 1, "traceEvents": small}), json.dumps(small)
    data = TWO[form].format(doc=doc, array=array, unclosed=doc[:-1], cut=doc[:-60]).encode()
    with pytest.raises(UnreadableError, match="second JSON document starts at byte"):
        read(data)


def test_the_result_does_not_depend_on_jobs_slices_or_pieces(read, wrap, texts, cut_small):
    many = [*texts * 4, texts[1].replace("k0", "C:\\p\\d"), *texts, '{"ph": bad}', *texts * 2]
    data = wrap(many, after=', "distributedInfo": {"rank": 3}')
    whole = read(data)
    assert len(whole.events) == len(many) - 1
    for slice_bytes, piece_bytes, jobs in ((64, 64, 1), (300, 100, 3), (1000, 150, 2), (5000, 700, 1)):
        cut_small(slice_bytes, piece_bytes)
        found = read(data, jobs=jobs)
        assert found.events == whole.events
        assert found.notices == whole.notices
        assert found.header == whole.header


def test_folders(tmp_path, small):
    with pytest.raises(NotATraceError, match="no trace in this folder"):
        kinetop.open(tmp_path)
    (tmp_path / "a.json").write_text(json.dumps(small))
    (tmp_path / "other.json").write_text('{"config": 1}')
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "gone.json").symlink_to(tmp_path / "nowhere")
    sub = tmp_path / "sub\nfolder"
    sub.mkdir()
    (sub / "b.json").write_text(json.dumps(small))
    (sub / "cut.json").write_text('{"traceEvents": [{"ph"')
    found = kinetop.open(tmp_path)
    assert [trace.path.name for trace in found.traces] == ["a.json", "b.json"]
    assert [notice.code for notice in found.notices if "cut.json" in notice.message] == ["unreadable-file"]


@pytest.mark.parametrize("name", ["absent.json", "a" * 300])
def test_a_path_that_cannot_be_opened_is_said(name, tmp_path):
    with pytest.raises(UnreadableError, match=name):
        kinetop.open(tmp_path / name)


def test_a_parquet_file_that_is_no_trace_is_said(tmp_path, made):
    import polars as pl

    path = tmp_path / "x.parquet"
    pl.DataFrame({"a": [1]}).write_parquet(path)
    with pytest.raises(NotATraceError, match="has no column"):
        kinetop.open(path)
    whole = made([{"ph": "X", "name": "k", "ts_ns": 1, "dur_ns": 1}]).traces[0].parquet.read_bytes()
    for broken in (whole[:-5], whole[: len(whole) // 2], b"PAR1" + bytes(50)):
        path.write_bytes(broken)
        with pytest.raises(UnreadableError, match="cannot be read"):
            kinetop.open(path)


@pytest.mark.parametrize("order", ["base first", "base last"])
@pytest.mark.parametrize("phase", ["X", "B", "i", "C"])
def test_a_start_that_64_bits_of_nanoseconds_cannot_hold_is_counted(phase, order, read, wrap, texts):
    late = json.dumps({"ph": phase, "cat": "kernel", "name": "late", "pid": 0, "tid": 7, "ts": 9e15, "dur": 1})
    base = '"baseTimeNanoseconds": 1767225600000000000'
    data = wrap([*texts, late], base + ", ") if order == "base first" else wrap([*texts, late], after=", " + base)
    found = read(data)
    assert found.codes == {"no-timestamp": 1}
    assert found.notices[0].message == "1 event has no readable start time and is left out of all figures."
