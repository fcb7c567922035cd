"""`kinetop`: the written commands, and one for every declared question.

Nothing heavy is imported before a command runs; `kinetop --help` reads only the questions' declarations.
"""

from __future__ import annotations

import os
import sys
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from kinetop import __version__
from kinetop.traces.errors import CancelledError, FilterError, TraceError

from . import lazy
from .signals import cancellable, on_ending
from .talk import say

if TYPE_CHECKING:
    from kinetop.analysis.question import Question

EXIT_USAGE = 2
EXIT_UNREADABLE = 3
EXIT_CANCELLED = 130

_ROOT_OPTIONS = frozenset({"--help", "-h", "--version", "--install-completion", "--show-completion"})

_LIVE = ("live", "bench", "gate", "replay", "doctor")
_NAMED = (*_LIVE, "convert", "export", "flame", "sql", "rules", "info", "demo", "cache")
_WRITTEN = {"open": "opening"} | {name: name for name in _NAMED}
"""Commands that are no questions, in the order of the help text, and the module of each."""
_WHOLE = 1_000
"""Characters that the first sentence of a help text may have; it is wrapped, not cut."""


class Commands(TyperGroup):
    """The commands; a path in a command's place is opened."""

    def list_commands(self, _ctx: Any) -> list[str]:
        """Return the names in the order of the help text: `open`, the questions, the rest."""
        first, *rest = _WRITTEN
        return [first, *_questions(), *rest]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Make the one command that is asked for, once: to make all of them takes a tenth of a second."""
        if cmd_name in self.commands:
            return super().get_command(ctx, cmd_name)
        if cmd_name in _WRITTEN:
            self.commands.update(_written(cmd_name))
        elif cmd_name.isidentifier() and (question := _questions().get(cmd_name)):
            from .commands.ask import command

            self.commands[cmd_name] = command(question)
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write what each command is about; of a question its declaration says it."""
        about: dict[str, Any] = {name: TyperCommand(name, help=question.about) for name, question in _questions().items()}
        about |= _written(*_WRITTEN)
        names = self.list_commands(ctx)
        rest = names.index(_NAMED[0])
        live = rest + len(_LIVE)
        for title, part in ("Traces", names[:rest]), ("Attention variants, live", names[rest:live]), ("More", names[live:]):
            with formatter.section(title):
                formatter.write_dl([(name, about[name].get_short_help_str(_WHOLE)) for name in part])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; where there is none, name the likeliest ones."""
        if not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            close = get_close_matches(args[0], self.list_commands(ctx))
            ctx.fail(f"there is no command and no file {args[0]!r}" + (f"; did you mean {' or '.join(close)}?" if close else ""))
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `open` where its name was left out."""
        if not ctx.resilient_parsing and (not args or (args[0] not in _ROOT_OPTIONS and self._opens(args[0]))):
            args = ["open", *args]
        return super().parse_args(ctx, args)

    def _opens(self, first: str) -> bool:
        if first in _WRITTEN:
            return False
        if first.startswith("-") or "/" in first or "." in first:
            return True
        return Path(first).exists() and first not in _questions()

    def invoke(self, ctx: Any) -> Any:
        """Run the command; what can go wrong with an input ends in one sentence and an exit code."""
        try:
            with cancellable():
                done = super().invoke(ctx)
                sys.stdout.flush()
                return done
        except (KeyboardInterrupt, CancelledError):
            say("kinetop: cancelled")
            raise typer.Exit(EXIT_CANCELLED) from None
        except BrokenPipeError:
            _let_go_of_stdout()
            raise typer.Exit from None
        except FilterError as error:
            say(f"kinetop: {error}")
            raise typer.Exit(EXIT_USAGE) from error
        except TraceError as error:
            say(f"kinetop: {error}")
            raise typer.Exit(EXIT_UNREADABLE) from error
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            say(f"kinetop: {where}{error.strerror or error}")
            raise typer.Exit(EXIT_UNREADABLE) from error


app = typer.Typer(
    cls=Commands,
    # Rich's help costs 0.2 s of every start; the plain one says the same.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    help="See what the GPUs did in any PyTorch trace. `kinetop PATH` opens it in the terminal app; where stdout is no terminal, "
    "it prints the summary.",
    epilog="Exit codes: 0 fine, 1 gate failed, 2 usage, 3 input unreadable or not comparable, 130 cancelled. "
    "Data on stdout, talk on stderr.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kinetop {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Hold the options that stand before any command."""


def _questions() -> dict[str, Question]:
    lazy.defer()
    from kinetop.analysis.question import all_questions

    return all_questions()


def _let_go_of_stdout() -> None:
    """The reader went away (`| head`): nothing more is written, and the interpreter does not complain at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _written(*names: str) -> dict[str, Any]:
    """Make commands that are written by hand."""
    made = typer.Typer(rich_markup_mode=None)
    for name in names:
        import_module(f".commands.{_WRITTEN[name]}", __package__).add_to(made)
    return dict(typer.main.get_group(made).commands)


def main() -> None:
    """Run the command line; ended from outside (`kill`, a closed terminal), it leaves nothing half-made behind."""
    on_ending(_end)
    lazy.defer()
    app(prog_name="kinetop")


def _end(code: int) -> None:
    raise SystemExit(code)
