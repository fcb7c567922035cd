"""What the fast path refuses, event by event: keeps every event that can be read, and counts what was done to it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pyarrow as pa

from ..report import Notice
from . import rows
from .columns import SCHEMA
from .mend import DRIVE, clean_surrogates, decoder, has_surrogate_escape, mend
from .slices import Slice

_KEYS = r'"(?:ph|name|cat|pid|tid|ts|dur|args|id|bp|s)"\s*:'
_NEXT_EVENT = re.compile(r"\}\s*,?\s*(?=\{\s*" + _KEYS + ")")
_NEXT_OBJECT = re.compile(r'\}\s*,?\s*(?=\{\s*"[^"\\]{1,80}"\s*:)')
_EVENT_START = re.compile(r"\{\s*" + _KEYS)
_DOCUMENT_START = re.compile(r'\{\s*"(?:schemaVersion|traceEvents|deviceProperties|distributedInfo|displayTimeUnit)"\s*:')
_ARRAY_END = re.compile(r'\}(?=\s*\]\s*(?:,\s*"|\}[\s\x00]*(?:\Z|[{\[])|\Z))')
_STRAY_CLOSE = re.compile(r"[\]})](?=[\s\]}),]*\{\s*" + _KEYS + ")")
_MISSING_END = re.compile(r"\}[\s\x00]*\Z")
_MOST_EVENT_BYTES = 256 << 20
"""An event that has no end within these is given up."""
_FORGET_CHARACTERS = 1 << 14
"""Text that is read before some of it is dropped."""
_MOST_STARTS = 1000
"""Places tried as the start of an event inside or after a broken one."""
_MOST_TRIES = 8
"""Places tried as the end of the last event."""
_SEPARATOR = re.compile(r"[\s,\x00]*")
_INVALID = re.compile("[\udc80-\udcff]")

_SAID: dict[str, str] = {
    "bad-escape": "{n} held backslashes that are not JSON escapes (unescaped Windows paths?); they were taken literally",
    "bad-number": "{n} held a number that JSON does not know (inf, nan, ...); it was read as null, or as the plain number meant",
    "stray-comma": "{n} had a comma too many; it was ignored",
    "unescaped-quote": "{n} held quotes that were not escaped; they were taken as part of the text",
    "control-character": "{n} held raw control characters in a text; they were kept",
    "invalid-utf8": "{n} held bytes that are not UTF-8; they are shown as the replacement character",
    "invalid-unicode": "{n} held half a surrogate pair; it is shown as the replacement character",
    "missing-value": "{n} had a member without a value; it was read as null",
    "duplicate-member": "{n} had a member twice; the last one counts",
    "unreadable-event": "{n} could not be read and were left out",
    "not-an-event": "{n} in the event array were not events and were left out",
    "missing-comma": "{n} were not separated by a comma; all were kept",
    "unclosed-array": "The closing bracket of the event array is missing; it was added",
    "garbage": "Between events there was text that is no event, {n} times; it was left out",
    "truncated": "The file is cut off inside an event; the events before it were kept and all totals are partial",
}
_INFO = frozenset({"stray-comma", "missing-comma", "unclosed-array"})


@dataclass(slots=True)
class Findings:
    """What was met while repairing, by code: how often, and where first."""

    counts: dict[str, int] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)

    def add(self, code: str, offset: int) -> None:
        """Count one more."""
        self.counts[code] = self.counts.get(code, 0) + 1
        self.offsets.setdefault(code, offset)

    def drop(self, *codes: str) -> None:
        """Forget what something else explains."""
        for code in codes:
            self.counts.pop(code, None)

    def notices(self) -> list[Notice]:
        """Return them as notices, in the order first met."""
        made = []
        for code, count in self.counts.items():
            events = "1 event" if count == 1 else f"{count:,} events"
            text = _SAID[code].format(n=f"{count:,}" if code == "garbage" else events)
            made.append(
                Notice(
                    code,
                    count,
                    f"{text} (first at byte {self.offsets[code]:,}).",
                    self.offsets[code],
                    "info" if code in _INFO else "warning",
                )
            )
        return made


@dataclass(slots=True)
class Walked:
    """A piece, walked through."""

    table: pa.Table
    carry: Slice | None = None
    """An event that goes on in the next piece."""
    end: int | None = None
    """Byte offset just after the bracket that closes the event array, when it is in this piece."""
    rest: bytes = b""
    """The bytes from there on."""


class Walker:
    """Goes through pieces that the fast path refused.

    Args:
        findings: where to count what is repaired.
    """

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._text = ""
        self._piece = Slice(b"", 0)
        self._events: list[dict[str, Any]] = []
        self._after_loss = False
        self._base = 0
        self._measured = (0, 0)

    def walk(self, piece: Slice) -> Walked:
        """Read the events of a piece one by one.

        Args:
            piece: events as they stand, possibly broken, possibly with the end of the array in them.

        Returns:
            The events as a table, and how far the piece went.
        """
        self._piece = piece
        self._text = piece.data.decode("utf-8", "surrogateescape")
        self._events = []
        self._after_loss = True
        self._base = piece.offset
        self._measured = (0, piece.offset)
        careful = (
            DRIVE.search(self._text) is not None or has_surrogate_escape(self._text) or _INVALID.search(self._text) is not None
        )
        at = 0
        while True:
            at = self._forget(at)
            gap = _SEPARATOR.match(self._text, at)
            between = gap[0] if gap else ""
            at += len(between)
            if at >= len(self._text):
                return self._walked()
            if _DOCUMENT_START.match(self._text, at):
                return self._walked(end=self._offset(at), rest=self._text[at:].encode("utf-8", "surrogateescape"))
            if self._text[at] in "]})" and (end := self._closed(at)) is not None:
                rest = self._text[end:].encode("utf-8", "surrogateescape")
                return self._walked(end=self._offset(end), rest=rest)
            if self._text[at] == "{" and not self._after_loss and between.count(",") != 1:
                self._findings.add("missing-comma" if "," not in between else "stray-comma", self._offset(at))
            self._after_loss = False
            following = self._event(at, careful=careful)
            if following is None:
                return self._unfinished(at)
            at = following

    def _forget(self, at: int) -> int:
        """Drop the text before a place now and then: each error of the JSON decoder counts all lines before it."""
        if at < max(_FORGET_CHARACTERS, len(self._text) // 16):
            return at
        self._base = self._offset(at)
        self._text = self._text[at:]
        self._measured = (0, self._base)
        return 0

    def _closed(self, at: int) -> int | None:
        """Return where the event array has ended, None when a bracket too many stands here and events go on after it."""
        if _STRAY_CLOSE.match(self._text, at):
            return None
        if self._text[at] == "]":
            return at + 1
        if self._piece.final and _MISSING_END.match(self._text, at):
            self._findings.add("unclosed-array", self._offset(at))
            return at
        return None

    def _event(self, at: int, *, careful: bool) -> int | None:
        """Read one element; return where the next begins, None when this one does not end here."""
        notes: list[str] = []
        try:
            value, end = decoder(notes).raw_decode(self._text, at)
        except (ValueError, RecursionError):
            return self._broken(at)
        if careful and self._is_suspect(at, end):
            return self._mended(at, end)
        self._keep(value, at, list(dict.fromkeys(notes)))
        return end

    def _is_suspect(self, at: int, end: int) -> bool:
        text = self._text[at:end]
        return DRIVE.search(text) is not None or has_surrogate_escape(text) or _INVALID.search(text) is not None

    def _broken(self, at: int) -> int | None:
        """Find the end of an element that does not parse, and mend it or leave it out."""
        if self._text[at] not in "{[":
            return self._garbage(at)
        ends = self._ends(at)
        if not ends:
            return None
        for end in ends[:-1]:
            try:
                mend(self._text[at:end])
            except (ValueError, RecursionError):
                continue
            return self._mended(at, end)
        return self._mended(at, ends[-1])

    def _ends(self, at: int) -> list[int]:
        """Return where an element that does not parse may end: before the next event, or the end of the array."""
        following = next((found for found in _NEXT_EVENT.finditer(self._text, at) if self._is_start(found.end())), None)
        if following is None:
            starts = islice(_NEXT_OBJECT.finditer(self._text, at), _MOST_STARTS)
            following = next((found for found in starts if self._is_event(found.end())), None)
        limit = len(self._text) if following is None else following.start()
        closes = _ARRAY_END.finditer(self._text, at, limit) if self._piece.final else iter(())
        ends = [found.start() + 1 for found in islice(closes, _MOST_TRIES)]
        return [*ends, following.start() + 1] if following else ends

    def _is_start(self, at: int) -> bool:
        """Whether an event begins here, broken or not; objects inside the args of one have no type and time."""
        try:
            return _is_typed(decoder([]).raw_decode(self._text, at)[0])
        except (ValueError, RecursionError):
            return True

    def _is_event(self, at: int) -> bool:
        """Whether a whole event stands here."""
        try:
            return _is_typed(decoder([]).raw_decode(self._text, at)[0])
        except (ValueError, RecursionError):
            return False

    def _garbage(self, at: int) -> int:
        self._findings.add("garbage", self._offset(at))
        self._after_loss = True
        following = _EVENT_START.search(self._text, at)
        stop = following.start() if following else len(self._text)
        close = self._text.find("]", at + 1, stop)
        while close >= 0 and _STRAY_CLOSE.match(self._text, close):
            close = self._text.find("]", close + 1, stop)
        return close if close >= 0 else stop

    def _mended(self, at: int, end: int) -> int:
        text = self._text[at:end]
        codes: list[str] = []
        try:
            value, codes = mend(text)
        except (ValueError, RecursionError):
            return self._lost(at, end)
        if _INVALID.search(text):
            codes.append("invalid-utf8")
        elif has_surrogate_escape(text) and clean_surrogates(value) != value:
            codes.append("invalid-unicode")
        self._keep(clean_surrogates(value), at, codes)
        return end

    def _lost(self, at: int, end: int) -> int:
        """Leave an element out; two writers in one file break an event by starting another inside it: keep the inner one."""
        self._findings.add("unreadable-event", self._offset(at))
        self._after_loss = True
        if document := _DOCUMENT_START.search(self._text, at, end):
            return document.start()
        starts = islice(_EVENT_START.finditer(self._text, at + 1, end), _MOST_STARTS)
        inner = next((found for found in starts if self._is_event(found.start())), None)
        return end if inner is None else inner.start()

    def _keep(self, value: Any, at: int, codes: list[str]) -> None:
        if not isinstance(value, dict):
            codes = ["not-an-event"]
        for code in codes:
            self._findings.add(code, self._offset(at))
        if isinstance(value, dict):
            self._events.append(value)

    def _unfinished(self, at: int) -> Walked:
        """The last element does not end in this piece: it goes on in the next, or the file is cut off."""
        offset = self._offset(at)
        data = self._text[at:].encode("utf-8", "surrogateescape")
        if not self._piece.final and len(data) < _MOST_EVENT_BYTES:
            return self._walked(carry=Slice(data + self._piece.gap, offset))
        self._findings.add("truncated" if self._piece.final else "unreadable-event", offset)
        return self._walked()

    def _walked(self, carry: Slice | None = None, end: int | None = None, rest: bytes = b"") -> Walked:
        return Walked(table(self._events), carry, end, rest)

    def _offset(self, at: int) -> int:
        """Turn a position in the text into a byte offset of the trace; it is asked for in rising order."""
        before, offset = self._measured
        if at < before:
            before, offset = 0, self._base
        offset += len(self._text[before:at].encode("utf-8", "surrogateescape"))
        self._measured = (at, offset)
        return offset


def _is_typed(value: dict[str, Any]) -> bool:
    return "ph" in value and ("pid" in value or "ts" in value)


def table(events: list[dict[str, Any]]) -> pa.Table:
    """Return events as a table with the event table's Arrow schema."""
    frame = rows.frame(events).to_arrow()
    columns = []
    for field_ in SCHEMA:
        column = frame.column(field_.name)
        columns.append(
            column.cast(pa.string()).dictionary_encode() if pa.types.is_dictionary(field_.type) else column.cast(field_.type)
        )
    return pa.Table.from_arrays(columns, schema=SCHEMA)
