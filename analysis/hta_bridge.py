"""Hands an opened trace to HolisticTraceAnalysis (the extra `hta`) without parsing its JSON again.

What HTA's parser makes is made here from the event table: one pandas frame a rank, names and categories as ids of a symbol
table, the arguments it keeps as columns, timestamps rounded inwards to whole microseconds where they have a fraction. The
rest (correlation, alignment of the ranks, its step filter) is HTA's own code on that frame. Against its own load: numbers
stay 64 bits wide (so that 0.5.0 works with pandas 3 too), and event ids count repaired events as the import did.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import polars as pl

from kinetop.traces import schema
from kinetop.traces.errors import TraceError
from kinetop.traces.reading.header import base_ns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kinetop.traces.trace import Trace, TraceSet

_COLUMN = {arg.key: arg for arg in schema.ARGS}


class HtaMissingError(TraceError):
    """HolisticTraceAnalysis is not installed."""

    def __init__(self) -> None:
        super().__init__("HolisticTraceAnalysis is not installed; it comes with the extra hta: pip install 'kinetop[hta]'.")


def version() -> str | None:
    """Return the version of HolisticTraceAnalysis that is installed; None without it.

    Example:
        >>> version() is None or version()[0].isdigit()
        True
    """
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("HolisticTraceAnalysis")
    except PackageNotFoundError:
        return None


def to_hta(trace: TraceSet, *, include_last_profiler_step: bool = False) -> Any:
    """Return HTA's `TraceAnalysis` of a trace, made from the event table.

    Args:
        trace: the opened set, one file a rank.
        include_last_profiler_step: keep the last profiler step, which HTA drops unless told not to.

    Raises:
        HtaMissingError: the extra is not installed.
        TraceError: HTA cannot hold the set: a rank has several files, or none of its events has a duration and a category.

    Example:
        >>> import kinetop
        >>> trace = kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False)
        >>> version() is None or len(to_hta(trace).t.get_trace(0)) > 0
        True
    """
    if version() is None:
        raise HtaMissingError
    from hta.common.trace import Trace as HtaTrace
    from hta.trace_analysis import TraceAnalysis

    ranks = [one.rank for one in trace.traces]
    if len(set(ranks)) < len(ranks):
        raise TraceError("HolisticTraceAnalysis holds one file a rank; here a rank has several. Open them one by one.")
    made = HtaTrace(trace_files={}, trace_dir=os.fspath(trace.traces[0].path.parent))
    frames = {one.rank: _rows(one) for one in trace.traces}
    made.symbol_table.add_symbols(_symbols(frames.values()))
    for one in trace.traces:
        made.trace_files[one.rank] = os.fspath(one.path)
        made.meta_data[one.rank] = dict(one.header)
        made.traces[one.rank] = _framed(frames[one.rank], made.symbol_table)
    if all(frame.is_empty() for frame in frames.values()):
        raise TraceError("HolisticTraceAnalysis needs events with a duration and a category; this trace has none.")
    made.align_and_filter_trace(include_last_profiler_step)
    for rank, frame in made.traces.items():
        made.traces[rank] = frame.set_index("index", drop=False).rename_axis(None)
    made.is_parsed = True
    analysis = TraceAnalysis.__new__(TraceAnalysis)
    analysis.t = made
    return analysis


_TIMES = {
    "span_us": "kernel_time(us)",
    "idle_us": "idle_time(us)",
    "compute_us": "compute_time(us)",
    "other_us": "non_compute_time(us)",
}
STOPS = (AssertionError, IndexError, KeyError, TypeError, ValueError)
"""How HTA's analyses end on traces that they cannot take."""


def figures(trace: TraceSet) -> tuple[dict[str, float | None], str]:
    """Return what HTA says of the one trace of a set: its temporal breakdown, overlap, and sum and number of rows with a stream.

    Args:
        trace: a set of one trace.

    Returns:
        The figures by their names in `kinetop.analysis.hta.figures`, and how HTA stopped where it did ("" where it did not).

    Raises:
        HtaMissingError: HTA is not installed.
    """
    found: dict[str, float | None] = {}
    with quiet():
        try:
            analysis = to_hta(trace)
            rows = analysis.t.get_trace(trace.traces[0].rank)
            rows = rows[rows["stream"] != -1]
            found |= {"rows": len(rows), "kernel_sum_us": float(rows["dur"].sum())}
            breakdown = analysis.get_temporal_breakdown(visualize=False)
            found |= {name: float(breakdown[theirs].iloc[0]) for name, theirs in _TIMES.items()}
        except STOPS as error:
            return found, f"{type(error).__name__} {error}".strip()
        overlap = analysis.get_comm_comp_overlap(visualize=False)["comp_comm_overlap_pctg"].iloc[0]
        found["overlap_pct"] = None if math.isnan(overlap) else float(overlap)
    return found, ""


@contextmanager
def quiet() -> Iterator[None]:
    """Keep HTA's log and its numerical warnings off the screen."""
    log = logging.getLogger("hta")
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(before)


def _rows(trace: Trace) -> pl.DataFrame:
    """Events that HTA keeps: with a duration and a category; times in microseconds as float64."""
    zero = base_ns(trace.header)
    since = pl.col("ts_ns") - zero
    ts, dur = microseconds(since), microseconds(pl.col("dur_ns"))
    fraction = trace.events.select(((since % 1000 != 0) | since.is_null()).any()).collect().item()
    if fraction and os.environ.get("HTA_DISABLE_NS_ROUNDING") != "1":
        dur = (ts + dur).floor() - ts.ceil()
        ts = ts.ceil()
    known = {name: _COLUMN[raw].column for raw, (name, _) in _specs().items() if raw in _COLUMN}
    text = {name: pl.col(name).cast(pl.String) for name in ("cat", "name", "process", "thread")}
    return (
        trace.events.filter(_keeps())
        .select(
            index=pl.col("event_id").cast(pl.Int64),
            cat=text["cat"],
            name=text["name"].fill_null(""),
            pid=text["process"],
            tid=text["thread"],
            ts=ts,
            dur=dur,
            **{name: known.get(name, pl.lit(None)) for name, _ in _specs().values()},
            args="args",
        )
        .collect()
    )


