"""Figures of what `check_device.py` recorded: each made by itself, so that one which fails leaves the others."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from kinetop.analysis import benchmark, expected, live_findings, trials
from kinetop.traces.live import session
from kinetop.traces.live.recording import Recording, Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

Rows = list[dict[str, Any]]
GPU_FIGURES = (
    *("util_pct", "memory_util_pct", "memory_bytes", "memory_total_bytes", "power_w", "power_limit_w", "energy_mj", "sm_mhz"),
    *("sm_max_mhz", "memory_mhz", "temperature_c", "throttle", "pcie_rx_bytes_s", "pcie_tx_bytes_s"),
    *("nvlink_rx_bytes_s", "nvlink_tx_bytes_s", "others"),
)
"""What a GPU's telemetry may say."""
_ABOUT = (
    "device_name",
    "device",
    "driver",
    "cuda",
    "cudnn",
    "torch",
    "python",
    "profiler",
    "permissions",
    "priority_order",
    "flags",
)
_TIMES = (
    *("variant", "case", "backend", "state", "median_us", "low_us", "high_us", "n", "useful_tflops", "peak_pct", "gb_s"),
    *("peak_bytes", "compile_s", "first_call_us", "energy_mj", "throttled_pct", "contended_pct"),
)


def machine(run: Recording, _live: Recording) -> Rows:
    """What the worker said of the machine."""
    return [{"what": name, "is": json.dumps(run.environment.get(name))} for name in _ABOUT]


def variants(run: Recording, _live: Recording) -> Rows:
    """Each variant on each case: whether it ran, or why not."""
    return [
        {"variant": trial.variant, "case": trial.case.text, "state": trial.state, "samples": trial.seen, "why": trial.why}
        for trial in run.trials.values()
    ]


def times(run: Recording, _live: Recording) -> Rows:
    """What was measured with the profiler off."""
    return [{name: row.get(name) for name in _TIMES} for row in trials.rows(run) if row.get("n")]


def numerics(run: Recording, _live: Recording) -> Rows:
    """Errors against the reference, and their bounds."""
    made = []
    for trial in measured(run):
        error = trial.prepared.get("error") or {}
        row = {"variant": trial.variant, "case": trial.case.text, "ok": error.get("ok")}
        figures = {name: error.get(name) for name in ("max_abs", "bound", "grad_max_abs", "grad_bound", "nan_rows", "reference")}
        made.append({**row, **figures, "not compared": trial.prepared.get("error_skipped")})
    return made


def kernels(run: Recording, _live: Recording) -> Rows:
    """Patterns of what should run, and what ran."""
    return [
        {"variant": trial.variant, "case": trial.case.text, "ok": check.ok, "kind": check.kind, "pattern": check.pattern}
        | {"per step": check.per_step, "names": list(check.names[:4])}
        for trial in measured(run)
        for check in expected.check(run, trial)
    ]


def names(run: Recording, _live: Recording) -> Rows:
    """GPU work of each trial: name and count in all its windows."""
    return [
        {"variant": trial.variant, "case": trial.case.text, "kernel": name, "count": count, "steps": steps}
        for trial in measured(run)
        for steps in [sum(window.steps for window in trial.windows)]
        for name, count in counted(trial, {"kernel", "gpu_memcpy", "gpu_memset"}).most_common(12)
    ]


def backends(run: Recording, _live: Recording) -> Rows:
    """The backend that torch says SDPA takes, and the attention operators and kernels that were seen."""
    made = []
    for trial in measured(run):
        if trial.variant == "sdpa:auto":
            every = counted(trial, {"cpu_op", "kernel"})
            seen = [name for name in every if any(word in name.lower() for word in ("attention", "flash", "fmha", "sdpa"))]
            made.append({"case": trial.case.text, "said": trial.backend, "seen": seen[:8]})
    return made


def graphs(run: Recording, _live: Recording) -> Rows:
    """Cases with and without CUDA graphs."""
    medians = {(row["variant"], row["case"]): row.get("median_us") for row in trials.rows(run)}
    made = []
    for trial in run.trials.values():
        if trial.case.graph:
            plain = medians.get((trial.variant, trial.case.with_(graph=False).text))
            graph = medians.get((trial.variant, trial.case.text))
            ratio = plain / graph if plain and graph else None
            row = {"variant": trial.variant, "case": trial.case.text, "median_us": graph, "without_us": plain}
            made.append({**row, "times faster": ratio, "state": trial.state, "why": trial.why})
    return made


def windows(run: Recording, live: Recording) -> Rows:
    """What windows cost and what they lost; `live` is measured as the screen does, where a limit holds."""
    made = []
    for where, recording in (("run", run), ("live", live)):
        found = [window for trial in recording.trials.values() for window in trial.windows]
        launches = sum(
            sum(counted(trial, {"cuda_runtime", "cuda_driver"}, "Launch").values()) for trial in recording.trials.values()
        )
        row = {"where": where, "windows": len(found), "steps": sum(window.steps for window in found)}
        row |= {"events": sum(map(len, found)), "launches": launches, "dropped": recording.dropped}
        share = 100 * recording.dropped / launches if launches else None
        made.append({**row, "dropped_pct": share, "duty_pct": recording.duty_pct if where == "live" else None})
    return made


