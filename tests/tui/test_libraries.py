"""Native libraries that are loaded while the screen goes on."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kinetop.tui.libraries import large_libraries


def test_the_libraries_that_imports_load_are_found() -> None:
    names = [path.name for path in large_libraries()]
    assert any(name.startswith("_polars_runtime") for name in names)
    assert any(name.startswith("libarrow.") for name in names)


@pytest.mark.skipif(sys.platform != "linux", reason="what a process has loaded is read from /proc")
def test_they_are_loaded_before_the_import_and_serve_it() -> None:
    code = """
from pathlib import Path
import sys
from kinetop.tui import lazy
lazy.defer()
from kinetop.tui.libraries import large_libraries, load_early
loaded = lambda: {line.split(maxsplit=5)[5] for line in Path("/proc/self/maps").read_text().splitlines() if len(line.split()) > 5}
wanted = {str(path.resolve()) for path in large_libraries()}
assert not wanted & loaded()
load_early()
assert wanted <= loaded(), wanted - loaded()
assert "polars._plr" not in sys.modules and "pyarrow" not in sys.modules
import polars, pyarrow
assert polars.from_arrow(pyarrow.table({"a": [1, 2]}))["a"].sum() == 3
assert not {name for name in loaded() - wanted if "_polars_runtime" in name or "libarrow.so" in name}, "loaded twice"
"""
    subprocess.run([sys.executable, "-c", code], check=True)
