"""One SQL condition of a filter: where it ends in the text, and its Polars expression.

The text is cut into tokens and walked once, so that only comparisons of columns, numbers and texts are let through; names
and durations are rewritten for the frame at hand, and Polars' own SQL parser makes the expression.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

import polars as pl

from kinetop.traces.errors import FilterError

from .filter_columns import NS, Columns, time_unit

if TYPE_CHECKING:
    from collections.abc import Callable

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?)(?P<unit>ns|us|µs|μs|ms|s)?(?![\w.])
    | (?P<text>'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")*")
    | (?P<word>[a-z_]\w*)
    | (?P<compare>!~\*|~\*|!~|~|<=|>=|<>|!=|==|=|<|>)
    | (?P<sign>[-+*/%])
    | (?P<mark>[(),])
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_WORD_COMPARES = frozenset({"like", "ilike", "rlike", "regexp", "in", "is", "between"})
_LITERALS = frozenset({"true", "false", "null"})
_JOINTS = frozenset({"and", "or", "not"})
_RESERVED = _WORD_COMPARES | _JOINTS
_PREDICATES = frozenset({"starts_with", "ends_with"})
_FUNCTIONS = _PREDICATES | {
    "abs",
    "round",
    "floor",
    "ceil",
    "lower",
    "upper",
    "length",
    "strpos",
    "coalesce",
    "least",
    "greatest",
}
_MOST_DIGITS = 18
_MOST_SIGNS = 100
_MOST_NESTED = 50
"""More of either is nobody's, and Polars ends the process where its own stack ends."""
_BOUNDARY = re.compile(r"[\s)]|$")


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    value: str
    at: int
    end: int
    unit: str = ""


class _NotSqlError(Exception):
    """The text stops being a condition here."""

    def __init__(self, at: int, wanted: str) -> None:
        super().__init__(wanted)
        self.at = at


def read_condition(text: str, at: int, columns: Columns) -> Condition | None:
    """Return the condition that starts here, or None where the text is a word, a regex or a group.

    Args:
        text: the whole filter.
        at: where to look.
        columns: what it may name.

    Raises:
        FilterError: it is a condition and cannot be understood.
    """
    walk = _Walk(text, at)
    try:
        walk.operand()
        if walk.is_predicate():
            return Condition(text, walk.tokens, columns)
        walk.comparison()
    except _NotSqlError as error:
        if not walk.compared or _reads_as_word(walk, columns):
            return None
        raise FilterError(f"{error} must follow here; put a text to search for in quotes", error.at) from error
    symbol, right = walk.tokens[walk.compared], walk.tokens[walk.compared + 1]
    if symbol.kind == "compare" and right.kind in {"word", "quoted"} and _reads_as_word(walk, columns):
        return None
    return Condition(text, walk.tokens, columns)


def _reads_as_word(walk: _Walk, columns: Columns) -> bool:
    """Return whether this is a name such as `vectorized<float>` or `copy in`: nothing left of the operator is a column."""
    left = [token for token in walk.tokens[: walk.compared] if token.kind in {"word", "quoted"}]
    if not left or any(columns.find(token.value) for token in left):
        return False
    operator = walk.tokens[walk.compared]
    return operator.kind == "word" or (operator.at == walk.tokens[walk.compared - 1].end)


class _Walk:
    """Walks over the tokens of one condition and keeps them; raises `_NotSqlError` where it ends too early."""

    def __init__(self, text: str, at: int) -> None:
        self.text = text
        self.at = at
        self.tokens: list[_Token] = []
        self.nested = 0
        self.signs = 0
        self.compared = 0
        """Index of the comparison operator in `tokens`; 0 before it was met."""

    def is_predicate(self) -> bool:
        """Return whether what was walked over is true or false by itself."""
        return self.tokens[0].value.casefold() in _PREDICATES and _BOUNDARY.match(self.text, self.at) is not None

    def comparison(self) -> None:
        """Walk over the operator and its right side."""
        negated = self._word("not")
        token = self._peek()
        word = token.value.casefold() if token and token.kind == "word" else ""
        if token is None or not (word in _WORD_COMPARES or (token.kind == "compare" and not negated)):
            raise _NotSqlError(self.at, "a comparison")
        self.compared = len(self.tokens)
        self._keep(token)
        parts: dict[str, Callable[[], None]] = {"in": self._list, "is": self._is, "between": self._between}
        parts.get(word, self.operand)()
        if _BOUNDARY.match(self.text, self.at) is None:
            raise _NotSqlError(self.at, "a space, `and`, `or` or the end")

    def operand(self) -> None:
        """Walk over a value, or several joined by + - * / %."""
        self.nested += 1
        if self.nested > _MOST_NESTED:
            raise _NotSqlError(self.at, f"no more than {_MOST_NESTED} parentheses inside each other")
        self._term()
        while (token := self._peek()) and token.kind == "sign":
            self._sign(token)
            self._term()
        self.nested -= 1

    def _sign(self, token: _Token) -> None:
        self.signs += 1
        if self.signs > _MOST_SIGNS:
            raise _NotSqlError(self.at, f"no more than {_MOST_SIGNS} signs")
        self._keep(token)

    def _term(self) -> None:
        token = self._peek()
        if token is not None and token.value == "-":
            self._sign(token)
            return self._term()
        if token is not None and token.value == "(":
            self._keep(token)
            self.operand()
            return self._mark(")")
        if token is None or token.kind not in {"number", "text", "quoted", "word"} or token.value.casefold() in _RESERVED:
            raise _NotSqlError(self.at, "a column, a number or a 'text'")
        self._keep(token)
        if token.kind == "word" and self.text.startswith("(", token.end):
            self._list()
        return None

    def _list(self) -> None:
        self._mark("(")
        self.operand()
        while (token := self._peek()) and token.value == "," and token.kind == "mark":
            self._keep(token)
            self.operand()
        self._mark(")")

    def _is(self) -> None:
        self._word("not")
        if not any(self._word(word) for word in _LITERALS):
            raise _NotSqlError(self.at, "null, true or false")

    def _between(self) -> None:
        self.operand()
        if not self._word("and"):
            raise _NotSqlError(self.at, "`and` and the upper end")
        self.operand()

    def _word(self, wanted: str) -> bool:
        token = self._peek()
        if token is None or token.kind != "word" or token.value.casefold() != wanted:
            return False
        self._keep(token)
        return True

    def _mark(self, wanted: str) -> None:
        token = self._peek()
        if token is None or token.kind != "mark" or token.value != wanted:
            raise _NotSqlError(self.at, wanted)
        self._keep(token)

    def _peek(self) -> _Token | None:
        found = _TOKEN.match(self.text, self.at)
        if found is None or found.lastgroup is None:
            return None
        kind = "number" if found["number"] else found.lastgroup
        return _Token(kind, found[kind], found.start(kind), found.end(), found["unit"] or "")

    def _keep(self, token: _Token) -> None:
        self.tokens.append(token)
        self.at = token.end