def disturbed(run: Recording, live: Recording) -> Rows:
    """Medians while windows are taken now and then, against medians without: what the profiler leaves behind."""
    without = {(row["variant"], row["case"]): row.get("median_us") for row in trials.rows(run)}
    made = []
    for row in trials.rows(live):
        before, median = without.get((row["variant"], row["case"])), row.get("median_us")
        ratio = median / before if before and median else None
        made.append({"variant": row["variant"], "case": row["case"], "live_us": median, "run_us": before, "ratio": ratio})
    return made


def telemetry(run: Recording, live: Recording) -> Rows:
    """Figures that the machine gave, with their range, and those of a GPU that it did not."""
    readings = [*run.telemetry, *live.telemetry]
    found: dict[str, list[Any]] = {}
    for reading in readings:
        for name, value in reading.items():
            if name not in {"kind", "t_ns", "seq", "device"}:
                found.setdefault(name, []).append(value)
    made = []
    for name in [*found, *(name for name in GPU_FIGURES if name not in found)]:
        values = found.get(name, [])
        numbers = [value for value in values if isinstance(value, (int, float))]
        ends = {"least": min(numbers, default=None), "most": max(numbers, default=None)}
        other = sorted({str(value) for value in values if not isinstance(value, (int, float))})[:4]
        made.append({"figure": name, "readings": len(values), "of": len(readings), **ends, "values": other})
    return made


def findings(run: Recording, live: Recording) -> Rows:
    """Every finding, with its evidence."""
    return [
        {"code": one.code, "level": one.level, "variant": one.variant, "case": one.case, "evidence": one.evidence}
        for recording in (run, live)
        for one in live_findings.find(recording)
    ]


FIGURES: tuple[Callable[[Recording, Recording], Rows], ...] = (
    *(machine, variants, times, numerics, kernels, names, backends, graphs, windows, disturbed, telemetry, findings),
)


def measured(recording: Recording) -> Iterable[Trial]:
    """Return the trials that were made ready."""
    return [trial for trial in recording.trials.values() if trial.prepared]


def counted(trial: Trial, kinds: set[str], word: str = "") -> Counter[str]:
    """Return how often each name stands in a trial's windows.

    Args:
        trial: whose windows.
        kinds: categories of events.
        word: what names must hold.
    """
    found: Counter[str] = Counter()
    for window in trial.windows:
        for number, kind in zip(window.columns["name"], window.columns["kind"], strict=True):
            name = window.names.get(number, "?")
            if word in name and window.kinds[kind] in kinds:
                found[name] += 1
    return found


def read(path: Path) -> Recording:
    """Return all that a session holds; nothing where there is none."""
    made = Recording()
    for frame in session.frames(path) if path.exists() else ():
        made.add(frame)
    return made


def write(out: Path, run: Path, live: Path) -> list[str]:
    """Write `figures.json`, `figures.md` and `bench.json` into the folder; return what failed.

    Args:
        out: the folder, with `checks.json` in it.
        run: session of the benchmarks.
        live: session measured as the live screen does.
    """
    noted = json.loads((out / "checks.json").read_text()) if (out / "checks.json").exists() else {}
    told, during = read(run), read(live)
    made: dict[str, Any] = {}
    failed = [f"{check['name']}: {check['failed']}" for check in noted.get("checks", []) if check["failed"]]
    for figure in FIGURES:
        try:
            made[figure.__name__] = figure(told, during)
        except Exception as error:  # the other figures stand
            failed.append(f"figure {figure.__name__}: {type(error).__name__}: {error}")
    try:
        (out / "bench.json").write_text(json.dumps(benchmark.document(told)))
    except Exception as error:
        failed.append(f"bench.json: {type(error).__name__}: {error}")
    (out / "figures.json").write_text(json.dumps({**noted, "failed": failed, "figures": made}, indent=1, default=str))
    (out / "figures.md").write_text("\n".join(page(noted, failed, made)) + "\n")
    return failed


def page(noted: Mapping[str, Any], failed: Iterable[str], made: Mapping[str, Rows]) -> Iterable[str]:
    """Yield the lines of the Markdown page."""
    yield from (f"# What was seen on {noted.get('device', 'a device')}", "")
    yield from (*(f"- **failed**: {text}" for text in failed), "")
    yield from section("Checks", "What ran, and what went wrong within.", noted.get("checks", []))
    for figure in FIGURES:
        if figure.__name__ in made:
            about = str(figure.__doc__)
            yield from section(figure.__name__.capitalize(), about, made[figure.__name__])


def section(title: str, about: str, rows: Rows) -> Iterable[str]:
    """Yield the lines of one table; columns that hold nothing are left out."""
    yield from (f"## {title}", about, "")
    columns = [name for name in (rows[0] if rows else {}) if any(row[name] not in (None, "", []) for row in rows)]
    if columns:
        yield f"| {' | '.join(columns)} |"
        yield f"|{'---|' * len(columns)}"
        yield from (f"| {' | '.join(text(row[name]) for name in columns)} |" for row in rows)
    else:
        yield "Nothing was seen."
    yield ""


def text(value: Any) -> str:
    """Return a value as a table's cell."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return "; ".join(map(text, value))
    return str(value).replace("|", "\\|").replace("\n", " ")
