"""Operators against the definition: random call trees on two threads, moment by moment, and sums on real traces."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any
from zlib import crc32

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kinetop
from kinetop.analysis.flame import folded, speedscope, stacks
from kinetop.analysis.op_groups import ABSENT, FRAMES
from kinetop.analysis.ops import UNLAUNCHED
from kinetop.analysis.question import all_questions
from kinetop.analysis.work import scoped

if TYPE_CHECKING:
    from collections.abc import Callable

CATS = {"op": "cpu_op", "call": "cuda_runtime", "note": "user_annotation", "frame": "python_function"}
quick = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
Span = tuple[str, str, str, int, int, int]
"""Kind, name, thread, start, duration, and the duration of the GPU work that it launches (of calls; 0 for none), in us."""
spans = st.lists(
    st.tuples(
        st.sampled_from([*CATS, "op", "call"]), st.sampled_from("abc"), st.sampled_from("12"),
        st.integers(0, 30), st.integers(1, 20), st.integers(0, 9),
    ),
    max_size=25,
)  # fmt: skip
loose = st.lists(st.integers(1, 9), max_size=2)


def rows_of(found: list[Span], unlaunched: list[int]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for number, (kind, name, thread, start, dur, work) in enumerate(found, 1):
        label = f"nn.Module: {name}" if kind == "frame" else name
        host = {"ph": "X", "cat": CATS[kind], "name": label, "process": "9", "thread": thread}
        rows.append({**host, "ts_ns": 1000 * start, "dur_ns": 1000 * dur, "correlation": number if kind == "call" else None})
        if kind == "call" and work:
            rows.append(gpu(1000 * (40 + number), work, number))
    return rows + [gpu(90_000 + 1000 * at, dur, 900 + at) for at, dur in enumerate(unlaunched)]


def gpu(start_ns: int, dur: int, correlation: int) -> dict[str, Any]:
    at = {"ph": "X", "cat": "kernel", "name": "k", "process": "0", "thread": "7", "device": 0, "stream": 7}
    return {**at, "ts_ns": start_ns, "dur_ns": 1000 * dur, "correlation": correlation}


class Tree:
    """The definition, row by row."""

    def __init__(self, found: list[Span], low: int = 0, high: int = 60) -> None:
        self.spans = found
        self.chain = [self.around(span[2], span[3], row) for row, span in enumerate(found)]
        self.own = [0] * len(found)
        for thread in "12":
            for moment in range(low, high):
                if open_ones := self.around(thread, moment):
                    self.own[open_ones[-1]] += 1
        self.begun = [low <= span[3] < high for span in found]
        self.work = [span[5] if span[0] == "call" else 0 for span in found]

    def around(self, thread: str, moment: int, row: int | None = None) -> list[int]:
        """Ranges that contain a moment, the innermost last; of a row's start, those up to the row, each in the one before."""
        inside = sorted(
            (start, -dur, at)
            for at, (_, _, lane, start, dur, _) in enumerate(self.spans)
            if lane == thread and start <= moment < start + dur
        )
        ordered = [at for _, _, at in inside]
        if row is None:
            return ordered
        before = ordered[: ordered.index(row)]
        return [row] if not before else [*self.around(thread, self.spans[before[-1]][3], before[-1]), row]

    def marked(self, row: int, kind: str) -> list[int]:
        return [at for at in self.chain[row] if self.spans[at][0] == kind]

    def path(self, row: int, kind: str) -> tuple[str, ...]:
        return tuple(self.spans[at][1] for at in self.marked(row, kind))


KINDS = {"name": "op", "annotation": "note", "module": "frame"}


