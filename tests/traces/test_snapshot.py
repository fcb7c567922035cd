"""Memory snapshots: pickles are read and never run, whatever they hold; and what they hold becomes the right events."""

from __future__ import annotations

import collections
import datetime
import io
import os
import pickle
import struct
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kinetop
from kinetop.analysis.question import all_questions
from kinetop.traces.errors import NotATraceError, TraceError, UnreadableError
from kinetop.traces.reading import unpickle
from kinetop.traces.reading.snapshot import Snapshot
from kinetop.traces.reading.unpickle import unpickled

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

MIB = 1 << 20
LOW, HIGH = 0x7F00_0000_0000, 0x7F00_4000_0000
NOW_US = 1_700_000_000_000_000


def frames(*names: str, end: str = "py") -> list[dict[str, Any]]:
    return [{"filename": f"/repo/{name}.{end}", "line": 10 + at, "name": name} for at, name in enumerate(names)]


def entry(action: str, addr: int, size: int, at: int, *names: str) -> dict[str, Any]:
    return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": NOW_US + at, "frames": frames(*names)}


def block(addr: int, size: int, asked: int, state: str, *names: str) -> dict[str, Any]:
    return {"address": addr, "size": size, "requested_size": asked, "state": state, "frames": frames(*names)}


def segment(addr: int, size: int, pool: str, *blocks: dict[str, Any], device: int = 0) -> dict[str, Any]:
    used = sum(one["size"] for one in blocks if one["state"] == "active_allocated")
    about = {"total_size": size, "allocated_size": used, "active_size": used, "stream": 0, "segment_type": pool}
    return {"device": device, "address": addr, **about, "blocks": list(blocks)}


def sample() -> dict[str, Any]:
    """A snapshot in the documented form: two pools, a history, a block from before it, memory awaiting its free, an OOM."""
    mlp, waits = HIGH + 5 * MIB, HIGH + 13 * MIB
    history = [
        entry("segment_alloc", HIGH, 20 * MIB, 0),
        entry("alloc", HIGH, 5 * MIB, 10, "attention", "model"),
        entry("alloc", mlp, 7 * MIB - 100, 20, "mlp", "model"),
        entry("free_requested", HIGH, 5 * MIB, 30),
        entry("free_completed", HIGH, 5 * MIB, 31),
        entry("alloc", waits, MIB, 32, "mlp", "model"),
        entry("free_requested", waits, MIB, 33),
        {"action": "oom", "size": 900 * MIB, "stream": 0, "device_free": 3 * MIB, "time_us": NOW_US + 40, "frames": []},
    ]
    small = segment(
        LOW, 2 * MIB, "small", block(LOW, 512, 400, "active_allocated", "init"), block(LOW + 512, 2 * MIB - 512, 0, "inactive")
    )
    large = segment(
        HIGH, 20 * MIB, "large",
        block(HIGH, 5 * MIB, 0, "inactive"), block(mlp, 7 * MIB, 7 * MIB - 100, "active_allocated", "mlp", "model"),
        block(HIGH + 12 * MIB, MIB, 0, "inactive"), block(waits, MIB, MIB, "active_awaiting_free", "mlp"),
        block(HIGH + 14 * MIB, 6 * MIB, 0, "inactive"),
    )  # fmt: skip
    idle = segment(HIGH * 2, 4 * MIB, "large", block(HIGH * 2, 4 * MIB, 0, "inactive"))
    return {"segments": [small, large, idle], "device_traces": [history, []], "allocator_settings": {"roundup": 1.5}}


@pytest.fixture
def opened(tmp_path: Path) -> Callable[[Any], kinetop.TraceSet]:
    """Write a value as a pickle and open it."""

    def write(value: Any, protocol: int = 4) -> kinetop.TraceSet:
        path = tmp_path / f"snapshot{len(list(tmp_path.iterdir()))}.pickle"
        path.write_bytes(value if isinstance(value, bytes) else pickle.dumps(value, protocol))
        return kinetop.open(path, cache=False)

    return write


def tables(trace: kinetop.TraceSet) -> dict[str, pl.DataFrame]:
    return all_questions()["memory"].ask(trace).tables


