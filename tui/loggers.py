"""Loggers for a bench document: TensorBoard, Weights & Biases, MLflow, Neptune; each is loaded when it is asked for."""

from __future__ import annotations

import re
import sys
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

FIGURES = (
    "median_us", "low_us", "high_us", "p10_us", "p90_us", "mad_us", "vs_base", "useful_tflops", "executed_tflops", "peak_pct",
    "gb_s", "peak_bytes", "max_abs_error", "kernels", "ops", "copies", "compile_s", "energy_mj", "cost", "n",
)  # fmt: skip
"""Members of a trial that become a series."""
_EVERY = re.compile(r"[^\w./ -]+")


class Logger(NamedTuple):
    """Where a document can go."""

    module: str
    """What must be installed."""
    extra: str
    """Extra of kinetop that installs it."""
    where: str
    """What stands behind the colon."""
    send: Callable[[Mapping[str, Any], str], str]
    """Sends a document and says where it went."""


def check(specs: Sequence[str]) -> None:
    """Make sure, before anything is measured, that every logger is known and installed.

    Args:
        specs: `tensorboard:DIR`, `wandb:PROJECT`, `mlflow:URI`, `neptune:PROJECT`.

    Raises:
        ValueError: one is not, with what to install.

    Example:
        >>> check(["email:me"])
        Traceback (most recent call last):
        ValueError: --log is tensorboard:DIR, wandb:PROJECT, mlflow:URI or neptune:PROJECT, not 'email:me'
    """
    for spec in specs:
        logger, _ = _parsed(spec)
        if find_spec(logger.module) is None:
            said = f"{logger.module} is not installed: pip install 'kinetop[{logger.extra}]'"
            raise ValueError(f"--log {spec}: {said}")


def log(document: Mapping[str, Any], specs: Sequence[str]) -> list[str]:
    """Send a bench document to loggers.

    Args:
        document: `kinetop.bench/1`, as `kinetop.analysis.benchmark.document` makes it.
        specs: as for `check`.

    Returns:
        A sentence for each logger about where the document went, or why it did not: figures that were measured are not lost for a
        server that is away.
    """
    return [_sent(document, spec) for spec in specs]


def _sent(document: Mapping[str, Any], spec: str) -> str:
    logger, where = _parsed(spec)
    try:
        with redirect_stdout(sys.stderr):  # clients greet on stdout, which holds the data
            return logger.send(document, where)
    except Exception as error:  # whatever a client raises; it has been said, and the run goes on
        return f"--log {spec} failed: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}".rstrip(": ")


def _parsed(spec: str) -> tuple[Logger, str]:
    name, _, where = spec.partition(":")
    if name not in LOGGERS or not where:
        known = [f"{name}:{logger.where}" for name, logger in LOGGERS.items()]
        raise ValueError(f"--log is {', '.join(known[:-1])} or {known[-1]}, not {spec!r}")
    return LOGGERS[name], where


def figures(document: Mapping[str, Any]) -> Iterator[tuple[str, str, str, float]]:
    """Give variant, case, figure and value of everything that has one.

    Args:
        document: a bench document.
    """
    for trial in document["trials"]:
        for name in FIGURES:
            value = trial.get(name)
            if isinstance(value, int | float):
                yield str(trial["variant"]), str(trial["case"]), name, float(value)


def _series(document: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures under names that every logger takes: `figure/case/variant`, so that variants share a chart."""
    return {f"{figure}/{_plain(case)}/{_plain(variant)}": value for variant, case, figure, value in figures(document)}


def _plain(text: str) -> str:
    """Return a text without what names of metrics may not hold; a shape's slash is no level of the name."""
    return _EVERY.sub("_", text.replace("/", "-").replace(",", "x")).strip()


def _about(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what names the machine and the settings, flat, without empty members."""
    flat = {
        f"{group}.{key}": value
        for group, members in (("environment", document["environment"]), ("settings", document["run"].get("settings") or {}))
        for key, value in members.items()
    }
    return {
        key: value if isinstance(value, int | float | str) else str(value) for key, value in flat.items() if value is not None
    }


def _tensorboard(document: Mapping[str, Any], where: str) -> str:
    from datetime import datetime

    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.text.metadata import create_summary_metadata
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.util.tensor_util import make_tensor_proto

    folder = Path(where) / str(document["run"]["id"])
    began_s = datetime.fromisoformat(document["run"]["began"]).timestamp()
    values = [Summary.Value(tag=tag, simple_value=value) for tag, value in _series(document).items()]
    lines = "\n".join(f"| {key} | {value} |" for key, value in _about(document).items())
    table = make_tensor_proto(f"| what | value |\n|---|---|\n{lines}".encode())
    about = create_summary_metadata(display_name="environment", description="")
    values.append(Summary.Value(tag="environment", tensor=table, metadata=about))
    writer = EventFileWriter(str(folder))
    try:
        writer.add_event(Event(wall_time=began_s, step=0, summary=Summary(value=values)))
    finally:
        writer.close()
    return f"logged to {folder}; tensorboard --logdir {where} shows it"


def _wandb(document: Mapping[str, Any], where: str) -> str:
    import wandb

    entity, _, project = where.rpartition("/")
    run_id = str(document["run"]["id"])
    with wandb.init(
        project=project, entity=entity or None, name=run_id, job_type="kinetop bench", config=_about(document)
    ) as run:
        rows = [[trial.get(name) for name in _COLUMNS] for trial in document["trials"]]
        run.log({**_series(document), "trials": wandb.Table(columns=list(_COLUMNS), data=rows)})
        return f"logged to Weights & Biases, project {where}, run {run_id}"


_COLUMNS = ("variant", "case", "backend", "state", *FIGURES)


def _mlflow(document: Mapping[str, Any], where: str) -> str:
    import mlflow

    mlflow.set_tracking_uri(where)
    mlflow.set_experiment("kinetop")
    run_id = str(document["run"]["id"])
    with mlflow.start_run(run_name=run_id):
        mlflow.log_params({key: str(value)[:500] for key, value in _about(document).items()})
        mlflow.log_metrics(_series(document))
        mlflow.log_dict(dict(document), "bench.json")
    return f"logged to MLflow at {where}, experiment kinetop, run {run_id}"


def _neptune(document: Mapping[str, Any], where: str) -> str:
    import neptune

    run_id = str(document["run"]["id"])
    run = neptune.init_run(project=where, name=run_id, capture_stdout=False, capture_stderr=False, capture_hardware_metrics=False)
    try:
        run["about"] = _about(document)
        for name, value in _series(document).items():
            run[f"figures/{name}"] = value
    finally:
        run.stop()
    return f"logged to Neptune, project {where}, run {run_id}"


LOGGERS = {
    "tensorboard": Logger("tensorboard", "tensorboard", "DIR", _tensorboard),
    "wandb": Logger("wandb", "wandb", "PROJECT", _wandb),
    "mlflow": Logger("mlflow", "mlflow", "URI", _mlflow),
    "neptune": Logger("neptune", "neptune", "PROJECT", _neptune),
}
"""By the word before the colon."""
