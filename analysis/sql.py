"""Read-only SQL over a trace: its events, its GPU work and the tables of every question.

DuckDB runs it. Polars' SQLContext would do without a second engine, but its SQL can read any file (`read_csv(…)`), knows no
recursive queries, and cannot be locked; DuckDB's file access is switched off before the user's text is looked at.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from kinetop.traces.errors import CancelledError, FilterError

if TYPE_CHECKING:
    import duckdb
    import polars as pl
    import pyarrow as pa

    from kinetop.traces.trace import TraceSet

TABLES: dict[str, str] = {
    "events": "every event of the traces, columns of the event table plus `part`",
    "activities": "GPU work, cleaned, with class, family and rule; `gpu` is the same",
    "gpu": "the same as `activities`",
    "launches": "the launch call and the operator of each activity",
}
"""Tables beside those of the questions."""


def query(trace: TraceSet, sql: str) -> pl.DataFrame:
    """Return the answer to a SELECT.

    Args:
        trace: the opened set.
        sql: one SELECT over `TABLES` and the questions' tables; DuckDB's dialect.

    Raises:
        FilterError: it is not one SELECT, or cannot be run; the position says where, as far as it is known.
        CancelledError: the user stopped it.

    Example:
        >>> import kinetop
        >>> trace = kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False)
        >>> query(trace, "select kind, count(*) as rows from gpu group by kind order by rows").rows()
        [('memcpy', 1), ('kernel', 5)]
    """
    import duckdb

    try:
        with _locked(trace) as connection:
            _check(connection, sql)
            _add_tables(connection, trace, _named(sql))
            return _frame(_run(connection, sql))
    except duckdb.InterruptException as error:
        raise CancelledError("the query was stopped") from error
    except duckdb.Error as error:
        raise _refusal(error) from error


def tables() -> dict[str, str]:
    """Return the tables that a query may name, each with what it holds."""
    of_questions = {name: f"table of the question `{owner}`" for name, owner in _question_tables().items()}
    return of_questions | TABLES


def _locked(trace: TraceSet) -> duckdb.DuckDBPyConnection:
    """Return a connection that can read the traces' own Parquet files and nothing else, for good."""
    import duckdb

    connection = duckdb.connect(":memory:")
    allowed = ", ".join(_text(str(one.parquet)) for one in trace.traces)
    connection.execute(
        f"set allowed_paths = [{allowed}]; set temp_directory = ''; set python_enable_replacements = false; "
        "set autoinstall_known_extensions = false; set autoload_known_extensions = false; "
        "set enable_external_access = false; set lock_configuration = true"
    )
    return connection


def _run(connection: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
    """Run a query in a thread of its own: DuckDB does not see ctrl+c while it works, and has to be told."""
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(lambda: connection.sql(sql).to_arrow_table())
        try:
            while not answer.done():
                wait([answer], timeout=0.1)  # a wait without end would not see ctrl+c either
        except BaseException:
            connection.interrupt()
            raise
        return answer.result()


def _frame(answer: pa.Table) -> pl.DataFrame:
    import polars as pl

    names = answer.column_names
    if twice := [name for name in names if names.count(name) > 1]:
        raise FilterError(f"two columns of the answer are named {twice[0]}; give one another name with `as`")
    try:
        return pl.DataFrame(answer)
    except pl.exceptions.PolarsError as error:
        kinds = ", ".join(f"{field.name} ({field.type})" for field in answer.schema)
        raise FilterError(
            f"a column of the answer has a type that cannot be shown; cast it to text (::varchar): {kinds}"
        ) from error


def _check(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    import duckdb

    try:
        sql.encode()
    except UnicodeEncodeError as error:
        raise FilterError("the SQL holds bytes that are not UTF-8", error.start) from error
    statements = connection.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise FilterError("the SQL is one SELECT; nothing else is run", 0)


def _named(sql: str) -> set[str]:
    """Return the tables that a query may mean: every word in it that is a table, since only those are computed."""
    words = {word.casefold() for word in re.findall(r"\w+", sql)}
    return words & set(tables()) | ({"events"} if "show" in words else set())


def _add_tables(connection: duckdb.DuckDBPyConnection, trace: TraceSet, wanted: set[str]) -> None:
    from .question import all_questions
    from .work import scoped

    if "events" in wanted:
        parts = [
            f"select * replace ({one.rank}::int as rank), {part}::int as part from read_parquet({_text(str(one.parquet))})"
            for part, one in enumerate(trace.traces)
        ]
        connection.execute(f"create view events as {' union all by name '.join(parts)}")
    frames: dict[str, pl.DataFrame] = {}
    if {"gpu", "activities"} & wanted:
        frames["gpu"] = frames["activities"] = scoped(trace).gpu
    if "launches" in wanted:
        frames["launches"] = trace.launches
    owners = {owner for name, owner in _question_tables().items() if name in wanted and name not in TABLES}
    for owner in sorted(owners):
        frames |= all_questions()[owner].ask(trace).tables
    for name in wanted - {"events"}:
        if name not in frames:
            raise FilterError(f"the table {name} is made only with an option of `kinetop {_question_tables()[name]}`")
        connection.register(name, frames[name].to_arrow())


def _question_tables() -> dict[str, str]:
    """Return the questions' tables, each with the question it belongs to; the first to use a name keeps it."""
    from .question import all_questions

    found: dict[str, str] = {}
    for owner, question in all_questions().items():
        for table in question.tables:
            found.setdefault(table.name, owner)
    return found


def _refusal(error: Exception) -> FilterError:
    """Return DuckDB's error as a sentence, with the place its caret points at."""
    said, _, drawing = str(error).partition("\n\nLINE ")
    sentence = " ".join(line.strip() for line in said.splitlines() if line.strip())
    if "file system operations are disabled" in sentence or "cannot access" in sentence.casefold():
        sentence = "the SQL may not read or write files"
    if missing := re.search(r"Table with name (\S+) does not exist", sentence):
        sentence = f"there is no table {missing[1]}; there are {', '.join(sorted(tables()))}"
    lines = drawing.splitlines()
    if len(lines) < 2 or "^" not in lines[1] or not lines[0].startswith("1: "):
        return FilterError(sentence)
    return FilterError(sentence, max(0, lines[1].index("^") - len("LINE 1: ")))


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