def _keeps() -> pl.Expr:
    """Which events HTA keeps: those with a start, a duration and a category."""
    cat = pl.col("cat").cast(pl.String)
    return pl.col("dur_ns").is_not_null() & pl.col("ts_ns").is_not_null() & cat.is_not_null() & (cat != "Trace")


def first_kept_ns(trace: Trace) -> int:
    """Return the start of the first event that HTA keeps, which its own times count from; 0 where it keeps none.

    Args:
        trace: one trace file.

    Example:
        >>> import kinetop
        >>> trace = kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False)
        >>> first_kept_ns(trace.traces[0]) == trace.extent["first_ns"].item()
        True
    """
    first = trace.events.filter(_keeps()).select(pl.col("ts_ns").min()).collect().item()
    return 0 if first is None else int(first)


def microseconds(ns: pl.Expr) -> pl.Expr:
    """Return nanoseconds as the float64 that parsing the trace's decimal microseconds gives: whole part and fraction apart."""
    return ns // 1000 + (ns % 1000) / 1000


def _specs() -> dict[str, tuple[str, Any]]:
    """What HTA keeps of `args` by default: its key there, HTA's column and the value that stands for an absent one."""
    from hta.configs.parser_config import ParserConfig

    return {spec.raw_name: (spec.name, spec.default_value) for spec in ParserConfig.get_default_cfg().get_args()}


def _symbols(frames: Iterable[pl.DataFrame]) -> list[str]:
    texts = [frame[column].unique() for frame in frames for column in ("cat", "name")]
    return sorted({text for column in texts for text in column})


def _framed(rows: pl.DataFrame, symbols: Any) -> Any:
    """Return the frame that HTA's parser would make of a rank."""
    from hta.common.trace import transform_correlation_to_index

    ids = symbols.get_sym_id_map()
    coded = rows.with_columns(pl.col("cat", "name").replace_strict(ids, return_dtype=pl.Int64))
    made = coded.drop("pid", "tid", "args", *(name for name, _ in _specs().values())).to_pandas()
    made.insert(3, "pid", _ids(rows["pid"]))
    made.insert(4, "tid", _ids(rows["tid"]))
    for name, default in _specs().values():
        made[name] = _values(rows[name], default)
    for name, values in _counters(rows).items():
        made[name] = values
    made.index = made["index"].to_numpy()
    made = transform_correlation_to_index(made, symbols)
    made["iteration"] = _iterations(made, symbols)
    made["end"] = made["ts"] + made["dur"]
    return made


def _ids(column: pl.Series) -> Any:
    """Process and thread ids: numbers where they are written as such."""
    whole = column.str.to_integer(strict=False)
    if not whole.has_nulls():
        return whole.to_numpy()
    mixed = {text: number if number is not None else text for text, number in zip(column, whole, strict=True)}
    return column.to_pandas().map(mixed)


def _values(column: pl.Series, default: Any) -> Any:
    """An argument's column; nested values as Python lists, one object for all equal ones."""
    if column.dtype == pl.String:
        known = {text: json.loads(text) if text[:1] in "[{" else text for text in column.unique().drop_nulls()}
        return [default if text is None else known[text] for text in column]
    return column.fill_null(default).to_numpy() if column.dtype != pl.Null else [default] * len(column)


def _counters(rows: pl.DataFrame) -> dict[str, list[Any]]:
    """Hardware counters: arguments of the ranges that CUPTI's range profiler wrote."""
    ranges = rows.with_row_index("row").filter(pl.col("cat") == "cuda_profiler_range", pl.col("args").is_not_null())
    found: dict[str, list[Any]] = {}
    for row, text in ranges.select("row", "args").iter_rows():
        for name, value in json.loads(text).items():
            found.setdefault(name, [-1] * rows.height)[row] = value
    return found


def _iterations(frame: Any, symbols: Any) -> Any:
    """Return the step of each row as HTA does: by time on the host, by the launch on streams above 0, none on stream 0."""
    import numpy as np

    numbers = {
        id_: int(hit[1]) for name, id_ in symbols.get_sym_id_map().items() if (hit := re.match(r"ProfilerStep\s*#\s*(\d+)", name))
    }
    ts = frame["ts"].to_numpy()
    order = np.argsort(ts, kind="stable")
    ordered, by_time = ts[order], np.full(len(ts), -1.0)
    marks = frame[frame["name"].isin(list(numbers))]
    for start, length, name in zip(marks["ts"], marks["dur"], marks["name"], strict=True):
        by_time[slice(*np.searchsorted(ordered, (start, start + length)))] = numbers[name]  # of crossing steps the later row wins
    step = np.empty_like(by_time)
    step[order] = by_time
    stream, partner = frame["stream"].to_numpy(), frame["index_correlation"].to_numpy()
    launched = frame["index"].to_frame().assign(step=step)["step"].where(stream < 0).reindex(partner).to_numpy()
    step = np.where(stream > 0, np.where(partner > 0, launched, -1.0), np.where(stream < 0, step, np.nan))
    whole = not np.isnan(step).any()
    return step.astype(np.int64) if whole else step
