"""What a person reads of a trial's and a worker's state: small words with their reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .format import clean
from .render.live import interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from kinetop.traces.live.recording import Recording
    from kinetop.traces.live.worker.frames import Frame

BUSY = frozenset({"COLD", "COMPILING"})
"""States in which a variant that the worker is at is being made ready."""
ENDS = frozenset({"lost", "hung", "timeout"})
"""What may befall a worker."""


def with_status(table: pl.DataFrame, variants: Sequence[str], said: Recording) -> pl.DataFrame:
    """Add what a person reads of each trial's state and interval, and rows for variants of which nothing was heard yet.

    Args:
        table: figures, as `trials.table` gives them.
        variants: names that were chosen, in the order to show them.
        said: what the worker said of itself.
    """
    import polars as pl

    known = set(table["variant"])
    missing = [row_of(said.variants.get(name, {}), name) for name in variants if name not in known]
    if missing:
        table = pl.concat([table, pl.DataFrame(missing)], how="diagonal_relaxed")
    order = {name: at for at, name in enumerate(variants)}
    table = table.sort(pl.col("variant").replace_strict(order, default=len(order)), maintain_order=True)
    rows = table.select("variant", "state", "why", "low_us", "high_us").rows()
    status = [status_text(state, why, seconds(said, name)) for name, state, why, *_ in rows]
    ends = [interval(low_us, high_us) for *_, low_us, high_us in rows]
    return table.with_columns(status=pl.Series(status, dtype=pl.String), interval=pl.Series(ends, dtype=pl.String))


def row_of(told: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the row of a variant of which nothing was heard yet."""
    available = told.get("available", True)
    return {
        "variant": name,
        "state": "COLD" if available else "UNAVAILABLE",
        "why": "" if available else told.get("why_not") or "",
    }


def status_text(state: str, why: str | None, since_s: float | None) -> str:
    """Return a state in small letters with its reason, or how long it has lasted.

    >>> status_text("COMPILING", "", 8.4), status_text("COLD", "", 2), status_text("FAILED", "out of memory", None)
    ('compiling 8 s', 'preparing 2 s', 'failed: out of memory')
    """
    text = state.lower()
    if why:
        return f"{text}: {clean(why, 200)}"
    if since_s is not None and state in BUSY:
        return f"{'preparing' if state == 'COLD' else text} {since_s:.0f} s"
    return text


def seconds(said: Recording, variant: str) -> float | None:
    """Return how long the worker has been at a variant, where it is at it."""
    since_ns = said.doing.get("since_ns")
    if said.doing.get("variant") != variant or not isinstance(since_ns, int):
        return None
    return max(0.0, (said.last_ns - since_ns) / 1e9)


def trouble(frame: Frame) -> str:
    """Return what a frame says went wrong, in a line that begins with whom it is about; nothing for any other frame.

    >>> from kinetop.traces.live.worker.frames import Frame
    >>> trouble(Frame({"kind": "link", "event": "hung", "why": "eager took 60 s"}))
    'worker hung: eager took 60 s'
    """
    header = frame.header
    if frame.kind == "link" and header.get("event") in ENDS:
        return f"worker {header['event']}: {header.get('why') or 'no reason given'}"
    if frame.kind != "error":
        return ""
    who, kind, message = (str(header.get(key) or "") for key in ("variant", "type", "message"))
    return ": ".join(part for part in (who or "worker", kind, message) if part)
