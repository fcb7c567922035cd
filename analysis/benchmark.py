"""The bench document: everything that was measured in a run, as JSON for people and programs or as Parquet for a history."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import polars as pl

from kinetop.traces.errors import UnreadableError
from kinetop.traces.live.members import clean, is_number
from kinetop.traces.live.worker.case import Case

from . import expected, live_findings, parts, trials
from .structure import Structure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from kinetop.traces.live.recording import Recording, Trial

SCHEMA = "kinetop.bench/1"
_SUFFIXES = (".json", ".parquet")
_RUN_COLUMNS = ("schema", "run_id", "began", "host", "device_name", "torch", "git_sha", "environment", "settings")
"""Columns of a Parquet row about its run, all texts; the last two are JSON."""
_LIST_COLUMNS = ("samples_ns", "rounds", "throttled", "contended")
_JSON_COLUMNS = ("timing", "error", "structure")
"""Columns of a Parquet row beside the figures: lists of integers, and JSON text."""
_MEMBERS: dict[str, tuple[type, ...]] = {
    "variant": (str,),
    "case": (str,),
    "state": (str,),
    **dict.fromkeys(_LIST_COLUMNS, (list,)),
    **dict.fromkeys(("timing", "structure"), (dict, type(None))),
    "why": (str, type(None)),
    **dict.fromkeys(("peak_bytes", "max_abs_error", "error_bound", "median_us"), (int, float, type(None))),
    "error_ok": (bool, type(None)),
    "backend": (str, type(None)),
}
"""Members of a trial that a gate reads, with the types that they may have."""


@dataclass(frozen=True)
class Run:
    """One run of a benchmark, as a gate reads it."""

    id: str
    began: str
    """ISO 8601, UTC."""
    environment: Mapping[str, Any]
    trials: tuple[Mapping[str, Any], ...]
    """Members of a document's `trials`."""
    path: str = ""
    """Where it was read from."""

    @classmethod
    def of(cls, document: Mapping[str, Any], path: str = "") -> Run:
        """Return the run that a document holds.

        Raises:
            UnreadableError: a member is missing or cannot be what it says.
        """
        try:
            run, environment, told = (_plain(document[name]) for name in ("run", "environment", "trials"))
            if not isinstance(environment, dict):
                raise TypeError("an environment that is no object")
            return cls(str(run["id"]), str(run["began"]), environment, tuple(map(_checked, told)), path)
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            missing = f"it lacks {error}" if isinstance(error, KeyError) else f"{error}"
            raise UnreadableError(f"{path or 'the document'}: no bench result: {missing}") from error


