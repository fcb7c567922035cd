"""What the machine does meanwhile: clocks, power, memory, load, throttling, other work."""

from __future__ import annotations

from typing import Any


class Sampler:
    """Reads the machine's figures once a second in a thread."""

    def __init__(self, device: str, period_s: float = 1.0) -> None:
        raise NotImplementedError

    def start(self) -> None:
        """Start the thread."""

    def read(self) -> dict[str, Any]:
        """Return the last reading: members of a telemetry frame; at first it is taken now."""
        raise NotImplementedError

    def energy_mj(self) -> int | None:
        """Return the device's energy counter now, in millijoules; None where it has none."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop the thread."""


def marks(reading: dict[str, Any]) -> list[str]:
    """Return what a reading says against samples taken then: `throttled`, `contended`."""
    raise NotImplementedError
