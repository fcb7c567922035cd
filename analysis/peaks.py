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


@dataclass(frozen=True)
class Peaks:
    """Limits of a device; what is not known is absent."""

    tflops: Mapping[str, float] = field(default_factory=dict)
    """Dense TFLOP/s by dtype."""
    gb_s: float | None = None
    """Memory bandwidth."""


def peaks_of(device_name: str | None) -> Peaks:
    """Return the limits of a device as its maker states them; empty where it is not in `rules/peaks.toml`.

    Args:
        device_name: as the driver says it.

    Example:
        >>> peaks_of("NVIDIA H200").tflops["bf16"], peaks_of("Xeon").gb_s
        (989.0, None)
    """
    for rule in _rules():
        if device_name and re.search(rule["device"], device_name):
            rates = {key: float(value) for key, value in rule.items() if key not in {"device", "gb_s"}}
            return Peaks(rates, rule.get("gb_s"))
    return Peaks()


def given(tflops: float | None, gb_s: float | None, known: Peaks) -> Peaks:
    """Return the limits with what the user states in place of what is known; one rate then holds for every dtype.

    Example:
        >>> given(50, None, Peaks({"fp32": 67}, 4800)).tflops["bf16"]
        50
    """
    rates = known.tflops if tflops is None else dict.fromkeys(("fp64", "fp32", "bf16", "fp16"), tflops)
    return Peaks(rates, known.gb_s if gb_s is None else gb_s)


@cache
def _rules() -> list[dict[str, Any]]:
    text = (files(__package__) / "rules" / "peaks.toml").read_text()
    found: list[dict[str, Any]] = tomllib.loads(text)["peak"]
    return found