def document(recording: Recording, *, settings: Mapping[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    """Return everything that was measured as plain JSON values.

    Args:
        recording: what was measured.
        settings: how: samples, min_time_ms, seed, …; noted as they are.
        options: those of `trials.rows`: base, price_per_hour, peaks, resamples, seed.

    Returns:
        schema, run (id, began, seconds, settings), environment, trials (figures, raw samples, structure, error, checks), parts,
        findings, errors. Times are microseconds, samples nanoseconds; what is not a finite number is null.
    """
    rows = trials.rows(recording, **options)
    events = recording.events()
    made = {
        "schema": SCHEMA,
        "run": _run(recording, settings or {}),
        "environment": recording.environment,
        "trials": [_trial(recording, trial, row) for trial, row in zip(recording.trials.values(), rows, strict=True)],
        "parts": [] if events.is_empty() else parts.split(events).drop_nulls(["variant", "case"]).to_dicts(),
        "findings": [asdict(finding) for finding in live_findings.find(recording)],
        "errors": [dict(error) for error in recording.errors],
        "dropped": recording.dropped,
    }
    plain: dict[str, Any] = _plain(made)
    return plain


def _checked(trial: Any) -> Mapping[str, Any]:
    """Return a trial as it was read.

    Raises:
        KeyError: a member is missing.
        TypeError: a member is of another type.
        ValueError: a member cannot be.
    """
    if not isinstance(trial, dict):
        raise TypeError("a trial that is no object")
    if odd := [name for name, kinds in _MEMBERS.items() if not isinstance(trial[name], kinds)]:
        raise TypeError(f"a trial whose {odd[0]} is {trial[odd[0]]!r:.40}")
    if not all(type(ns) is int and 0 < ns < 2**63 for ns in trial["samples_ns"]):
        raise ValueError("a sample that is no time")
    if not all(type(at) is int for at in (*trial["throttled"], *trial["contended"])):
        raise ValueError("a mark that is no place among the samples")
    timing = trial["timing"] or {}
    if any(isinstance(value, (dict, list)) for value in timing.values()):
        raise ValueError("a timing that is no text or number")
    if timing.get("clock_mhz") is not None and not (is_number(timing["clock_mhz"]) and timing["clock_mhz"] > 0):
        raise ValueError("a clock that is no frequency")
    Case.from_dict(trial)
    Structure.from_dict(trial["structure"] or {})
    return trial


def _run(recording: Recording, settings: Mapping[str, Any]) -> dict[str, Any]:
    began = datetime.fromtimestamp(recording.began_ns / 1e9, UTC)
    mark = hashlib.sha256(f"{recording.began_ns} {recording.environment.get('host')}".encode()).hexdigest()[:6]
    return {
        "id": f"{began:%Y%m%dT%H%M%S}-{mark}",
        "began": began.isoformat(timespec="seconds"),
        "seconds": (recording.last_ns - recording.began_ns) / 1e9,
        "settings": dict(settings),
    }


def _trial(recording: Recording, trial: Trial, row: Mapping[str, Any]) -> dict[str, Any]:
    seen: Structure | None = row.get("structure")
    said = trial.prepared
    return {
        **{column.name: row.get(column.name) for column in trials.COLUMNS},
        "samples_ns": list(trial.samples_ns),
        "rounds": list(trial.rounds),
        "throttled": [at for at, marks in enumerate(trial.marks) if "throttled" in marks],
        "contended": [at for at, marks in enumerate(trial.marks) if "contended" in marks],
        "timing": dict(trial.timing),
        "flops_useful": said.get("flops_useful"),
        "flops_executed": said.get("flops_executed"),
        "bytes_min": said.get("bytes_min"),
        "error": said.get("error"),
        "error_skipped": said.get("error_skipped"),
        "structure": seen.to_dict() | {"copies": seen.copies} if seen is not None else None,
        "dropped": sum(window.dropped for window in trial.windows),
        "checks": [{**asdict(check), "ok": check.ok} for check in expected.check(recording, trial)],
    }


def frame(document: Mapping[str, Any]) -> pl.DataFrame:
    """Return a document as a frame, one row a trial: about the run, the figures, raw samples as lists, the rest as JSON text.

    Args:
        document: as `document` makes it. Parts, findings and checks are left out; frames of several runs stand below each other.
    """
    run, environment = document["run"], document["environment"]
    about = {
        "schema": document["schema"],
        "run_id": run["id"],
        "began": run["began"],
        **{name: environment.get(name) for name in ("host", "device_name", "torch", "git_sha")},
        "environment": json.dumps(environment),
        "settings": json.dumps(run["settings"]),
    }
    figures = trials.framed(document["trials"])
    first = pl.DataFrame([about] * figures.height, schema=dict.fromkeys(_RUN_COLUMNS, pl.String), orient="row")
    lists = [{name: trial[name] for name in _LIST_COLUMNS} for trial in document["trials"]]
    texts = [{name: json.dumps(trial[name]) for name in _JSON_COLUMNS} for trial in document["trials"]]
    return pl.concat(
        [
            first,
            figures,
            pl.DataFrame(lists, schema=dict.fromkeys(_LIST_COLUMNS, pl.List(pl.Int64)), orient="row"),
            pl.DataFrame(texts, schema=dict.fromkeys(_JSON_COLUMNS, pl.String), orient="row"),
        ],
        how="horizontal",
    )


def load(path: Path) -> list[Run]:
    """Read runs, the oldest first.

    Args:
        path: a bench document (JSON), rows of such runs (Parquet; several runs are a history), a recorded session, or a folder
            of these, in which files of other kinds are passed over.

    Raises:
        UnreadableError: there is no run in it.
        OSError: it cannot be read.
    """
    if path.is_dir():
        found = [run for file in sorted(path.iterdir()) if file.suffix in _SUFFIXES for run in _passing_over(file)]
        if not found:
            raise UnreadableError(f"{path}: no bench results in this folder; `kinetop bench --out FILE.json` makes one")
    else:
        found = list(_runs(path))
    return sorted(found, key=lambda run: run.began)


def _passing_over(path: Path) -> Iterator[Run]:
    try:
        yield from _runs(path)
    except UnreadableError:
        return


def _runs(path: Path) -> Iterator[Run]:
    from kinetop.traces.live import session

    with path.open("rb") as file:
        parquet = file.read(4) == b"PAR1"
    if session.is_session(path):
        yield _session_run(path)
    elif parquet:
        yield from _parquet_runs(path)
    else:
        yield _json_run(path)


def _json_run(path: Path) -> Run:
    try:
        read = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"{path}: no bench result: {error}") from error
    schema = read.get("schema") if isinstance(read, dict) else None
    if schema != SCHEMA:
        raise UnreadableError(f"{path}: no bench result: its schema is {schema!r}, not {SCHEMA!r}")
    return Run.of(read, str(path))


def _parquet_runs(path: Path) -> Iterator[Run]:
    try:
        read = pl.read_parquet(path)
    except pl.exceptions.PolarsError as error:
        raise UnreadableError(f"{path}: cannot be read as Parquet: {str(error).splitlines()[0]}") from error
    if missing := {*_RUN_COLUMNS, *_LIST_COLUMNS, *_JSON_COLUMNS, "variant", "case", "median_us"} - set(read.columns):
        raise UnreadableError(f"{path}: a Parquet file, but of no benchmark: it lacks {', '.join(sorted(missing)[:3])}")
    if odd := [schema for schema in read["schema"].unique().to_list() if schema != SCHEMA]:
        raise UnreadableError(f"{path}: no bench result: its schema is {odd[0]!r}, not {SCHEMA!r}")
    for _, rows in read.group_by("run_id", maintain_order=True):
        yield Run.of(_document_of(rows, path), str(path))


def _document_of(rows: pl.DataFrame, path: Path) -> dict[str, Any]:
    """Return the rows of a run as the document that they were, as far as a gate reads it."""
    try:
        told = [row | {name: json.loads(row[name] or "null") for name in _JSON_COLUMNS} for row in rows.iter_rows(named=True)]
        environment = json.loads(told[0]["environment"])
    except (TypeError, ValueError) as error:
        raise UnreadableError(f"{path}: no bench result: {error}") from error
    return {"run": {"id": told[0]["run_id"], "began": told[0]["began"]}, "environment": environment, "trials": told}


def _session_run(path: Path) -> Run:
    from kinetop.traces.live import session
    from kinetop.traces.live.recording import Recording

    recording = Recording()
    for said in session.frames(path):
        recording.add(said)
    return Run.of(document(recording), str(path))


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: every text can be written, every number is finite."""
    if isinstance(value, dict):
        return {clean(str(key)): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return trials.finite(value)
    return clean(value) if isinstance(value, str) else value
