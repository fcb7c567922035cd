"""One event's broken JSON text to a value: each way a writer has been seen to break one, undone and named."""

from __future__ import annotations

import json
import re
from math import isinf
from typing import TYPE_CHECKING, Any

from .columns import byte_column
from .rows import Number

if TYPE_CHECKING:
    from collections.abc import Callable

_STRING = r'"(?:[^"\\]++|\\.)*+"'
_ESCAPE_OK = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_BAD_ESCAPE = re.compile(r'\\(?!["\\/bfnrtu]|$)|\\u(?![0-9a-fA-F]{4})')
# A lone backslash is the text's own; so are the two that a network path begins with.
_LONE = re.compile(r'(?P<lone>^\\\\(?=\w)|\\(?!["\\]))|\\["\\]')
_STRINGS = re.compile(_STRING, re.DOTALL)
_WORDS = re.compile(
    _STRING + r"|(?P<word>[-+]?(?:(?:\d\.#)?(?:inf(?:inity)?|nan|ind|qnan|snan)\d*\b(?:\([a-z0-9]*\))?|none\b|undefined\b))"
    r"|(?P<bool>\b(?:True|False)\b)"
    r"|(?P<number>(?<![\w.+\-])(?:-?0x[0-9a-f]+|\+\d[\d.eE+\-]*|-?\.\d[\d.eE+\-]*|-?\d+\.(?!\d)|-?0\d[\d.eE+\-]*))"
    r"|(?<![\w.+\-])(?P<long>-?\d{4300,}(?![\d.eE]))"
    r"|(?<![\w.+\-])(?P<marked>-?\d+(?:_\d+)+|-?\d+(?=[uUlL]{1,3}\s*[,}\]])|-?\d+\.\d+(?=[fFlLdD]\s*[,}\]]))[uUlLfFdD]{0,3}",
    re.DOTALL | re.IGNORECASE,
)
_EMPTY = re.compile(_STRING + r"|(?P<empty>:)(?=\s*[,}])", re.DOTALL)
_TRAILING_COMMA = re.compile(_STRING + r"|(?P<comma>,)(?=\s*[}\]])", re.DOTALL)
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
# A text that begins with `C:\t` where a correct writer has `C:\\t`: an unescaped Windows path, even where what follows looks
# like an escape. Inside a text it may as well be code: `lambda x:\n`.
DRIVE = re.compile(r'(?<=")[A-Za-z]:\\(?=[A-Za-z0-9_.])')
_COLON = re.compile(rb":\\[A-Za-z0-9_.]")
_COLON_BYTE, _BACKSLASH_BYTE = b":\\"
# `"C:\dir\", "pid":` - the last backslash is the path's, and the quote ends it.
_PATH_END = re.compile(
    r'("[A-Za-z]:\\(?:[^"\\]|\\[^"])*)\\(?="\s*(?:,\s*"(?:[^"\\]++|\\.)*+"\s*:|[}\]]))',
    re.DOTALL,
)
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")

# A quote ends a string only where JSON could go on: before a colon, a closing bracket, or a comma and the next key or value.
_ENDS_KEY = re.compile(r'"\s*:')
_ENDS_VALUE = re.compile(r'"\s*(?:,\s*"(?:[^"\\]++|\\.)*+"\s*:|[}\]]\s*(?:[,}\]]|$)|\Z)', re.DOTALL)
_ENDS_ITEM = re.compile(r'"\s*(?:[,\]])')
# A text that holds other members of an event has run past its end: the event is broken in some other way.
_SWALLOWED = re.compile(r'(?:"\s*,|\{)\s*"?(?:ph|name|cat|pid|tid|ts|dur|args|traceEvents|schemaVersion)"?\s*[:"]')


def decoder(notes: list[str], *, strict: bool = True) -> json.JSONDecoder:
    """Return a decoder that keeps the text of fractions.

    Args:
        notes: gets `bad-number` for NaN, Infinity and numbers beyond a double, `duplicate-member` where a member stood twice.
        strict: refuse control characters in texts.
    """

    def constant(_: str) -> None:
        notes.append("bad-number")

    def fraction(text: str) -> Number | None:
        made = Number(text)
        if isinf(made):
            notes.append("bad-number")
            return None
        return made

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            notes.append("duplicate-member")
        return made

    return json.JSONDecoder(parse_float=fraction, parse_constant=constant, object_pairs_hook=members, strict=strict)


def has_drive(data: bytes) -> bool:
    r"""Whether some text begins like an unescaped Windows path.

    >>> has_drive(b'{"name": "C:\\new"}'), has_drive(b'{"name": "C:\\\\new", "x": "lambda x:\\n"}')
    (True, False)
    """
    if b"\\" not in data:
        return False
    # Searching two bytes takes 16 ms for 16 MB and holds the interpreter's lock, comparing them 2 ms.
    view = byte_column(data)
    if not ((view[:-1] == _COLON_BYTE) & (view[1:] == _BACKSLASH_BYTE)).any():
        return False
    places = (found.start() for found in _COLON.finditer(data))
    return any(data[at - 1 : at].isalpha() and data[at - 2 : at - 1] == b'"' for at in places)


