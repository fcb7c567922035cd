"""Native libraries that are loaded while the screen goes on.

An import loads its library under the interpreter's lock: Polars' and Arrow's stop the screen for 20 to 60 ms, and for 70 to
230 ms where they come from disk first. The system's own call, made as a foreign function, does not hold that lock; the import
then finds the library loaded, and the screen stops for 7 ms, or 21 ms from disk (seen by a thread that sleeps 5 ms).
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

_ARROW = ("libarrow", "libarrow_compute", "libarrow_python")


def load_early() -> None:
    """Load the libraries of Polars and Arrow, in a thread that nobody waits for; what cannot be loaded, the import tells."""
    import ctypes  # takes 5 ms, which the first picture need not wait for

    if os.name != "posix":
        return
    dlopen = ctypes.CDLL(None).dlopen
    dlopen.restype, dlopen.argtypes = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_int)
    for path in large_libraries():
        dlopen(os.fsencode(path), os.RTLD_NOW)


def large_libraries() -> list[Path]:
    """Return the files of the large libraries that are installed."""
    spec = find_spec("polars")
    if spec is None or spec.origin is None:
        return []
    installed = Path(spec.origin).parent.parent
    runtimes = list(installed.glob("_polars_runtime*/*.so"))  # of several, Polars takes the one that the processor can run
    return [*(runtimes if len(runtimes) == 1 else ()), *(path for name in _ARROW for path in installed.glob(f"pyarrow/{name}.*"))]
