"""Files that merge several processes: which rows belong to which rank.

Serving tools write the traces of all ranks into one file and tell them apart by a label in front of (or behind) each pid:
`[TP00] 0` and `[TP01] 0` are the GPU 0 of two ranks, and their device, stream and correlation numbers collide.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import polars as pl

_TRAILING = re.compile(r"^(.*?)-?\d+\s*$", re.DOTALL)
_LEADING = re.compile(r"^\s*-?\d+(.*)$", re.DOTALL)
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Merged:
    """The ranks of the parts that merge several processes; empty for ordinary traces."""

    ranks: dict[tuple[int, str], int] = field(default_factory=dict)
    """Rank by part and key of a process, see `key`; for processes told apart by number alone, by the process text itself."""

    @property
    def parts(self) -> list[int]:
        """Parts that merge several processes."""
        return sorted({part for part, _ in self.ranks})

    def rank_of(self, processes: pl.DataFrame) -> pl.DataFrame:
        """Give the processes of merged parts their rank.

        Args:
            processes: part, process (text), and `first_id`, the first row of each; one row per process.

        Returns:
            part, process, merged_rank (null where it cannot be told).
        """
        rows = [
            (part, process, self.ranks.get((part, process), self.ranks.get((part, key(process)))))
            for part, process in processes.select("part", "process").iter_rows()
        ]
        return pl.DataFrame(rows, schema={"part": pl.Int32, "process": pl.String, "merged_rank": pl.Int32}, orient="row")


def label(process: str) -> str:
    """Return what stands beside the number of a process.

    >>> label("[TP00] 0"), label("rank1 GPU 0"), label("4242 (rank 1)"), label("4242")
    ('[TP00]', 'rank1 GPU', '(rank 1)', '')
    """
    hit = _TRAILING.match(process) or _LEADING.match(process)
    return (hit[1] if hit else process).strip()


def key(process: str) -> str:
    """Return what the processes of one rank have in common: the numbers of the label, else its first word.

    >>> key("rank1 GPU 0"), key("rank1 python 4242"), key("[DP0_TP01] 0"), key("actor GPU 0"), key("4242")
    ('1', '1', '0,1', 'actor', '')
    """
    text = label(process)
    numbers = ",".join(str(int(number)) for number in _NUMBER.findall(text))
    return numbers or next(iter(text.lower().split()), "")


def claims(activities: pl.DataFrame) -> pl.DataFrame:
    """Return which processes ran GPU work on which device.

    Args:
        activities: part, device, process, event_id, correlation.

    Returns:
        part, device, process, first_id (the first row), shared (another process of the part uses one of its correlation ids).
    """
    found = activities.group_by("part", "device", "process").agg(first_id=pl.col("event_id").min())
    if not found.select("part", "device").is_duplicated().any():
        return found.with_columns(shared=pl.lit(value=False))
    ids = activities.select("part", "process", "correlation").drop_nulls().unique()
    twice = ids.filter(ids.select("part", "correlation").is_duplicated()).select("part", "process", shared=pl.lit(value=True))
    return found.join(twice.unique(), on=["part", "process"], how="left").with_columns(pl.col("shared").fill_null(value=False))


def merged(gpu: pl.DataFrame, launching: pl.DataFrame) -> Merged:
    """Find out which parts merge several processes, and number their ranks.

    A part does when processes with different labels run GPU work, or when processes told apart by number alone claim one
    device and use the same correlation ids.

    Args:
        gpu: see `claims`.
        launching: part, process, first_id: one row per process with launch calls.

    Example:
        >>> gpu = pl.DataFrame({"part": 0, "device": 0, "process": ["[TP00] 0", "[TP01] 0"], "first_id": [5, 9], "shared": True})
        >>> merged(gpu, gpu.clear()).ranks
        {(0, '0'): 0, (0, '1'): 1}
    """
    ranks: dict[tuple[int, str], int] = {}
    for (part,), rows in gpu.sort("part", "first_id").group_by("part", maintain_order=True):
        processes = rows["process"].unique(maintain_order=True).to_list()
        labels = {label(process) for process in processes}
        if len(labels) > 1 or (rows["device"].is_duplicated() & rows["shared"]).any():
            hosts = launching.filter(pl.col("part") == part).sort("first_id")["process"].to_list()
            ranks |= {(int(str(part)), text): rank for text, rank in _ranks(processes, hosts).items()}
    return Merged(ranks)


def _ranks(processes: list[str], hosts: list[str]) -> dict[str, int]:
    """Ranks by key, or by process where keys do not tell the processes apart."""
    keys = list(dict.fromkeys(key(process) for process in processes))
    if len(keys) > 1:
        return dict(zip(keys, _numbered(keys), strict=True))
    found = {process: rank for rank, process in enumerate(processes)}
    # Told apart by number alone: files are appended whole, so the n-th process that launches belongs to the n-th GPU process.
    if len(hosts) == len(processes):
        found |= {host: rank for rank, host in enumerate(hosts) if host not in found}
    return found


def _numbered(keys: list[str]) -> list[int]:
    """The number in which the keys differ, where one tells them apart; else their order."""
    rows = [text.split(",") for text in keys]
    width = {len(row) for row in rows}
    if len(width) == 1:
        for column in zip(*rows, strict=True):
            if len(set(column)) == len(keys) and all(text.isdigit() for text in column):
                return [int(text) for text in column]
    return list(range(len(keys)))
