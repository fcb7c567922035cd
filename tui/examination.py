"""What `kinetop doctor` looks at: each thing that measuring needs, whether it is there, and what to do where it is not."""

from __future__ import annotations

import platform
import shutil
import sys
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from kinetop import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import polars as pl

    from kinetop.traces.live.link import Start
    from kinetop.traces.live.recording import Recording
    from kinetop.traces.live.worker.case import Case

State = Literal["ok", "note", "missing", "failed"]
SCHEMA = "kinetop.doctor/1"
_VARIANT = "eager"
"""What is measured to see that measuring works; it needs nothing but torch."""
_BEAT_MS = 1_200.0
"""Long enough that the machine's own figures are read once."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    check: str
    state: State
    what: str
    """What was found."""
    fix: str = ""
    """What to do, where something can be done."""


@dataclass(frozen=True)
class Examination:
    """All that was found."""

    checks: tuple[Check, ...]
    environment: Mapping[str, Any] = field(default_factory=dict)
    variants: tuple[Mapping[str, Any], ...] = ()
    """As the worker says: name, group, available, why_not, modes; and runs_case, whether it takes the case asked about."""

    @property
    def measures(self) -> bool:
        """Whether something could be measured."""
        return any(check.check == "measuring" and check.state in {"ok", "note"} for check in self.checks)

    def document(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        from .document import plain

        listed = {"checks": [asdict(check) for check in self.checks], "variants": self.variants, "environment": self.environment}
        found: dict[str, Any] = plain({"schema": SCHEMA, "measures": self.measures, **listed})
        return found

    def checks_frame(self) -> pl.DataFrame:
        """Return the checks as a table."""
        import polars as pl

        return pl.DataFrame(
            [asdict(check) for check in self.checks], schema=dict.fromkeys(("check", "state", "what", "fix"), pl.String)
        )

    def variants_frame(self) -> pl.DataFrame:
        """Return the variants as a table: which can run here, and why the others cannot."""
        import polars as pl

        rows = [
            {
                "variant": str(one.get("name")),
                "group": str(one.get("group")),
                "here": "yes" if one.get("runs_case") else "not this case" if one.get("available") else "no",
                "why_not": str(one.get("why_not") or ""),
            }
            for one in self.variants
        ]
        return pl.DataFrame(rows, schema=dict.fromkeys(("variant", "group", "here", "why_not"), pl.String))


def examine(start: Start, case: Case) -> Examination:
    """Look at everything; a small case is measured in a worker of its own.

    Args:
        start: how the worker would be started.
        case: small; its device is the one that is asked about.
    """
    from kinetop.traces.errors import WorkerError
    from kinetop.traces.live.measure import measure

    first = list(_before(start))
    try:
        made = measure(start, [case], [_VARIANT], samples=10, min_time_ms=_BEAT_MS, windows=1, probe=True)
    except WorkerError as error:
        return Examination((*first, Check("measuring", "failed", str(error))))
    checks = (*first, *_torch(made), *_profiler(made), *_measuring(made, case), *_telemetry(made), *_permissions(made))
    return Examination(checks, made.environment, tuple(_variants(made, case)))


def _variants(made: Recording, case: Case) -> Iterator[dict[str, Any]]:
    """Give what the worker says of each variant; one that is installed may still refuse the case."""
    for name, said in made.variants.items():
        trial = made.trials.get((name, case.text))
        refused = trial.why if trial is not None and trial.state in {"UNAVAILABLE", "FAILED"} else None
        yield {**said, "runs_case": bool(said.get("available")) and refused is None, "why_not": said.get("why_not") or refused}


def _before(start: Start) -> Iterator[Check]:
    """Look at what can be known without a worker."""
    from kinetop.traces.errors import WorkerError
    from kinetop.traces.live import interpreter

    yield Check("kinetop", "ok", f"{__version__}, Python {platform.python_version()}, {sys.executable}")
    if start.host is not None:
        ssh = shutil.which("ssh")
        yield Check("ssh", "ok" if ssh else "missing", ssh or "there is no ssh here", "" if ssh else "Install an OpenSSH client.")
        return
    try:
        python = start.python or interpreter.find()
    except WorkerError as error:
        yield Check("interpreter", "missing", ", ".join(interpreter.candidates()), str(error))
        return
    has = start.python is None or interpreter.has_torch(python)
    yield Check("interpreter", "ok" if has else "missing", python, "" if has else interpreter.why_not(python))


def _torch(made: Recording) -> Iterator[Check]:
    said = made.environment
    builds = [f"CUDA {said['cuda']}"] if said.get("cuda") else []
    builds += [f"HIP {said['hip']}"] if said.get("hip") else []
    builds += [f"cuDNN {said['cudnn']}"] if said.get("cudnn") else []
    builds += [f"driver {said['driver']}"] if said.get("driver") else []
    yield Check("torch", "ok", ", ".join([f"{said.get('torch')} on Python {said.get('python')}", *builds]))
    devices = [str(name) for name in said.get("devices") or [said.get("device")]]
    alone = devices == ["cpu"]
    lacking = bool(said.get("cuda")) and alone
    yield Check(
        "devices",
        "note" if alone else "ok",
        f"{', '.join(devices)} ({said.get('device_name')})" + (": no accelerator" if alone else ""),
        "torch was built for CUDA but sees no GPU: look at nvidia-smi and CUDA_VISIBLE_DEVICES." if lacking else "",
    )
    compiler = said.get("compiler")
    yield Check(
        "compiler",
        "ok" if compiler else "missing",
        str(compiler or "no C++ compiler"),
        "" if compiler else "Install g++: torch.compile and FlexAttention need it on a CPU.",
    )


def _profiler(made: Recording) -> Iterator[Check]:
    said = made.environment.get("profiler") or {}
    if said.get("ok"):
        yield Check("profiler", "ok", "records operators" + (" and kernels" if made.environment.get("device") != "cpu" else ""))
    else:
        fix = "Stop other profilers (nsys, ncu, DCGM) on this GPU; in a container allow CUPTI. Times are measured all the same."
        yield Check("profiler", "failed", str(said.get("why_not") or "nothing is known of it"), fix)


def _measuring(made: Recording, case: Case) -> Iterator[Check]:
    from kinetop.analysis.trials import table

    trial = made.trials.get((_VARIANT, case.text))
    row = next(iter(table(made).filter(variant=_VARIANT).to_dicts()), None)
    if trial is None or row is None or not row.get("median_us"):
        why = trial.why if trial is not None else "; ".join(str(error.get("message")) for error in made.errors)
        yield Check("measuring", "failed", f"{_VARIANT} on {case.device}: {why or 'nothing came back'}", "Name another --device.")
        return
    figures = f"{_VARIANT} on {case.text}: median {row['median_us']:,.1f} us of {row['n']:,} samples"
    disturbed = [mark for mark in ("throttled", "contended") if (row.get(f"{mark}_pct") or 0) >= 10]
    fix = "Figures will be noisy: let the machine rest, or lock its clocks." if disturbed else ""
    yield Check("measuring", "note" if disturbed else "ok", ", ".join([figures, *disturbed]), fix)
    lost = sum(window.dropped for window in trial.windows)
    yield Check("windows", "note" if lost or not trial.windows else "ok", f"{len(trial.windows)} taken, {lost} events lost")


def _telemetry(made: Recording) -> Iterator[Check]:
    last = made.telemetry[-1] if made.telemetry else {}
    figures = sorted(set(last) - {"kind", "t_ns", "seq", "device"})
    yield Check("telemetry", "ok" if figures else "missing", ", ".join(figures) or "the machine gives no figures")
    clock, most = last.get("sm_mhz") or last.get("mhz"), last.get("sm_max_mhz")
    if clock is not None:
        held = [str(reason) for reason in last.get("throttle") or []]
        text = f"{clock:,.0f} MHz" + (f" of {most:,.0f}" if most else "") + (f", held back: {', '.join(held)}" if held else "")
        yield Check("clocks", "note" if held else "ok", text)
    if str(made.environment.get("device")).startswith("cuda"):
        source = (made.environment.get("permissions") or {}).get("gpu_figures")
        fix = "" if source == "nvml" else "Install nvidia-ml-py beside torch: it reads more, faster."
        yield Check("GPU figures", "ok" if source == "nvml" else "note" if source else "missing", str(source or "none"), fix)


def _permissions(made: Recording) -> Iterator[Check]:
    """Say who may read hardware counters; Kineto's timelines do not need them."""
    said = made.environment.get("permissions") or {}
    if (all_users := said.get("gpu_counters")) is not None:
        fix = "" if all_users else "Timelines need no more; for ncu set NVreg_RestrictProfilingToAdminUsers=0 in the driver."
        yield Check("GPU counters", "ok" if all_users else "note", "for all users" if all_users else "for root only", fix)
    if (level := said.get("perf_event_paranoid")) is not None:
        yield Check("perf events", "ok" if level < 3 else "note", f"kernel.perf_event_paranoid is {level}; timelines need none")
