"""Windows as rows of the event table: nothing added, nothing lost, each event in its place and step."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinetop.traces import schema
from kinetop.traces.live import windows
from kinetop.traces.live.members import UnusableError
from kinetop.traces.live.names import Names, Window
from kinetop.traces.live.worker.frames import CODES, Frame, Reader, pack

if TYPE_CHECKING:
    from kinetop.traces.trace import TraceSet

KINDS = ("cpu_op", "user_annotation", "cuda_runtime", "kernel", "gpu_memcpy", "cpu_instant_event", "gpu_user_annotation")
COLUMNS = {
    "name": "u32", "kind": "u8", "start_ns": "i64", "dur_ns": "i64", "device_type": "u8", "device": "i32", "resource": "i64",
    "correlation": "u64", "linked": "u64", "nbytes": "i64", "flops": "u64",
}  # fmt: skip
PID = 4242


def row(name: str, kind: str, start_ns: int, dur_ns: int = 10, **more: int) -> dict[str, Any]:
    gpu = kind.startswith("gpu") or kind == "kernel"
    place = {"device_type": 1, "device": 0, "resource": 7} if gpu else {"device_type": 0, "device": PID, "resource": 99}
    ids = {"correlation": 0, "linked": 0, "nbytes": 0, "flops": 0}
    return {"name": name, "kind": kind, "start_ns": start_ns, "dur_ns": dur_ns, **place, **ids, **more}


def frame_of(rows: list[dict[str, Any]], names: list[str] | None = None, **header: Any) -> Frame:
    """What a worker would send, through the bytes of a pipe."""
    found = names if names is not None else list(dict.fromkeys(one["name"] for one in rows))
    sent = [{**one, "name": found.index(one["name"]), "kind": KINDS.index(one["kind"])} for one in rows]
    columns = {name: (code, [one[name] for one in sent]) for name, code in COLUMNS.items()}
    told = {"kind": "window", "variant": "eager", "window": 3, "steps": 2, "pid": PID, "kinds": list(KINDS)}
    (made,) = Reader().feed(pack({**told, "names": dict(enumerate(found)), **header}, columns))
    return made


def window_of(rows: list[dict[str, Any]], *, generation: int = 0, **header: Any) -> Window:
    names, frame = Names(), frame_of(rows, **header)
    for _ in range(generation + 1):
        names.restart()
    names.learn(frame)
    return names.window(frame, "a case")


STEPS = [
    row("kinetop.step|eager|3|0", "user_annotation", 100, 100, correlation=1),
    row("aten::mm", "cpu_op", 110, 50, correlation=2, flops=4096),
    row("cudaLaunchKernel", "cuda_runtime", 120, 5, correlation=31, linked=2),
    row("cudaMemcpyAsync", "cuda_runtime", 130, 5, correlation=32, linked=2),
    row("[memory]", "cpu_instant_event", 140, 0, device=-1, nbytes=-64),
    row("kinetop.step|eager|3|1", "user_annotation", 250, 50, correlation=3),
    row("cudaLaunchKernel", "cuda_runtime", 260, 5, correlation=33, linked=4),
    row("gemm", "kernel", 210, 30, correlation=31, linked=2),
    row("Memcpy HtoD", "gpu_memcpy", 240, 20, correlation=32, linked=2, nbytes=256),
    row("gemm", "kernel", 900, 30, correlation=33, linked=4),
    row("aten::add", "cpu_op", 220, 5, correlation=5),
    row("kinetop.step|eager|3|0", "gpu_user_annotation", 210, 50),
]


def test_each_event_belongs_to_a_step_gpu_work_by_its_launch() -> None:
    found = windows.rows([window_of(STEPS)])
    assert found["step"].to_list() == [0, 0, 0, 0, 0, 1, 1, 0, 0, 1, None, None]


def test_rows_are_what_the_profiler_itself_writes() -> None:
    found = windows.rows([window_of(STEPS)]).rows(named=True)
    op, launch, memory, copy = found[1], found[2], found[4], found[8]
    assert (op["ph"], op["process"], op["thread"], op["ts_ns"], op["dur_ns"]) == ("X", "4242", "99", 110, 50)
    assert (op["external_id"], op["correlation"], op["stream"], op["device"]) == (2, None, None, None)
    assert json.loads(op["args"]) == {"flops": 4096}
    assert (launch["correlation"], launch["external_id"], launch["args"]) == (31, 2, None)
    assert (memory["ph"], memory["scope"], memory["dur_ns"]) == ("i", "t", None)
    assert (memory["memory_bytes"], memory["memory_device"], memory["memory_device_type"]) == (-64, -1, 0)
    assert (copy["process"], copy["thread"], copy["device"], copy["stream"]) == ("0", "7", 0, 7)
    assert (copy["bytes"], copy["correlation"], copy["external_id"]) == (256, 32, 2)


def test_the_columns_are_those_of_the_event_table() -> None:
    kinds = {"int": pl.Int64(), "text": pl.String(), "json": pl.String()}
    for name, kind in windows.EVENT_COLUMNS.items():
        assert kind == (pl.Int32() if name == "device" else kinds[schema.COLUMNS[name]]), name


def test_shapes_of_tensors_have_their_column_and_lists_of_tensors_are_kept() -> None:
    shapes = {"1": "[[2, 4], [], [7]]", "2": "[[[2, 3], [4]]]", "3": '[[1,,2]] "', "4": "[]", "99": "[[1]]", "x": "[[1]]", "5": 7}
    found = windows.rows([window_of(STEPS, shapes=shapes)])
    assert found["input_dims"].to_list()[:6] == [None, "[[2, 4], [], [7]]", None, None, "[]", None]
    args = [json.loads(text) for text in found["args"].drop_nulls()]
    assert args == [{"flops": 4096}, {"shapes": "[[[2, 3], [4]]]"}, {"shapes": '[[1,,2]] "'}]


def test_ids_of_another_worker_are_others() -> None:
    first, second = (windows.rows([window_of(STEPS, generation=number)]) for number in (0, 2))
    for column in ("correlation", "external_id"):
        assert not set(first[column].drop_nulls()) & set(second[column].drop_nulls())
        assert (second[column] - first[column]).drop_nulls().unique().to_list() == [2 << 40]
    assert first["step"].equals(second["step"])


def test_windows_without_their_columns_are_refused() -> None:
    frame = frame_of(STEPS)
    for name in ("name", "kind", "start_ns", "dur_ns"):
        less = Frame(frame.header, {key: values for key, values in frame.columns.items() if key != name})
        with pytest.raises(UnusableError, match=name):
            Names().window(less, "")
    with pytest.raises(UnusableError, match="length"):
        Names().window(Frame(frame.header, {**frame.columns, "flops": array("Q", [1])}), "")


def test_windows_together_are_the_windows_one_by_one() -> None:
    many = [
        window_of(STEPS[: 3 * number], generation=number % 2, shapes={"1": f"[[{number}]]"}, window=number) for number in range(5)
    ]
    alone = [windows.events([one]) for one in many]
    assert windows.events(many).equals(pl.concat(alone))
    assert windows.rows(many)["at"].to_list() == [at for at, one in enumerate(many) for _ in range(len(one))]


ROWS = st.builds(
    row,
    st.sampled_from(
        ["aten::mm", "gemm", "[memory]", "kinetop.step|eager|3|0", "kinetop.step|a|b|3|1", "[/x]\x1b[31m", "\ud800", ""]
    ),
    st.sampled_from(KINDS),
    st.integers(0, 500),
    st.integers(-5, 100),
    device_type=st.integers(0, 1),
    device=st.integers(-1, 3),
    correlation=st.integers(0, 4),
    linked=st.integers(0, 2**64 - 1),
    nbytes=st.integers(-100, 100),
    flops=st.integers(0, 2**64 - 1),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(ROWS, max_size=25))
def test_totals_are_those_of_the_frames_own_columns(rows: list[dict[str, Any]]) -> None:
    frame = frame_of(rows)
    names = Names()
    names.learn(frame)
    found = windows.rows([names.window(frame, "")])
    columns = frame.columns
    kinds = [KINDS[number] for number in columns["kind"]]
    assert found.height == len(rows)
    assert Counter(found["cat"]) == Counter(kinds)
    assert found["ts_ns"].to_list() == columns["start_ns"].tolist()
    instants = [kind == "cpu_instant_event" for kind in kinds]
    assert found["dur_ns"].to_list() == [
        None if instant else dur for instant, dur in zip(instants, columns["dur_ns"], strict=True)
    ]
    assert found["memory_bytes"].sum() == sum(
        nbytes for instant, nbytes in zip(instants, columns["nbytes"], strict=True) if instant
    )
    counted = found["bytes"].sum() + found["memory_bytes"].sum()
    texts = [json.loads(text) for text in found["args"].drop_nulls()]
    assert counted + sum(said.get("nbytes", 0) for said in texts) == sum(columns["nbytes"])
    assert sum(said.get("flops", 0) for said in texts) == sum(columns["flops"])
    in_steps = brute_steps(rows)
    launched = set(zip(found["stream"].is_not_null(), in_steps, found["step"], strict=True))
    assert all(gpu or by_time == step for gpu, by_time, step in launched)


def brute_steps(rows: list[dict[str, Any]]) -> list[int | None]:
    """The step by time of each row, looked for one by one: that of the range that began last, where it has not ended."""
    named = [one for one in rows if one["kind"] == "user_annotation" and one["name"].startswith("kinetop.step|")]
    steps = sorted(
        (one["start_ns"], int(one["name"][-1]), one["start_ns"] + one["dur_ns"]) for one in named if one["device_type"] >= 0
    )
    made = []
    for one in rows:
        begun = [step for step in steps if step[0] <= one["start_ns"]]
        made.append(begun[-1][1] if begun and one["start_ns"] < begun[-1][2] else None)
    return made


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 5).flatmap(
        lambda height: st.fixed_dictionaries(
            {
                name: st.sampled_from(sorted(CODES.values())).flatmap(
                    lambda code: st.lists(
                        st.floats() if code == "d" else st.integers(-(2 ** (8 * array(code).itemsize - 1)) * code.islower(), 127),
                        min_size=height, max_size=height,
                    ).map(lambda values: array(code, values))
                )
                for name in COLUMNS
            }
        )
    ),
    st.dictionaries(st.text("0123456789x", max_size=22), st.text(max_size=5) | st.none(), max_size=4),
)  # fmt: skip
def test_columns_of_any_type_make_rows(columns: dict[str, Any], texts: dict[str, Any]) -> None:
    frame = Frame({"kind": "window", "variant": "eager", "kinds": ["kernel", 5], "names": texts, "shapes": texts}, columns)
    names = Names()
    names.learn(frame)
    found = windows.events([names.window(frame, "\ud800")])
    assert found.height == len(columns["name"])
    assert found["name"].null_count() == sum(not -(2**63) <= value < 2**63 for value in columns["name"])


def test_the_activities_of_a_window_are_its_gpu_work(made: Any) -> None:
    """Through the event table, the room that cleans GPU work finds the kernels and links them to their launches."""
    rows = windows.rows([window_of(STEPS)]).drop("at", "step")
    traces: TraceSet = made(rows.rows(named=True))
    assert traces.activities["kind"].to_list() == ["kernel", "memcpy", "kernel"]
    assert traces.launches["op"].to_list() == ["aten::mm", "aten::mm", None]
    assert traces.links["delay_ns"].to_list() == [90, 110, 640]
