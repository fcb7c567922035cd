"""Copying out of a terminal: OSC 52 reaches the user's own machine over SSH, a file is there when the terminal drops it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platformdirs import user_cache_path

if TYPE_CHECKING:
    from textual.app import App

OSC52_MAX_BYTES = 74_000
"""Terminals drop longer ones."""


def copy(app: App[Any], text: str) -> str:
    """Copy a text and return a sentence that says where it went."""
    size = len(text.encode())
    said = f"Copied {size:,} bytes"
    if size <= OSC52_MAX_BYTES:
        app.copy_to_clipboard(text)
        said += " to the terminal's clipboard (OSC 52)"
    folder = Path(os.environ.get("KINETOP_CACHE_DIR") or user_cache_path("kinetop"))
    target = folder / "clip.txt"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        return f"{said}; {target} could not be written: {error.strerror}"
    return f"{said}; also in {target}" if size <= OSC52_MAX_BYTES else f"{said} to {target}; too long for a terminal's clipboard"
