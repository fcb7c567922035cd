"""DuckDB's columns to the event table's, counting values and texts on the way so that nothing is skipped or changed unseen."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from .columns import ARGS, EXACT, HEAD_ID, HEAD_TEXT, HEAD_TIME, NOT_JSON, NULL_MARK, SCHEMA, byte_column
from .rows import coerced, dumps, is_integer_text

if TYPE_CHECKING:
    from .. import schema
    from .keys import Asked


_QUOTE, _COLON, _SPACE = b'": '
_AHEAD = 3


class Refused(Exception):  # noqa: N818 - it is no error: another way is tried
    """The slice does not decode exactly; why, for the log."""


class NullsOnlyRefused(Refused):
    """All that is missing is nulls, which the reader does not tell from absent members: there is nothing to learn from it."""


class Tally:
    """One slice's columns.

    Args:
        asked: the members that were asked for.
        read: what DuckDB returned: columns `h:<member>`, and the struct `args`.
    """

    def __init__(self, asked: Asked, read: pa.Table) -> None:
        self._asked = asked
        self._read = read
        self._members = _members(asked, read.column("args"))
        self._values = 0
        self._texts = 0
        self._flags = 0
        self._left: dict[str, pl.Series] = {}
        self._extra: dict[str, pl.Series] = {}

    def columns(self) -> dict[str, Any]:
        """Return the columns of the event table that this slice fills.

        Raises:
            Refused: a value cannot be held exactly.
        """
        made: dict[str, Any] = {}
        for key, column in HEAD_TEXT.items():
            made[column] = self._text(self._column("h:" + key)).dictionary_encode()
        if made["ph"].null_count:
            raise Refused("an element that is not an event")
        for key, column in HEAD_ID.items():
            made[column] = self._ids(key, self._column("h:" + key), dictionary=column != "id")
        for key, column in HEAD_TIME.items():
            made[column] = self._nanoseconds(key, self._column("h:" + key))
        for key in self._asked.args:
            made[ARGS[key].column] = self._arg(key, ARGS[key])
        for key in self._asked.extra_args:
            self._left[key] = self._any(self._counted(self._members[key]))
        for key in self._asked.extra_head:
            self._extra[key] = self._any(self._column("h:" + key))
        for key in self._asked.nullable:
            self._null(key, self._counted(self._members[key + NULL_MARK]))
        made["args"] = self._args()
        made["extra"] = _joined(self._extra, self._read.num_rows)
        return made

    def check(self, data: bytes) -> None:
        """Compare what came out with what the bytes hold.

        Raises:
            Refused: a value was skipped or changed its type.
        """
        values, texts, flags = _counted(data)
        if self._values != values:
            nulls = data.count(b'": null') + data.count(b'":null')
            raise NullsOnlyRefused("nulls") if self._values + nulls == values else Refused("a value was skipped")
        if self._texts != texts or self._flags != flags:
            raise Refused("a value changed its type")

    def _column(self, name: str) -> pa.ChunkedArray:
        return self._counted(self._read.column(name))

    def _counted(self, column: Any) -> Any:
        self._values += len(column) - column.null_count
        return column

    def _text(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        self._texts += len(column) - column.null_count
        return column

    def _ids(self, key: str, column: pa.ChunkedArray, *, dictionary: bool) -> pa.ChunkedArray:
        """Numbers and texts alike become text; a text that looks like a number is noted in `extra`."""
        if not dictionary:
            return self._flow_ids(key, column)
        made = column.combine_chunks().dictionary_encode()
        plain = {text: text[1:-1] for text in made.dictionary.to_pylist() if not is_integer_text(text)}
        if any(text[0] != '"' or "\\" in text for text in plain):
            raise Refused(f"{key} is neither an integer nor a plain text")
        if plain:
            codes = [code for code, text in enumerate(made.dictionary.to_pylist()) if text in plain]
            self._texts += pc.sum(pc.is_in(made.indices, pa.array(codes, pa.int32()))).as_py() or 0
        if odd := [text for text, value in plain.items() if is_integer_text(value)]:
            series = pl.Series(column)
            self._mask(key, series, series.is_in(odd))
        values = [plain.get(text, text) for text in made.dictionary.to_pylist()]
        return pa.DictionaryArray.from_arrays(made.indices, pa.array(values, pa.string()))

    def _flow_ids(self, key: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Ids of flows are as many as events; they are not worth a dictionary."""
        series = pl.Series(column)
        if pl.DataFrame({"id": series}).select(pl.col("id").str.contains(EXACT["int"]).all()).item():
            return column
        quoted = series.str.starts_with('"')
        self._texts += int(quoted.sum())
        bare = series.str.strip_chars('"')
        if (quoted & series.str.contains("\\", literal=True)).any() or (~quoted & ~bare.str.contains(EXACT["int"])).any():
            raise Refused(f"{key} is neither an integer nor a plain text")
        self._mask(key, series, quoted & bare.str.contains(EXACT["int"]))
        return bare.to_arrow().cast(pa.string())

    def _mask(self, key: str, series: pl.Series, mask: pl.Series) -> None:
        """Note in `extra` which texts look like numbers and are none."""
        if mask.any():
            self._extra[key] = pl.select(pl.when(mask).then(series)).to_series()

    def _nanoseconds(self, key: str, column: pa.ChunkedArray) -> pa.Array:
        """DECIMAL(38,3) microseconds are integer nanoseconds already; only the type changes."""
        series = pl.Series(column)
        if self._asked.quoted_times:
            self._count(series)
            quoted = series.str.starts_with('"')
            if quoted.any():
                self._extra[key] = pl.select(pl.when(quoted).then(series)).to_series()
            bare = series.str.strip_chars('"')
            if bare.str.contains(r"^-?[0-9]{1,18}(?:\.[0-9]{1,3})?$").not_().any():
                raise Refused("a time that is no plain number")
            series = bare.cast(pl.Decimal(38, 3))
        try:
            return series.to_physical().cast(pl.Int64).to_arrow()
        except pl.exceptions.InvalidOperationError as error:
            raise Refused("a time beyond 64 bits") from error

    def _arg(self, key: str, arg: schema.Arg) -> Any:
        column = self._counted(self._members[key])
        dtype = SCHEMA.field(arg.column).type
        if column.null_count == len(column):
            return pa.nulls(len(column), dtype)
        if key in self._asked.loose:
            return self._loose(key, arg, self._any(column)).cast(dtype)
        if arg.kind == "text":
            return self._text(column)
        if arg.kind == "json":
            if not self._count(pl.Series(column), EXACT["json"]):
                raise Refused(f"{key} is not a list")
            return column
        if arg.kind == "float" and not pc.all(pc.is_finite(column)).as_py():
            raise Refused("a number that JSON does not know")
        ends = pc.min_max(column).as_py()
        if max(abs(ends["min"]), abs(ends["max"])) >= 2.0**53:
            raise Refused(f"{key} is beyond 2^53")
        if arg.kind == "float":
            return column
        try:
            return pc.cast(column, dtype)
        except pa.ArrowInvalid as error:
            raise Refused(f"{key} is not an integer") from error

    def _loose(self, key: str, arg: schema.Arg, series: pl.Series) -> pa.Array:
        """A member of mixed kinds: what fits goes to its column, all else stays in `args` as written, its nearest value there."""
        exact = series.str.contains(EXACT[arg.kind])
        dtype = {"int": pl.Int64, "uint": pl.UInt64, "float": pl.Float64}.get(arg.kind, pl.String)
        fitting = pl.select(pl.when(exact).then(series)).to_series()
        typed = fitting.str.strip_chars('"') if arg.kind == "text" else fitting.cast(dtype, strict=False)
        if arg.kind in ("int", "uint") and SCHEMA.field(arg.column).type == pa.int32():
            typed = typed.cast(pl.Int32, strict=False)
        odd = pl.select(pl.when(series.is_not_null() & typed.is_null()).then(series)).to_series()
        if odd.null_count() < len(odd):
            self._left[key] = odd
            back = {text: coerced(arg.kind, json.loads(text)) for text in odd.unique().drop_nulls()}
            near = odd.replace_strict(list(back), list(back.values()), return_dtype=typed.dtype, default=None)
            typed = pl.select(pl.coalesce(typed, near)).to_series()
        return typed.to_arrow()

    def _any(self, column: pa.ChunkedArray) -> pl.Series:
        """JSON text of any kind, counted."""
        series = pl.Series(column)
        self._count(series)
        return series

    def _count(self, series: pl.Series, exact: str = "") -> bool:
        """Count texts and flags in JSON text; say whether all of it is as a column needs it. One query: 0.3 ms each."""
        text = pl.col("text")
        odd, texts, flags, fits = (
            pl.DataFrame({"text": series})
            .select(
                odd=text.str.contains(NOT_JSON).any(),
                texts=text.str.starts_with('"').sum(),
                flags=(text.str.starts_with("t") | text.str.starts_with("f")).sum(),
                fits=text.str.contains(exact).all(),
            )
            .row(0)
        )
        if odd:
            raise Refused("a number that JSON does not know")
        self._texts += texts
        self._flags += flags
        return bool(fits)

    def _null(self, key: str, column: pa.Array) -> None:
        """Keep the nulls of a member in `args`: its column cannot tell them from absent ones."""
        if column.null_count < len(column):
            if not pc.all(pc.equal(column, "true")).as_py():
                raise Refused("a member that is named like one of ours")
            nulls = pl.select(pl.when(pl.Series(column).is_not_null()).then(pl.lit("null"))).to_series()
            before = self._left.get(key)
            self._left[key] = nulls if before is None else pl.select(pl.coalesce(before, nulls)).to_series()

    def _args(self) -> pa.Array:
        """The `args` column: what has no column as one object, `{}` where args was there but empty."""
        has_args = pc.is_valid(self._read.column("args"))
        self._values += pc.sum(has_args).as_py() or 0
        left = _joined(self._left, self._read.num_rows)
        empty = self._without(has_args)
        return left if empty is None else pc.if_else(empty, "{}", left)

    def _without(self, has_args: Any) -> Any:
        """Return which rows have args but no member; None where there is no such row. The fullest members tell most of it."""
        empty = has_args
        for member in sorted(self._members.values(), key=lambda member: member.null_count):
            if not pc.any(empty).as_py():
                return None
            if member.null_count < len(member):
                empty = pc.and_not(empty, pc.is_valid(member))
        return empty if pc.any(empty).as_py() else None


