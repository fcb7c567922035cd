"""Members of a frame's header, checked: a worker may say anything."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MAX_TEXT = 4096
"""Characters that are kept of a reason or a line of the log."""
MARKS = frozenset({"throttled", "contended"})
"""What can disturb a sample."""
_COUNTS = ("device_count", "cpus", "threads", "memory_bytes", "cudnn")
_LISTS = ("devices", "priority_order")
_OBJECTS = ("flags", "profiler", "permissions")
"""Members of an environment that are no texts."""
_INT64 = range(-(2**63), 2**63)


class UnusableError(ValueError):
    """A frame says something that cannot be; the message says what."""


def is_number(value: Any) -> bool:
    """Whether a value is a finite number; True and False are none.

    >>> is_number(1), is_number(0.5), is_number(True), is_number(float("nan")), is_number("1")
    (True, True, False, False, False)
    """
    return (type(value) is int and value in _INT64) or (type(value) is float and isfinite(value))


def clean(text: str) -> str:
    r"""Return a text that can be written as UTF-8; halves of surrogate pairs, which JSON allows, become question marks.

    >>> clean("a\ud800")
    'a?'
    """
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def words(value: Any) -> str:
    """Return a text that can be written, cut where it is absurdly long; nothing where it is none."""
    return clean(value[:MAX_TEXT]) if isinstance(value, str) else ""


def label(header: Mapping[str, Any], key: str) -> str:
    """Return a member that names something.

    Raises:
        UnusableError: it does not.
    """
    value = header.get(key)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_TEXT:
        raise UnusableError(f"a {key} that is no name")
    return clean(value)


def integer(header: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """Return a member that is an integer of 64 bits; the default where it is absent or null.

    Raises:
        UnusableError: it is something else, or there is neither.
    """
    value = header.get(key)
    value = default if value is None else value
    if type(value) is not int or value not in _INT64:
        raise UnusableError(f"a {key} that is no number")
    return value


def time_ns(header: Mapping[str, Any]) -> int | None:
    """Return when a frame was sent, in nanoseconds of Unix time, where it says so."""
    value = header.get("t_ns")
    return value if type(value) is int and 0 < value < 2**63 else None


def mapping(header: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return a member that is an object; an empty one where it is something else."""
    value = header.get(key)
    return value if isinstance(value, dict) else {}


def environment(header: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a frame says of the machine, without the members that cannot be.

    >>> environment({"environment": {"host": "box", "threads": {}, "cuda": None, "torch": [], "flags": {"A": "1", "B": []}}})
    {'host': 'box', 'cuda': None, 'flags': {'A': '1'}}
    """
    said = {key: _flat(value) if key in _OBJECTS else value for key, value in mapping(header, "environment").items()}
    return {key: _clean(value) for key, value in said.items() if value is None or _fits(key, value)}


def _fits(key: str, value: Any) -> bool:
    if key in _COUNTS:
        return is_number(value)
    if key in _LISTS:
        return isinstance(value, list) and not any(isinstance(one, (dict, list)) for one in value)
    return isinstance(value, dict if key in _OBJECTS else str)


def _flat(value: Any) -> Any:
    return flat(value) if isinstance(value, dict) else value


def flat(members: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members that are no lists and no objects, their texts as they can be written."""
    return {clean(key): _clean(value) for key, value in members.items() if not isinstance(value, (dict, list))}


def _clean(value: Any) -> Any:
    return clean(value) if isinstance(value, str) else value


def texts(values: Any) -> list[str]:
    """Return the texts of a list; none where it is no list."""
    return [clean(value) for value in values if isinstance(value, str)] if isinstance(values, list) else []


def wrong(header: Mapping[str, Any], numbers: Iterable[str], lists: Iterable[str]) -> list[str]:
    """Return the members that are there, but no number or no list as they should be.

    >>> wrong({"mhz": "fast", "rss_bytes": None, "others": []}, ["mhz", "rss_bytes"], ["others"])
    ['mhz']
    """
    bad = [key for key in numbers if header.get(key) is not None and not is_number(header[key])]
    return bad + [key for key in lists if header.get(key) is not None and not isinstance(header[key], list)]