@quick
@given(spans, loose, st.sampled_from([*KINDS]))
def test_self_and_total_against_the_definition(
    made: Callable[..., Any], found: list[Span], unlaunched: list[int], group_by: str
) -> None:
    tree, kind = Tree(found), KINDS[group_by]
    table = kinetop.ops(made(rows_of(found, unlaunched)), group_by=group_by)
    rows = range(len(found))
    wanted: dict[str, list[int | None]] = {}
    for name in {span[1] for span in found if span[0] == kind}:
        under = [row for row in rows if name in tree.path(row, kind)]
        mine = [row for row in rows if tree.path(row, kind)[-1:] == (name,)]
        wanted[name] = [
            sum(span[0] == kind and span[1] == name for span in found),
            sum(tree.own[row] for row in mine),
            sum(tree.own[row] for row in under),
            sum(tree.own[row] for row in mine if found[row][0] == "call"),
            sum(tree.work[row] for row in mine),
            sum(tree.work[row] for row in under),
            sum(tree.work[row] > 0 for row in mine),
        ]
    none = [row for row in rows if not tree.path(row, kind)]
    cpu, device = sum(tree.own[row] for row in none), sum(tree.work[row] for row in none)
    if cpu or device:
        calls = sum(tree.own[row] for row in none if found[row][0] == "call")
        wanted[ABSENT[group_by]] = [None, cpu, cpu, calls, device, device, sum(tree.work[row] > 0 for row in none)]
    if unlaunched:
        wanted[UNLAUNCHED] = [None, None, None, None, sum(unlaunched), sum(unlaunched), len(unlaunched)]
    columns = ["calls", "self_cpu_us", "total_cpu_us", "runtime_us", "self_device_us", "total_device_us", "kernels"]
    assert {row[0]: list(row[1:]) for row in table.select("name", *columns).rows()} == wanted


def nested(found: list[Span]) -> list[Span]:
    """Leave out what crosses an earlier range of its thread."""
    kept: list[Span] = []
    for span in found:
        start, end = span[3], span[3] + span[4]
        if all(one[2] != span[2] or end <= one[3] or one[3] + one[4] <= start or (one[3] <= start and end <= one[3] + one[4])
               or (start <= one[3] and one[3] + one[4] <= end) for one in kept):  # fmt: skip
            kept.append(span)
    return kept


@quick
@given(spans.map(nested), st.integers(0, 20), st.integers(1, 30))
def test_a_window_cuts_cpu_time(made: Callable[..., Any], found: list[Span], low: int, length: int) -> None:
    first = {"ph": "X", "cat": "cpu_op", "name": "first", "process": "9", "thread": "3", "ts_ns": 0, "dur_ns": 0}
    tree = Tree(found, low, low + length)
    table = kinetop.ops(made([first, *rows_of(found, [])]), window=f"{low}us..{low + length}us")
    got = {row[0]: row[1:] for row in table.select("name", "calls", "self_cpu_us", "total_cpu_us").rows()}
    for name in {span[1] for span in found if span[0] == "op"}:
        calls = sum(tree.begun[row] for row, span in enumerate(found) if span[:2] == ("op", name))
        own = sum(tree.own[row] for row in range(len(found)) if tree.path(row, "op")[-1:] == (name,))
        whole = sum(tree.own[row] for row in range(len(found)) if name in tree.path(row, "op"))
        assert got.get(name, (0, 0, 0)) == (calls, own, whole)


@quick
@given(spans)
def test_trees_against_the_definition(made: Callable[..., Any], found: list[Span]) -> None:
    tree, trace, question = Tree(found), made(rows_of(found, [])), all_questions()["ops"]
    down: dict[tuple[str, ...], list[int]] = {}
    up: dict[tuple[str, ...], list[int]] = {}
    for row, span in enumerate(found):
        path = tree.path(row, "op")
        for end in range(1, len(path) + 1):
            costs = [int(span[0] == "op" and end == len(path)), tree.own[row] * (end == len(path)), tree.own[row],
                     tree.work[row] * (end == len(path)), tree.work[row]]  # fmt: skip
            down[path[:end]] = [a + b for a, b in zip(down.get(path[:end], [0] * 5), costs, strict=True)]
            back = path[::-1][:end]
            up[back] = [
                a + b for a, b in zip(up.get(back, [0] * 3), [span[0] == "op", tree.own[row], tree.work[row]], strict=True)
            ]
    shown = question.ask(trace, view="tree", depth=50).tables["tree"]
    columns = ["calls", "self_cpu_us", "total_cpu_us", "self_device_us", "total_device_us"]
    assert with_paths(shown, columns) == down
    shown = question.ask(trace, view="callers", depth=50).tables["callers"]
    assert with_paths(shown, ["calls", "self_cpu_us", "self_device_us"]) == up


