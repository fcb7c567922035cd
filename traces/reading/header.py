"""What the members around the events say: the base of the times, and the rank."""

from __future__ import annotations

from typing import Any


def base_ns(header: dict[str, Any]) -> int:
    """Return baseTimeNanoseconds: what start times are relative to; 0 where the trace does not say."""
    value = header.get("baseTimeNanoseconds", 0)
    try:
        base = int(value) if not isinstance(value, float) or value.is_integer() else 0
        return base if abs(base) < 2**63 else 0
    except (TypeError, ValueError, OverflowError):
        return 0


def rank_of(header: dict[str, Any], hint: int) -> int:
    """Return the rank that the trace says, else the hint."""
    info = header.get("distributedInfo")
    rank = info.get("rank") if isinstance(info, dict) else None
    if isinstance(rank, str) and rank.isdecimal():
        rank = int(rank)
    return rank if type(rank) is int and 0 <= rank < 2**31 else hint