def _members(asked: Asked, args: pa.ChunkedArray) -> dict[str, pa.Array]:
    """Return the members of the struct by name; where there is no struct, they are null too, else the counts do not add up."""
    keys = (*asked.args, *asked.extra_args, *(key + NULL_MARK for key in asked.nullable))
    struct = args.combine_chunks()
    return {key: struct.field(place) for place, key in enumerate(keys)}


def _counted(data: bytes) -> tuple[int, int, int]:
    """Count values, texts and flags in a slice by the bytes that lead to them: `":`, then perhaps a space, then `"`, `t` or `f`.

    Comparing bytes and looking only at those behind a colon takes 5 ms for 16 MB; seven calls of bytes.count 90 ms.
    """
    view = byte_column(data)
    size = max(0, len(data) - _AHEAD)  # the shortest end of an event is `":0}`
    colon = (view[:size] == _QUOTE) & (view[1 : size + 1] == _COLON)
    after, further = view[2 : size + 2].filter(colon), view[3 : size + 3].filter(colon)
    first = further.zip_with(after == _SPACE, after)
    return len(first), int((first == _QUOTE).sum()), sum(int((first == letter).sum()) for letter in b"tf")


def _joined(members: dict[str, pl.Series], height: int) -> pa.Array:
    """Join JSON texts by member into one object a row, null where there is none."""
    filled = {key: series for key, series in members.items() if series.null_count() < len(series)}
    if not filled:
        return pa.nulls(height, pa.string())
    frame = pl.DataFrame({str(place): series for place, series in enumerate(filled.values())})
    texts = [pl.lit(dumps(key) + ":") + pl.col(str(place)) for place, key in enumerate(filled)]
    some = frame.select(pl.any_horizontal(pl.all().is_not_null())).to_series()
    text = frame.filter(some).select("{" + pl.concat_str(texts, separator=",", ignore_nulls=True) + "}").to_series()
    # Most rows hold none, and joining nothing costs as much as joining something: 10 ms for a slice with one member.
    spread = pl.select(pl.when(some).then(some.cum_sum() - 1)).to_series()
    return text.gather(spread).to_arrow().cast(pa.string())
