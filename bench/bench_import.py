"""JSON to Parquet against HolisticTraceAnalysis' load and a simdjson DOM parse of the same bytes, in one run."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from make_big import make_big
from measure import Cost, as_row, keep, run

HTA_LOAD = "import sys; from hta.trace_analysis import TraceAnalysis; TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir='')"
DOM_PARSE = "import sys, simdjson; simdjson.Parser().parse(open(sys.argv[1], 'rb').read())"


def convert(trace: Path, folder: Path, jobs: int) -> Cost:
    """Import a trace without the cache, in a fresh process."""
    out = folder / "out.parquet"
    out.unlink(missing_ok=True)
    env = {"KINETOP_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": "src"}
    return run([sys.executable, "-m", "kinetop", "convert", trace, "-o", out, "--no-cache", "--jobs", str(jobs)], env)


def compare(trace: Path, copies: int, args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Measure one size: kinetop at each number of jobs, then its peers."""
    big = folder / f"rank-0.x{copies}.json"
    size = make_big(trace, big, copies)
    costs = {f"kinetop, {jobs} job{'s' if jobs > 1 else ''}": convert(big, folder, jobs) for jobs in args.jobs}
    if args.peers:
        costs["simdjson DOM parse"] = run([args.peers, "-c", DOM_PARSE, big])
        if size <= args.hta_up_to_mb * 1e6:
            costs["HTA load"] = run([args.peers, "-c", HTA_LOAD, big])
    big.unlink()
    rows = [{"what": what, "size_mb": round(size / 1e6, 1), **as_row(cost)} for what, cost in costs.items()]
    for row in rows:
        print(row)
    return rows


def main() -> None:
    """Measure and keep the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path, help="a Kineto trace whose events are repeated")
    parser.add_argument("--copies", type=int, nargs="+", default=[10, 37], help="how often; each gives one size")
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--peers", help="a Python that has HolisticTraceAnalysis and pysimdjson")
    parser.add_argument("--hta-up-to-mb", type=float, default=1_000, help="HTA takes over five minutes and 10 GB beyond this")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        keep("import", [row for copies in args.copies for row in compare(args.trace, copies, args, Path(folder))])


if __name__ == "__main__":
    main()
