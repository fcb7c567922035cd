"""Results as plain text and Markdown: what was asked, aligned tables, coverage, warnings."""

from __future__ import annotations

from itertools import starmap
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len

from .document import trace_facts, trust, window_facts
from .format import NAME_CELLS, cell, clean, duration, percent, plural
from .output import flat
from .render.columns import GAP, Placed, is_text, looks, place
from .render.columns import Look as ColumnLook

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import polars as pl

    from kinetop.analysis.question import Column, Result, Table

    from .output import Look

_NO_LIMIT = 1_000_000
_PIPED_NAME = 100
"""Cells of a name in a report that no terminal limits: the figures beside it stay in sight; CSV and JSON hold it whole."""
_INDENT, _LEAST_PROSE = 4, 40
"""Cells before what is told of a row, and those that a sentence gets at least."""
_CAPTURES = 16
"""Files that are told apart by name above the tables."""
_RARE = 3
"""Priority of columns that a report with sentences leaves to JSON and CSV."""
_TURN_ROWS = 4
"""Tables of up to this many rows that are too wide are written with a line per column."""


def report(result: Result, names: Sequence[str], look: Look) -> str:
    """Return a result as text.

    Args:
        result: the answer to a question.
        names: tables to write.
        look: width and marks.
    """
    room, bold = look.width or _NO_LIMIT, look.bold
    first, *others = headings(result)
    lines = [_heading(clean(first, room), bold), *(part for line in others for part in _wrapped(line, room))]
    for table in _shown(result, names):
        frame = result.tables[table.name]
        lines += [
            "",
            *([_heading(table.name.replace("_", " "), bold)] if len(names) > 1 else []),
            *_table(frame, table.columns, look, sort=table.sort, name_cells=_PIPED_NAME, none=_why_none(result, table)),
        ]
    lines += ["", *(part for line in closing(result) for part in _wrapped(line, room))]
    return "\n".join(lines).rstrip() + "\n"


def headings(result: Result) -> list[str]:
    """Return the lines above the tables: what is open, which window, which filter."""
    facts, window = trace_facts(result.work.trace), window_facts(result.work)
    paths = facts["paths"]
    what = Path(paths[0]).name if len(paths) == 1 else f"{len(paths)} traces"
    ranks = facts["ranks"]
    ranks_text = f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} ranks"
    lines = [f"kinetop {result.question.name}  {what}  {plural(facts['events'], 'event')}, {ranks_text}"]
    choice = (
        f"step {window['step']}"
        if window["step"]
        else {"gpu": "GPU span", "trace": "whole trace"}.get(window["kind"], window["kind"])
    )
    spans = [device["span_us"] for device in window["devices"]]
    length = "no GPU work" if not spans else duration(max(spans)) + (f" (longest of {len(spans)} GPUs)" if len(spans) > 1 else "")
    asked = [
        f"{name} {window[key]}"
        for name, key in (("rank", "rank"), ("GPU", "device"), ("filter", "where"))
        if window[key] is not None
    ]
    lines.append("  ".join([f"window: {choice}, {length}", *asked]))
    return [*lines, *_captures(result)]


def _captures(result: Result) -> list[str]:
    """Say which file each capture of a rank is, where a rank has several: the tables number them."""
    traces = result.work.trace.traces
    ranks = [trace.rank for trace in traces]
    several = [trace for trace in traces if ranks.count(trace.rank) > 1]
    more = [f"and {len(several) - _CAPTURES} more"] if len(several) > _CAPTURES else []
    return [*(f"rank {one.rank}, window {one.window + 1}: {one.path.name}" for one in several[:_CAPTURES]), *more]


def closing(result: Result) -> list[str]:
    """Return the lines below the tables: coverage, then every warning."""
    told = trust(result.work)
    lines = _coverage_lines(told["coverage"])
    for warning in told["warnings"]:
        where = f" (first at byte {warning['offset']:,})" if warning["offset"] is not None else ""
        lines.append(f"note: {warning['message']}{where}")
    return lines


