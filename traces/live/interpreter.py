"""Which Python measures: the user's active environment, else our own."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from ..errors import TorchMissingError
from .worker.loader import no_torch

_LOOK = """
import sys
from importlib.util import find_spec
if sys.version_info < (3, 10):
    sys.exit(8)
found = find_spec("torch")
sys.exit(0 if found and found.origin else 9)
"""
_TOO_OLD, _NO_TORCH = 8, 9
_LOOK_S = 20.0
_OURS = sys.executable


def candidates() -> list[str]:
    """Return the interpreters to try: of the active virtual environment, of the active conda environment, our own."""
    homes = [os.environ[name] for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if os.environ.get(name)]
    paths = [Path(home) / "bin" / "python" for home in homes]
    found = [str(path) for path in paths if os.access(path, os.X_OK)]
    return list(dict.fromkeys([*found, sys.executable]))


def find() -> str:
    """Return the first interpreter that has torch.

    Raises:
        TorchMissingError: none has; says what to install.
    """
    tried = candidates()
    for python in tried:
        if has_torch(python):
            return python
    raise TorchMissingError(no_torch(", ".join(tried)))


def has_torch(python: str) -> bool:
    """Say whether an interpreter is recent enough and has torch, which is not imported."""
    if python == _OURS:  # a process for it would be a fifth of the time to the first frame
        found = find_spec("torch")
        return found is not None and bool(found.origin)
    return _asked(python) == 0


def why_not(python: str) -> str:
    """Return why an interpreter without `has_torch` cannot measure, and what to do."""
    code = _asked(python)
    if code == _TOO_OLD:
        return f"{python} is older than Python 3.10: name another interpreter that has torch with --python"
    if code in (0, _NO_TORCH):
        return no_torch(python)
    how = "it cannot be run" if code is None else f"it ended with exit code {code}"
    return f"{python or 'an empty name'} is no Python ({how}): name an interpreter that has torch with --python"


def _asked(python: str) -> int | None:
    """Return the exit code of an interpreter that is asked for torch; None where it gives none."""
    try:
        done = subprocess.run(
            [python, "-c", _LOOK],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_LOOK_S,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return done.returncode
