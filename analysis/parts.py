"""How an attention step's time divides into its parts: QK, scale, mask, softmax, PV, copies, casts, layout, gaps."""

from __future__ import annotations

import polars as pl

PARTS = ("qk", "scale", "mask", "softmax", "pv", "copy", "cast", "layout", "fused", "other", "gaps")
"""In the order of the computation; a step's time is their sum."""
PART_COLUMNS: dict[str, str] = {
    "variant": "text?, of the step's label; null in a trace without such labels",
    "case": "text?",
    "part": "text, one of PARTS",
    "dur_us": "f64, mean of the steps",
    "share_pct": "f64, of the step's time",
    "steps": "u32, steps that were seen",
    "on": "text: gpu where the step launched work, else cpu",
}
"""Columns of `split`; each variant and case has one row per part."""


def split(events: pl.DataFrame) -> pl.DataFrame:
    """Return how each variant's step time divides into parts.

    Args:
        events: rows of the event table (ph, cat, name, process, thread, ts_ns, dur_ns, device, stream, correlation), and `case`,
            `window` where there are several.

    Returns:
        A frame with `PART_COLUMNS`; the parts of a variant and case sum to its step time.
    """
    raise NotImplementedError