def test_figures_of_a_snapshot(opened: Callable[..., kinetop.TraceSet]) -> None:
    found = tables(opened(sample()))
    device = found["devices"].row(0, named=True)
    end = 400 + 7 * MIB - 100
    assert (device["place"], device["start_bytes"], device["end_bytes"]) == ("cuda:0", 400, end)
    assert (device["peak_bytes"], device["peak_us"]) == (end + 5 * MIB, 20)
    assert device["peak_op"] == "/repo/mlp.py(10): mlp"
    assert (device["peak_reserved_bytes"], device["end_reserved_bytes"]) == (26 * MIB, 26 * MIB)
    assert (device["allocations"], device["frees"], device["out_of_memory"]) == (3, 2, 1)
    assert (device["unexplained_bytes"], device["jumps"]) == (0, 0)
    holders = {row["frame"]: row["bytes"] for row in found["holders"].iter_rows(named=True)}
    names = ("attention", "mlp", "init")
    assert holders == dict(zip((f"/repo/{name}.py(10): {name}" for name in names), (5 * MIB, 7 * MIB - 100, 400), strict=True))
    assert found["holders"]["source"].unique().to_list() == ["recorded"]
    assert found["curve"]["allocated_bytes"][-1] == end


def test_fragmentation_of_a_snapshot(opened: Callable[..., kinetop.TraceSet]) -> None:
    large, small = tables(opened(sample()))["segments"].iter_rows(named=True)
    assert (large["pool"], large["segments"], large["reserved_bytes"], large["allocated_bytes"]) == (
        "large",
        2,
        24 * MIB,
        7 * MIB,
    )
    assert (large["awaiting_bytes"], large["split_bytes"], large["unused_bytes"]) == (MIB, 12 * MIB, 4 * MIB)
    assert (large["largest_free_bytes"], large["rounding_bytes"], large["fragmentation_pct"]) == (6 * MIB, 100, 50)
    for pool in (large, small):
        parts = ("allocated_bytes", "awaiting_bytes", "split_bytes", "unused_bytes")
        assert sum(pool[part] for part in parts) == pool["reserved_bytes"]
    assert (small["pool"], small["split_bytes"], small["rounding_bytes"]) == ("small", 2 * MIB - 512, 112)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_protocol_and_no_history(opened: Callable[..., kinetop.TraceSet], protocol: int) -> None:
    whole = opened(sample(), protocol)
    assert tables(whole)["devices"].equals(tables(opened(sample()))["devices"])
    still = tables(opened({"segments": sample()["segments"]}, protocol))
    device = still["devices"].row(0, named=True)
    assert (device["peak_bytes"], device["end_bytes"], device["allocations"]) == (400 + 7 * MIB - 100,) * 2 + (0,)
    assert still["holders"]["bytes"].sum() == device["peak_bytes"]
    bare = tables(opened(sample()["segments"], protocol))
    assert bare["segments"].equals(still["segments"]), "a list of segments is what torch.cuda.memory_snapshot() returns"


def test_older_snapshots(opened: Callable[..., kinetop.TraceSet]) -> None:
    """Before 2.0 a block had no address, and its frames stood in its own history."""
    used = {"size": 1024, "state": "active_allocated", "history": [{"addr": LOW, "real_size": 900, "frames": frames("old")}]}
    free = {"size": 1024, "state": "inactive"}
    found = tables(opened([{"address": LOW, "total_size": 2048, "stream": 0, "segment_type": "small", "blocks": [free, used]}]))
    live = found["live"].row(0, named=True)
    assert (live["address"], live["bytes"], live["frame"]) == (hex(LOW + 1024), 1024, "/repo/old.py(10): old")
    assert found["segments"]["rounding_bytes"].to_list() == [None]


