"""Loggers for a bench document: TensorBoard, Weights & Biases, MLflow, Neptune; each is loaded when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def check(specs: Sequence[str]) -> None:
    """Make sure, before anything is measured, that every logger is known and installed.

    Args:
        specs: `tensorboard:DIR`, `wandb:PROJECT`, `mlflow:URI`, `neptune:PROJECT`.

    Raises:
        ValueError: one is not, with what to install.
    """
    raise NotImplementedError


def log(document: Mapping[str, Any], specs: Sequence[str]) -> list[str]:
    """Send a bench document (`kinetop.bench/1`) to loggers and return a sentence for each about where it went."""
    raise NotImplementedError
