"""One event's broken JSON text to a value: each way a writer has been seen to break one, undone and named."""

from __future__ import annotations

import json
import re
from math import isinf
from typing import TYPE_CHECKING, Any

from .rows import Number

if TYPE_CHECKING:
    from collections.abc import Callable

_STRING = r'"(?:[^"\\]|\\.)*"'
_ESCAPE_OK = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_BAD_ESCAPE = re.compile(r'\\(?!["\\/bfnrtu]|$)|\\u(?![0-9a-fA-F]{4})')
_STRINGS = re.compile(_STRING, re.DOTALL)
_WORDS = re.compile(
    _STRING + r"|(?P<word>[-+]?(?:\d*\.?#?(?:inf(?:inity)?|nan|ind|qnan|snan)\b(?:\([a-z0-9]*\))?|none\b|undefined\b))"
    r"|(?P<bool>\b(?:True|False)\b)"
    r"|(?P<number>(?<![\w.+\-])(?:\+\d[\d.eE+\-]*|-?\.\d[\d.eE+\-]*|-?\d+\.(?!\d)|-?0\d[\d.eE+\-]*))",
    re.DOTALL | re.IGNORECASE,
)
_TRAILING_COMMA = re.compile(_STRING + r"|(?P<comma>,)(?=\s*[}\]])", re.DOTALL)
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
# `C:\t` where a correct writer has `C:\\t`: an unescaped Windows path, even where what follows looks like an escape.
DRIVE = re.compile(r"(?<![A-Za-z0-9\\])[A-Za-z]:\\(?=[A-Za-z0-9_.])")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")

# A quote ends a string only where JSON could go on: before a colon, a closing bracket, or a comma and the next key or value.
_ENDS_KEY = re.compile(r'"\s*:')
_ENDS_VALUE = re.compile(r'"\s*(?:,\s*"(?:[^"\\]|\\.)*"\s*:|[}\]]\s*(?:[,}\]]|$)|\Z)', re.DOTALL)
_ENDS_ITEM = re.compile(r'"\s*(?:[,\]])')


