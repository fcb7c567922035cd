"""Filters as text, for those who hand one on instead of typing it."""

from __future__ import annotations

import re


def where_name(name: str) -> str:
    r"""Return the filter that keeps rows of this name: quoted, or a regex where the name holds what cannot be typed.

    Example:
        >>> where_name("aten::mm"), where_name("a\tb")
        ('"aten::mm"', '/a(?s:.)b/')
    """
    head = name[:200]
    if head.isprintable():
        return '"' + head.replace('"', '""') + '"'
    return "/" + "".join(re.escape(char) if char.isprintable() else "(?s:.)" for char in head).replace("/", ".") + "/"
