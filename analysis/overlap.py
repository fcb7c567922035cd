"""How much of the communication is hidden behind compute, and behind what."""

from __future__ import annotations

import polars as pl

from . import intervals
from .captures import PLACE, WINDOW, told
from .question import Column, Table, as_declared, question
from .shares import percent
from .work import DEVICE, Work

DEVICE_COLUMNS = (
    *PLACE,
    Column("comm_us", "us", "time in which at least one communication kernel runs", priority=0),
    Column("compute_us", "us", "time in which at least one kernel that is not communication runs", priority=2),
    Column("overlap_us", "us", "time in which both run", priority=1),
    Column("exposed_comm_us", "us", "comm - overlap: communication with no compute beside it", "exposed comm", priority=0),
    Column("overlap_pct", "pct", "overlap / comm; null where there is no communication", priority=0),
    WINDOW,
)
"""Columns of the main table."""

KIND_COLUMNS = (
    *PLACE,
    Column("kind", "text", "kind of collective", priority=0),
    Column("count", "count", "kernels of this kind", priority=1),
    Column("own_us", "us", "time in which at least one of them runs", priority=0),
    Column("hidden_us", "us", "of it, time with compute beside it", priority=1),
    Column("exposed_us", "us", "of it, time with no compute beside it", priority=0),
    Column("hidden_pct", "pct", "hidden / own", priority=0),
    WINDOW,
)
"""Columns of the table per kind of collective."""

KERNEL_COLUMNS = (
    Column("name", "text", "communication kernel", priority=0),
    Column("kind", "text", "kind of collective", priority=2),
    Column("count", "count", "launches", priority=1),
    Column("own_us", "us", "sum of durations", priority=0),
    Column("hidden_us", "us", "of it, time with compute beside it", priority=1),
    Column("exposed_us", "us", "of it, time with no compute beside it", priority=0),
    Column("hidden_pct", "pct", "hidden / own", priority=0),
    Column("beside", "text", "family of compute that ran beside it longest; null where none did", priority=1),
    Column("beside_pct", "pct", "share of own time that this family ran beside it", priority=1),
)
"""Columns of the table per communication kernel."""

BESIDE_COLUMNS = (
    Column("name", "text", "communication kernel", priority=0),
    Column("kind", "text", "kind of collective", priority=2),
    Column("family", "text", "family of compute beside it; `nothing` where no compute runs", priority=0),
    Column("beside_us", "us", "time in which at least one kernel of the family runs beside it", priority=1),
    Column("beside_pct", "pct", "share of the communication kernel's own time; families that overlap count in each", priority=0),
)
"""Columns of the table of what ran beside."""

NOTHING = "nothing"


@question(
    name="overlap",
    title="Overlap",
    about="How much of the communication is hidden behind compute.",
    tables=(
        Table("devices", DEVICE_COLUMNS),
        Table("kinds", KIND_COLUMNS, sort="exposed_us", about="Per kind of collective; kinds that run together count in each."),
        Table(
            "kernels",
            KERNEL_COLUMNS,
            sort="exposed_us",
            about="Per communication kernel and kind, all devices in scope together.",
        ),
        Table("beside", BESIDE_COLUMNS, sort="beside_us", about="What ran beside each communication kernel."),
    ),
    order=4,
)
def overlap(work: Work) -> dict[str, pl.DataFrame]:
    """Return communication against compute, per device, kind and kernel.

    What it runs beside is looked up among all work of the device, whatever filter is set.

    Example:
        >>> import kinetop
        >>> answer = kinetop.overlap.ask(kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False))
        >>> answer.tables["beside"].select("family", "beside_us").rows()
        [('nothing', 15.0), ('softmax', 15.0), ('elementwise', 10.0), ('gemm', 10.0)]
    """
    comm = work.gpu.filter(pl.col("class") == "comm")
    compute = work.all_gpu.filter(pl.col("class") == "compute")
    beside = _beside(comm, compute)
    return {
        "devices": _devices(work, comm, compute),
        "kinds": _kinds(work, comm, compute),
        "kernels": _kernels(comm, compute, beside),
        "beside": as_declared(beside, BESIDE_COLUMNS).sort(
            ["name", "kind", "beside_us", "family"], descending=[False, False, True, False]
        ),
    }


