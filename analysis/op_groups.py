"""What one row of the operator table stands for: which calls count, and what they are called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from .call_costs import call_ends, is_op, op_tree
from .forest import among, ends_among, merged

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinetop.traces.trace import TraceSet

    Labels = Callable[[pl.Series, pl.Series], pl.DataFrame]
    """From the rows of calls and their tree to their name, shape and types."""

ABSENT = {
    "name": "(no operator)",
    "shape": "(no operator)",
    "thread": "(no operator)",
    "module": "(no module)",
    "stack": "(no Python frame)",
    "annotation": "(no annotation)",
}
"""What one row may stand for, and what the calls outside any are called."""

FRAMES = 4
"""Python frames that tell stacks apart."""
_MODULE = "nn.Module: "


@dataclass(frozen=True)
class Groups:
    """The calls that a grouping counts, as a tree of their own."""

    owner: pl.Series
    """For each call the nearest of them, itself included (u32?)."""
    calls: pl.Series
    """Which calls they are: rows of `TraceSet.calls` (u32)."""
    parent: pl.Series
    """Their tree (u32?)."""
    ends: pl.Series
    """For each of them the first one behind its subtree (u32)."""
    code: pl.Series
    """Group of each (u32): a row of `legend`."""
    legend: pl.DataFrame
    """name, shape and types (text?) of each group."""


def grouped(trace: TraceSet, group_by: str) -> Groups:
    """Return what a grouping counts.

    Args:
        trace: the set.
        group_by: one of `ABSENT`.

    Example:
        >>> import kinetop
        >>> found = grouped(kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False), "name")
        >>> found.legend["name"].to_list(), found.owner.to_list()[:3]
        (['aten::linear'], [None, 0, 0])
    """
    calls = trace.calls
    marked, label = _GROUPS[group_by](trace, calls)
    owner, parent = op_tree(trace) if ABSENT[group_by] == ABSENT["name"] else among(marked, calls["parent"])
    rows = marked.arg_true()
    code, legend = _coded(label(rows, parent))
    return Groups(owner, rows, parent, ends_among(marked, call_ends(trace)), code, legend)


def _coded(labels: pl.DataFrame) -> tuple[pl.Series, pl.DataFrame]:
    """Number the groups."""
    legend = labels.unique(maintain_order=True).with_row_index("code")
    code = labels.join(legend, on=labels.columns, how="left", nulls_equal=True, maintain_order="left")["code"]
    texts = [pl.col(name).cast(pl.String) if name in labels.columns else pl.lit(None, pl.String).alias(name) for name in _TEXTS]
    return code, legend.select(texts).with_columns(pl.col("name").fill_null("(unnamed)"))


_TEXTS = ("name", "shape", "types")


def _by_name(_: TraceSet, calls: pl.DataFrame) -> tuple[pl.Series, Labels]:
    return is_op(calls), lambda rows, _: calls.select(pl.col("name").gather(rows))


def _by_shape(trace: TraceSet, calls: pl.DataFrame) -> tuple[pl.Series, Labels]:
    def label(rows: pl.Series, _: pl.Series) -> pl.DataFrame:
        return with_inputs(trace, calls[rows]).select("name", shape="input_dims", types="input_types")

    return is_op(calls), label


def with_inputs(trace: TraceSet, calls: pl.DataFrame) -> pl.DataFrame:
    """Add the shapes and types of the inputs (JSON text?) to calls.

    Args:
        trace: the set.
        calls: rows of `TraceSet.calls`.
    """
    known = trace.events.select("part", "event_id", "input_dims", "input_types").filter(pl.col("input_dims").is_not_null())
    return calls.join(known.collect(), on=["part", "event_id"], how="left", maintain_order="left")


def _by_thread(trace: TraceSet, calls: pl.DataFrame) -> tuple[pl.Series, Labels]:
    return is_op(calls), lambda rows, _: thread_names(trace, calls[rows]).to_frame("name")


def thread_names(trace: TraceSet, calls: pl.DataFrame) -> pl.Series:
    """Return what the thread of each call is called.

    Args:
        trace: the set; the trace's rank is named where there are several.
        calls: rows of `TraceSet.calls`.
    """
    lanes = calls.select("part", "process", "thread").unique()
    ranks = pl.DataFrame(
        [(part, one.rank) for part, one in enumerate(trace.traces)], schema={"part": pl.Int32, "rank": pl.Int32}, orient="row"
    )
    process, thread = (pl.col(name).cast(pl.String).fill_null("?") for name in ("process", "thread"))
    name = pl.format("process {} thread {}", process, thread)
    if len(trace.traces) > 1:
        name = pl.format("rank {} {}", "rank", name)
    lanes = lanes.join(ranks, on="part").select("part", "process", "thread", lane=name)
    keys = ["part", "process", "thread"]
    return calls.select(keys).join(lanes, on=keys, how="left", nulls_equal=True, maintain_order="left")["lane"]


def _by_annotation(_: TraceSet, calls: pl.DataFrame) -> tuple[pl.Series, Labels]:
    return calls["cat"] == "user_annotation", lambda rows, _: calls.select(pl.col("name").gather(rows))


def _by_module(trace: TraceSet, calls: pl.DataFrame) -> tuple[pl.Series, Labels]:
    names = _distinct(calls.filter(pl.col("cat") == "python_function")["name"])
    names = names.filter(names["text"].str.starts_with(_MODULE))
    if names.is_empty():  # before 2022 the profiler wrote the module beside each operator
        return _beside(trace, calls, pl.col("module_hierarchy"))
    marked = calls["name"].is_in(names["name"].implode()) & (calls["cat"] == "python_function")
    return marked, lambda rows, _: calls.select(pl.col("name").gather(rows).cast(pl.String).str.strip_prefix(_MODULE))


def _by_stack(trace: TraceSet, calls: pl.DataFrame) -> tuple[pl.Series, Labels]:
    names = _distinct(calls.filter(pl.col("cat") == "python_function")["name"])
    names = names.filter(~names["text"].str.starts_with("<built-in").fill_null(value=False))
    if names.is_empty():  # without Python frames the stack may stand beside each operator, the innermost frame first
        frames = (
            pl.col("call_stack")
            .str.strip_chars("; \n")
            .str.split(";")
            .list.head(FRAMES)
            .list.eval(pl.element().str.strip_chars())
        )
        return _beside(trace, calls, pl.when(pl.col("call_stack") != "").then(frames.list.join(" < ")))
    marked = calls["name"].is_in(names["name"].implode()) & (calls["cat"] == "python_function")
    return marked, lambda rows, parent: _stacks(calls["name"].gather(rows), parent)


def _stacks(name: pl.Series, parent: pl.Series) -> pl.DataFrame:
    """Return each frame with those that called it; worked out once for each path."""
    nodes, at = merged(name, parent)
    plain, text, above = nodes["label"].cast(pl.String), nodes["label"].cast(pl.String), nodes["parent"]
    for _ in range(FRAMES - 1):
        both = pl.DataFrame({"text": text, "caller": plain.gather(above)})
        text = both.select(pl.concat_str("text", "caller", separator=" < ", ignore_nulls=True)).to_series()
        above = nodes["parent"].gather(above)
    return pl.DataFrame({"name": text.gather(at)})


def _beside(trace: TraceSet, calls: pl.DataFrame, text: pl.Expr) -> tuple[pl.Series, Labels]:
    """Count the operators that have a text of their own."""
    texts = trace.events.select("part", "event_id", name=text).filter(pl.col("name") != "").collect()
    found = calls.select("part", "event_id").join(texts, on=["part", "event_id"], how="left", maintain_order="left")["name"]
    return found.is_not_null(), lambda rows, _: pl.DataFrame({"name": found.gather(rows)})


def _distinct(names: pl.Series) -> pl.DataFrame:
    """Return each name once, and as text."""
    return names.unique().to_frame("name").drop_nulls().with_columns(text=pl.col("name").cast(pl.String))


_GROUPS: dict[str, Callable[[TraceSet, pl.DataFrame], tuple[pl.Series, Labels]]] = {
    "name": _by_name,
    "shape": _by_shape,
    "thread": _by_thread,
    "module": _by_module,
    "stack": _by_stack,
    "annotation": _by_annotation,
}
