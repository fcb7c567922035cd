"""What views with a picture of each device share: its title, and a share over its window as plain numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual.content import Content

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from kinetop.analysis.question import Column
    from kinetop.analysis.work import Work


def device_title(work: Work, window: Mapping[str, Any]) -> str:
    """Return how a device is called: with its rank where there are several, and the capture where a rank has several.

    Args:
        work: what was asked about.
        window: a row of its windows.
    """
    ranks = [trace.rank for trace in work.trace.traces]
    title = f"rank {window['rank']}  GPU {window['device']}" if len(set(ranks)) > 1 else f"GPU {window['device']}"
    return f"{title}  #{_capture(work, window)}" if ranks.count(window["rank"]) > 1 else title


def of_device(table: pl.DataFrame, work: Work, window: Mapping[str, Any]) -> pl.DataFrame:
    """Return the rows of a question's table that are about a device.

    Args:
        table: with rank and device, and with the capture `window` where a rank has several files.
        work: what was asked about.
        window: the device's row of the windows.
    """
    import polars as pl

    place = {"rank": window["rank"], "device": window["device"], "window": _capture(work, window)}
    return table.filter(pl.col(name) == value for name, value in place.items() if name in table.columns)


def _capture(work: Work, window: Mapping[str, Any]) -> int:
    """Which capture of its rank a window is from, counted from 1."""
    return int(work.trace.traces[window["part"]].window) + 1


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
    place = [name for name in ("rank", "window", "device") if name in frame.columns]
    several = bool(place) and frame.select(place).n_unique() > 1
    return [column for column in columns if several or column.name not in place]


def nothing(_width: int) -> list[Content]:
    """Draw what stands where there is no device."""
    return [Content(" No GPU work here: the trace holds no kernels or copies in this scope.")]
