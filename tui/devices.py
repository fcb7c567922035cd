"""What views with a picture of each device share: its title, and a share over its window as plain numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from kinetop.analysis.question import Column
    from kinetop.analysis.work import Work


def device_title(work: Work, window: Mapping[str, Any]) -> str:
    """Return how a device is called: with its rank where there are several.

    Args:
        work: what was asked about.
        window: a row of its windows.
    """
    several = len({trace.rank for trace in work.trace.traces}) > 1
    return f"rank {window['rank']}  GPU {window['device']}" if several else f"GPU {window['device']}"


def share_line(busy: pl.DataFrame, window: Mapping[str, Any], buckets: int) -> tuple[float, ...]:
    """Return the busy share of a device by bucket; a bucket without a row is idle.

    Args:
        busy: from `kinetop.analysis.breakdown.busy_share`.
        window: the device's row of the windows.
        buckets: number of buckets that `busy` has.
    """
    import polars as pl

    shares = [0.0] * buckets
    here = busy.filter(pl.col("stream").is_null(), *(pl.col(name) == window[name] for name in ("part", "rank", "device")))
    for bucket, share in here.select("bucket", "share").iter_rows():
        if 0 <= bucket < buckets:
            shares[bucket] = share
    return tuple(shares)


def without_place(columns: Sequence[Column], frame: pl.DataFrame) -> list[Column]:
    """Leave out rank and device where there is but one device: its picture names it.

    Args:
        columns: columns of a table.
        frame: its rows.
    """
    place = [name for name in ("rank", "device") if name in frame.columns]
    several = bool(place) and frame.select(place).n_unique() > 1
    return [column for column in columns if several or column.name not in place]