def escapes(text: str) -> str:
    r"""Take backslashes literally in strings where one of them cannot be an escape (Windows paths).

    >>> escapes(r'{"name": "C:\path\to", "ok": "a\tb"}') == r'{"name": "C:\\path\\to", "ok": "a\tb"}'
    True
    """

    def literal(match: re.Match[str]) -> str:
        inner = match[0][1:-1]
        if not DRIVE.search(match[0]) and not _BAD_ESCAPE.search(_ESCAPE_OK.sub("", inner)):
            return match[0]
        return '"' + _LONE.sub(lambda found: "\\" * 2 * len(found[0]) if found["lone"] else found[0], inner) + '"'

    return _STRINGS.sub(literal, text)


def path_ends(text: str) -> str:
    r"""Close Windows paths that end in a backslash.

    >>> path_ends(r'{"name": "C:\dir\", "pid": 1}') == r'{"name": "C:\dir\\", "pid": 1}'
    True
    """
    return _PATH_END.sub(r"\1\\\\", text)


def words(text: str) -> str:
    """Replace words and numbers that JSON does not know: inf becomes null, +1, .5, 5., 007, 1_000 and 7L numbers, True true.

    >>> words('{"a": 1_000, "b": 7UL, "c": 2.5f, "d": "7L, 1_0"}')
    '{"a": 1000, "b": 7, "c": 2.5, "d": "7L, 1_0"}'
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
        if match["long"] is not None:
            return "null"  # more digits than Python reads
        if match["marked"] is not None:
            return match["marked"].replace("_", "")
        return match[0]

    return _WORDS.sub(known, text)


def _number(text: str) -> str:
    if "x" in text.lower():
        return str(int(text, 16))
    sign = "-" if text.startswith("-") else ""
    digits = text.lstrip("+-")
    digits = "0" + digits if digits.startswith(".") else digits
    digits = re.sub(r"^0+(?=\d)", "", digits)
    return sign + re.sub(r"\.(?!\d)", ".0", digits)


def blanks(text: str) -> str:
    """Put null where a member has no value.

    >>> blanks('{"a": , "b": ":,", "c":}')
    '{"a": null , "b": ":,", "c": null}'
    """
    return _EMPTY.sub(lambda match: ": null" if match["empty"] else match[0], text)


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
    opened: list[str] = [""]
    at, last = 0, ""
    while (start := text.find('"', at)) >= 0:
        between = text[at:start]
        for bracket in re.findall(r"[\[\]{}]", between):
            if bracket in "[{":
                opened.append(bracket)
            elif len(opened) > 1:
                opened.pop()
        last = between.rstrip()[-1:] or last
        ends = _ENDS_VALUE if last == ":" else _ENDS_ITEM if opened[-1] == "[" else _ENDS_KEY
        end = _string_end(text, start + 1, ends)
        if end is None:
            return text
        inner = re.sub(r'(?<!\\)((?:\\\\)*)"', r'\1\\"', text[start + 1 : end])
        if len(inner) > end - start - 1 and _SWALLOWED.search(text, start + 1, end):
            return text
        made += [between, '"', inner, '"']
        at = end + 1
    return "".join(made) + text[at:]


def _string_end(text: str, start: int, ends: re.Pattern[str]) -> int | None:
    """Return where the string that begins at `start` ends: the first quote behind which JSON goes on."""
    at = start
    while (end := text.find('"', at)) >= 0:
        if not _is_escaped(text, end) and ends.match(text, end):
            return end
        at = end + 1
    return None


def _is_escaped(text: str, at: int) -> bool:
    """Whether an odd number of backslashes stands before a quote."""
    first = at
    while text[first - 1] == "\\":
        first -= 1
    return (at - first) % 2 == 1


MENDS: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("bad-escape", path_ends),
    ("bad-escape", escapes),
    ("bad-number", words),
    ("missing-value", blanks),
    ("stray-comma", commas),
    ("unescaped-quote", quotes),
)
"""What is tried on an event that does not parse, in order; each is kept for the next."""


def mend(text: str, *, thorough: bool = True) -> tuple[Any, list[str]]:
    """Return the value of an event's text and the codes of what had to be undone.

    Args:
        text: one event, from `{` to `}`.
        thorough: try `MENDS` too.

    Raises:
        ValueError: it cannot be read.
        RecursionError: it is nested too deeply.
    """
    codes: list[str] = []
    if DRIVE.search(text):
        mended = escapes(text)
        codes, text = (["bad-escape"], mended) if mended != text else ([], text)
    for strict in (True, False):
        notes: list[str] = []
        try:
            value = decoder(notes, strict=strict).decode(text)
        except ValueError:
            continue
        return value, _once([*codes, *["control-character"] * (not strict), *notes])
    for code, repair in MENDS if thorough else ():
        mended = repair(text)
        if mended == text:
            continue
        text = mended
        codes.append(code)
        notes = []
        try:
            value = decoder(notes, strict=False).decode(text)
        except ValueError:
            continue
        return value, _once([*codes, *notes])
    raise ValueError("cannot be read")


def _once(codes: list[str]) -> list[str]:
    return list(dict.fromkeys(codes))


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
