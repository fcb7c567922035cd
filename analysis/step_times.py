"""Where the wall time of each step went, and which steps stand out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from kinetop.traces import schema
from kinetop.traces.errors import FilterError
from kinetop.traces.pairs import ranges

from . import intervals
from .captures import RANK, WINDOW, told
from .names import matching
from .question import Column, Parameter, Table, question
from .shares import percent, weighted
from .steps import steps, with_step
from .waits import LOADER
from .work import DEVICE, Work, scoped, since_first

if TYPE_CHECKING:
    from kinetop.traces.trace import TraceSet

CATEGORIES: dict[str, str] = {
    "kernel": "time in which a kernel that is not communication runs",
    "memcpy": "time in which a copy runs, and no kernel",
    "memset": "time in which a memset runs, and nothing above",
    "communication": "time in which communication runs, and nothing above",
    "runtime": "time in which a host thread is in a call of the GPU's runtime or driver, and nothing above",
    "data_loader": "time in which the host fetches data (`enumerate(DataLoader)`), and nothing above",
    "cpu_op": "time in which an operator runs on the host, and nothing above",
    "other": "the rest of the step",
}
"""Exclusive parts of a step's wall time, by priority: the order of PyTorch's former TensorBoard plug-in."""

_LABELS = {"communication": "comm", "data_loader": "loader", "cpu_op": "cpu op"}
_MATRIX_UNITS = (
    r"(?i)\b[hiq]mma|\bw?gmma|_[hiq]mma|16816|1688|[hs]884|xmma|tensorop|mfma|nvjet|tcgen05|flash_(?:fwd|bwd)|fmha|cudnn.*flash"
)
"""Kernels that use matrix units, as far as their name says so."""
SLOW = 3.0
"""A step stands out when it is this many robust standard deviations above the median, and a tenth longer than it."""

STEP_COLUMNS = (
    RANK,
    Column("device", "id", "GPU index; null where the trace holds no GPU work", priority=0),
    Column("step", "id", "number of the step", priority=0),
    Column("start_us", "us", "start of the step's range on the host, since the first event", "start", priority=3),
    Column("wall_us", "us", "length of the step's range on the host", "wall", priority=0),
    Column("busy_us", "us", "time of the step's range in which at least one kernel or copy runs", "busy", priority=1),
    *(
        Column(f"{name}_us", "us", about, _LABELS.get(name, name), priority=1 if name in ("kernel", "communication") else 2)
        for name, about in CATEGORIES.items()
    ),
    Column("launched", "count", "kernels and copies that the step launched, whenever they ran", priority=3),
    Column("launched_busy_us", "us", "time in which at least one of them runs", "own work", priority=3),
    Column(
        "sm_efficiency_pct",
        "pct",
        "estimated: share of the wall time in which kernels run, times their mean of min(1, blocks per SM), weighted by duration",
        "SM eff. %",
        priority=2,
    ),
    Column(
        "occupancy_pct",
        "pct",
        "estimated achieved occupancy, mean of the kernels that state one, weighted by duration",
        priority=3,
    ),
    Column(
        "tensor_core_pct", "pct", "share of the kernel time in kernels whose name says that they use matrix units", priority=3
    ),
    Column("partial", "flag", "the last step of its trace: the profiler may have stopped before its GPU work ended", priority=1),
    Column("note", "text", "what stands out: the first step, a slow step", priority=1),
    WINDOW,
)
"""Columns of the step table; the eight exclusive parts sum to the wall time."""

COMPARE_COLUMNS = (
    RANK,
    Column("device", "id", "GPU index; null where the trace holds no GPU work", priority=0),
    Column("part_of_step", "text", "wall time, or an exclusive part of it", "part", priority=0),
    Column("first_us", "us", "in the first of the two steps", priority=0),
    Column("second_us", "us", "in the second one", priority=0),
    Column("change_us", "us", "second less first", priority=0, free=True),
    WINDOW,
)


@question(
    name="steps",
    title="Steps",
    about="Where the wall time of each step went, which steps stand out, and how two of them differ.",
    parameters=(Parameter("compare", None, "two steps to compare, such as 12:14"),),
    tables=(
        Table(
            "steps",
            STEP_COLUMNS,
            about="Each moment of a step counted once; a filter narrows the GPU work that is counted.",
            none="the trace marks no steps (no ProfilerStep#N, vLLM or SGLang step annotation)",
        ),
        Table("compare", COMPARE_COLUMNS, about="With --compare only: what two steps took."),
    ),
    order=5,
)
def step_times(work: Work, *, compare: str | None) -> dict[str, pl.DataFrame]:
    """Return a row for each step of each device.

    Example:
        >>> import kinetop
        >>> trace = kinetop.open("tests/data/hazards/69_step_gap_and_overlap.json", cache=False)
        >>> kinetop.steps(trace).select("step", "wall_us", "kernel_us", "partial").rows()
        [(10, 100.0, 0.0, False), (11, 105.0, 55.0, False), (13, 100.0, 20.0, True)]
    """
    found = _parted(work)
    rows = _noted(found).with_columns(start_ns=since_first("start_ns", work.trace))
    tables = {"steps": told(rows, work, STEP_COLUMNS)}
    return tables if compare is None else {**tables, "compare": told(_compared(rows, _two(compare, rows)), work, COMPARE_COLUMNS)}


def _parted(work: Work) -> pl.DataFrame:
    """Return the steps in scope with their parts in nanoseconds."""
    scope = work.scope
    every = scoped(work.trace, where=scope.where, rank=scope.rank, device=scope.device)  # whatever the steps and the window
    gpu, rows = every.gpu.with_columns(*_keyed()), _rows(work, every.windows.select(*DEVICE))
    parts = intervals.exclusive(rows, _sets(work.trace, gpu, rows), _KEYS).select(pl.all().name.suffix("_ns"))
    wall = pl.col("end_ns") - pl.col("start_ns")
    rows = rows.with_columns(parts).with_columns(
        wall_ns=wall,
        busy_ns=pl.sum_horizontal(f"{name}_ns" for name in _ON_GPU),
        other_ns=wall - pl.sum_horizontal(parts.columns),
    )
    own = with_step(gpu, work.trace).drop_nulls("step")
    return _with_use(_with_launched(rows, own), own, work.trace)


_KEYS = ("part", "lane")
"""`lane` is the device; -1 stands for a trace without GPU work, since keys must not be null."""


def _keyed() -> tuple[pl.Expr, pl.Expr]:
    return pl.col("part"), pl.col("device").fill_null(-1).alias("lane")


def _rows(work: Work, places: pl.DataFrame) -> pl.DataFrame:
    """One row for each step in scope and each device (`places`) its trace has work on."""
    scope = work.scope
    found = steps(work.trace).with_columns(
        partial=pl.col("start_ns") == pl.col("start_ns").max().over("part"), kind=pl.col("name").str.replace_all(r"\d+", "#")
    )
    if scope.step is not None and not work.all_gpu.is_empty():
        found = found.filter(pl.col("step").is_in(with_step(work.all_gpu, work.trace)["step"].unique().implode()))
    ranks = pl.DataFrame(
        {"part": range(len(work.trace.traces)), "file_rank": [one.rank for one in work.trace.traces]},
        schema={"part": pl.Int32, "file_rank": pl.Int32},
    )
    rows = found.join(ranks, on="part").join(places, on="part", how="left")
    rows = rows.with_columns(rank=pl.coalesce("rank", "file_rank"), lane=pl.col("device").fill_null(-1))
    if scope.rank is not None:
        rows = rows.filter(pl.col("rank") == scope.rank)
    if scope.device is not None:
        rows = rows.filter(pl.col("device") == scope.device)
    return rows.sort("part", "lane", "start_ns").select(*DEVICE, "lane", "step", "kind", "start_ns", "end_ns", "partial")


_ON_GPU = ("kernel", "memcpy", "memset", "communication")
"""Categories of GPU work; the rest is the host's."""


