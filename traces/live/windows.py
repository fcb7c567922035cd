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
    from collections.abc import Iterable, Sequence

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
_SENT: dict[str, Any] = {
    **{name: pl.Int64 for name in ("name", "kind", "start_ns", "dur_ns", "device_type", "device", "resource", "nbytes")},
    **{name: pl.UInt64 for name in ("correlation", "linked", "flops")},
}
"""Columns of a window, with the type they get."""
_DIMS = re.compile(r"\[(?:\[(?:\d+(?:, ?\d+)*)?\](?:, ?\[(?:\d+(?:, ?\d+)*)?\])*)?\]")
"""Shapes of inputs that are tensors; lists of tensors are nested deeper."""
_GENERATION_BITS = 40
"""Ids of a restarted worker begin anew; those of the Nth one are moved by N << 40, above what a profiler counts up to."""


def rows(windows: Sequence[Window]) -> pl.DataFrame:
    """Return the events of windows as rows of the event table, in the order given.

    GPU rows get the device as process and the stream as thread, host rows the worker's process id and the thread id, as the
    profiler itself writes them. All windows are turned into rows together: it takes 5 ms, however many they are.

    Args:
        windows: as the worker sent them.

    Returns:
        `EVENT_COLUMNS`; `at`, the place of an event's window in `windows`; and `step`, the number of the profiled step that it
        belongs to: GPU work by the launch, the rest by time; null outside of steps.
    """
    raw = _raw(windows)
    instant = pl.col("cat") == MEMORY_CAT
    gpu = ~instant & (pl.col("cat").is_in(list(GPU_ROWS)) | (pl.col("device_type") != 0))
    raw = raw.with_columns(gpu=gpu, instant=instant, launch=pl.col("cat").is_in(list(schema.LAUNCH_CATS)))
    linked = pl.col("gpu") | pl.col("launch")
    made = raw.select(
        "at",
        ph=pl.when("instant").then(pl.lit("i")).otherwise(pl.lit("X")),
        cat="cat",
        name="text",
        process=pl.when("gpu").then("device").otherwise("pid").cast(pl.String),
        thread=pl.col("resource").cast(pl.String),
        ts_ns="start_ns",
        dur_ns=pl.when(~pl.col("instant")).then("dur_ns"),
        device=pl.when("gpu").then("device"),
        stream=pl.when("gpu").then("resource"),
        correlation=pl.when(linked).then(_id("correlation")),
        external_id=pl.when(linked).then(_id("linked")).otherwise(_id("correlation")),
        bytes=pl.when(pl.col("gpu") & (pl.col("nbytes") != 0)).then("nbytes"),
        memory_device=pl.when("instant").then("device"),
        memory_device_type=pl.when("instant").then("device_type"),
        memory_bytes=pl.when("instant").then("nbytes"),
        input_dims="input_dims",
        scope=pl.when("instant").then(pl.lit("t")),
        args=_args(),
    )
    return _with_steps(made.cast(pl.Schema(EVENT_COLUMNS), strict=False))


def events(windows: Iterable[Window]) -> pl.DataFrame:
    """Return the events of several windows.

    Args:
        windows: in the order wanted.

    Returns:
        variant, case (text), window (number), step and `EVENT_COLUMNS`.
    """
    return _events(tuple(windows))


@lru_cache(maxsize=64)  # screens ask for the same windows until there is a new one
def _events(windows: tuple[Window, ...]) -> pl.DataFrame:
    labels = {
        "variant": pl.Series([clean(window.variant) for window in windows], dtype=pl.String),
        "case": pl.Series([clean(window.case_text) for window in windows], dtype=pl.String),
        "window": pl.Series([window.number for window in windows], dtype=pl.Int64),
    }
    found = rows(windows)
    return found.select(**{name: values.gather(found["at"]) for name, values in labels.items()}, step="step").hstack(
        found.select(*EVENT_COLUMNS)
    )


