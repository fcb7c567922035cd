"""The command `kinetop`, and `python -m kinetop`."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` itself imports for a tenth of the start, in which ctrl+c may come
import os


def main() -> None:
    """Run the command line; ctrl+c never shows where in the program it came."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _leave)
    from kinetop.tui.cli import main

    main()


def _leave(*_: object) -> None:
    """End at once; before and after a command there is nothing to tidy up."""
    os.write(2, b"kinetop: cancelled\n")
    os._exit(130)


if __name__ == "__main__":
    main()
