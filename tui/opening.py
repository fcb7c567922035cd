"""Opening traces, in a thread: what it tells the screen that shows how far it is, and how it ends."""

from __future__ import annotations

import time
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Any

from textual.worker import get_current_worker

from kinetop.traces.errors import CancelledError

from .messages import ImportEnded, ImportProgress

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from textual.screen import Screen

    from kinetop.traces.trace import TraceSet

    from .options import Options

PROGRESS_S = 0.1


def open_for(screen: Screen[Any], paths: Sequence[Path], options: Options) -> None:
    """Open paths; the parsing is done by a process of its own.

    Args:
        screen: gets `ImportProgress` and `ImportEnded`; its app gets the traces too.
        paths: what to open.
        options: how.
    """
    worker = get_current_worker()
    last_s = 0.0

    def progress(state: dict[str, Any]) -> None:
        nonlocal last_s
        if worker.is_cancelled:
            raise CancelledError("stopped")
        if (now_s := time.monotonic()) - last_s >= PROGRESS_S:
            last_s = now_s
            screen.post_message(ImportProgress(dict(state)))

    try:
        from kinetop.analysis.question import all_questions
        from kinetop.traces.trace import open_traces

        traces = open_traces(paths, jobs=options.jobs, cache=options.cache, progress=progress)
        Thread(target=_begin, args=(traces,), daemon=True).start()
        all_questions()  # their modules load here, not on the side that draws
    except Exception as error:  # the importing screen says it
        screen.post_message(ImportEnded(error=error))
        return
    if not worker.is_cancelled:
        screen.post_message(ImportEnded(traces=traces))
        screen.app.post_message(ImportEnded(traces=traces))


def _begin(traces: TraceSet) -> None:
    """Work out what every view asks for first, while modules load and the first view is laid out."""
    with suppress(Exception):  # the view that asks for them gets the error and shows it
        _ = traces.activities