def with_paths(shown: pl.DataFrame, columns: list[str]) -> dict[tuple[str, ...], list[float]]:
    """Read a tree's rows by path; a row stands behind the one that it hangs below, and its number is its place."""
    paths: list[tuple[str, ...]] = []
    for number, row in enumerate(shown.iter_rows(named=True)):
        assert row["node"] == number
        paths.append((*(() if row["parent"] is None else paths[row["parent"]]), row["name"]))
        assert len(paths[-1]) == row["depth"] + 1
    return dict(zip(paths, (list(row) for row in shown.select(columns).rows()), strict=True))


@quick
@given(spans, loose)
def test_flame_weights_against_the_definition(made: Callable[..., Any], found: list[Span], unlaunched: list[int]) -> None:
    tree, work = Tree(found), scoped(made(rows_of(found, unlaunched)))
    cpu: Counter[tuple[str, ...]] = Counter()
    device: Counter[tuple[str, ...]] = Counter({(UNLAUNCHED, "k"): 1000 * sum(unlaunched)} if unlaunched else {})
    for row, span in enumerate(found):
        names = [f"nn.Module: {found[at][1]}" if found[at][0] == "frame" else found[at][1] for at in tree.chain[row]]
        path = (f"process 9 thread {span[2]}", *names)
        cpu[path] += 1000 * tree.own[row]
        device[(*path, "k")] += 1000 * tree.work[row]
    for weight, wanted in (("cpu", cpu), ("device", device)):
        shown = stacks(work, weight)
        assert {tuple(frames): ns for frames, ns in shown} == +wanted
        profile = speedscope(shown, "x")
        names = [frame["name"] for frame in profile["shared"]["frames"]]
        one = profile["profiles"][0]
        again = [";".join(names[at] for at in sample) for sample in one["samples"]]
        assert [f"{line} {ns}" for line, ns in zip(again, one["weights"], strict=True)] == list(folded(shown))
        assert one["endValue"] == sum(wanted.values()) == sum(one["weights"])


REAL = [
    "h100_qwen.json.gz", "h100_flashinfer_with_stack.pt.trace.json.gz", "v100_ddp_rank1.json.gz", "mi300_qwen.json.gz",
    "mi300_resnet.json.gz", "cpu_only_memory.json.gz", "cpu_only_rank34.pt.trace.json.gz", "diff_control.json.gz",
    "tp_2rank", "vllm_decode_graph.json.gz", "mi210_gpu_only.json.gz",
]  # fmt: skip


@pytest.mark.parametrize("name", REAL)
def test_self_times_sum_to_the_whole(real: Callable[[str], kinetop.TraceSet], name: str) -> None:
    trace = real(name)
    for group_by in ABSENT:
        reconciled(trace, group_by)
    for weight, whole in (("cpu", trace.calls["self_ns"]), ("device", trace.activities["dur_ns"])):
        assert sum(ns for _, ns in stacks(scoped(trace), weight)) == whole.sum()


def reconciled(trace: kinetop.TraceSet, group_by: str, **scope: Any) -> pl.DataFrame:
    """Check that the self times of a table sum to what is in scope, to the nanosecond."""
    table = kinetop.ops(trace, group_by=group_by, **scope)
    work = scoped(trace, **scope)
    ns = table.select((pl.col("self_device_us", "self_cpu_us") * 1000).round().cast(pl.Int64).sum())
    assert ns["self_device_us"].item() == work.gpu["dur_ns"].sum()
    assert table["kernels"].fill_null(0).sum() == work.gpu.height
    if not scope:
        assert ns["self_cpu_us"].item() == trace.calls["self_ns"].sum()
    assert table.filter(pl.col("self_device_us") > pl.col("total_device_us") + 0.001).is_empty()
    assert table.filter(pl.col("self_cpu_us") > pl.col("total_cpu_us") + 0.001).is_empty()
    assert (table["share_pct"].sum() == pytest.approx(100, abs=0.1)) == (work.gpu["dur_ns"].sum() > 0)
    return table


@pytest.mark.parametrize(
    "scope", [{"step": "16"}, {"where": "gemm"}, {"window": "20ms..60ms"}, {"device": 2, "rank": 0}], ids=str
)
def test_a_scope_reconciles_too(real: Callable[[str], kinetop.TraceSet], scope: dict[str, Any]) -> None:
    trace = real("mi300_resnet.json.gz")
    whole = kinetop.ops(trace)
    part = reconciled(trace, "name", **scope).join(whole, on="name", how="left")
    for column in ("calls", "self_cpu_us", "total_cpu_us", "self_device_us", "total_device_us", "kernels"):
        assert part.filter(pl.col(column) > pl.col(f"{column}_right") + 0.01).is_empty(), column


