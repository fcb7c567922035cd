"""The options of a question as a person sets them: as texts, chosen or typed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kinetop.analysis.question import Parameter

YES_NO = ("no", "yes")


def choices(parameter: Parameter) -> tuple[str, ...]:
    """Return what can be chosen; empty where a value is typed.

    Args:
        parameter: an option of a question.
    """
    return parameter.choices or (YES_NO if isinstance(parameter.default, bool) else ())


def text(value: Any) -> str:
    """Return a value as it is written.

    Example:
        >>> text(None), text(True), text(10)
        ('', 'yes', '10')
    """
    return "" if value is None else YES_NO[value] if isinstance(value, bool) else str(value)


def value(parameter: Parameter, written: str) -> Any:
    """Return the value that a text stands for.

    Args:
        parameter: an option of a question.
        written: what was chosen or typed; blank means the default.

    Raises:
        ValueError: a number was wanted.

    Example:
        >>> from kinetop.analysis.question import Parameter
        >>> value(Parameter("depth", 10, "levels"), "3")
        3
    """
    written, default = written.strip(), parameter.default
    if not written:
        return default
    if isinstance(default, bool):
        return written == YES_NO[True]
    if isinstance(default, (int, float)):
        try:
            return type(default)(written)
        except ValueError:
            raise ValueError(f"{parameter.name} is a number, such as {default}") from None
    return written


def line(parameters: Sequence[Parameter], own: Mapping[str, Any]) -> str:
    """Return options and their values for the line above a table: those with choices, and typed ones that were set.

    Args:
        parameters: the question's options.
        own: values that were set.
    """
    if not parameters:
        return ""
    values = [(p, text(own.get(p.name, p.default))) for p in parameters]
    shown = [(p.name, written) for p, written in values if choices(p) or written != text(p.default)]
    return "  ".join(f"{name.replace('_', ' ')}: {written}" for name, written in shown) or "options"
