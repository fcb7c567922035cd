"""Run first in the worker: makes the sources that came over the pipe importable, so that nothing need be installed there."""

from __future__ import annotations

import importlib.util
import linecache
import os
import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import CodeType, ModuleType

OLDEST = (3, 10)
ENVIRONMENT = {"KINETO_LOG_LEVEL": "99", "OMP_WAIT_POLICY": "passive"}
"""Set where the user did not: Kineto writes to standard error in each window; waiting OpenMP threads burn shared cores."""


class Sources(Loader, MetaPathFinder):
    """Finds and loads modules kept in memory, by name: (whether it is a package, its source)."""

    def __init__(self, modules: dict[str, tuple[bool, str]]) -> None:
        self._modules = modules
        for name in modules:  # before anything asks for a line: torch.compile and Triton read sources through linecache
            lines = self.get_source(name).splitlines(keepends=True)
            linecache.cache[self._file(name)] = (len(modules[name][1]), None, lines, self._file(name))

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:  # noqa: ARG002
        """Return where a module comes from, or None when it is not one of these."""
        if name not in self._modules:
            return None
        spec = importlib.util.spec_from_loader(name, self, origin=self._file(name), is_package=self._modules[name][0])
        if spec is not None:
            spec.has_location = True  # gives the module a __file__
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave the making to Python."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the source in the new module."""
        exec(self.get_code(module.__name__), module.__dict__)  # noqa: S102

    def get_code(self, name: str) -> CodeType:
        """Return the compiled source."""
        return compile(self.get_source(name), self._file(name), "exec", dont_inherit=True)

    def get_source(self, name: str) -> str:
        """Return the source, for tracebacks and `inspect`."""
        return self._modules[name][1]

    def is_package(self, name: str) -> bool:
        """Say whether it is a package."""
        return self._modules[name][0]

    def _file(self, name: str) -> str:
        return name.replace(".", "/") + ("/__init__.py" if self._modules[name][0] else ".py")


def install(package: str, modules: dict[str, tuple[bool, str]]) -> None:
    """Make modules importable: these before any of the same name on disk, their parent packages only where there are none.

    Args:
        package: name of the package that holds them all.
        modules: whether each is a package, and its source, by full name.
    """
    parts = package.split(".")
    parents = {".".join(parts[:depth]): (True, "") for depth in range(1, len(parts))}
    sys.meta_path.insert(0, Sources(modules))
    sys.meta_path.append(Sources(parents))


def no_torch(where: str) -> str:
    """Return what a person can do when there is no torch in a place."""
    return (
        f"there is no torch in {where}: install it there (`pip install torch`, or `pip install 'kinetop[live]'`), "
        "or name an interpreter that has it with --python"
    )


def start(sent: dict[str, Any], commands: BinaryIO, frames: int) -> None:
    """Begin the worker.

    Args:
        sent: what the host packed: `package`, `modules`.
        commands: where the commands come from.
        frames: file descriptor that takes the frames.
    """
    if sys.version_info < OLDEST:
        sys.exit(
            f"the worker needs Python {OLDEST[0]}.{OLDEST[1]}; {sys.executable} is {sys.version_info[0]}.{sys.version_info[1]}"
        )
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    install(sent["package"], sent["modules"])
    import_module(sent["package"] + ".main").main(commands, frames)