@pytest.mark.parametrize("name", ["h100_qwen.json.gz", "mi300_resnet.json.gz", "tp_2rank", "diff_control.json.gz", "dlrm_8rank"])
def test_device_time_by_operator_is_that_of_the_kernel_table(real: Callable[[str], kinetop.TraceSet], name: str) -> None:
    trace = real(name)
    ops = dict(kinetop.ops(trace).filter(pl.col("kernels") > 0).select("name", "self_device_us").rows())
    outside = sum(ops.pop(label, 0) for label in (ABSENT["name"], UNLAUNCHED))
    kernels = dict(kinetop.kernels(trace, group_by="op", copies="yes").select("name", "total_us").rows())
    assert outside == pytest.approx(kernels.pop("(no operator recorded)", 0))
    assert ops == kernels


def test_torch_counts_one_rank_of_two(real: Callable[[str], kinetop.TraceSet]) -> None:
    trace = real("tp_2rank")
    both, one, other = (kinetop.ops(trace, group_by="thread", **scope) for scope in ({}, {"rank": 0}, {"rank": 1}))
    assert {*one["name"], *other["name"]} == {*both["name"]}
    for column in ("self_cpu_us", "self_device_us"):
        assert one[column].sum() + other[column].sum() == pytest.approx(both[column].sum())
        assert 0 < one[column].sum() < both[column].sum()


def test_stacks_of_python_frames(made: Callable[..., Any]) -> None:
    names = [*"abcdef", "<built-in method x of object at 0x7f>"]
    frame = {"ph": "X", "cat": "python_function", "process": "9", "thread": "1"}
    rows = [{**frame, "name": name, "ts_ns": 1000 * at, "dur_ns": 20_000 - 2000 * at} for at, name in enumerate(names)]
    table = kinetop.ops(made(rows), group_by="stack")
    assert FRAMES == 4
    assert table.filter(pl.col("name") == "f < e < d < c")["self_cpu_us"].item() == 10  # the built-in call is its own time
    assert table.height == 6


def test_shapes_tell_rows_apart(made: Callable[..., Any]) -> None:
    op = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "process": "9", "thread": "1", "dur_ns": 1000}
    shapes = ["[[2,3],[3,4]]", "[[2,3],[3,4]]", "[[8,8],[8,8]]", None]
    table = kinetop.ops(
        made([{**op, "ts_ns": 5000 * at, "input_dims": dims} for at, dims in enumerate(shapes)]), group_by="shape"
    )
    assert dict(table.select("shape", "calls").rows()) == {"[[2,3],[3,4]]": 2, "[[8,8],[8,8]]": 1, None: 1}


@pytest.mark.parametrize("view", ["tree", "callers"])
def test_depth_cuts_levels_and_keeps_what_is_left(real: Callable[[str], kinetop.TraceSet], view: str) -> None:
    question, trace = all_questions()["ops"], real("h100_qwen.json.gz")
    whole = question.ask(trace, view=view).tables[view]
    for depth in (2, 1, 0):
        cut = question.ask(trace, view=view, depth=depth).tables[view]
        kept = whole.filter(pl.col("depth") < max(1, depth))
        assert kept.drop("node", "parent").equals(cut.drop("node", "parent"))


def test_every_trace_answers(every_trace: kinetop.TraceSet) -> None:
    """Ask for two groupings with a view each; over many traces all pairs come up."""
    question, trace, number = all_questions()["ops"], every_trace, crc32(every_trace.traces[0].path.name.encode())
    for group_by, view in ((number, number // 6), (number + 3, number // 6 + 2)):
        result = question.ask(trace, group_by=[*ABSENT][group_by % 6], view=("flat", "tree", "callers", "autograd")[view % 4])
        for table in question.tables:
            if table.name in result.tables:
                assert result.tables[table.name].columns == [column.name for column in table.columns]
    for weight, whole in (("cpu", trace.calls["self_ns"]), ("device", trace.activities["dur_ns"])):
        found = stacks(scoped(trace), weight)
        assert sum(ns for _, ns in found) == whole.sum()
        assert all("\n" not in line and line.rsplit(" ", 1)[1].isdigit() for line in folded(found))
