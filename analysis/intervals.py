"""Interval algebra: unions, intersections, differences and exclusive sweeps, the one place for them.

Intervals are half-open `[start_ns, end_ns)` in integer nanoseconds, grouped by any key columns. A zero-length or negative
interval has no measure and is left out; touching intervals merge. All of it is sorting and running sums: no loop over rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def union(frame: pl.DataFrame, keys: Sequence[str] = ()) -> pl.DataFrame:
    """Return the union of the intervals of each group, as disjoint intervals in order of keys and time.

    Args:
        frame: has `start_ns`, `end_ns` and the key columns; rows in any order.
        keys: columns that tell groups apart.

    Example:
        >>> import polars as pl
        >>> union(pl.DataFrame({"start_ns": [5, 0, 20], "end_ns": [10, 5, 25]})).rows()
        [(0, 10), (20, 25)]
    """
    run = "__run"
    rows = _by_time(_measurable(frame, keys), keys, "start_ns").with_columns(_runs(keys).alias(run))
    rows = rows.with_columns(pl.col("end_ns").cum_max().over(run).alias("__reach"))
    # A new piece begins where the group changes or where nothing before it in the group reaches this far.
    first = rows.select(
        ((pl.col("start_ns") > pl.col("__reach").shift(1)) | (pl.col(run) != pl.col(run).shift(1))).fill_null(value=True)
    ).to_series()
    starts = rows.filter(first).select(*keys, "start_ns")
    return starts.with_columns(rows.filter(first.shift(-1, fill_value=True))["__reach"].alias("end_ns"))


def sweep(sets: Mapping[str, pl.DataFrame], keys: Sequence[str] = ()) -> pl.DataFrame:
    """Return the segments between neighbouring interval ends, each with how many intervals of every set cover it.

    Segments that nothing covers are not in it. Everything that must add up (exclusive shares, overlaps) is a filter on
    this frame and a sum of `end_ns - start_ns`.

    Args:
        sets: name -> frame with `start_ns`, `end_ns` and the key columns; the names become columns (i32 counts).
        keys: columns that tell groups apart.

    Example:
        >>> import polars as pl
        >>> comm, compute = pl.DataFrame({"start_ns": [0], "end_ns": [10]}), pl.DataFrame({"start_ns": [4], "end_ns": [12]})
        >>> sweep({"comm": comm, "compute": compute}).rows()
        [(0, 4, 1, 0), (4, 10, 1, 1), (10, 12, 0, 1)]
    """
    edges = [
        frame.select(
            *keys, pl.col(column).alias("start_ns"), *(pl.lit(step if n == name else 0, pl.Int32).alias(n) for n in sets)
        )
        for name, frame in ((name, _measurable(frame, keys)) for name, frame in sets.items())
        for column, step in (("start_ns", 1), ("end_ns", -1))
    ]
    # Each group's steps sum to zero, so one running sum over the whole table serves all groups.
    rows = _by_time(pl.concat(edges), keys, "start_ns").with_columns(
        pl.col("start_ns").shift(-1).alias("end_ns"), *(pl.col(name).cum_sum() for name in sets)
    )
    covered = pl.any_horizontal(*(pl.col(name) > 0 for name in sets))
    return rows.filter(covered & (pl.col("end_ns") > pl.col("start_ns"))).select(*keys, "start_ns", "end_ns", *sets)


def intersect(left: pl.DataFrame, right: pl.DataFrame, keys: Sequence[str] = ()) -> pl.DataFrame:
    """Return the time that both cover, as disjoint intervals.

    Args:
        left: intervals; those of one group may overlap.
        right: intervals, with the same keys.
        keys: columns that tell groups apart.

    Example:
        >>> import polars as pl
        >>> a, b = pl.DataFrame({"start_ns": [0], "end_ns": [10]}), pl.DataFrame({"start_ns": [4], "end_ns": [12]})
        >>> intersect(a, b).rows()
        [(4, 10)]
    """
    return _overlaid(left, right, keys, both=True)


def subtract(left: pl.DataFrame, right: pl.DataFrame, keys: Sequence[str] = ()) -> pl.DataFrame:
    """Return the time that `left` covers and `right` does not, as disjoint intervals.

    Args:
        left: intervals; those of one group may overlap.
        right: intervals, with the same keys.
        keys: columns that tell groups apart.

    Example:
        >>> import polars as pl
        >>> a, b = pl.DataFrame({"start_ns": [0], "end_ns": [10]}), pl.DataFrame({"start_ns": [4], "end_ns": [6]})
        >>> subtract(a, b).rows()
        [(0, 4), (6, 10)]
    """
    return _overlaid(left, right, keys, both=False)


def _overlaid(left: pl.DataFrame, right: pl.DataFrame, keys: Sequence[str], *, both: bool) -> pl.DataFrame:
    """Return the time that both cover, or that `left` alone covers."""
    marks = [
        union(frame, keys).select(*keys, pl.col(side).alias("start_ns"), covers=pl.lit(sign * bit, pl.Int8))
        for bit, frame in ((1, left), (2, right))
        for side, sign in (("start_ns", 1), ("end_ns", -1))
    ]
    # Of disjoint pieces that do not touch, no two neighbouring stretches are covered alike: nothing is left to merge.
    rows = _by_time(pl.concat(marks), keys, "start_ns")
    rows = rows.with_columns(pl.col("start_ns").shift(-1).alias("end_ns"), pl.col("covers").cum_sum())
    rows = rows.filter((pl.col("covers") == (3 if both else 1)) & (pl.col("end_ns") > pl.col("start_ns")))
    return rows.select(*keys, "start_ns", "end_ns")


def total(frame: pl.DataFrame, keys: Sequence[str] = ()) -> pl.DataFrame:
    """Return how long the intervals of each group cover, overlaps counted once.

    Args:
        frame: intervals.
        keys: columns that tell groups apart; a group without measure has no row (no keys: always one row).

    Returns:
        The keys and `total_ns`.

    Example:
        >>> import polars as pl
        >>> total(pl.DataFrame({"gpu": [0, 0, 1], "start_ns": [0, 4, 0], "end_ns": [10, 12, 3]}), ["gpu"]).rows()
        [(0, 12), (1, 3)]
    """
    length = (pl.col("end_ns") - pl.col("start_ns")).sum().alias("total_ns")
    pieces = union(frame, keys)
    return pieces.group_by(*keys, maintain_order=True).agg(length) if keys else pieces.select(length)


def covered(frame: pl.DataFrame, cover: pl.DataFrame, keys: Sequence[str] = ()) -> pl.Series:
    """Return for each interval how much of it the cover covers, in nanoseconds; intervals may overlap each other.

    Args:
        frame: intervals; zero-length ones get 0.
        cover: intervals with the same keys, none of them null; overlaps count once.
        keys: columns that tell groups apart.

    Example:
        >>> import polars as pl
        >>> a, b = pl.DataFrame({"start_ns": [0, 5], "end_ns": [10, 30]}), pl.DataFrame({"start_ns": [4, 20], "end_ns": [8, 22]})
        >>> covered(a, b).to_list()
        [4, 5]
    """
    group = list(keys) or ["__one"]
    pieces = union(cover, keys).with_columns(*([] if keys else [pl.lit(0).alias("__one")]))
    length = pl.col("end_ns") - pl.col("start_ns")
    pieces = pieces.select(*group, __at="start_ns", __from="start_ns", __to="end_ns", __before=length.cum_sum() - length)
    points = pl.concat(
        frame.select(*keys, __at=column, __row=pl.int_range(pl.len()), __sign=pl.lit(sign, pl.Int64)).with_columns(
            *([] if keys else [pl.lit(0).alias("__one")])
        )
        for column, sign in (("end_ns", 1), ("start_ns", -1))
    )
    # Cover up to a moment, counted from anywhere: the difference of an interval's two ends is what lies inside it.
    found = points.sort("__at").join_asof(pieces.sort("__at"), on="__at", by=group, check_sortedness=False)
    upto = pl.col("__before") + pl.min_horizontal("__at", "__to") - pl.col("__from")
    first = pieces.group_by(group).agg(pl.col("__before").min().alias("__base"))
    found = found.join(first, on=group, how="left").with_columns(upto=pl.coalesce(upto, "__base").fill_null(0) * pl.col("__sign"))
    return found.group_by("__row").agg(pl.col("upto").sum()).sort("__row")["upto"].rename("covered_ns")


def exclusive(frame: pl.DataFrame, sets: Mapping[str, pl.DataFrame], keys: Sequence[str] = ()) -> pl.DataFrame:
    """Return for each interval how long each set covers it and no set before it does, in nanoseconds; intervals may overlap.

    Args:
        frame: intervals.
        sets: name -> intervals with the same keys, in order of priority; overlaps within a set count once.
        keys: columns that tell groups apart, none of them null.

    Returns:
        A column for each set (i64), rows in the order of the frame.

    Example:
        >>> import polars as pl
        >>> steps = pl.DataFrame({"start_ns": [0, 10], "end_ns": [10, 20]})
        >>> kernels, calls = pl.DataFrame({"start_ns": [5], "end_ns": [12]}), pl.DataFrame({"start_ns": [0], "end_ns": [18]})
        >>> exclusive(steps, {"kernels": kernels, "calls": calls}).rows()
        [(5, 5), (2, 6)]
    """
    sides = {"start_ns": 1, "end_ns": -1}
    marks = [
        union(cover, keys).select(*keys, at=side, covers=pl.lit(sign * 2**bit, pl.Int64), edge=pl.lit(None, pl.UInt32))
        for bit, cover in enumerate(sets.values())
        for side, sign in sides.items()
    ]
    number = pl.int_range(pl.len(), dtype=pl.UInt32)
    edges = [
        frame.select(*keys, at=side, covers=pl.lit(0, pl.Int64), edge=number + place * frame.height)
        for place, side in enumerate(sides)
    ]
    # A bit says that its set covers: each is a union, so sums carry nothing over, and one running sum serves all groups.
    rows = _by_time(pl.concat([*edges, *marks]), keys, "at").select(
        "edge", covers=pl.col("covers").cum_sum().cast(pl.Int32), length=pl.col("at").shift(-1) - pl.col("at")
    )
    alone = (pl.col("covers") & (2 ** (bit + 1) - 1) == 2**bit for bit in range(len(sets)))
    lengths = {name: pl.when(test).then("length").otherwise(0) for name, test in zip(sets, alone, strict=True)}
    upto = rows.select("edge", **{name: length.cum_sum().shift(1, fill_value=0) for name, length in lengths.items()})
    upto = upto.filter(pl.col("edge").is_not_null()).sort("edge").drop("edge")
    return upto.tail(frame.height) - upto.head(frame.height)


def clip(frame: pl.DataFrame, start_ns: pl.Expr, end_ns: pl.Expr) -> pl.DataFrame:
    """Return the intervals cut to a window; those outside are gone, zero-length ones inside stay.

    Args:
        frame: intervals.
        start_ns: where the window begins, an expression over the frame.
        end_ns: where it ends.

    Example:
        >>> import polars as pl
        >>> clip(pl.DataFrame({"start_ns": [0, 8, 20], "end_ns": [5, 8, 30]}), pl.lit(2), pl.lit(10)).rows()
        [(2, 5), (8, 8)]
    """
    instant = (pl.col("start_ns") == pl.col("end_ns")) & (pl.col("start_ns") >= start_ns) & (pl.col("start_ns") <= end_ns)
    return frame.filter(((pl.col("start_ns") < end_ns) & (pl.col("end_ns") > start_ns)) | instant).with_columns(
        pl.max_horizontal("start_ns", start_ns).alias("start_ns"), pl.min_horizontal("end_ns", end_ns).alias("end_ns")
    )


def buckets(frame: pl.DataFrame, keys: Sequence[str], origin_ns: pl.Expr, width_ns: pl.Expr) -> pl.DataFrame:
    """Return how much of each time bucket the intervals cover; an interval is split exactly where buckets meet.

    Args:
        frame: disjoint intervals (see `union`), none before the origin.
        keys: columns that tell groups apart.
        origin_ns: where bucket 0 begins, an integer expression over the frame.
        width_ns: length of a bucket, an integer expression, at least 1.

    Returns:
        The keys, `bucket` (i64) and `covered_ns`; buckets without cover have no row.

    Example:
        >>> import polars as pl
        >>> buckets(pl.DataFrame({"start_ns": [0, 18], "end_ns": [12, 20]}), [], pl.lit(0), pl.lit(10)).rows()
        [(0, 10), (1, 4)]
    """
    rows = _measurable(frame, keys, origin_ns.cast(pl.Int64).alias("__origin"), width_ns.cast(pl.Int64).alias("__width"))
    begin = pl.col("start_ns") - pl.col("__origin")
    last = (pl.col("end_ns") - pl.col("__origin") - 1) // pl.col("__width")
    pieces = rows.with_columns(pl.int_ranges(begin // pl.col("__width"), last + 1).alias("bucket")).explode("bucket")
    low = pl.col("__origin") + pl.col("bucket") * pl.col("__width")
    covered = pl.min_horizontal("end_ns", low + pl.col("__width")) - pl.max_horizontal("start_ns", low)
    return pieces.group_by(*keys, "bucket").agg(covered.sum().alias("covered_ns")).sort(*keys, "bucket")


def _measurable(frame: pl.DataFrame, keys: Sequence[str], *more: pl.Expr) -> pl.DataFrame:
    return frame.filter(pl.col("end_ns") > pl.col("start_ns")).select(*keys, "start_ns", "end_ns", *more)


def _by_time(frame: pl.DataFrame, keys: Sequence[str], column: str) -> pl.DataFrame:
    """Sort by keys, then time.

    Time first and the keys in a stable second pass is four times faster than one sort by all, and keys that are the same in
    every row (most traces have one device) cost nothing.
    """
    rows = frame if frame[column].is_sorted() else frame.sort(column)
    varying = [key for key in keys if rows[key].null_count() or rows[key].min() != rows[key].max()]
    return rows.sort(*varying, maintain_order=True) if varying else rows


def _runs(keys: Sequence[str]) -> pl.Expr:
    """Number the groups of a frame sorted by its keys."""
    if not keys:
        return pl.lit(0, pl.UInt32)
    return pl.struct(*keys).rle_id()
