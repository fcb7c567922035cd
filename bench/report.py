"""Write docs/performance.md from bench/results: ratios first, then the figures, then the machine."""

from __future__ import annotations

import json
from typing import Any

from measure import RESULTS, ROOT

PAGE = ROOT / "docs" / "performance.md"
NOTES = ROOT / "bench" / "notes.md"
"""Words of ours on the figures, put under the tables: what falls short, and why."""
BUDGET_KEY_MS, BUDGET_KEY_BYTES, BUDGET_FILTER_MS = 50, 1_000, 200

Rows = list[dict[str, Any]]


def load(name: str) -> tuple[dict[str, Any], Rows]:
    """Return the machine and the rows of a benchmark; empty when it has not been run."""
    path = RESULTS / f"{name}.json"
    if not path.is_file():
        return {}, []
    data = json.loads(path.read_text())
    return data["machine"], data["rows"]


def table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> list[str]:
    """Return a Markdown table; the first column is text, the others are figures."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return ["", *("| " + " | ".join(map(str, row)) + " |" for row in [head, rule, *rows]), ""]


def import_ratios(rows: Rows) -> list[str]:
    """Return what kinetop's import is against each peer, size by size."""
    lines = []
    for size in sorted({row["size_mb"] for row in rows}):
        by = {row["what"]: row for row in rows if row["size_mb"] == size}
        ours = {what: row for what, row in by.items() if what.startswith("kinetop")}
        best = min(ours.values(), key=lambda row: row["wall_s"])
        said = []
        if hta := by.get("HTA load"):
            said.append(f"{hta['wall_s'] / best['wall_s']:.1f}x faster than HTA's load (aim 30x, at least 15x)")
        if dom := by.get("simdjson DOM parse"):
            cpu = min(row["cpu_s"] for row in ours.values())
            said.append(f"{cpu / dom['cpu_s']:.1f}x the CPU time of a simdjson DOM parse (aim 2x, at most 4x)")
        one, two = ours.get("kinetop, 1 job"), ours.get("kinetop, 2 jobs")
        if one and two:
            said.append(f"2 jobs take {two['wall_s'] / one['wall_s']:.2f}x the wall time of 1 (at most 0.6x)")
        said.append(f"peak memory {best['peak_gb']:.2f} GB (at most 1 GB)")
        lines.append(f"- {size:,.0f} MB of JSON to Parquet: " + "; ".join(said) + ".")
    return lines


def import_part(rows: Rows) -> list[str]:
    """Return the import's section."""
    cells = [
        (
            row["what"],
            f"{row['size_mb']:,.0f}",
            f"{row['wall_s']:.2f}",
            f"{row['cpu_s']:.2f}",
            f"{row['peak_gb']:.2f}",
            f"{row['anonymous_gb']:.2f}",
        )
        for row in rows
    ]
    head = ("import", "JSON, MB", "wall, s", "CPU, s", "peak memory, GB", "of it not file pages, GB")
    words = "Memory is the largest sum over all processes of the command; CPU is of all of them."
    return ["## JSON to Parquet", "", *import_ratios(rows), *table(head, cells), words, ""]


def analyses_part(rows: Rows) -> list[str]:
    """Return the analyses' section: one line a question, one column a size."""
    sizes = sorted({row["events"] for row in rows})
    found = {(row["what"], row["events"]): row["wall_s"] for row in rows}
    names = list(dict.fromkeys(row["what"] for row in rows))
    cells = [(name, *(f"{found[name, size]:.3f}" if (name, size) in found else "" for size in sizes)) for name in names]
    aims = "(aim at 2 M: under 1 s)"
    lines = []
    for size in sizes:
        first, summary = found["import kinetop, open, first table", size], found["summary, after opening", size]
        lines.append(
            f"- {size:,} events: first table {first:.2f} s from the start, summary {summary:.2f} s after opening {aims}."
        )
    head = ("seconds, from the cache", *(f"{size:,} events" for size in sizes))
    return ["## Questions", "", *lines, *table(head, cells)]


def tui_part(rows: Rows) -> list[str]:
    """Return the terminal's section."""
    cells = [
        (
            row["what"],
            f"{row['events']:,}",
            row.get("ms", row.get("table_ms", "")),
            row.get("cpu_ms", row.get("table_cpu_ms", "")),
            row.get("worst_table_ms", ""),
            row.get("bytes", row.get("table_bytes", "")),
            row.get("all_ms", ""),
            row.get("all_bytes", ""),
        )
        for row in rows
    ]
    head = ("140 by 40, in a pty", "events", "table, ms", "CPU, ms", "slowest, ms", "bytes", "with the pane, ms", "bytes")
    words = (
        f"Aims: a cursor move is drawn in under {BUDGET_KEY_MS} ms with at most {BUDGET_KEY_BYTES:,} bytes, a letter of a filter "
        f"in under {BUDGET_FILTER_MS} ms (the wait for the next letter included), nothing is written while nothing happens. The "
        "pane below a table follows when the cursor has rested for 0.12 s."
    )
    return ["## Terminal", "", words, *table(head, cells)]


def main() -> None:
    """Write the page."""
    parts = {"import": import_part, "analyses": analyses_part, "tui": tui_part}
    lines = [
        "# Performance",
        "",
        "Made by `just bench` from `bench/results/`; do not edit. Ratios are of one run on one machine.",
        "",
    ]
    machines = {}
    for name, part in parts.items():
        machine, rows = load(name)
        if rows:
            machines[name] = machine
            lines += part(rows)
    if NOTES.is_file():
        lines += ["## What falls short", "", NOTES.read_text().strip(), ""]
    lines += ["## Machine", ""]
    for name, machine in machines.items():
        lines.append(f"- {name}: " + ", ".join(f"{key} {value}" for key, value in machine.items()))
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text("\n".join(lines).rstrip() + "\n")
    print(PAGE)


if __name__ == "__main__":
    main()
