"""Polars, loaded when it is first used.

The question modules import it at their top, and `kinetop --help` needs their declarations only. The standard library's
LazyLoader is no help: the import statement itself asks for `__spec__`, which already loads the module.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib import import_module
from threading import RLock
from types import ModuleType
from typing import Any

_LATE = "polars"
_loading = RLock()


class _Deferred(ModuleType):
    """Stands for a module until an attribute of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        with _loading:
            if sys.modules.get(self.__name__) is self:
                del sys.modules[self.__name__]
            loaded = import_module(self.__name__)
            self.__dict__.update(loaded.__dict__)
        return getattr(loaded, name)


def defer() -> None:
    """Let `import polars` give a stand-in that loads the module when it is used."""
    if _LATE in sys.modules:
        return
    stand_in = _Deferred(_LATE)
    stand_in.__spec__ = importlib.util.find_spec(_LATE)
    sys.modules[_LATE] = stand_in
