"""The command of a declared question, made from its declaration."""

from __future__ import annotations

from inspect import Parameter as Argument
from inspect import Signature
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..talk import say, say_filter
from . import shared

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kinetop.analysis.question import Parameter, Question, Result

_COMMON: dict[str, Any] = {
    "where": shared.Where,
    "window": shared.Window,
    "step": shared.Step,
    "rank": shared.Rank,
    "device": shared.Device,
    "top": shared.Top,
}
_LOOK: dict[str, Any] = {"kind": shared.Kind, "json": shared.Json, "output": shared.Out}
_READ: dict[str, Any] = {"jobs": shared.Jobs, "no_cache": shared.NoCache}


def command(question: Question) -> Any:
    """Return a question's command, to be run under its name.

    Args:
        question: the declaration.
    """

    def run(paths: list[Path], **options: Any) -> None:
        answer(question, paths, **options)

    arguments = [Argument("paths", Argument.POSITIONAL_OR_KEYWORD, annotation=shared.Paths)]
    arguments += [_own(parameter) for parameter in question.parameters]
    wanted = {name: kind for name, kind in _COMMON.items() if name in question.common}
    for name, kind in (wanted | _LOOK | _READ).items():
        default = False if kind in {shared.Json, shared.NoCache} else None
        arguments.append(Argument(name, Argument.KEYWORD_ONLY, annotation=kind, default=default))
    if len(question.tables) > 1:
        arguments.append(_table(question))
    run.__signature__ = Signature(arguments)  # type: ignore[attr-defined]
    run.__annotations__ = {argument.name: argument.annotation for argument in arguments}
    run.__doc__ = question.about
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})
    alone.command(question.name)(run)
    return typer.main.get_command(alone)


def answer(
    question: Question,
    paths: Sequence[Path],
    *,
    kind: str | None = None,
    json: bool = False,
    output: Path | None = None,
    table: str | None = None,
    jobs: int | None = None,
    no_cache: bool = False,
    **options: Any,
) -> None:
    """Answer a question about traces and write the result.

    Args:
        question: the question.
        paths: the traces.
        kind: format by name.
        json: write JSON.
        output: file to write; None means stdout.
        table: the one table to write.
        jobs: slices decoded at a time.
        no_cache: neither use nor fill the cache.
        options: the common options and the question's own.
    """
    form = shared.chosen_format(kind, json, output, paths)
    trace = shared.opened(paths, jobs=jobs, cache=not no_cache)
    result = _asked(question, trace, options)
    if table is not None and table not in result.tables:
        raise typer.BadParameter(f"--table {table}: it is made only with another option; see kinetop {question.name} --help")
    from ..output import rendered
    from ..text import closing

    shared.put(rendered(result, form, table=table, look=shared.look(output)), output)
    if form in {"csv", "parquet"}:  # the text, JSON and Markdown say these things themselves
        say("\n".join(closing(result)))
    if output is not None:
        say(f"wrote {output}")


def _asked(question: Question, trace: Any, options: dict[str, Any]) -> Result:
    from kinetop.traces.errors import FilterError

    try:
        return question.ask(trace, **options)
    except FilterError as error:
        say_filter(error, options.get("where"))
        raise typer.Exit(2) from error


def _own(parameter: Parameter) -> Argument:
    """Return the option of a question's own parameter."""
    flag = f"--{parameter.name.replace('_', '-')}"
    kind: Any = type(parameter.default) if parameter.default is not None else str
    if parameter.choices:
        kind = _one_of(parameter.choices)
    shown = parameter.default not in (None, "", False)
    option = typer.Option(flag, help=_sentence(parameter.about), show_default=shown)
    annotation: Any = Annotated[kind if parameter.default is not None else kind | None, option]
    return Argument(parameter.name, Argument.KEYWORD_ONLY, annotation=annotation, default=parameter.default)


def _table(question: Question) -> Argument:
    names = tuple(table.name for table in question.tables)
    about = f"Only this table. CSV and Parquet hold one, {names[0]} unless another is named."
    annotation: Any = Annotated[_one_of(names) | None, typer.Option("--table", help=about, show_default=False)]
    return Argument("table", Argument.KEYWORD_ONLY, annotation=annotation, default=None)


def _one_of(choices: tuple[str, ...]) -> Any:
    return Literal.__getitem__(choices)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
