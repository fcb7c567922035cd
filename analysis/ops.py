"""What operators cost on the CPU and on the GPU: by operator, shape, module, stack, annotation or thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from kinetop.traces import schema

from .autograd import AUTOGRAD_COLUMNS, autograd
from .call_costs import call_ends, charged, charges
from .forest import outermost, subtree_sums
from .op_groups import ABSENT, Groups, grouped
from .op_trees import callers, tree
from .question import Column, Parameter, Table, as_declared, question

if TYPE_CHECKING:
    from .work import Work

UNLAUNCHED = "(no launch record)"
"""Row of the GPU work whose launch the trace does not hold."""

_SELF_CPU = Column(
    "self_cpu_us",
    "us",
    "CPU time in which it is the innermost of its kind on its thread; calls of the GPU's runtime in it are counted",
    "self CPU",
    priority=0,
)
_SELF_DEVICE = Column(
    "self_device_us", "us", "durations of the GPU work whose launch has it as the nearest of its kind", "self GPU", priority=0
)
_TOTAL_CPU = Column("total_cpu_us", "us", "CPU time with what it calls, recursion counted once", "total CPU", priority=1)
_TOTAL_DEVICE = Column(
    "total_device_us", "us", "durations of the GPU work of its calls and what they call, recursion counted once", "total GPU"
)
_KERNELS = Column("kernels", "count", "GPU kernels and copies whose durations self_device_us adds up", priority=2)

OP_COLUMNS = (
    Column("name", "text", "operator, or what group_by names; rows in brackets hold what belongs to none", priority=0),
    Column("shape", "text", "dimensions of the inputs as written, with group_by shape", priority=2),
    Column("types", "text", "element types of the inputs as written, with group_by shape", priority=3),
    Column("calls", "count", "calls that begin in scope; null for the rows in brackets", priority=1),
    _SELF_CPU,
    _TOTAL_CPU,
    Column(
        "runtime_us",
        "us",
        "part of self_cpu_us in calls of the GPU's runtime: launches, allocation, waiting",
        "runtime",
        priority=2,
    ),
    _SELF_DEVICE,
    _TOTAL_DEVICE,
    _KERNELS,
    Column("share_pct", "pct", "self_device_us of all GPU work in scope; null where there is none", "share", priority=1),
    Column("cpu_share_pct", "pct", "self_cpu_us of all CPU time in scope in which a range is open", "CPU share", priority=2),
)
"""Columns of the operator table; the self times sum to the whole."""

_NODE = (
    Column("node", "id", "number of the row", priority=3),
    Column("parent", "id", "row that it hangs below; null at the top", priority=3),
    Column("depth", "count", "rows above it", priority=0),
    Column("name", "text", "operator, or what group_by names", priority=0),
    Column("shape", "text", "dimensions of the inputs, with group_by shape", priority=3),
    Column("types", "text", "element types of the inputs, with group_by shape", priority=3),
)
TREE_COLUMNS = (
    *_NODE,
    Column("calls", "count", "calls on this path that begin in scope; null for the rows in brackets", priority=1),
    _SELF_CPU, _TOTAL_CPU, _SELF_DEVICE, _TOTAL_DEVICE, _KERNELS,
)  # fmt: skip
"""Columns of the top-down tree."""
CALLER_COLUMNS = (
    *_NODE,
    Column("calls", "count", "calls of the row at depth 0 that come this way", priority=1),
    Column("self_cpu_us", "us", "self CPU time of the row at depth 0 in these calls", "self CPU", priority=0),
    Column("self_device_us", "us", "self GPU time of the row at depth 0 in these calls", "self GPU", priority=0),
    Column("kernels", "count", "GPU kernels and copies of the row at depth 0 in these calls", priority=2),
)
"""Columns of the bottom-up tree."""


@question(
    name="ops",
    title="Operators",
    about="What operators cost on the CPU and the GPU, who calls whom, and how forward and backward belong together.",
    parameters=(
        Parameter("group_by", "name", "what one row stands for", choices=tuple(ABSENT)),
        Parameter(
            "view",
            "flat",
            "one more table: tree from callers to callees, callers of each row, or autograd (forward and backward)",
            choices=("flat", "tree", "callers", "autograd"),
        ),
        Parameter("depth", 10, "levels that tree and callers show, at least 1"),
    ),
    tables=(
        Table(
            "ops",
            OP_COLUMNS,
            sort="self_device_us",
            about="Self times sum to the durations of all GPU work in scope, and to the CPU time in which a range is open. "
            "A filter and a device narrow the GPU work only.",
            none="the trace holds neither host ranges nor GPU work",
        ),
        Table(
            "tree",
            TREE_COLUMNS,
            about="With --view tree: who calls what; calls of the same path are one row.",
            none="the trace holds no host range of the kind that group_by names",
        ),
        Table(
            "callers",
            CALLER_COLUMNS,
            about="With --view callers: at depth 0 each name, below it those that called it.",
            none="the trace holds no host range of the kind that group_by names",
        ),
        Table(
            "autograd",
            AUTOGRAD_COLUMNS,
            about="With --view autograd: forward operators beside their backward, by sequence number; each moment counts for the "
            "innermost of them.",
            none="the trace links no backward to a forward (no sequence numbers with a forward thread)",
        ),
    ),
    order=6,
)
def ops(work: Work, *, group_by: str, view: str, depth: int) -> dict[str, pl.DataFrame]:
    """Return a row for each operator, and rows for the work that belongs to none.

    Example:
        >>> import kinetop
        >>> trace = kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False)
        >>> kinetop.ops(trace).select("name", "calls", "self_device_us", "kernels").rows()
        [('aten::linear', 1, 135.0, 6)]
    """
    paid, groups, ends = charges(work), grouped(work.trace, group_by), call_ends(work.trace)
    calls, loose = charged(work, paid), paid.filter(pl.col("row").is_null())["dur_ns"]
    tables = {"ops": as_declared(_flat(calls, ends, groups, ABSENT[group_by], loose), OP_COLUMNS)}
    depth = max(1, depth)
    if view == "tree":
        tables[view] = as_declared(tree(calls, ends, groups, depth), TREE_COLUMNS)
    elif view == "callers":
        tables[view] = as_declared(callers(calls, groups, depth), CALLER_COLUMNS)
    elif view == "autograd":
        tables[view] = as_declared(autograd(work.trace, calls), AUTOGRAD_COLUMNS)
    return tables


def _flat(calls: pl.DataFrame, ends: pl.Series, groups: Groups, absent: str, loose: pl.Series) -> pl.DataFrame:
    """Sum the calls up by group."""
    runtime = pl.when(pl.col("cat").is_in(list(schema.LAUNCH_CATS))).then("self_ns").otherwise(0)
    own = calls.select(
        "device_ns", "kernels", code=groups.code.gather(groups.owner), self_cpu_ns="self_ns", runtime_ns=runtime
    ).group_by("code").agg(pl.all().sum())  # fmt: skip
    whole = _totals(calls, ends, groups)
    legend = groups.legend.with_row_index("code")
    found = own.join(whole, on="code", how="left").join(legend, on="code", how="left")
    outside = pl.col("code").is_null()
    found = found.with_columns(
        name=pl.when(outside).then(pl.lit(absent)).otherwise("name"),
        total_cpu_ns=pl.when(outside).then("self_cpu_ns").otherwise("total_cpu_ns"),
        total_device_ns=pl.when(outside).then("device_ns").otherwise("total_device_ns"),
    ).rename({"device_ns": "self_device_ns"})
    if len(loose):
        ns = {"self_device_ns": int(loose.sum()), "total_device_ns": int(loose.sum()), "kernels": len(loose)}
        found = pl.concat([found, pl.DataFrame({"name": UNLAUNCHED, **ns})], how="diagonal_relaxed")
    spent = pl.any_horizontal(pl.col("calls", "self_cpu_ns", "total_cpu_ns", "kernels", "total_device_ns").fill_null(0) > 0)
    found = found.filter(spent).with_columns(
        _share("self_device_ns").alias("share_pct"), _share("self_cpu_ns").alias("cpu_share_pct")
    )
    order = ["self_device_ns", "self_cpu_ns", "name", "shape", "types"]
    return found.sort(order, descending=[True, True, False, False, False], nulls_last=True)


def _share(name: str) -> pl.Expr:
    return pl.when(pl.col(name).sum() > 0).then(100 * pl.col(name) / pl.col(name).sum())


def _totals(calls: pl.DataFrame, ends: pl.Series, groups: Groups) -> pl.DataFrame:
    """Return code, calls, total_cpu_ns and total_device_ns: of recursion the outermost call counts."""
    rows = groups.calls
    inner = pl.DataFrame(
        {
            "code": groups.code,
            "begun": calls["begun"].gather(rows),
            "counts": outermost(groups.code, groups.ends),
            "cpu": subtree_sums(calls["self_ns"], ends).gather(rows),
            "device": subtree_sums(calls["device_ns"], ends).gather(rows),
        }
    )
    return inner.group_by("code").agg(
        calls=pl.col("begun").sum().cast(pl.Int64),
        total_cpu_ns=pl.col("cpu").filter("counts").sum(),
        total_device_ns=pl.col("device").filter("counts").sum(),
    )