class Duplicates(dict[str, Any]):
    """An object in which a member stood twice; the last one counts."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    return made if len(made) == len(pairs) else Duplicates(pairs)


def decoder(odd: list[str], *, strict: bool = True) -> json.JSONDecoder:
    """Return a decoder that keeps the text of fractions and notes NaN, Infinity and numbers beyond a double in `odd`."""

    def constant(text: str) -> None:
        odd.append(text)

    def fraction(text: str) -> Number | None:
        made = Number(text)
        if isinf(made):
            odd.append(text)
            return None
        return made

    return json.JSONDecoder(parse_float=fraction, parse_constant=constant, object_pairs_hook=_pairs, strict=strict)


def escapes(text: str) -> str:
    r"""Take backslashes literally in strings where one of them cannot be an escape (Windows paths).

    >>> escapes(r'{"name": "C:\path\to", "ok": "a\tb"}') == r'{"name": "C:\\path\\to", "ok": "a\tb"}'
    True
    """

    def literal(match: re.Match[str]) -> str:
        inner = match[0][1:-1]
        if not DRIVE.search(inner) and not _BAD_ESCAPE.search(_ESCAPE_OK.sub("", inner)):
            return match[0]
        return '"' + re.sub(r'\\(?!["\\])', r"\\\\", inner) + '"'

    return _STRINGS.sub(literal, text)


def words(text: str) -> str:
    """Replace numbers and words that JSON does not know: inf and nan become null, +1, .5, 5. and 007 numbers, True true.

    >>> words('{"a": -inf, "b": .5, "c": "inf", "d": nan(ind), "e": 1.#INF}')
    '{"a": null, "b": 0.5, "c": "inf", "d": null, "e": null}'
    """

    def known(match: re.Match[str]) -> str:
        if match["word"] is not None:
            return "null"
        if match["bool"] is not None:
            return match["bool"].lower()
        if match["number"] is not None:
            return _number(match["number"])
        return match[0]

    return _WORDS.sub(known, text)


def _number(text: str) -> str:
    sign = "-" if text.startswith("-") else ""
    digits = text.lstrip("+-")
    digits = "0" + digits if digits.startswith(".") else digits
    digits = re.sub(r"^0+(?=\d)", "", digits)
    return sign + re.sub(r"\.(?!\d)", ".0", digits)


def commas(text: str) -> str:
    """Take out commas before a closing bracket.

    >>> commas('{"a": [1, 2,], "b": ",}",}')
    '{"a": [1, 2], "b": ",}"}'
    """
    return _TRAILING_COMMA.sub(lambda match: "" if match["comma"] else match[0], text)


def quotes(text: str) -> str:
    r"""Escape quotes inside strings, told from closing ones by what follows them.

    >>> quotes('{"name": "say "hi" twice", "pid": 1}')
    '{"name": "say \\"hi\\" twice", "pid": 1}'
    """
    made: list[str] = []
    at = 0
    while (start := text.find('"', at)) >= 0:
        made.append(text[at : start + 1])
        end = _string_end(text, start + 1, made)
        if end is None:
            return text
        inner = text[start + 1 : end]
        made.append(re.sub(r'(?<!\\)((?:\\\\)*)"', r'\1\\"', inner) + '"')
        at = end + 1
    return "".join(made) + text[at:]


def _string_end(text: str, start: int, before: list[str]) -> int | None:
    """Return where the string that begins at `start` ends, by its place: a key, a member's value or a list's item."""
    context = "".join(before[-3:])[:-1].rstrip()[-1:]
    at = start
    while (end := text.find('"', at)) >= 0:
        backslashes = end - start - len(text[start:end].rstrip("\\"))
        if backslashes % 2 == 0:
            if context == ":":
                if _ENDS_VALUE.match(text, end):
                    return end
            elif context == "[" or _open_list(before):
                if _ENDS_ITEM.match(text, end):
                    return end
            elif _ENDS_KEY.match(text, end):
                return end
        at = end + 1
    return None


def _open_list(before: list[str]) -> bool:
    """Whether what was read so far stands inside a list."""
    depth = re.sub(_STRINGS, "", "".join(before)[:-1])
    return depth.rfind("[") > max(depth.rfind("]"), depth.rfind("{"))


MENDS: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("bad-escape", escapes),
    ("bad-number", words),
    ("stray-comma", commas),
    ("unescaped-quote", quotes),
)
"""What is tried on an event that does not parse, in order; each is kept for the next."""


def mend(text: str) -> tuple[Any, list[str]]:
    """Return the value of an event's text and the codes of what had to be undone.

    Args:
        text: one event, from `{` to `}`.

    Raises:
        ValueError: it cannot be read.
        RecursionError: it is nested too deeply.
    """
    codes: list[str] = []
    if DRIVE.search(text):
        mended = escapes(text)
        codes, text = (["bad-escape"], mended) if mended != text else ([], text)
    for strict in (True, False):
        odd: list[str] = []
        try:
            value = decoder(odd, strict=strict).decode(text)
        except ValueError:
            continue
        return value, codes + ["control-character"] * (not strict) + ["bad-number"] * bool(odd)
    for code, repair in MENDS:
        mended = repair(text)
        if mended == text:
            continue
        text = mended
        codes.append(code)
        try:
            value = decoder([], strict=False).decode(text)
        except ValueError:
            continue
        return value, codes
    raise ValueError("cannot be read")


def clean_surrogates(value: Any) -> Any:
    """Replace halves of surrogate pairs, which no text encoding can hold, by U+FFFD."""
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {clean_surrogates(key): clean_surrogates(item) for key, item in value.items()}
    return [clean_surrogates(item) for item in value] if isinstance(value, list) else value


def has_surrogate_escape(text: str) -> bool:
    """Whether the text holds an escape that may be half a pair."""
    return _SURROGATE_ESCAPE.search(text) is not None
