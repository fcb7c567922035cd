"""How figures and names are written for people: units, thousands separators, and names that can do a terminal no harm."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, set_cell_size

if TYPE_CHECKING:
    from kinetop.analysis.question import Unit

ABSENT = "\u2013"
"""Stands where there is no value."""
NAME_CELLS = 1_000
"""Cells that a name gets when nothing else limits it; traces hold names of 5 kB."""

_SPECIAL = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "\\x1b"}
# Controls (C0, C1), line separators, invisible and direction marks, lone surrogates: what a terminal would act on or hide.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb]"
)
_TIME_STEPS = ((1e6, "s"), (1e3, "ms"), (1.0, "µs"))
_BYTE_STEPS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def clean(name: str, width: int = NAME_CELLS) -> str:
    r"""Return a name that is safe to print: control characters as visible escapes, cut to a width with an ellipsis.

    Args:
        name: any text of a trace.
        width: terminal cells it may take; wide characters count two.

    Example:
        >>> clean("relu\x1b[31m", 8)
        'relu\\x1…'
    """
    safe = _UNSAFE.sub(_escape, name[: width + 1])
    if cell_len(safe) <= width and len(name) <= width + 1:
        return safe
    return set_cell_size(safe, width - 1).rstrip(" ") + "…" if width > 0 else ""


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    return _SPECIAL.get(char) or (f"\\x{ord(char):02x}" if ord(char) < 0x100 else f"\\u{ord(char):04x}")


def cell(value: Any, unit: Unit) -> str:
    """Return a value as it stands in a table, where the header carries the unit.

    Args:
        value: a value of a column; None, NaN and infinities are shown as absent.
        unit: the column's unit; a size in bytes carries its own, since it has no single best one.

    Example:
        >>> cell(1234.5, "us"), cell(96, "count"), cell(67_108_864, "bytes")
        ('1,234.500', '96', '64.0 MiB')
    """
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ABSENT
    if unit == "flag" or isinstance(value, bool):
        return "yes" if value else "no"
    if unit in {"text", "id"} or isinstance(value, (str, list, dict)):
        return clean(str(value))
    if unit == "bytes":
        return size(value)
    if unit in {"count", "ns"}:
        return f"{value:,.0f}"
    small = unit in {"ratio", "number"} and 0 < abs(value) < 0.1
    return f"{value:.2g}" if small else f"{value:,.{ {'us': 3, 'pct': 1, 'GB/s': 1}.get(unit, 2) }f}"


def duration(us: float | None) -> str:
    """Return a duration in the unit that reads best.

    Args:
        us: microseconds; None where it is not known.

    Example:
        >>> duration(1234.5), duration(0.25), duration(2_500_000)
        ('1.234 ms', '0.250 µs', '2.500 s')
    """
    if us is None or not math.isfinite(us):
        return ABSENT
    factor, name = next(((factor, name) for factor, name in _TIME_STEPS if abs(us) >= factor), _TIME_STEPS[-1])
    return f"{us / factor:,.3f} {name}"


def size(count: float) -> str:
    """Return a number of bytes in the unit that reads best.

    Args:
        count: bytes.

    Example:
        >>> size(999), size(1536)
        ('999 B', '1.5 KiB')
    """
    factor, name = next(((factor, name) for factor, name in _BYTE_STEPS if abs(count) >= factor), (1, "B"))
    return f"{count:,.0f} B" if factor == 1 else f"{count / factor:,.1f} {name}"


def percent(share_pct: float | None) -> str:
    """Return a share with its sign.

    Args:
        share_pct: percent, 0 to 100; None where it is not known.

    Example:
        >>> percent(12.345)
        '12.3 %'
    """
    return ABSENT if share_pct is None or not math.isfinite(share_pct) else f"{share_pct:,.1f} %"


def plural(count: int, noun: str) -> str:
    """Return a counted noun.

    Args:
        count: how many.
        noun: the singular.

    Example:
        >>> plural(1, "event"), plural(2000, "event")
        ('1 event', '2,000 events')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
