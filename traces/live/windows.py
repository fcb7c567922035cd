"""Profiled windows as rows of the event table."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from .. import schema
from .members import clean
from .names import STEP_PREFIX

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterable

    from .names import Window

EVENT_COLUMNS: dict[str, pl.DataType] = {
    **{name: pl.String() for name in ("ph", "cat", "name", "process", "thread")},
    **{name: pl.Int64() for name in ("ts_ns", "dur_ns")},
    "device": pl.Int32(),
    **{name: pl.Int64() for name in ("stream", "correlation", "external_id", "bytes")},
    **{name: pl.Int64() for name in ("memory_device", "memory_device_type", "memory_bytes")},
    **{name: pl.String() for name in ("input_dims", "scope", "args")},
}
"""Columns of the event table that a window fills, with their types."""
GPU_ROWS = frozenset({*schema.GPU_KINDS, "gpu_user_annotation", "cuda_sync"})
"""Categories that lie on a stream of a device."""
MEMORY_CAT = "cpu_instant_event"
"""Category of allocations and releases."""
_ARROW = {"B": pa.uint8(), "i": pa.int32(), "I": pa.uint32(), "q": pa.int64(), "Q": pa.uint64(), "d": pa.float64()}
_TYPES = {
    **{name: pl.Int64 for name in ("name", "kind", "start_ns", "dur_ns", "device_type", "device", "resource", "nbytes")},
    **{name: pl.UInt64 for name in ("correlation", "linked", "flops")},
}
_DIMS = re.compile(r"\[(?:\[(?:\d+(?:, ?\d+)*)?\](?:, ?(?!\])|(?=\])))*\]")
"""Shapes of inputs that are tensors; lists of tensors are nested deeper."""
_GENERATION_BITS = 40
"""Ids of a restarted worker begin anew; those of the Nth one are moved by N << 40, above what a profiler counts up to."""


def rows(window: Window) -> pl.DataFrame:
    """Return a window's events as rows of the event table, in the order given.

    GPU rows get the device as process and the stream as thread, host rows the worker's process id and the thread id, as the
    profiler itself writes them.

    Args:
        window: as the worker sent it.

    Returns:
        `EVENT_COLUMNS`, and `step`, the number of the profiled step that an event belongs to: GPU work by the launch, the rest
        by time; null outside of steps.
    """
    raw = _raw(window).with_columns(
        cat=_texts("kind", dict(enumerate(window.kinds)), "kind"), name=_texts("name", window.names, "name")
    )
    instant = pl.col("cat") == MEMORY_CAT
    gpu = ~instant & (pl.col("cat").is_in(list(GPU_ROWS)) | (pl.col("device_type") != 0))
    raw = raw.with_columns(gpu=gpu, instant=instant, launch=pl.col("cat").is_in(list(schema.LAUNCH_CATS)))
    linked = pl.col("gpu") | pl.col("launch")
    made = raw.select(
        ph=pl.when("instant").then(pl.lit("i")).otherwise(pl.lit("X")),
        cat="cat",
        name="name",
        process=pl.when("gpu").then("device").otherwise(pl.lit(window.pid)).cast(pl.String),
        thread=pl.col("resource").cast(pl.String),
        ts_ns="start_ns",
        dur_ns=pl.when(~pl.col("instant")).then("dur_ns"),
        device=pl.when("gpu").then("device"),
        stream=pl.when("gpu").then("resource"),
        correlation=pl.when(linked).then(_id("correlation", window.generation)),
        external_id=pl.when(linked).then(_id("linked", window.generation)).otherwise(_id("correlation", window.generation)),
        bytes=pl.when(pl.col("gpu") & (pl.col("nbytes") != 0)).then("nbytes"),
        memory_device=pl.when("instant").then("device"),
        memory_device_type=pl.when("instant").then("device_type"),
        memory_bytes=pl.when("instant").then("nbytes"),
        input_dims="input_dims",
        scope=pl.when("instant").then(pl.lit("t")),
        args=_args(),
        step=pl.lit(None, pl.Int64),
    )
    return _with_steps(made.cast(pl.Schema(EVENT_COLUMNS), strict=False))


def events(windows: Iterable[Window]) -> pl.DataFrame:
    """Return the events of several windows.

    Args:
        windows: in the order wanted.

    Returns:
        variant, case (text), window (number), step and `EVENT_COLUMNS`.
    """
    whose = {"variant": pl.String(), "case": pl.String(), "window": pl.Int64(), "step": pl.Int64()}
    made = [pl.DataFrame(schema={**whose, **EVENT_COLUMNS})]
    for window in windows:
        labels = {"variant": clean(window.variant), "case": clean(window.case_text)}
        found = _kept(window).with_columns(
            **{key: pl.lit(text) for key, text in labels.items()}, window=pl.lit(window.number, pl.Int64)
        )
        made.append(found.select(made[0].columns))
    return pl.concat(made)


@lru_cache(maxsize=256)
def _kept(window: Window) -> pl.DataFrame:
    """Screens ask for the same windows again and again, and each takes 6 ms."""
    return rows(window)


def _raw(window: Window) -> pl.DataFrame:
    """The columns as sent, each in the type it has in the end; absent ones zero."""
    height = len(window)
    sent = pl.DataFrame({name: _series(values) for name, values in window.columns.items() if name in _TYPES})
    absent = {name: pl.repeat(0, height, eager=True) for name in _TYPES if name not in sent.columns}
    typed = sent.with_columns(**absent).select(pl.col(name).cast(kind, strict=False) for name, kind in _TYPES.items())
    dims = {row: text for row, text in window.shapes.items() if row < height and _DIMS.fullmatch(text)}
    odd = {row: json.dumps(text) for row, text in window.shapes.items() if row < height and row not in dims}
    return typed.with_columns(input_dims=_sparse(dims, height), odd_shapes=_sparse(odd, height))


def _series(values: array[Any]) -> pl.Series:
    made = pl.from_arrow(pa.Array.from_buffers(_ARROW[values.typecode], len(values), [None, pa.py_buffer(values)]))
    assert isinstance(made, pl.Series)  # noqa: S101 - an array makes a series
    return made


def _sparse(texts: dict[int, str], height: int) -> pl.Series:
    """Texts by row, null between them."""
    made = pl.repeat(None, height, dtype=pl.String, eager=True)
    return made.scatter(list(texts), list(texts.values())) if texts else made


def _texts(column: str, known: dict[int, str], word: str) -> pl.Expr:
    """The texts that numbers stand for; an unknown number is said as it is."""
    unknown = pl.format(f"{word} #{{}}", pl.col(column))
    if not known:
        return unknown
    found = pl.col(column).replace_strict(
        list(known), [clean(text) for text in known.values()], default=None, return_dtype=pl.String
    )
    return pl.coalesce(found, unknown)


def _id(column: str, generation: int) -> pl.Expr:
    """An id as the event table has it: null where there is none, and no other worker's."""
    moved = pl.col(column).cast(pl.Int64, strict=False) + (generation << _GENERATION_BITS)
    return pl.when(pl.col(column) != 0).then(moved)


