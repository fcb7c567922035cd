"""How an attention step's time divides into its parts: QK, scale, mask, softmax, PV, copies, casts, layout, gaps."""

from __future__ import annotations

import polars as pl

from kinetop.traces import schema
from kinetop.traces.nesting import THREAD, innermost

from . import roles

PARTS = ("qk", "scale", "mask", "softmax", "pv", "copy", "cast", "layout", "fused", "other", "gaps")
"""In the order of the computation; a step's time is their sum."""
PART_COLUMNS: dict[str, str] = {
    "variant": "text?, of the step's label; null in a trace without such labels",
    "case": "text?",
    "part": "text, one of PARTS",
    "dur_us": "f64, mean of the steps",
    "share_pct": "f64, of the step's time",
    "steps": "u32, steps that were seen",
    "on": "text: gpu where a step ran work there, else cpu",
}
"""Columns of `split`; each variant and case has one row per part."""
STEP = "kinetop.step|"
"""What the name of a window's step begins with: `kinetop.step|variant|window|step`."""
_NEEDED = {
    "rank": "Int32", "cat": "String", "name": "String", "process": "String", "thread": "String", "ts_ns": "Int64",
    "dur_ns": "Int64", "correlation": "Int64", "case": "String",
}  # fmt: skip
"""Columns that are read, with the names of their types: Polars is not loaded before it is used."""
_GROUP = ("variant", "case")


def split(events: pl.DataFrame) -> pl.DataFrame:
    """Return how the step time of each variant divides into parts.

    On a GPU a step lasts from the first to the last work that it launched, and a moment that several kernels share counts for
    the one that began first. On a CPU it lasts as long as its range, and each operator counts with its self time. What
    nothing covers is `gaps`. Without labelled steps, profiler steps are taken; without those, all of the frame is one.

    Args:
        events: rows of the event table, whole or with just its columns rank, ph, cat, name, process, thread, ts_ns, dur_ns
            and correlation; with `case` where there are several.

    Returns:
        A frame with `PART_COLUMNS`; the parts of a variant and case sum to its step time.

    Example:
        >>> import polars as pl
        >>> rows = [("user_annotation", "kinetop.step|eager|1|0", 0, 100_000), ("cpu_op", "aten::bmm", 0, 40_000),
        ...     ("cpu_op", "aten::_softmax", 50_000, 20_000), ("cpu_op", "aten::bmm", 70_000, 30_000)]
        >>> frame = pl.DataFrame(rows, schema=["cat", "name", "ts_ns", "dur_ns"], orient="row")
        >>> split(frame).filter(pl.col("dur_us") > 0).select("part", "dur_us").rows()
        [('qk', 40.0), ('softmax', 20.0), ('pv', 30.0), ('gaps', 10.0)]
    """
    rows = host_rows(events)
    found = steps(rows)
    ops = operators(rows, found)
    return divided(found, ops, gpu_work(rows, found, ops))