def _raw(windows: Sequence[Window]) -> pl.DataFrame:
    """The columns as sent, each in the type it has in the end, with the texts they stand for."""
    sent = [_table(at, window) for at, window in enumerate(windows)]
    raw = pl.DataFrame(pl.from_arrow(pa.concat_tables(sent))) if sent else pl.DataFrame(schema={"at": pl.Int64, **_SENT})
    whose = pl.DataFrame(
        [(at, window.pid, window.generation) for at, window in enumerate(windows)],
        schema={"at": pl.Int64, "pid": pl.Int64, "generation": pl.Int64},
        orient="row",
    )
    names = [(at, number, clean(text)) for at, window in enumerate(windows) for number, text in window.names.items()]
    kinds = [(at, number, clean(text)) for at, window in enumerate(windows) for number, text in enumerate(window.kinds)]
    raw = _joined(
        _joined(raw.join(whose, on="at", how="left", maintain_order="left"), "name", names, "text"), "kind", kinds, "cat"
    )
    shapes = [
        (at, row, text, None) if _DIMS.fullmatch(text) else (at, row, None, json.dumps(text))
        for at, window in enumerate(windows)
        for row, text in window.shapes.items()
    ]
    kept = {"at": pl.Int64, "row": pl.Int64, "input_dims": pl.String, "odd_shapes": pl.String}
    listed = pl.DataFrame([shape for shape in shapes if shape[1] < 2**63], schema=kept, orient="row")
    raw = raw.with_columns(row=pl.int_range(pl.len(), dtype=pl.Int64).over("at"))
    return raw.join(listed, on=["at", "row"], how="left", maintain_order="left")


def _table(at: int, window: Window) -> pa.Table:
    columns = {"at": pa.repeat(pa.scalar(at, pa.int64()), len(window))}
    for name, kind in _SENT.items():
        columns[name] = _column(window.columns[name], kind) if name in window.columns else pa.repeat(0, len(window))
    kinds = {pl.Int64: pa.int64(), pl.UInt64: pa.uint64()}
    return pa.table({name: values.cast(kinds[_SENT.get(name, pl.Int64)]) for name, values in columns.items()})


def _column(values: array[Any], kind: Any) -> pa.Array:
    """A column without a copy; one of a type that can hold what the wanted one cannot gets nulls in its place."""
    made = pa.Array.from_buffers(_ARROW[values.typecode], len(values), [None, pa.py_buffer(values)])
    risky = {pl.Int64: "Qd", pl.UInt64: "iqd"}[kind]
    return pl.Series(made).cast(kind, strict=False).to_arrow() if values.typecode in risky else made


def _joined(raw: pl.DataFrame, column: str, texts: list[tuple[int, int, str]], into: str) -> pl.DataFrame:
    """Add the texts that numbers stand for; an unknown number is said as it is."""
    known = [text for text in texts if text[1] < 2**63]
    listed = pl.DataFrame(known, schema={"at": pl.Int64, column: pl.Int64, into: pl.String}, orient="row")
    found = raw.join(listed, on=["at", column], how="left", maintain_order="left")
    return found.with_columns(pl.coalesce(into, pl.format(f"{column} #{{}}", column)).alias(into))


def _id(column: str) -> pl.Expr:
    """An id as the event table has it: null where there is none, and no other worker's."""
    moved = pl.col(column).cast(pl.Int64, strict=False) + pl.col("generation") * (1 << _GENERATION_BITS)
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


def _with_steps(made: pl.DataFrame) -> pl.DataFrame:
    """Add `step` from the ranges around the steps."""
    named = pl.col("name").str.extract(r"\|(\d{1,9})$").cast(pl.Int64)
    steps = (
        made.filter(pl.col("cat") == "user_annotation", pl.col("name").str.starts_with(STEP_PREFIX))
        .select("at", from_ns="ts_ns", until_ns=pl.col("ts_ns") + pl.col("dur_ns"), number=named)
        .drop_nulls()
        .sort("at", "from_ns", "number")
    )
    made = made.with_row_index("row")
    placed = made.select("row", "at", "ts_ns").drop_nulls().sort("at", "ts_ns")
    placed = placed.join_asof(steps, by="at", left_on="ts_ns", right_on="from_ns", check_sortedness=False)
    placed = placed.filter(pl.col("ts_ns") < pl.col("until_ns")).select("row", "number")
    made = made.join(placed, on="row", how="left", maintain_order="left")
    launches = made.filter(pl.col("cat").is_in(list(schema.LAUNCH_CATS)), pl.col("correlation").is_not_null())
    launches = launches.unique(["at", "correlation"], keep="first", maintain_order=True)
    launches = launches.select("at", "correlation", launched="number")
    made = made.join(launches, on=["at", "correlation"], how="left", maintain_order="left")
    step = pl.when(pl.col("stream").is_not_null()).then(pl.coalesce("launched", "number")).otherwise("number")
    return made.with_columns(step=step).drop("row", "number", "launched")