class Condition:
    """A condition, cut into tokens."""

    def __init__(self, text: str, tokens: list[_Token], columns: Columns) -> None:
        self.text = text
        self.tokens = tokens
        self.columns = columns
        self.at = tokens[0].at
        self.end = tokens[-1].end

    def expression(self) -> pl.Expr:
        """Return the condition over the frame's columns.

        Raises:
            FilterError: it names an unknown column, or compares what cannot be compared.
        """
        unit = self._unit()
        sql = " ".join(self._sql(index, unit) for index in range(len(self.tokens)))
        try:
            found = pl.sql_expr(sql)
            kind = pl.DataFrame(schema=self.columns.schema).select(kept=found).schema["kept"]
        except pl.exceptions.PolarsError as error:
            raise FilterError(self._fault(error), self.at) from error
        if kind != pl.Boolean:
            raise FilterError(f"{self.text[self.at : self.end]} is neither true nor false", self.at)
        return found

    def _fault(self, error: Exception) -> str:
        mine = self.text[self.at : self.end]
        said = str(error)
        regex = re.search(r"^error: (.+)$", said, re.MULTILINE)
        if regex:
            return f"not a regular expression: {regex[1]}"
        return f"{mine} cannot be compared: {said.splitlines()[0]}"

    def _unit(self) -> str:
        """Return the unit to compute in: the times' own, so that integers stay so; microseconds beside plain numbers."""
        named = [(token.value, self.columns.find(token.value) or "") for token in self.tokens if self._is_column(token)]
        own = {time_unit(column) for _, column in named} - {""}
        in_full = any(time_unit(column) and written in self.columns.schema for written, column in named)
        plain = any(token.kind == "number" and not token.unit for token in self.tokens)
        return own.pop() if len(own) == 1 and (in_full or not plain) else "us"

    def _is_column(self, token: _Token) -> bool:
        if token.kind == "quoted":
            return True
        folded = token.value.casefold()
        return token.kind == "word" and folded not in _LITERALS | _RESERVED and not self._is_call(token)

    def _is_call(self, token: _Token) -> bool:
        return token.kind == "word" and self.text.startswith("(", token.end) and token.value.casefold() not in _RESERVED

    def _sql(self, index: int, unit: str) -> str:
        token = self.tokens[index]
        if self._is_column(token):
            return self._column(token, unit)
        if token.unit:
            return self._duration(token, unit)
        if self._is_call(token) and token.value.casefold() not in _FUNCTIONS:
            raise FilterError(f"there is no function {token.value}; there are {', '.join(sorted(_FUNCTIONS))}", token.at)
        return "=" if token.value == "==" else token.value

    def _column(self, token: _Token, unit: str) -> str:
        quoted = token.kind == "quoted"
        written = token.value[1:-1].replace('""', '"') if quoted else token.value
        name = self.columns.find(written, exact=quoted)
        if name is None:
            raise FilterError(
                f"there is no column {written}: {self.columns.nearest(written)} Texts stand in 'single quotes'.", token.at
            )
        sql = '"' + name.replace('"', '""') + '"'
        if isinstance(self.columns.schema[name], (pl.Categorical, pl.Enum)):
            return f"cast({sql} as varchar)"  # like, ~ and ilike refuse the dictionary types
        if name == f"{written.casefold()}_ns" and written.casefold() in {"start", "end"} and self.columns.origin_ns:
            sql = f"({sql} - {self.columns.origin_ns})"
        own = time_unit(name)
        if not own or own == unit:
            return sql
        return f"({sql} * {NS[own] // NS[unit]})" if NS[own] > NS[unit] else f"(cast({sql} as double) / {NS[unit] // NS[own]})"

    def _duration(self, token: _Token, unit: str) -> str:
        names = [self.columns.find(other.value.strip('"')) or "" for other in self.tokens if self._is_column(other)]
        if not any(time_unit(name) for name in names):
            raise FilterError(f"{token.value}{token.unit} is a duration, and nothing here is a time to compare it with", token.at)
        try:
            scaled = (Decimal(token.value) * NS[token.unit.casefold()] / NS[unit]).normalize()
        except ArithmeticError as error:
            raise FilterError(f"{token.value}{token.unit} is beyond every number", token.at) from error
        # Digits are written out as far as the SQL parser takes them; beyond that a double is near enough.
        return format(scaled, "f") if abs(scaled.adjusted()) < _MOST_DIGITS else repr(float(scaled))
