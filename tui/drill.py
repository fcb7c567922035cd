"""Where a row of any question's table leads: the view and the filter that show the work which the row is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .screens.base import where_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

LONGEST = 200
"""A longer text is not put into a condition."""
FILTERS = {
    "name": "name",
    "kernel": "name",
    "op": "op",
    "api": "api",
    "family": "family",
    "implementation": "implementation",
    "class": "class",
    "collective": "collective",
    "process_group": "process_group",
    "graph_id": "graph_id",
    "stream": "stream",
    "step": "step",
    "rank": "rank",
    "device": "device",
}
"""Column of a table to the column of a filter that means the same."""
OTHERWISE: dict[tuple[str, str], dict[str, str]] = {
    ("attention", ""): {"implementation": ""},
    ("collectives", ""): {"kind": "family", "name": ""},
    ("memory", ""): dict.fromkeys(FILTERS, ""),
    ("ops", "name"): {"name": "op"},
    ("ops", "shape"): {"name": "op"},
    ("ops", "thread"): {"name": "thread"},
    ("ops", ""): {"name": ""},
    ("roofline", ""): {"kind": "family"},
    ("series", ""): {"kind": "name"},
}
"""What is different in a question (where its option `group_by` has this value; empty for any other); an empty text means that
the column cannot be filtered by."""
PLACE = ("rank", "device")
"""Columns that narrow a filter only in a table about several devices."""
KERNELS = "kernels"
ABSENT = {"(no launch record)": "api is null", "(no operator)": "op is null"}
"""Operators that stand for none."""


def target(question: str, row: Mapping[str, Any], frame: pl.DataFrame, options: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the view that a row leads to and the filter there; None where nothing in it can be filtered by.

    A row that names its evidence itself (columns `view` and `where`) leads there, any other to the kernels.

    Args:
        question: name of the question.
        row: the row, by column.
        frame: the table it is of.
        options: the question's own options by name, defaults among them.
    """
    if row.get("view"):
        return str(row["view"]), str(row.get("where") or "")
    known = {**FILTERS, **_otherwise(question, options)}
    parts = {
        known[name]: part
        for name, value in row.items()
        if known.get(name) and not (name in PLACE and frame[name].n_unique() == 1) and (part := condition(known[name], value))
    }
    if "stream" in row and row["stream"] is None:
        parts.pop("name", None)  # the name of a call, not of GPU work
    if question == "roofline" and parts.get("op", "").startswith("op ="):
        parts.pop("family", None)  # there it says how the cost was counted
    if "name" in parts:  # it says what op, family and class say as well
        parts = {name: part for name, part in parts.items() if name in {"name", "stream", "step", *PLACE}}
    if not parts or (set(parts) <= set(PLACE) and frame.height > frame.select(*parts).n_unique()):
        return None  # the row is about something on a device, not about the device
    return KERNELS, " and ".join(parts.values())


def condition(column: str, value: Any) -> str | None:
    """Return the condition that a column has a value; None where that cannot be said in a filter.

    Args:
        column: column of a filter.
        value: value of a row.
    """
    if value is None or isinstance(value, (float, bool)):
        return None
    if isinstance(value, int):
        return f"{column} = {value}"
    text = str(value)
    if column == "name":
        return where_name(text) if text else None
    if column == "op" and text in ABSENT:
        return ABSENT[text]
    if not text or not text.isprintable() or len(text) > LONGEST or text.startswith(("(", "attention (")):
        return None
    return f"{column} = '{text.replace(chr(39), chr(39) * 2)}'"


def _otherwise(question: str, options: Mapping[str, Any]) -> dict[str, str]:
    return OTHERWISE.get((question, str(options.get("group_by", "")))) or OTHERWISE.get((question, ""), {})
