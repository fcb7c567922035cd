"""`python -m kinetop`."""

from __future__ import annotations

from kinetop.tui.cli import main

main()
