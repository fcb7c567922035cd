"""The one registry: a question is declared once, and the command, the view, the JSON, the docs and the Python call follow.

A question is a function from `Work` (the GPU activities in scope, and the trace behind them) to named tables. Declaring it::

    @question(
        name="kernels",
        title="Kernels",
        about="Which kernels took the GPU's time.",
        parameters=(Parameter("group_by", "name", "what one row stands for", choices=GROUPS),),
        tables=(Table("kernels", COLUMNS),),
    )
    def kernels(work: Work, *, group_by: str) -> dict[str, pl.DataFrame]: ...

makes `kinetop kernels`, `kinetop.kernels(trace)`, the TUI's table and the page under `docs/`.
"""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.resources import files
from inspect import Parameter as Argument
from inspect import Signature, signature
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import polars as pl

    from kinetop.traces.trace import TraceSet

    from .work import Work

COMMON = ("where", "window", "step", "rank", "device", "top")
"""Options that narrow a question; one that is not about GPU work takes fewer."""

Unit = Literal["us", "ns", "pct", "count", "bytes", "GB/s", "ratio", "number", "text", "id", "flag"]
"""Unit of a column; decides how a view writes the number. Times are microseconds (f64, three decimals) in every output.

A `number` is in a unit of its own, which its definition tells, and is never rounded.
"""
DECIMALS: dict[str, int] = {"us": 3, "pct": 3, "ratio": 3, "GB/s": 6}
"""Decimals that results keep: nanoseconds of a time, kilobytes per second of a rate."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a result: its name (unit in the name), unit and definition."""

    name: str
    unit: Unit
    about: str
    """The definition, one sentence; shown as column help and in the docs."""
    label: str = ""
    """Short header for narrow tables; the name without its unit when empty."""
    priority: int = 1
    """Order in which columns leave a narrow screen: 3 first, 1 last, 0 never."""
    prose: bool = False
    """Whether its texts are sentences: a report writes them whole, below the row's other values."""
    decimals: int | None = None
    """Decimals that results keep, where those of its unit (`DECIMALS`) will not do."""
    free: bool = False
    """Whether its times, counts and rates may be negative, its shares below 0 or above 100."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a result."""

    name: str
    columns: tuple[Column, ...]
    sort: str = ""
    """Column it comes sorted by, descending; file order when empty."""
    about: str = ""
    none: str = ""
    """Why it may have no rows, said in their place: "the trace marks no steps"."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """An option of a question beside the common ones (where, window, step, rank, device, top)."""

    name: str
    default: Any
    about: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Result:
    """The answer to a question: what every view, text and JSON is made from."""

    question: Question
    tables: dict[str, pl.DataFrame]
    """By name, in the order declared; columns as declared."""
    work: Work
    """What it was asked about: scope, window, trace."""

    @property
    def main(self) -> pl.DataFrame:
        """The first table."""
        return self.tables[self.question.tables[0].name]


@dataclass(frozen=True)
class Question:
    """A declared question; call it with a trace to get its main table."""

    name: str
    title: str
    about: str
    function: Callable[..., dict[str, pl.DataFrame]]
    tables: tuple[Table, ...]
    parameters: tuple[Parameter, ...] = ()
    order: int = 100
    """Position among the commands and the views."""
    version: int = 1
    """Version of its JSON schema: `kinetop.<name>/<version>`."""
    common: tuple[str, ...] = COMMON
    """Common options that it takes."""

    @property
    def schema(self) -> str:
        """Name and version of the JSON it makes."""
        return f"kinetop.{self.name}/{self.version}"

    def ask(self, trace: TraceSet, **options: Any) -> Result:
        """Answer the question.

        Args:
            trace: the opened trace set.
            options: the common options (`where`, `window`, `step`, `rank`, `device`, `top`) and the question's own.

        Raises:
            FilterError: `where`, `window` or `step` cannot be understood.
        """
        from .work import scoped

        own = {p.name: options.pop(p.name, p.default) for p in self.parameters}
        for parameter in self.parameters:
            if parameter.choices and own[parameter.name] not in parameter.choices:
                raise ValueError(f"{parameter.name} is one of {', '.join(parameter.choices)}, not {own[parameter.name]!r}")
        top = options.pop("top", None)
        if "top" in signature(self.function).parameters:  # it pools what it leaves out
            own["top"], top = top, None
        work = scoped(trace, **options)
        tables = self.function(work, **own)
        if top is not None:
            main = self.tables[0].name
            tables = {**tables, main: tables[main].head(top)}
        return Result(self, tables, work)

    def __call__(self, trace: TraceSet, **options: Any) -> pl.DataFrame:
        """Answer the question and return its main table."""
        return self.ask(trace, **options).main

    def __post_init__(self) -> None:
        """Take the question's own text, so that a notebook's help shows it and not this class's."""
        object.__setattr__(self, "__doc__", f"{self.about}\n\n{self._options_text()}")

    @property
    def __signature__(self) -> Signature:
        """The options by name, for help and completion."""
        options = {name: None for name in self.common} | {p.name: p.default for p in self.parameters}
        arguments = [Argument("trace", Argument.POSITIONAL_ONLY)]
        return Signature([*arguments, *(Argument(name, Argument.KEYWORD_ONLY, default=value) for name, value in options.items())])

    def _options_text(self) -> str:
        own = [f"    {p.name}: {p.about}" + (f" ({', '.join(p.choices)})" if p.choices else "") for p in self.parameters]
        columns = [f"    {column.name}: {column.about}" for column in self.tables[0].columns]
        common = f"    {', '.join(self.common)}: narrow it"
        return "\n".join(["Args:", "    trace: the opened set", common, *own, "", "Returns:", *columns])


