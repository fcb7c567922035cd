"""The fast path: a slice of events to an Arrow table of typed columns, by DuckDB's JSON reader.

DuckDB is lenient where a trace must be exact: it skips unknown members, turns "7" and true into numbers and accepts nan.
So every slice is counted: each `":` of its bytes must have come out as a value of some column, and each `": "` as a text.
A slice that does not add up, or that DuckDB refuses, is not accepted; `Refused` sends it to `repair`.

Measured on a 537 MB trace (2.16 M events), CPU seconds on one core: reading typed columns 4.4 (count only 3.7), the counts 1.9,
integer nanoseconds by reinterpreting DECIMAL(38,3) 0.1 (a multiplication in SQL 1.8).
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from .columns import ARGS, EXACT, HEAD_ID, HEAD_TEXT, HEAD_TIME, NULL_MARK, SCHEMA
from .mend import has_drive
from .slices import sample
from .tally import NullsOnlyRefused, Refused, Tally

if TYPE_CHECKING:
    from .keys import Asked, Keys

_OBJECT_BYTES = 1 << 20
"""Largest event at first; a slice with a larger one is tried again."""
_TRIES = 5
"""Attempts at a slice: new members, then their kinds, each once for the decoder itself and once for what others met meanwhile."""

_NULL = re.compile(rb'"([^"\\]{1,200})": ?null')
_MEMBER = re.compile(rb'"([^"\\]{1,200})":')

_FAILED = (duckdb.Error, UnicodeDecodeError)
"""What the reader raises; its message quotes the trace and may break off inside a character, which Python refuses."""

_SQL_TYPE = {"int": "DOUBLE", "float": "DOUBLE", "uint": "DOUBLE", "text": "VARCHAR", "json": "JSON"}


def _nulls(data: bytes) -> list[str]:
    return sorted({found[1].decode("utf-8", "replace") for found in _NULL.finditer(data)})


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class Decoder:
    """Decodes slices, one at a time; each thread has its own.

    Args:
        keys: the members met so far, shared between decoders.
    """

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._connection = duckdb.connect(config={"threads": 1})
        # The reader caches files by path; ours is one path with ever new content.
        self._connection.execute("SET enable_external_file_cache = false")
        self._fd, self._path = _scratch_file()
        self._object_bytes = _OBJECT_BYTES

    def close(self) -> None:
        """Give back the scratch file and the connection."""
        self._connection.close()
        os.close(self._fd)
        if not self._path.startswith("/proc"):
            Path(self._path).unlink(missing_ok=True)

    def decode(self, data: bytes) -> pa.Table:
        """Return the events of a slice as a table with `SCHEMA`'s columns, `event_id` and `rank` null.

        Args:
            data: whole events separated by commas.

        Raises:
            Refused: something in it would not come out exactly as written.
        """
        # The reader takes a buffer of twice this size: 1 GB of it costs a third more time than 1 MB.
        self._object_bytes = _OBJECT_BYTES
        if has_drive(data):
            raise Refused("a Windows path whose backslashes look like escapes")
        self._foresee(data)
        for _ in range(_TRIES):
            asked = self._keys.now
            self._write(data, asked)
            try:
                return self._table(data, asked)
            except NullsOnlyRefused:
                self._keys.allow_null(_nulls(data))
                if self._keys.now == asked:
                    raise
            except Refused as refused:
                if "maximum_object_size" in str(refused) and self._object_bytes < len(data):
                    self._object_bytes = len(data) + 2
                    continue
                self._learn(data, asked)
                if self._keys.now == asked:
                    raise
        raise Refused("ever new members")

    def _foresee(self, data: bytes) -> None:
        """Take in what events here and there in the slice hold: a slice decoded without that is decoded for nothing."""
        part = sample(data)
        with self._keys.learning:
            if not self._keys.news(found[1] for found in _MEMBER.finditer(part)):
                return
            self._keys.allow_null(_nulls(part))
            for _ in range(_TRIES):
                asked = self._keys.now
                self._write(part, asked)
                try:
                    self._learn(part, asked)
                except Refused:
                    return  # the slice as a whole meets it too
                if self._keys.now == asked:
                    return

    def _write(self, data: bytes, asked: Asked) -> None:
        """Put the slice into the scratch file as a JSON array."""
        for old, new in asked.renames().items():
            data = data.replace(b'"%s":' % old.encode(), b'"%s":' % new.encode())
        for key in asked.nullable:
            named = b'"%s": true' % (key + NULL_MARK).encode()
            data = data.replace(b'"%s": null' % key.encode(), named).replace(b'"%s":null' % key.encode(), named)
        # Written over in place: a file emptied first has its pages taken away and zeroed anew.
        parts = [memoryview(part) for part in (b"[", data, b"]")]
        done = 0
        while parts:
            written = os.pwritev(self._fd, parts, done)
            done += written
            while parts and written >= len(parts[0]):
                written -= len(parts.pop(0))
            if parts:
                parts[0] = parts[0][written:]
        os.ftruncate(self._fd, done)

    def _learn(self, data: bytes, asked: Asked) -> None:
        """Take in the members of the slice at hand, or, where they are known, their kinds."""
        back = {new: old for old, new in asked.renames().items()}
        try:
            pairs = self._connection.sql(
                f"SELECT DISTINCT json_keys(json), json_keys(json, '$.args') FROM read_json_objects({self._from})"
            ).fetchall()
            head, args = (
                ({key for lists in side for key in lists or ()} for side in zip(*pairs, strict=True)) if pairs else (set(), set())
            )
            self._keys.add(sorted(head), sorted(back.get(key, key) for key in args))
            if self._keys.now == asked:
                quoted = any(mark in data for mark in (b'"ts": "', b'"ts":"', b'"dur": "', b'"dur":"'))
                self._keys.loosen(self._mixed(asked), quoted_times=quoted)
        except _FAILED as error:
            raise Refused(str(error)) from error

    def _mixed(self, asked: Asked) -> list[str]:
        """Return the members whose values are not all of their column's kind."""
        known = [key for key in asked.args if key not in asked.loose]
        if not known:
            return []
        renames = asked.renames()
        tests = []
        for key in known:
            column = f"args.{_quoted(renames.get(key, key))}::VARCHAR"
            wide = f" OR abs(TRY_CAST({column} AS DOUBLE)) >= 9007199254740992" if ARGS[key].kind in ("int", "uint") else ""
            exact = '^"' if ARGS[key].kind == "text" else EXACT[ARGS[key].kind]
            tests.append(f"bool_or(NOT regexp_matches({column}, '{exact}'){wide})")
        members = ", ".join(f"{_quoted(renames.get(key, key))} JSON" for key in known).replace("'", "''")
        query = f"SELECT {', '.join(tests)} FROM read_json({self._from}, columns = {{args: 'STRUCT({members})'}})"
        row = self._connection.sql(query).fetchall()[0]
        return [key for key, odd in zip(known, row, strict=True) if odd]

    @property
    def _from(self) -> str:
        return f"'{self._path}', format = 'array', maximum_object_size = {self._object_bytes}"

    def _query(self, asked: Asked) -> str:
        """The one SELECT: every member met so far, typed."""
        renames = asked.renames()
        tops = [f"{_quoted(key)}: 'VARCHAR'" for key in HEAD_TEXT]
        tops += [f"{_quoted(key)}: 'JSON'" for key in HEAD_ID]
        tops += [f"{key}: '{'JSON' if asked.quoted_times else 'DECIMAL(38,3)'}'" for key in HEAD_TIME]
        tops += [f"{_quoted(key)}: 'JSON'" for key in asked.extra_head]
        picks = [f"{_quoted(key)} AS {_quoted('h:' + key)}" for key in (*HEAD_TEXT, *HEAD_ID, *HEAD_TIME, *asked.extra_head)]
        members = []
        for key in [*asked.args, *asked.extra_args]:
            kind = _SQL_TYPE[ARGS[key].kind] if key in ARGS and key not in asked.loose else "JSON"
            members.append(f"{_quoted(renames.get(key, key))} {kind}")
        members += [f"{_quoted(key + NULL_MARK)} JSON" for key in asked.nullable]
        if members:
            tops.append("args: 'STRUCT(" + ", ".join(members).replace("'", "''") + ")'")
        else:
            tops.append("args: 'JSON'")
        # The struct as a whole: taking its members apart in SQL costs a fifth more.
        return f"SELECT {', '.join(picks)}, args FROM read_json({self._from}, columns = {{{', '.join(tops)}}})"

    def _table(self, data: bytes, asked: Asked) -> pa.Table:
        try:
            read = self._connection.sql(self._query(asked)).to_arrow_table()
        except _FAILED as error:
            raise Refused(str(error)) from error
        tally = Tally(asked, read)
        columns = tally.columns()
        tally.check(data)
        absent = {kind: pa.nulls(read.num_rows, kind) for kind in set(SCHEMA.types)}  # one for all columns of a type
        return pa.Table.from_arrays([columns.get(f.name, absent[f.type]) for f in SCHEMA], schema=SCHEMA)


def _scratch_file() -> tuple[int, str]:
    """Open a file in memory where the system has such files, else in the temporary folder; nothing is left behind."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("kinetop-slice")
        return fd, f"/proc/self/fd/{fd}"
    fd, path = tempfile.mkstemp(prefix="kinetop-", suffix=".json")
    return fd, path
