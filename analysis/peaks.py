"""What a device can do at most: dense FLOP rates by dtype and memory bandwidth, from its name or from the user."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from kinetop.traces.trace import TraceSet


@dataclass(frozen=True)
class Peaks:
    """Limits of a device; what is not known is absent."""

    tflops: Mapping[str, float] = field(default_factory=dict)
    """Dense TFLOP/s by dtype."""
    gb_s: float | None = None
    """Memory bandwidth."""


def peaks_of(device_name: str | None, sms: int | None = None) -> Peaks:
    """Return the limits of a device as its maker states them; empty where it is not in `rules/devices.toml`.

    Args:
        device_name: as the driver says it.
        sms: multiprocessors (compute units) as the driver counts them; a device that shows fewer than the whole is a part of one,
            and its limits are not known.

    Example:
        >>> peaks_of("NVIDIA H200").tflops["bf16"], peaks_of("Xeon").gb_s
        (989.0, None)
    """
    for rule in _rules():
        if device_name and re.search(rule["device"], device_name):
            if None not in (sms, rule.get("sms")) and sms != rule["sms"]:
                return Peaks()
            rates = {key: float(value) for key, value in rule.items() if key not in _NO_RATES}
            return Peaks(rates, rule.get("gb_s"))
    return Peaks()


_NO_RATES = {"device", "gb_s", "sms"}


def device_limits(trace: TraceSet, places: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the limits of the devices of a trace set.

    Args:
        trace: the set.
        places: part and device, those that are asked for.

    Returns:
        part, device, model (number of the kind of device), device_name (text?), peak_gb_s (f64?); and model, dtype, peak_tflops.

    Example:
        >>> import kinetop
        >>> trace = kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False)
        >>> device_limits(trace, trace.activities.select("part", "device").unique())[0]["device_name"].to_list()
        ['Synthetic GPU']
    """
    import polars as pl

    kinds: dict[tuple[str | None, int | None], int] = {}
    rows = []
    for part, device in places.select("part", "device").unique().sort("part", "device").iter_rows():
        key = _kind(trace.traces[part].devices, device)
        rows.append((part, device, kinds.setdefault(key, len(kinds)), key[0], peaks_of(*key).gb_s))
    types = {"part": pl.Int32, "device": pl.Int32, "model": pl.Int64, "device_name": pl.String, "peak_gb_s": pl.Float64}
    rates = [(at, dtype, rate) for key, at in kinds.items() for dtype, rate in peaks_of(*key).tflops.items()]
    made = pl.DataFrame(rows, schema=types, orient="row")
    return made, pl.DataFrame(rates, schema={"model": pl.Int64, "dtype": pl.String, "peak_tflops": pl.Float64}, orient="row")


def _kind(devices: Mapping[int, Mapping[str, Any]], device: int) -> tuple[str | None, int | None]:
    """Return name and multiprocessors of a device; where its number is not listed, those of all that are, if they are alike."""
    kinds = {at: (row.get("name") or None, row.get("numSms")) for at, row in devices.items()}
    alike = set(kinds.values())
    name, sms = kinds.get(device) or (alike.pop() if len(alike) == 1 else (None, None))
    return name if isinstance(name, str) else None, sms if isinstance(sms, int) else None


def given(tflops: float | None, gb_s: float | None, known: Peaks) -> Peaks:
    """Return the limits with what the user states in place of what is known; one rate then holds for every dtype.

    Example:
        >>> given(50, None, Peaks({"fp32": 67}, 4800)).tflops["bf16"]
        50
    """
    rates = known.tflops if tflops is None else dict.fromkeys(("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8"), tflops)
    return Peaks(rates, known.gb_s if gb_s is None else gb_s)


@cache
def _rules() -> list[dict[str, Any]]:
    text = (files(__package__) / "rules" / "devices.toml").read_text()
    found: list[dict[str, Any]] = tomllib.loads(text)["peak"]
    return found