def _coverage_lines(coverage: dict[str, Any]) -> list[str]:
    shares = [
        f"{key.removesuffix('_pct').replace('_', ' ')} {percent(value)}"
        for key, value in coverage.items()
        if key.endswith("_pct")
    ]
    lines = [f"coverage: {', '.join(shares)}"] if shares else []
    return [*lines, f"verdict: {coverage['verdict']}. {coverage['why']}"]


def _wrapped(line: str, room: int) -> list[str]:
    """Return a sentence on as many lines as it needs."""
    return [clean(part, room) for part in wrap(clean(line), room, subsequent_indent="  ")]


def bare_table(frame: pl.DataFrame, look: Look) -> str:
    """Return a frame without declared columns as an aligned table."""
    return "\n".join(_table(frame, guessed(frame), look)) + "\n"


def declared_table(frame: pl.DataFrame, columns: Sequence[Column], look: Look, *, sort: str = "") -> str:
    """Return a frame as an aligned table, with the columns as they are declared."""
    return "\n".join(_table(frame, columns, look, sort=sort, name_cells=_PIPED_NAME)) + "\n"


def guessed(frame: pl.DataFrame) -> list[Column]:
    """Return columns for a frame that has no declaration: the name's suffix says the unit, else the type does."""
    from kinetop.analysis.question import Column

    def unit(name: str, kind: pl.DataType) -> Any:
        suffix = name.rpartition("_")[2]
        if kind.is_numeric() and suffix in {"us", "ns", "pct", "bytes"}:
            return suffix
        if kind.is_float() or kind.is_decimal():
            return "ratio"
        return "id" if kind.is_integer() else "text"

    # Without a unit the header is the name as the query gives it, underscores and all.
    units = {name: unit(name, kind) for name, kind in frame.schema.items()}
    return [Column(name, found, "", label="" if name.endswith(f"_{found}") else name) for name, found in units.items()]


def _table(
    frame: pl.DataFrame, columns: Sequence[Column], look: Look, *, sort: str = "", name_cells: int = NAME_CELLS, none: str = ""
) -> list[str]:
    columns, frame = [column for column in columns if column.name in frame.columns], flat(frame)
    if frame.is_empty() or not columns:
        return [f"(no rows: {none})" if none else "(no rows)"]
    known = looks(frame, columns)
    if any(column.prose for column in columns):
        return _told(frame, columns, known, look)
    texts = {
        column.name: [clean(known[column.name].text(value), name_cells) for value in frame[column.name].to_list()]
        for column in columns
    }
    headers = {name: known[name].header("▼" if name == sort else "") for name in texts}
    widths = {name: max(cell_len(headers[name]), *map(cell_len, lines)) for name, lines in texts.items()}
    wanted = sum(widths.values()) + GAP * (len(columns) - 1)
    room = look.width or _NO_LIMIT
    if wanted <= room:
        placed = [Placed(known[column.name], 0, widths[column.name] + GAP) for column in columns]
    elif frame.height <= _TURN_ROWS and max(map(cell_len, turned := _turned(headers, texts))) <= room:
        return turned
    else:
        # A first column of texts takes what is left; one of numbers would only be pulled apart.
        first = next((column for column in columns if is_text(column)), columns[0])
        placed = place([first, *(column for column in columns if column is not first)], known, room, skip=0, left=0, marked=sort)
    fitted = [[each.fit(text) for text in texts[each.column.name]] for each in placed]
    head = "".join(each.fit(headers[each.column.name]) for each in placed).rstrip()
    return [_heading(head, look.bold), *("".join(parts).rstrip() for parts in zip(*fitted, strict=True))]