def _sets(trace: TraceSet, gpu: pl.DataFrame, rows: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return the times of each category but the last, in order of priority, by part and lane."""
    communicates = pl.col("class") == "comm"
    of_kind = gpu.select(*_KEYS, "start_ns", "end_ns", kind=pl.when(communicates).then(pl.lit("communication")).otherwise("kind"))
    sets = {name: of_kind.filter(pl.col("kind") == name) for name in _ON_GPU}
    lanes = rows.select(*_KEYS).unique()
    for name, host in _host(trace).items():
        sets[name] = intervals.union(host, ["part"]).join(lanes, on="part").select(*_KEYS, "start_ns", "end_ns")
    return sets


def _host(trace: TraceSet) -> dict[str, pl.DataFrame]:
    """Return what the host did, by category, in order of priority."""
    found = ranges(trace, [*schema.LAUNCH_CATS, *schema.OP_CATS, "user_annotation"], "cat", "name")
    calls, loads = pl.col("cat").is_in(list(schema.LAUNCH_CATS)), matching(found["name"], LOADER)
    tests = {"runtime": calls, "data_loader": ~calls & loads, "cpu_op": pl.col("cat").is_in(list(schema.OP_CATS)) & ~loads}
    return {name: found.filter(test).select("part", "start_ns", "end_ns") for name, test in tests.items()}


def _with_launched(rows: pl.DataFrame, own: pl.DataFrame) -> pl.DataFrame:
    """Add the work that each step launched."""
    keys = [*_KEYS, "step"]
    counts = own.group_by(keys).agg(launched=pl.len().cast(pl.Int64))
    busy = intervals.total(own, keys).rename({"total_ns": "launched_busy_ns"})
    rows = rows.join(counts, on=keys, how="left", maintain_order="left").join(busy, on=keys, how="left", maintain_order="left")
    return rows.with_columns(pl.col("launched", "launched_busy_ns").fill_null(0))


def _with_use(rows: pl.DataFrame, own: pl.DataFrame, trace: TraceSet) -> pl.DataFrame:
    """Add how well the kernels that a step launched fill the device."""
    blocks = trace.events.filter(pl.col("blocks_per_sm").is_not_null()).select("part", "event_id", "blocks_per_sm").collect()
    kernels = own.filter(pl.col("kind") == "kernel").join(blocks, on=["part", "event_id"], how="left", maintain_order="left")
    dur, fill = pl.col("dur_ns"), pl.col("blocks_per_sm").clip(0, 1)
    matrix = matching(kernels["name"], _MATRIX_UNITS)
    used = kernels.group_by([*_KEYS, "step"]).agg(
        fill=weighted(fill, dur),
        occupancy_pct=weighted(pl.col("occupancy_pct"), dur),
        tensor_core_pct=percent(dur.filter(matrix).sum(), dur.sum()),
    )
    made = rows.join(used, on=[*_KEYS, "step"], how="left", maintain_order="left")
    running = pl.col("kernel_ns") + pl.col("communication_ns")
    return made.with_columns(sm_efficiency_pct=percent(pl.col("fill") * running, pl.col("wall_ns")))


def _noted(rows: pl.DataFrame) -> pl.DataFrame:
    """Say which steps stand out among those of their device and kind; three or more are needed to tell."""
    alike = [*_KEYS, "kind"]
    median = pl.col("wall_ns").median().over(alike)
    spread = 1.4826 * (pl.col("wall_ns") - median).abs().median().over(alike)
    times = pl.col("wall_ns") / median
    slow = (pl.len().over(alike) > 2) & (pl.col("wall_ns") > median + SLOW * spread) & (times > 1.1)
    first = pl.col("start_ns") == pl.col("start_ns").min().over(alike)
    said = pl.format("{}slow: {}x the median", pl.when(first).then(pl.lit("first step, ")).otherwise(pl.lit("")), times.round(2))
    return rows.with_columns(note=pl.when(slow).then(said))


def _two(text: str, rows: pl.DataFrame) -> tuple[int, int]:
    hit = re.fullmatch(r"\s*(\d+)\s*[:,]\s*(\d+)\s*", text)
    if hit is None:
        raise FilterError(f"Two steps to compare are written 12:14; {text!r} is none.")
    pair = int(hit[1]), int(hit[2])
    for step in pair:
        if step not in rows["step"]:
            raise FilterError(f"There is no step {step} in scope.")
    return pair


def _compared(rows: pl.DataFrame, pair: tuple[int, int]) -> pl.DataFrame:
    """Put two steps side by side, the greatest change first."""
    parts = ["wall_ns", "busy_ns", *(f"{name}_ns" for name in CATEGORIES)]
    first, second = (
        rows.filter(pl.col("step") == step).unpivot(parts, index=DEVICE, variable_name="part_of_step", value_name=name)
        for step, name in zip(pair, ("first_ns", "second_ns"), strict=True)
    )
    both = first.join(second, on=[*DEVICE, "part_of_step"], nulls_equal=True, maintain_order="left")
    both = both.with_columns(pl.col("part_of_step").str.strip_suffix("_ns"), change_ns=pl.col("second_ns") - pl.col("first_ns"))
    return both.sort(
        "rank", "part", "device", pl.col("change_ns").abs(), descending=[False, False, False, True], maintain_order=True
    )