def test_several_devices_untimed_entries_and_unknown_actions(opened: Callable[..., kinetop.TraceSet]) -> None:
    one = {"action": "alloc", "addr": HIGH, "size": 100, "frames": frames("a", end="cpp") + frames("b")}
    there = segment(HIGH, 512, "small", block(HIGH, 512, 100, "active_allocated"), device=1)
    trace = opened({"segments": [there], "device_traces": [[], [one, {**one, "action": "dance"}]]})
    device = tables(trace)["devices"].row(0, named=True)
    assert (device["place"], device["peak_op"]) == ("cuda:1", "/repo/b.py(10): b"), "frames of Python where there are any"
    said = {notice.code: notice.count for notice in trace.warnings}
    assert (said["unknown-action"], said["no-timestamp"], said["memory-snapshot"]) == (1, 2, 1)
    assert kinetop.summary(trace).is_empty()


class Danger:
    """Runs something when Python reads it."""

    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call[0], tuple(self.call[1:])


class Stateful:
    """Has a state that a reader would restore."""

    def __init__(self) -> None:
        self.x = 1


HOSTILE = {
    "os.system": lambda marker: Danger(os.system, f"touch {marker}"),
    "open for writing": lambda marker: Danger(io.open, marker, "w"),
    "eval": lambda marker: Danger(eval, f"open({marker!r}, 'w')"),
    "a class": lambda _: Stateful(),
    "a builtin type": lambda _: Danger(list, [1]),
    "a harmless class": lambda _: collections.OrderedDict(a=1),
    "a date": lambda _: datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC),
    "a function": lambda _: os.system,
    "a complex number": lambda _: 1j,
    "a path": lambda _: Path("/"),
}


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("what", HOSTILE)
def test_nothing_is_ever_run(tmp_path: Path, what: str, protocol: int) -> None:
    marker = tmp_path / "ran"
    data = pickle.dumps(sample() | {"allocator_settings": HOSTILE[what](str(marker))}, protocol)
    with pytest.raises(UnreadableError) as caught:
        unpickled(data, "evil.pickle")
    assert not marker.exists()
    assert str(caught.value).startswith("evil.pickle: ")
    assert len(str(caught.value).splitlines()) == 1
    if protocol >= 2:
        assert isinstance(caught.value, NotATraceError)
        assert "nothing of it was run" in str(caught.value)


def test_a_hostile_file_is_one_sentence(tmp_path: Path) -> None:
    marker, path = tmp_path / "ran", tmp_path / "evil.pickle"
    path.write_bytes(pickle.dumps(Danger(os.system, f"touch {marker}")))
    with pytest.raises(NotATraceError, match="nothing of it was run"):
        kinetop.open(path, cache=False)
    assert not marker.exists()


RUN = [
    b"cos\nsystem\n",
    b"\x8c\x02os\x8c\x06system\x93",
    b"(ios\nsystem\n",
    b"\x82\x01",
    b"\x83\x01\x00",
    b"\x84\x01\x00\x00\x00",
]
RUN += [b"Pperson\n", b"K\x01Q", b"(K\x01o", b"}}\x81", b"}}}\x92", b"})R", b"}}b"]


@pytest.mark.parametrize("code", RUN)
def test_each_instruction_that_makes_or_calls_is_refused_by_name(code: bytes) -> None:
    with pytest.raises(NotATraceError, match=r"would make or call something \([A-Z_0-9]+ at byte \d+\)"):
        unpickled(b"\x80\x04" + code + b".", "a.pickle")


def test_the_instructions_known_are_those_that_fill_containers() -> None:
    import pickletools

    named = {ord(one.code): one.name for one in pickletools.opcodes}
    runs = {ord(code): name for code, name in unpickle._REFUSED.items()}
    assert all(named[code] == name for code, name in runs.items())
    assert not set(runs) & set(unpickle._RARE)
    known = (
        "PROTO",
        "FRAME",
        "EMPTY",
        "APPEND",
        "SETITEM",
        "TUPLE",
        "NONE",
        "NEW",
        "INT",
        "LONG",
        "FLOAT",
        "UNICODE",
        "BYTES",
        "PUT",
    )
    assert all(any(part in named[code] for part in known) for code in unpickle._RARE)