def _devices(work: Work, comm: pl.DataFrame, compute: pl.DataFrame) -> pl.DataFrame:
    """Per device: union of each side, and of both."""
    rows = work.windows.select(*DEVICE)
    both = intervals.intersect(comm, compute, DEVICE)
    for name, frame in (("comm", comm), ("compute", compute), ("overlap", both)):
        lengths = intervals.total(frame, DEVICE).rename({"total_ns": f"{name}_ns"})
        rows = rows.join(lengths, on=list(DEVICE), how="left", maintain_order="left")
    rows = rows.with_columns(pl.col("comm_ns", "compute_ns", "overlap_ns").fill_null(0))
    rows = rows.with_columns(
        exposed_comm_ns=pl.col("comm_ns") - pl.col("overlap_ns"), overlap_pct=percent(pl.col("overlap_ns"), pl.col("comm_ns"))
    )
    return told(rows, work, DEVICE_COLUMNS)


def _kinds(work: Work, comm: pl.DataFrame, compute: pl.DataFrame) -> pl.DataFrame:
    """Per device and kind of collective: union of the kind, and of it with compute."""
    keys = [*DEVICE, "family"]
    pieces = intervals.union(comm, keys)
    pieces = pieces.with_columns(intervals.covered(pieces, compute, DEVICE).alias("hidden_ns"))
    own = (pl.col("end_ns") - pl.col("start_ns")).sum()
    counts = comm.group_by(keys).agg(count=pl.len().cast(pl.Int64))
    lengths = pieces.group_by(keys).agg(own_ns=own, hidden_ns=pl.col("hidden_ns").sum())
    rows = counts.join(lengths, on=keys, how="left").with_columns(pl.col("own_ns", "hidden_ns").fill_null(0), kind="family")
    order = ["exposed_ns", "rank", "part", "device", "kind"]
    return told(_split(rows).sort(order, descending=[True, *[False] * 4]), work, KIND_COLUMNS)


def _kernels(comm: pl.DataFrame, compute: pl.DataFrame, beside: pl.DataFrame) -> pl.DataFrame:
    """Per communication kernel: sums over its launches."""
    measured = comm.with_columns(intervals.covered(comm, compute, DEVICE).alias("hidden_ns"))
    keys = ["name", "kind"]
    rows = (
        measured.drop("kind")
        .rename({"family": "kind"})
        .group_by(keys)
        .agg(count=pl.len().cast(pl.Int64), own_ns=pl.col("dur_ns").sum(), hidden_ns=pl.col("hidden_ns").sum())
    )
    most = (
        beside.filter(pl.col("family") != NOTHING)
        .sort(["beside_ns", "family"], descending=[True, False])
        .unique(keys, keep="first", maintain_order=True)
        .select(*keys, "beside_pct", beside="family")
    )
    rows = rows.join(most, on=keys, how="left", nulls_equal=True)
    return as_declared(_split(rows), KERNEL_COLUMNS).sort(["exposed_us", *keys], descending=[True, False, False])


def _beside(comm: pl.DataFrame, compute: pl.DataFrame) -> pl.DataFrame:
    """Return how long each family of compute, or nothing, ran beside each kernel: beside_ns and beside_pct."""
    keys = ["name", "kind"]
    own = comm.select("name", "dur_ns", kind="family")
    alone = comm["dur_ns"] - intervals.covered(comm, compute, DEVICE)
    sides = [(NOTHING, alone)]
    sides += [
        (str(key[0]), intervals.covered(comm, part, DEVICE)) for key, part in compute.partition_by("family", as_dict=True).items()
    ]
    long = pl.concat(own.with_columns(length.alias("beside_ns"), family=pl.lit(family)) for family, length in sides)
    sums = long.group_by(*keys, "family").agg(pl.col("beside_ns").sum(), pl.col("dur_ns").sum())
    return sums.filter(pl.col("beside_ns") > 0).with_columns(beside_pct=percent(pl.col("beside_ns"), pl.col("dur_ns")))


def _split(rows: pl.DataFrame) -> pl.DataFrame:
    """Add what is exposed, and the hidden share."""
    own, hidden = pl.col("own_ns"), pl.col("hidden_ns")
    return rows.with_columns(exposed_ns=own - hidden, hidden_pct=percent(hidden, own))
