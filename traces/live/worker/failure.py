"""What an error says, however it was made: the user's code may raise anything."""

from __future__ import annotations

import traceback

MAX_CHARACTERS = 4000
"""Kept of a message or a traceback; torch's own are a few hundred."""


def message(error: BaseException) -> str:
    """Return the text of an error, cut where it is absurdly long.

    >>> message(ValueError("no heads"))
    'no heads'
    """
    try:
        return str(error)[:MAX_CHARACTERS]
    except Exception as worse:  # the text is made by the user's code too
        return f"its message cannot be had: {type(worse).__name__}"


def sentence(error: BaseException) -> str:
    """Return the kind of an error and the first line of its text.

    >>> sentence(KeyError("q")), sentence(MemoryError())
    ("KeyError: 'q'", 'MemoryError')
    """
    return f"{type(error).__name__}: {message(error)}".strip().splitlines()[0].removesuffix(":")


def detail(error: BaseException, lines: int) -> str:
    """Return the last lines of an error's traceback.

    Args:
        error: what was raised.
        lines: how many.
    """
    told = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return "\n".join(told.splitlines()[-lines:])[-MAX_CHARACTERS:]