BOMBS = {
    "a text of 2^60 bytes": b"\x80\x04\x8d" + struct.pack("<Q", 2**60) + b"x.",
    "bytes of 2^60": b"\x80\x04\x8e" + struct.pack("<Q", 2**60) + b"x.",
    "a bytearray of 2^40": b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b"x.",
    "a number of 2^31 bytes": b"\x80\x04\x8b" + struct.pack("<I", 2**31) + b"x.",
    "a memo at 2^32 - 1": b"\x80\x02]r\xff\xff\xff\xff.",
    "a million containers": b"\x80\x04" + b"]" * 10**6 + b".",
    "a million dicts": b"\x80\x04" + b"}" * 10**6 + b".",
    "deep nesting": b"\x80\x04" + b"]" * 10**5 + b"a" * (10**5 - 1) + b".",
    "marks only": b"\x80\x04" + b"(" * 10**6 + b".",
    "an endless stack": b"\x80\x04" + b"N" * 10**6,
}


@pytest.mark.parametrize("what", BOMBS)
def test_bombs_take_memory_by_the_size_of_the_file(what: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(UnreadableError):
            unpickled(BOMBS[what], "bomb.pickle")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 40 * len(BOMBS[what]) + 1_000_000


def test_what_refers_to_itself_many_times_is_refused() -> None:
    """A hundred kilobytes that stand for 10^12 blocks; and lists that hold themselves."""
    blocks = [block(LOW, 512, 512, "inactive")] * 10_000
    segments = [segment(LOW, 512, "small") | {"blocks": blocks}] * 10_000
    data = pickle.dumps({"segments": segments, "device_traces": [[entry("alloc", LOW, 1, 1)] * 10_000] * 1000}, 4)
    with pytest.raises(UnreadableError, match="refers to the same data more often"):
        list(Snapshot(unpickled(data, "a"), "a", len(data)).events())
    loop: list[Any] = []
    loop.append(loop)
    loop.append({"blocks": loop, "frames": loop, "filename": loop})
    again = unpickled(pickle.dumps({"segments": loop, "device_traces": loop}, 4), "b")
    assert list(Snapshot(again, "b", 1000).events())


def test_a_cut_or_changed_pickle_says_so() -> None:
    data = pickle.dumps(sample(), 4)
    for end in range(2, len(data)):
        with pytest.raises(UnreadableError):
            unpickled(data[:end], "cut.pickle")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_bytes_end_in_a_value_or_a_sentence(data: st.DataObject) -> None:
    whole = bytearray(pickle.dumps(sample(), data.draw(st.sampled_from([2, 4]))))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(2, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        value = unpickled(bytes(whole), "odd.pickle")
        list(Snapshot(value, "odd.pickle", len(whole)).events())
    except TraceError as error:
        assert "odd.pickle" in str(error)


odd = st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats() | st.text(max_size=5) | st.binary(max_size=5)
nested = st.recursive(odd, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3))


def _replaced(value: Any, draw: Callable[..., Any], chance: int) -> Any:
    """Replace members anywhere by something odd."""
    if draw(st.integers(0, chance)) == 0:
        return draw(nested)
    if isinstance(value, dict):
        return {key: _replaced(member, draw, chance) for key, member in value.items()}
    return [_replaced(member, draw, chance) for member in value] if isinstance(value, list) else value


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_members_of_any_kind(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    value = _replaced(sample(), data.draw, 60)
    events = Snapshot(value, "odd", 10**6)
    try:
        rows = list(events.events())
    except NotATraceError as error:
        assert "segments" in str(error)
        return
    from kinetop.traces.reading.repair import table

    assert table(rows).num_rows == len(rows) if rows else True


def test_other_pickles_are_no_snapshots(tmp_path: Path) -> None:
    for number, value in enumerate(({"weights": [1.0]}, 5, "text", {"segments": 3}, None)):
        path = tmp_path / f"{number}.pkl"
        path.write_bytes(pickle.dumps(value))
        with pytest.raises(NotATraceError, match="no memory snapshot"):
            kinetop.open(path, cache=False)


def test_a_huge_pickle_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.pickle"
    with path.open("wb") as file:
        file.write(b"\x80\x04")
        file.truncate(unpickle.MAX_BYTES + 1)
    with pytest.raises(UnreadableError, match="up to"):
        kinetop.open(path, cache=False)
