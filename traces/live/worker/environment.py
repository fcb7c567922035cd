"""Where it is measured: versions, device, processor, settings that matter, and whether the profiler works."""

from __future__ import annotations

from typing import Any


def describe(device: str | None = None) -> dict[str, Any]:
    """Return the members of Environment; what is not known here is absent or None.

    Args:
        device: as in a case; the first accelerator, else the CPU, when None.
    """
    raise NotImplementedError
