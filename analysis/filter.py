"""The filter language, the same in every view, command and call.

* `nccl`, `aten::mm`, `"two words"`: rows whose name holds the text, in any case; several words must all be there
* `/gemm|conv/`: rows whose name matches a regular expression, in any case
* `dur > 100us and stream = 7`: a condition over the columns of the frame, in SQL
* `!` or `not` inverts, `and` and `or` combine, parentheses group

A column may be named without its unit (`dur` for `dur_ns` or `dur_us`, `share` for `share_pct`). Durations take `ns`, `us`,
`ms` or `s`; a plain number beside a time that was named without its unit is microseconds, as in every output.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import TYPE_CHECKING

import polars as pl

from kinetop.traces.errors import FilterError

from .condition import Condition, read_condition
from .filter_columns import Columns

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_DEPTH = 50  # a nesting that nobody writes; Python's own stack ends near 1,000
_AND = re.compile(r"""and(?=[\s(!/'"]|$)|&&?(?=[\s(!]|$)""", re.IGNORECASE)
_OR = re.compile(r"""or(?=[\s(!/'"]|$)|\|\|?(?=[\s(!]|$)""", re.IGNORECASE)
_NOT = re.compile(r"""not(?=[\s(!/'"]|$)|!""", re.IGNORECASE)
_SPACE = re.compile(r"\s*")
_REGEX = re.compile(r"/((?:\\.|[^\\])+?)/(?=[\s)]|$)", re.DOTALL)
_QUOTED = re.compile(r"""'((?:[^']|'')*)'|"((?:[^"]|"")*)\"""")
_WORD = re.compile(r"\S+")


def predicate(text: str, schema: Mapping[str, pl.DataType], *, origin_ns: int = 0) -> pl.Expr:
    """Return the filter as an expression that is true for the rows to keep.

    Args:
        text: the filter; blank keeps every row.
        schema: name and type of the frame's columns. Words and regexes look at `name`, or at every text column where there
            is none.
        origin_ns: time that `start` and `end`, named without their unit, count from.

    Raises:
        FilterError: the text cannot be understood; its position says where.

    Example:
        >>> import polars as pl
        >>> frame = pl.DataFrame({"name": ["ncclAllReduce", "gemm"], "dur_ns": [200_000, 300_000]})
        >>> frame.filter(predicate("nccl and dur > 100us", frame.schema))["name"].to_list()
        ['ncclAllReduce']
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise FilterError("the filter holds bytes that are not UTF-8", error.start) from error
    return _Parser(text, Columns(schema, origin_ns)).whole()


class _Parser:
    """Recursive descent over `or`, `and`, `not` and what they join."""

    def __init__(self, text: str, columns: Columns) -> None:
        self.text = text
        self.columns = columns
        self.at = 0
        self.depth = 0

    def whole(self) -> pl.Expr:
        self._skip()
        if self.at == len(self.text):
            return pl.lit(True)
        found = self._either()
        if self.at < len(self.text):
            raise FilterError(f"unmatched {self.text[self.at]!r}; put a text that holds it in quotes", self.at)
        return found

    def _either(self) -> pl.Expr:
        parts = [self._both()]
        while self._take(_OR):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else pl.any_horizontal(parts)

    def _both(self) -> pl.Expr:
        parts = [self._inverted()]
        while self._take(_AND) or self._more():
            parts.append(self._inverted())
        return parts[0] if len(parts) == 1 else pl.all_horizontal(parts)

    def _inverted(self) -> pl.Expr:
        invert = False
        while self._take(_NOT):
            invert = not invert
        found = self._one()
        return ~found if invert else found

    def _one(self) -> pl.Expr:
        self._skip()
        start = self.at
        if start == len(self.text):
            raise FilterError("the filter ends where a word, a /regex/ or a condition must follow", start)
        condition = read_condition(self.text, start, self.columns)
        if condition is not None:
            return self._condition(condition)
        if self.text[start] == "(":
            return self._group()
        if self.text[start] == "/":
            return self._regex()
        if self.text[start] == ")" or _AND.match(self.text, start) or _OR.match(self.text, start):
            raise FilterError(f"a word, a /regex/ or a condition must come before {_WORD.match(self.text, start)[0]!r}", start)  # type: ignore[index]
        return self._word()

    def _condition(self, condition: Condition) -> pl.Expr:
        self.at = condition.end
        return condition.expression()

    def _group(self) -> pl.Expr:
        start = self.at
        self.at += 1
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise FilterError(f"more than {_MAX_DEPTH} parentheses inside each other", start)
        found = self._either()
        if not self.text.startswith(")", self.at):
            raise FilterError("this ( is not closed; put a text that holds it in quotes", start)
        self.at += 1
        self.depth -= 1
        self._skip()
        return found

    def _regex(self) -> pl.Expr:
        start = self.at
        found = _REGEX.match(self.text, start)
        if found is None:
            raise FilterError("a /regex/ ends with a /; put a path in quotes", start)
        self.at = found.end()
        pattern = found[1].replace("\\/", "/")
        try:
            pl.select(pl.lit("").str.contains(f"(?i){pattern}"))
        except pl.exceptions.ComputeError as error:
            raise FilterError(f"not a regular expression: {regex_fault(error)}", start + 1) from error
        return self._name_matches(pattern, start)

    def _word(self) -> pl.Expr:
        start = self.at
        quoted = _QUOTED.match(self.text, start)
        if quoted is not None:
            self.at = quoted.end()
            word = quoted[1].replace("''", "'") if quoted[1] is not None else quoted[2].replace('""', '"')
        else:
            word = self._bare_word()
        return self._name_matches(pl.escape_regex(word), start)

    def _bare_word(self) -> str:
        """Return the text up to the next space, or up to the parenthesis that closes the group around it."""
        found = _WORD.match(self.text, self.at)
        word = found[0] if found else ""
        if self.depth:
            opened = list(accumulate((char == "(") - (char == ")") for char in word))
            word = word[: opened.index(-1)] if -1 in opened else word
        self.at += len(word)
        return word

    def _name_matches(self, pattern: str, at: int) -> pl.Expr:
        names = self.columns.searched
        if not names:
            raise FilterError("there is no text column here to look for a word in", at)
        return pl.any_horizontal(pl.col(name).cast(pl.String).str.contains(f"(?i){pattern}").fill_null(False) for name in names)

    def _more(self) -> bool:
        """Return whether another operand stands beside the last one: two words side by side must both be there."""
        self._skip()
        return self.at < len(self.text) and self.text[self.at] != ")" and _OR.match(self.text, self.at) is None

    def _take(self, wanted: re.Pattern[str]) -> bool:
        self._skip()
        found = wanted.match(self.text, self.at)
        if found is None:
            return False
        self.at = found.end()
        return True

    def _skip(self) -> None:
        self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]


def regex_fault(error: Exception) -> str:
    """Return the sentence of a regex error, without the drawing around it."""
    said = re.search(r"^error: (.+)$", str(error), re.MULTILINE)
    return said[1] if said else str(error).splitlines()[0]