def as_declared(rows: pl.DataFrame, columns: Iterable[Column]) -> pl.DataFrame:
    """Give rows the form that their table declares: its columns in its order, times in microseconds, rounded by unit.

    Args:
        rows: a column for each declared one; a time may be there as whole nanoseconds instead (`dur_ns` for `dur_us`).
        columns: what is declared; other columns of `rows` are left out.

    Example:
        >>> import polars as pl
        >>> rows = pl.DataFrame({"dur_ns": [1500], "share_pct": [100 / 3], "name": ["gemm"], "part": [0]})
        >>> columns = Column("name", "text", "kernel"), Column("dur_us", "us", "duration"), Column("share_pct", "pct", "share")
        >>> as_declared(rows, columns).rows()
        [('gemm', 1.5, 33.333)]
    """
    import polars as pl

    made = []
    for column in columns:
        value = pl.col(column.name)
        if column.unit == "us" and column.name not in rows.columns:
            value = (pl.col(f"{column.name.removesuffix('_us')}_ns") / 1000).alias(column.name)
        decimals = DECIMALS.get(column.unit) if column.decimals is None else column.decimals
        made.append(value if decimals is None else value.round(decimals))
    return rows.select(made)


_registry: dict[str, Question] = {}


def question(
    *,
    name: str,
    title: str,
    about: str,
    tables: tuple[Table, ...],
    parameters: tuple[Parameter, ...] = (),
    order: int = 100,
    version: int = 1,
    common: tuple[str, ...] = COMMON,
) -> Callable[[Callable[..., dict[str, pl.DataFrame]]], Question]:
    """Declare the decorated function as a question; see the module's text."""

    def declare(function: Callable[..., dict[str, pl.DataFrame]]) -> Question:
        made = Question(name, title, about, function, tables, parameters, order, version, common)
        _registry[name] = made
        return made

    return declare


def all_questions() -> dict[str, Question]:
    """Return every declared question by name, in order; a new file in this folder is found by itself."""
    _import_declarations()
    return dict(sorted(_registry.items(), key=lambda item: (item[1].order, item[0])))


@cache
def _import_declarations() -> None:
    """Import what declares a question, once: looking for it takes longer than many answers."""
    package = import_module(__package__)
    for module in pkgutil.iter_modules(package.__path__):
        if _declares(module.name, package=module.ispkg):
            import_module(f"{__package__}.{module.name}")


def _declares(name: str, *, package: bool) -> bool:
    """Whether a module declares a question: most do not, and `--help` need not wait for them."""
    file = files(__package__) / name / "__init__.py" if package else files(__package__) / f"{name}.py"
    return "\n@question(" in file.read_text("utf-8")
