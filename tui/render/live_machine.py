"""What the machine says of itself, as sparklines: one figure a line in a side column, or all on one line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from textual.content import Content

from ..format import clean, size
from .bars import SPARKS, sparkline
from .live import memory_text

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME_CELLS = 9
FEWEST_CELLS = 6
"""Shortest sparkline that says anything."""


@dataclass(frozen=True)
class Gauge:
    """One figure over time."""

    name: str
    text: str
    """Its newest value with its unit."""
    values: tuple[float | None, ...] = ()
    low: float | None = None
    high: float | None = None
    style: str = "$accent"


def column(telemetry: Sequence[dict[str, Any]], width: int) -> list[Content]:
    """Return one line a figure, for the side of a wide screen."""
    lines = []
    for gauge in gauges(telemetry):
        room = width - NAME_CELLS - 2 - cell_len(gauge.text) - 1
        line = Content.styled(f" {gauge.name:{NAME_CELLS}}", "$muted")
        if gauge.values and room >= FEWEST_CELLS:
            marks = sparkline(gauge.values[-room:], room, low=gauge.low, high=gauge.high)
            line = line.append(Content.styled(marks, gauge.style)).append(" ")
        lines.append(line.append(gauge.text).truncate(width, ellipsis=True))
    return lines or [Content.styled(" no telemetry yet", "$muted")]


def line(telemetry: Sequence[dict[str, Any]], width: int) -> list[Content]:
    """Return all figures on one line, as many as fit."""
    made = Content(" ")
    for gauge in gauges(telemetry):
        text = Content.assemble((f"{gauge.name} ", "$muted"))
        if gauge.values:
            text = text.append(
                Content.styled(sparkline(gauge.values[-FEWEST_CELLS:], FEWEST_CELLS, low=gauge.low, high=gauge.high), gauge.style)
            ).append(" ")
        text = text.append(gauge.text).append("  ")
        if made.cell_length + text.cell_length <= width + 2:
            made = made.append(text)
    return [made if made.plain.strip() else Content.styled(" no telemetry yet", "$muted")]


def gauges(telemetry: Sequence[dict[str, Any]]) -> list[Gauge]:
    """Return the figures that the machine gives; one that it does not give is left out, never zero."""
    if not telemetry:
        return []
    newest = telemetry[-1]
    found = [_gauge(newest, telemetry, *made) for made in _PLAIN if newest.get(made[1]) is not None]
    found += _cores(newest)
    used, total = newest.get("memory_bytes"), newest.get("memory_total_bytes")
    if used is not None:
        found.append(Gauge("memory", memory_text(used, total), _series(telemetry, "memory_bytes"), 0, total))
    if newest.get("power_w") is not None:
        limit = newest.get("power_limit_w")
        text = f"{newest['power_w']:,.0f}{f'/{limit:,.0f}' if limit else ''} W"
        found.append(Gauge("power", text, _series(telemetry, "power_w"), 0, limit))
    found += [
        Gauge(name, f"{size(newest[key])}/s", _series(telemetry, key), 0) for name, key in _RATES if newest.get(key) is not None
    ]
    reasons = newest.get("throttle")
    if reasons is not None:
        text = ", ".join(clean(str(reason), 24) for reason in reasons) if isinstance(reasons, list) else clean(str(reasons), 40)
        found.append(Gauge("throttle", text or "none", style="bold $text-warning" if text else "$accent"))
    if others := newest.get("others"):
        found.append(Gauge("others", f"{len(others)} other process{'' if len(others) == 1 else 'es'}"))
    return found


_PLAIN: tuple[tuple[Any, ...], ...] = (
    ("busy", "util_pct", "{:.0f} %", 0, 100),
    ("mem bus", "memory_util_pct", "{:.0f} %", 0, 100),
    ("clock", "sm_mhz", "{:,.0f} MHz", None, None),
    ("temp", "temperature_c", "{:.0f} °C", 20, 100),
    ("load", "load1", "{:.2f}", 0, None),
    ("clock", "mhz", "{:,.0f} MHz", None, None),
)
"""Label, member, how it is written, ends of the scale."""
_RATES = (
    ("PCIe in", "pcie_rx_bytes_s"),
    ("PCIe out", "pcie_tx_bytes_s"),
    ("NVL in", "nvlink_rx_bytes_s"),
    ("NVL out", "nvlink_tx_bytes_s"),
)


def _gauge(
    newest: dict[str, Any],
    telemetry: Sequence[dict[str, Any]],
    name: str,
    key: str,
    form: str,
    low: float | None,
    high: float | None,
) -> Gauge:
    return Gauge(name, form.format(newest[key]), _series(telemetry, key), low, high)


def _cores(newest: dict[str, Any]) -> list[Gauge]:
    """The cores of a CPU as one mark each, and the worker's own memory."""
    cores = [share for share in newest.get("cores_pct") or () if isinstance(share, (int, float))]
    made = []
    if cores:
        marks = "".join(SPARKS[min(len(SPARKS) - 1, int(share / 100 * len(SPARKS)))] for share in cores[:32])
        made.append(Gauge("cores", f"{marks} {sum(cores) / 100:.1f} of {len(cores)}"))
    if newest.get("rss_bytes") is not None:
        made.append(Gauge("worker", size(newest["rss_bytes"])))
    return made


def _series(telemetry: Sequence[dict[str, Any]], key: str) -> tuple[float | None, ...]:
    return tuple(each.get(key) for each in telemetry)
