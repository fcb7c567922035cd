"""kinetop: see what the GPUs did in any PyTorch trace, from the terminal or from Python.

>>> import kinetop
>>> trace = kinetop.open("tests/data/hazards/01_baseline_clean.json", cache=False)
>>> kinetop.kernels(trace)["name"].len()
5
"""

from __future__ import annotations

TYPE_CHECKING = False  # what a type checker takes for true; `typing` would take a fifth of the time until ctrl+c is heard
if TYPE_CHECKING:
    from typing import Any

    from kinetop.traces.errors import TraceError as TraceError
    from kinetop.traces.trace import Trace as Trace
    from kinetop.traces.trace import TraceSet as TraceSet
    from kinetop.traces.trace import open_traces as open  # noqa: F401

__version__ = "0.1.0"

# Resolved on first use (PEP 562), so that `import kinetop` and `kinetop --help` load neither Polars nor Textual.
_EXPORTS = {
    "open": ("kinetop.traces.trace", "open_traces"),
    "Trace": ("kinetop.traces.trace", "Trace"),
    "TraceSet": ("kinetop.traces.trace", "TraceSet"),
    "TraceError": ("kinetop.traces.errors", "TraceError"),
    "to_hta": ("kinetop.analysis.hta_bridge", "to_hta"),
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _EXPORTS:
        module, attribute = _EXPORTS[name]
        return getattr(import_module(module), attribute)
    if not name.startswith("_"):
        questions = import_module("kinetop.analysis.question").all_questions()
        if name in questions:
            return questions[name]
    raise AttributeError(f"module 'kinetop' has no attribute {name!r}")


def __dir__() -> list[str]:
    from importlib import import_module

    questions = import_module("kinetop.analysis.question").all_questions()
    return sorted([*_EXPORTS, *questions, "__version__"])
