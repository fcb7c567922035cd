"""Operators and kernels of a variant's steps."""

from __future__ import annotations

from array import array

import pytest

from kinetop.analysis.step_ops import COLUMNS, step_ops
from kinetop.traces.live.recording import Recording
from kinetop.traces.live.worker.case import Case
from kinetop.traces.live.worker.frames import Frame

CASE = Case.of("1,2,16,8")
KINDS = ["cpu_op", "kernel", "gpu_memcpy", "user_annotation"]
FIELDS = {
    "name": "I", "kind": "B", "start_ns": "q", "dur_ns": "q", "device_type": "B", "device": "i", "resource": "q",
    "correlation": "Q", "linked": "Q", "nbytes": "q", "flops": "Q",
}  # fmt: skip
Row = tuple[str, str, int, int]
"""Name, kind, start, duration."""


def window(*rows: Row) -> Recording:
    names = list(dict.fromkeys(row[0] for row in rows))
    columns = {field: array(code, [0] * len(rows)) for field, code in FIELDS.items()}
    for at, (name, kind, start_ns, dur_ns) in enumerate(rows):
        gpu = kind in {"kernel", "gpu_memcpy"}
        values = {"name": names.index(name), "kind": KINDS.index(kind), "start_ns": 10**9 + start_ns, "dur_ns": dur_ns}
        for field, value in {**values, "device_type": int(gpu), "resource": 7 if gpu else 1}.items():
            columns[field][at] = value
    header = {"kind": "window", "variant": "eager", "case": CASE.to_dict(), "window": 1, "steps": 2, "pid": 5, "kinds": KINDS}
    said = {"begin_ns": 10**9, "end_ns": 2 * 10**9, "dropped": 0, "names": {str(at): name for at, name in enumerate(names)}}
    recording = Recording()
    recording.add(Frame({**header, **said}, columns))
    assert not recording.ignored
    return recording


STEPS: tuple[Row, ...] = (
    ("kinetop.step|eager|1|0", "user_annotation", 0, 1_000_000),
    ("aten::matmul", "cpu_op", 100_000, 400_000),
    ("aten::bmm", "cpu_op", 150_000, 300_000),
    ("aten::softmax", "cpu_op", 600_000, 100_000),
    ("kinetop.step|eager|1|1", "user_annotation", 2_000_000, 1_000_000),
    ("aten::matmul", "cpu_op", 2_100_000, 200_000),
    ("aten::bmm", "cpu_op", 2_150_000, 100_000),
    ("aten::outside", "cpu_op", 5_000_000, 100_000),
)


def test_own_times_are_means_of_a_step_and_sum_to_the_whole() -> None:
    made = step_ops(window(*STEPS).events())
    assert made.columns == [column.name for column in COLUMNS]
    rows = {row["name"]: row for row in made.to_dicts()}
    assert list(rows) == ["aten::bmm", "aten::matmul", "aten::softmax"]
    assert (rows["aten::bmm"]["self_us"], rows["aten::bmm"]["count"]) == (200, 1)
    assert (rows["aten::matmul"]["self_us"], rows["aten::matmul"]["total_us"]) == (100, 300)
    assert rows["aten::softmax"]["count"] == 0.5
    assert sum(row["share_pct"] for row in rows.values()) == pytest.approx(100)


def test_gpu_work_comes_first_and_has_a_share_of_its_own() -> None:
    kernels: tuple[Row, ...] = (("flash<[/x]>", "kernel", 200_000, 50_000), ("Memcpy DtoD", "gpu_memcpy", 300_000, 150_000))
    made = step_ops(window(*STEPS, *kernels).events())
    assert made.filter(on="gpu")["name"].to_list() == made["name"].to_list()[:2] == ["Memcpy DtoD", "flash<[/x]>"]
    assert made.filter(on="gpu")["share_pct"].to_list() == [75, 25]


def test_without_a_window_there_are_no_rows() -> None:
    assert step_ops(Recording().events()).height == 0