def _args() -> pl.Expr:
    """What has no column of its own, as JSON text: flops, bytes of host rows, shapes of lists."""
    other = ~pl.col("gpu") & ~pl.col("instant") & (pl.col("nbytes") != 0)
    members = pl.concat_str(
        pl.when(pl.col("flops") != 0).then(pl.format('"flops":{}', "flops")),
        pl.when(other).then(pl.format('"nbytes":{}', "nbytes")),
        pl.when(pl.col("odd_shapes").is_not_null()).then(pl.format('"shapes":{}', "odd_shapes")),
        separator=",",
        ignore_nulls=True,
    )
    return pl.when(members != "").then(pl.format("{{{}}}", members))


def _with_steps(rows: pl.DataFrame) -> pl.DataFrame:
    """Fill in `step` from the ranges around the steps."""
    named = pl.col("name").str.extract(r"\|(\d{1,9})$").cast(pl.Int64)
    steps = (
        rows.filter(pl.col("cat") == "user_annotation", pl.col("name").str.starts_with(STEP_PREFIX))
        .select(from_ns="ts_ns", until_ns=pl.col("ts_ns") + pl.col("dur_ns"), number=named)
        .drop_nulls()
        .sort("from_ns", "number")
    )
    if steps.is_empty():
        return rows
    rows = rows.with_row_index("row")
    placed = rows.select("row", "ts_ns").drop_nulls().sort("ts_ns")
    placed = placed.join_asof(steps, left_on="ts_ns", right_on="from_ns").filter(pl.col("ts_ns") < pl.col("until_ns"))
    rows = rows.join(placed.select("row", "number"), on="row", how="left", maintain_order="left")
    launches = rows.filter(pl.col("cat").is_in(list(schema.LAUNCH_CATS)), pl.col("correlation").is_not_null())
    launches = launches.select("correlation", launched="number").unique("correlation", keep="first", maintain_order=True)
    rows = rows.join(launches, on="correlation", how="left", maintain_order="left")
    step = pl.when(pl.col("stream").is_not_null()).then(pl.coalesce("launched", "number")).otherwise("number")
    return rows.with_columns(step=step).drop("row", "number", "launched")
