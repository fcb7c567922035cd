"""A result as text, JSON, CSV, Markdown or Parquet: the twin of every view, made from the same object."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple, get_args

from .document import about, document, rows, trust

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

    from kinetop.analysis.question import Result

Format = Literal["table", "json", "csv", "md", "parquet"]
"""How a result is written."""
SUFFIXES: dict[str, Format] = {".json": "json", ".csv": "csv", ".md": "md", ".parquet": "parquet", ".txt": "table"}
"""Format by suffix."""


class Look(NamedTuple):
    """How text is laid out for where it goes."""

    width: int | None = None
    """Terminal cells a line may take; None means no limit."""
    bold: bool = False
    """Mark headings with escape sequences."""


PLAIN = Look()
"""For a file or a pipe."""


def rendered(result: Result, kind: Format, *, table: str | None = None, look: Look = PLAIN) -> bytes:
    """Return a result in a format, as UTF-8 where it is text.

    Args:
        result: the answer to a question.
        kind: the format. JSON holds everything; CSV and Parquet hold one table, Parquet with the rest in its metadata.
        table: which table; the first one by default (text and Markdown: all of them).
        look: how text is laid out.

    Example:
        >>> import kinetop
        >>> trace = kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False)
        >>> rendered(kinetop.kernels.ask(trace), "csv")[:4]
        b'name'
    """
    chosen = result.tables[table or result.question.tables[0].name]
    if kind == "json":
        return dumped(document(result))
    if kind == "csv":
        return flat(chosen).write_csv().encode()
    if kind == "parquet":
        made = io.BytesIO()
        rest = {"schema": result.question.schema, **about(result.work), **trust(result.work)}
        flat(chosen).write_parquet(made, metadata={"kinetop.result": dumped(rest).decode()})
        return made.getvalue()
    from .text import markdown, report

    names = [table] if table else list(result.tables)
    return (markdown(result, names) if kind == "md" else report(result, names, look)).encode()


def write_frame(frame: pl.DataFrame, path: Path, kind: Literal["json", "csv", "md", "parquet"]) -> None:
    """Write a table as it is shown, every name byte for byte.

    Args:
        frame: the table.
        path: the file; one that is there is replaced.
        kind: the format.

    Raises:
        OSError: the file cannot be written.
    """
    with path.open("wb") as file:
        _write_frame(frame, file, kind)


def frame_bytes(frame: pl.DataFrame, kind: Format, look: Look = PLAIN) -> bytes:
    """Return a table without a declaration, such as the answer to an SQL query, in a format."""
    if kind == "table":
        from .text import bare_table

        return bare_table(frame, look).encode()
    made = io.BytesIO()
    _write_frame(frame, made, kind)
    return made.getvalue()


def _write_frame(frame: pl.DataFrame, file: BinaryIO, kind: Format) -> None:
    if kind == "csv":
        flat(frame).write_csv(file)
    elif kind == "parquet":
        frame.write_parquet(file)
    elif kind == "md":
        from .text import markdown_table

        file.write(markdown_table(frame).encode())
    else:
        file.write(dumped(rows(frame)))


def dumped(value: Any) -> bytes:
    """Return plain values as JSON text with a newline at its end."""
    return (json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1) + "\n").encode()


def flat(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame that CSV can hold: lists and objects as JSON text."""
    import polars as pl

    nested = [name for name, kind in frame.schema.items() if kind.is_nested()]
    return frame.with_columns(
        pl.Series(
            name, [None if cell is None else json.dumps(rows_of(cell), ensure_ascii=False) for cell in frame[name]], pl.String
        )
        for name in nested
    )


def rows_of(cell: Any) -> Any:
    """Return a nested cell as plain values."""
    from .document import plain

    return plain(cell.to_list() if hasattr(cell, "to_list") else cell)


def format_of(kind: str | None, path: Path | None) -> Format:
    """Return the format that was asked for, by name or by the suffix of the output file.

    Args:
        kind: a format; None lets the suffix decide.
        path: the output file, if any.

    Raises:
        ValueError: neither says it.

    Example:
        >>> from pathlib import Path
        >>> format_of(None, Path("kernels.csv")), format_of(None, None)
        ('csv', 'table')
    """
    if kind is not None:
        if kind not in get_args(Format):
            raise ValueError(f"the format is one of {', '.join(get_args(Format))}, not {kind!r}")
        return kind  # type: ignore[return-value]
    if path is None:
        return "table"
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"{path.name} does not say a format: end it with {', '.join(SUFFIXES)}, or give --format")
    return SUFFIXES[path.suffix.lower()]
