"""Opening a trace from the cache and asking each question, at several sizes, against plain Polars on the same Parquet file."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measure import ROOT, keep

PLAIN = "plain Polars: kernels by name"


def ask_all(trace: str) -> dict[str, float]:
    """Open a trace and ask every question once, in this process; seconds by name."""
    seconds: dict[str, float] = {}
    begin = time.perf_counter()
    import kinetop
    from kinetop.analysis.question import all_questions

    opened = kinetop.open(trace)
    kinetop.kernels(opened)
    seconds["import kinetop, open, first table"] = time.perf_counter() - begin
    for name, question in all_questions().items():
        fresh = kinetop.open(trace)
        fresh.activities  # noqa: B018 - what every view has read before it asks
        seconds[f"{name}, after opening"] = timed(lambda question=question, fresh=fresh: question.ask(fresh))
    filtered = kinetop.open(trace)
    kinetop.kernels(filtered)
    seconds["kernels, filter 'gemm and dur > 100us'"] = timed(lambda: kinetop.kernels(filtered, where="gemm and dur > 100us"))
    seconds[PLAIN] = timed(lambda: plain_kernels(opened.traces[0].parquet))
    return seconds


def timed(work: Any) -> float:
    """Return the seconds that a call takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def plain_kernels(parquet: Path) -> None:
    """Group the kernels by name as one would by hand: the floor for any table of kernels."""
    import polars as pl

    kernels = pl.scan_parquet(parquet, glob=False).filter(pl.col("cat") == "kernel")
    kernels.group_by("name").agg(count=pl.len(), total=pl.col("dur_ns").sum(), median=pl.col("dur_ns").median()).collect()


def measure(events: int, folder: Path) -> list[dict[str, Any]]:
    """Make a trace of this size, import it once, and ask in fresh processes."""
    from kinetop.traces.synthetic import Plan, write

    file = write(Plan(ranks=1, events=events), folder / str(events))[0]
    env = {**os.environ, "KINETOP_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": str(ROOT / "src")}
    argv = [sys.executable, __file__, "--ask", str(file.path)]
    subprocess.run(argv, env=env, stdout=subprocess.DEVNULL, check=True)  # fills the cache
    seconds = json.loads(subprocess.run(argv, env=env, stdout=subprocess.PIPE, check=True, text=True).stdout)
    file.path.unlink()
    rows = [{"what": what, "events": file.figures.events, "wall_s": round(took, 3)} for what, took in seconds.items()]
    for row in rows:
        print(row)
    return rows


def main() -> None:
    """Measure and keep the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, nargs="+", default=[200_000, 2_000_000, 10_000_000])
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.ask:
        print(json.dumps(ask_all(args.ask)))
        return
    sys.path.insert(0, str(ROOT / "src"))
    with tempfile.TemporaryDirectory() as folder:
        keep("analyses", [row for events in args.events for row in measure(events, Path(folder))])


if __name__ == "__main__":
    main()