def _told(frame: pl.DataFrame, columns: Sequence[Column], known: Mapping[str, ColumnLook], look: Look) -> list[str]:
    """Return rows with sentences: what is short on a line, each sentence below it, whole."""
    short = [column for column in columns if not column.prose and column.priority < _RARE]
    prose = [column for column in columns if column.prose]
    label_width = max(cell_len(known[column.name].header()) for column in prose) + _INDENT
    room = max(look.width or _NO_LIMIT, label_width + _LEAST_PROSE)
    lines: list[str] = []
    for number, row in enumerate(frame.iter_rows(named=True), 1):
        facts = [_fact(known[column.name], row[column.name]) for column in short if row[column.name] is not None]
        head, *more = _wrapped("  ".join([f"{number:>{_INDENT - 2}}", *facts]), room)
        lines += [_heading(head, look.bold), *more]
        for column in prose:
            label = f"{' ' * _INDENT}{known[column.name].header():{label_width - _INDENT}}  "
            told = wrap(clean(row[column.name] or ""), room, initial_indent=label, subsequent_indent=" " * len(label))
            lines += told if row[column.name] else []
    return lines


def _fact(look: ColumnLook, value: Any) -> str:
    """Return a value with what it is: the column's name, the value, its unit; the text that names the row speaks for itself."""
    if is_text(look.column) and look.column.priority == 0:
        return look.text(value)
    label = look.header().removesuffix(look.unit).rstrip()
    return " ".join(part for part in (label, look.text(value), look.unit) if part)


def _turned(headers: Mapping[str, str], texts: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a table with a line per column: for few rows that are too wide for the terminal."""
    label_width = max(map(cell_len, headers.values()))
    widths = [max(map(cell_len, row)) for row in zip(*texts.values(), strict=True)]
    lines = []
    for name, values in texts.items():
        padded = [" " * (wide - cell_len(text)) + text for text, wide in zip(values, widths, strict=True)]
        lines.append("  ".join([headers[name] + " " * (label_width - cell_len(headers[name])), *padded]))
    return lines


def markdown(result: Result, names: Sequence[str]) -> str:
    """Return a result as Markdown, one table after the other."""
    lines = [f"# {result.question.title}", "", *(_escaped(line) + "  " for line in headings(result))]
    for table in _shown(result, names):
        frame, none = result.tables[table.name], _why_none(result, table)
        body = [_escaped(f"No rows: {none}.")] if frame.is_empty() and none else [markdown_table(frame, table.columns).rstrip()]
        lines += ["", f"## {table.name}", "", *body]
    lines += ["", *(f"- {_escaped(line)}" for line in closing(result))]
    return "\n".join(lines).rstrip() + "\n"


def markdown_table(frame: pl.DataFrame, columns: Sequence[Column] | None = None) -> str:
    """Return a frame as a Markdown table, numbers to the right."""
    used = [column for column in columns or guessed(frame) if column.name in frame.columns]
    body = zip(*([_escaped(cell(value, column.unit)) for value in frame[column.name].to_list()] for column in used), strict=True)
    head: list[Iterable[str]] = [
        [_escaped(column.name) for column in used],
        ["---" if is_text(column) else "---:" for column in used],
    ]
    return "".join(starmap("| {} |\n".format, ((" | ".join(line),) for line in [*head, *body])))


def _shown(result: Result, names: Sequence[str]) -> list[Table]:
    """Return the tables to write; an empty one beside others says nothing."""
    tables = [table for table in result.question.tables if table.name in names and table.name in result.tables]
    return [table for at, table in enumerate(tables) if at == 0 or not result.tables[table.name].is_empty()]


def _why_none(result: Result, table: Table) -> str:
    """Say why a table has no rows; where a filter was given, that may be why."""
    return "" if result.work.scope.where else table.none


def _escaped(text: str) -> str:
    """Return a text in which Markdown and HTML see nothing of their own."""
    for char in "\\`*_[]<>|":
        text = text.replace(char, f"\\{char}" if char not in "<>" else {"<": "&lt;", ">": "&gt;"}[char])
    return text


def _heading(text: str, bold: bool) -> str:  # noqa: FBT001
    return f"\x1b[1m{text}\x1b[0m" if bold and text else text