def divided(found: pl.DataFrame, ops: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Return what `split` does, from what is known already.

    Args:
        found: the steps, as `steps` gives them.
        ops: as `operators` gives them.
        work: as `gpu_work` gives it.
    """
    on_gpu = _on_gpu(work)
    rest = found.join(on_gpu.select("step").unique(), on="step", how="anti")
    return _table(found, pl.concat([on_gpu, _on_cpu(rest, ops)]), on_gpu["step"].unique())


def host_rows(events: pl.DataFrame) -> pl.DataFrame:
    """Return the complete events of a frame with the columns that the division needs, start_ns and end_ns among them."""
    rows = events.filter(pl.col("ph") == "X") if "ph" in events.columns else events
    made = rows.select(
        (pl.col(name).cast(kind, strict=False) if name in rows.columns else pl.lit(None, kind)).alias(name)
        for name, kind in ((name, getattr(pl, kind)) for name, kind in _NEEDED.items())
    ).with_columns(pl.col("rank").fill_null(0), pl.col("dur_ns").fill_null(0).clip(0))
    return made.drop_nulls("ts_ns").rename({"ts_ns": "start_ns"}).with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns"))


def steps(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the steps of a frame: step (u32), rank, variant?, case?, window?, process, thread, start_ns, end_ns, labelled.

    Args:
        rows: as `host_rows` makes them.
    """
    ranges = rows.filter(pl.col("cat").is_in(["user_annotation", "cpu_op"]))
    labels = ranges.filter(pl.col("name").str.starts_with(STEP))
    found = labels if len(labels) else ranges.filter(pl.col("name").str.contains(r"^ProfilerStep#?\d+$"))
    if found.is_empty():
        found = _whole(rows)
    text = pl.col("name").str.strip_prefix(STEP).str.extract_groups(r"^(?<variant>.*)\|(?<window>\d+)\|\d+$")
    return (
        found.with_columns(labelled=pl.col("name").str.starts_with(STEP).fill_null(value=False), text=text)
        .unnest("text")
        .sort("rank", "start_ns")
        .with_row_index("step")
        .select("step", "rank", *_GROUP, "window", "process", "thread", "start_ns", "end_ns", "labelled")
    )


def _whole(rows: pl.DataFrame) -> pl.DataFrame:
    """Return each rank's whole time as a step of the thread that runs its operators longest."""
    ops = rows.filter(pl.col("cat").is_in(schema.OP_CATS))
    busiest = ops.group_by("rank", "process", "thread").agg(pl.col("dur_ns").sum()).sort("dur_ns", descending=True)
    extent = rows.filter(pl.col("cat").is_in([*schema.OP_CATS, *schema.LAUNCH_CATS])).group_by("rank").agg(
        pl.col("start_ns").min(), pl.col("end_ns").max()
    )  # fmt: skip
    made = extent.join(busiest.unique("rank", keep="first", maintain_order=True).drop("dur_ns"), on="rank", how="left")
    return made.with_columns(name=pl.lit(None, pl.String), case=pl.lit(None, pl.String))


def operators(rows: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
    """Return the operators and own ranges in the steps, clipped to them, as call trees with their parts (`roles.assigned`)."""
    wanted = pl.col("cat").is_in(schema.OP_CATS) | pl.col("name").str.starts_with(roles.RANGE).fill_null(value=False)
    ops = rows.filter(wanted & pl.col("cat").is_in([*schema.OP_CATS, "user_annotation"]) & ~pl.col("name").str.starts_with(STEP))
    placed = _in_steps(ops.drop("case"), found).with_columns(
        end_ns=pl.max_horizontal("start_ns", pl.min_horizontal("end_ns", "step_end_ns"))
    )
    return roles.assigned(placed.drop("step_end_ns"))


def gpu_work(rows: pl.DataFrame, found: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """Return the GPU work that the steps launched: step, name, start_ns, end_ns, part, and `op` (row of `ops`, null if none)."""
    work = rows.filter(pl.col("cat").is_in(schema.GPU_KINDS)).drop("case", "process", "thread", "dur_ns", "cat")
    calls = rows.filter(pl.col("cat").is_in(schema.LAUNCH_CATS) & pl.col("correlation").is_not_null())
    calls = _in_steps(calls.drop("case", "end_ns", "dur_ns"), found).sort("start_ns")
    calls = calls.unique(["rank", "correlation"], keep="last").rename({"start_ns": "at_ns"}).drop("name", "cat")
    joined = work.join(calls, on=["rank", "correlation"]).with_columns(part=pl.col("rank").cast(pl.Int32))
    trees = ops.with_columns(part=pl.col("rank").cast(pl.Int32))
    op = innermost(joined.select(*THREAD, "at_ns"), trees)
    by_op = ops["part"].gather(op)
    own = pl.Series("own", roles.named(joined["name"]))
    return joined.select("step", "name", "start_ns", "end_ns").with_columns(
        op=op, part=by_op.zip_with(by_op.is_not_null() & (by_op != "other"), own)
    )


def _in_steps(rows: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that begin in a step, with step, labelled and step_end_ns; what an unlabelled row is in no matter."""
    ends = found.select("step", "rank", "labelled", "start_ns", step_end_ns="end_ns").sort("start_ns")
    joined = rows.sort("start_ns").join_asof(ends, on="start_ns", by="rank", check_sortedness=False)
    return joined.filter(pl.col("start_ns") < pl.col("step_end_ns"))


def _on_gpu(work: pl.DataFrame) -> pl.DataFrame:
    """Return step, part, ns of steps that ran on a GPU: each activity has the time that no earlier one covers."""
    ordered = work.sort("step", "start_ns", "end_ns")
    reach = pl.col("end_ns").cum_max().shift(1).over("step")
    own = (pl.col("end_ns") - pl.max_horizontal("start_ns", reach)).clip(0)
    busy = ordered.with_columns(ns=own).group_by("step", "part").agg(pl.col("ns").sum())
    length = ordered.group_by("step").agg(ns=pl.col("end_ns").max() - pl.col("start_ns").min())
    return _with_gaps(busy, length)


def _on_cpu(found: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """Return step, part, ns of steps that ran on the CPU: the self times of the step's own thread."""
    mine = ops.filter(~pl.col("range")).join(
        found.select("step", "process", "thread"), on=["step", "process", "thread"], nulls_equal=True
    )
    busy = mine.group_by("step", "part").agg(ns=pl.col("self_ns").sum())
    return _with_gaps(busy, found.select("step", ns=pl.col("end_ns") - pl.col("start_ns")))


def _with_gaps(busy: pl.DataFrame, length: pl.DataFrame) -> pl.DataFrame:
    taken = busy.group_by("step").agg(taken=pl.col("ns").sum())
    gaps = length.join(taken, on="step", how="left").select(
        "step", part=pl.lit("gaps"), ns=pl.col("ns") - pl.col("taken").fill_null(0)
    )
    return pl.concat([busy, gaps.select(busy.columns)])


def _table(found: pl.DataFrame, times: pl.DataFrame, on_gpu: pl.Series) -> pl.DataFrame:
    labels = found.with_columns(on=pl.when(pl.col("step").is_in(on_gpu.implode())).then(pl.lit("gpu")).otherwise(pl.lit("cpu")))
    groups = labels.group_by(*_GROUP, maintain_order=True).agg(pl.len().alias("steps"), on=pl.col("on").max())
    sums = times.join(labels.select("step", *_GROUP), on="step").group_by(*_GROUP, "part").agg(pl.col("ns").sum())
    order = pl.DataFrame({"part": PARTS}).with_row_index("place")
    rows = groups.with_row_index("group").join(order, how="cross").join(sums, on=[*_GROUP, "part"], how="left", nulls_equal=True)
    total = pl.col("ns").sum().over("group")
    return (
        rows.with_columns(pl.col("ns").fill_null(0))
        .sort("group", "place")
        .with_columns(
            dur_us=pl.col("ns") / pl.col("steps") / 1000,
            share_pct=pl.when(total > 0).then(100 * pl.col("ns") / total).otherwise(0.0),
        )
        .select(*PART_COLUMNS)
    )
