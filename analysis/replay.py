"""Attention problems of a trace as commands that measure them."""

from __future__ import annotations

import polars as pl

from kinetop.traces.live.worker.case import Case

from .question import Column

COMMAND_COLUMNS = (
    Column("command", "text", "what measures the problems; null where `kinetop bench` cannot", priority=0),
    Column("problems", "count", "rows of the attention table that it stands for", priority=1),
    Column("device_us", "us", "device time of these rows", "total", priority=1),
    Column("note", "text", "what differs from the trace, or why there is no command", priority=1),
)
"""Columns of the table of commands."""

_SIZES = ("batch", "q_heads", "kv_heads", "q_len", "kv_len", "qk_dim", "v_dim")


def commands(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the commands that measure the problems of an attention table, the most device time first.

    Problems that differ in their shape alone share a command.

    Args:
        rows: rows of the attention table.

    Example:
        >>> sizes = {"batch": 2, "q_heads": 8, "kv_heads": 2, "q_len": 512, "kv_len": 512, "qk_dim": 64, "v_dim": 64}
        >>> row = {**sizes, "window": None, "dtype": "bf16", "causal": True, "direction": "forward", "device_us": 9.5}
        >>> commands(pl.DataFrame([row]))["command"].item()
        'kinetop bench --shape 2,8/2,512,64 --dtype bf16 --causal'
    """
    found: dict[tuple[str | None, str], list[str]] = {}
    times: dict[tuple[str | None, str], list[float]] = {}
    for row in rows.iter_rows(named=True):
        shape, rest, note = _options(row)
        shapes = found.setdefault((rest, note), [])
        if shape is not None and shape not in shapes:
            shapes.append(shape)
        times.setdefault((rest, note), []).append(row["device_us"] or 0.0)
    made = [
        (
            None if rest is None else " ".join(["kinetop bench", *(f"--shape {one}" for one in shapes), rest]),
            len(times[rest, note]),
            round(sum(times[rest, note]), 3),
            note or None,
        )
        for (rest, note), shapes in found.items()
    ]
    types = {"command": pl.String, "problems": pl.Int64, "device_us": pl.Float64, "note": pl.String}
    frame = pl.DataFrame(made, schema=types, orient="row")
    return frame.sort(pl.col("command").is_null(), pl.col("device_us"), descending=[False, True], maintain_order=True)


def _options(row: dict[str, object]) -> tuple[str | None, str | None, str]:
    """Return the shape, the other options and a note; no options where the problem cannot be measured."""
    if any(row[name] is None for name in (*_SIZES, "dtype")):
        return None, None, "the trace does not tell the whole problem"
    mode = "backward" if row["direction"] == "backward" else "decode" if row["q_len"] == 1 else "forward"
    try:
        case = Case.from_dict({**row, "causal": bool(row["causal"]), "mode": mode})
    except ValueError as error:
        return None, None, str(error)
    notes = [] if row["causal"] is not None else ["a mask in the trace is not known: without one"]
    notes += ["measures forward and backward together"] if mode == "backward" else []
    words = [f"--dtype {case.dtype}", "--causal" if case.causal else "--full"]
    words += [f"--window {case.window}"] if case.window is not None else []
    words += [f"--mode {mode}"] if mode != "forward" else []
    return case.shape_text, " ".join(words), "; ".join(notes)
