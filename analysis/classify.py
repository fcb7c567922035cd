"""Which class and family a GPU activity belongs to, by ordered rules that a user can extend.

The rules are `rules/kernels.toml`, with a user's own file in front: the one that the environment variable `KINETOP_RULES`
names, else `kernels.toml` in kinetop's configuration folder.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import platformdirs
import polars as pl

from kinetop.traces.errors import TraceError

CLASSES = ("compute", "comm", "memory")
"""The classes, in the order in which shares are shown."""

CLASS_COLUMNS: dict[str, str] = {
    "class": "compute, comm or memory",
    "family": "kind of work: attention, gemm, all-reduce, copy, ...",
    "implementation": "library or algorithm that does it, where the name says so, else null: flash, cublas, ...",
    "rule": "id of the rule that fired",
}
"""What `classified` adds."""

_FIELDS = {"id", "class", "family", "implementation", "pattern", "collective"}


class RulesError(TraceError):
    """A rules file cannot be used; the message is one sentence with the file in it."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; it fires where all of its conditions hold."""

    id: str
    class_: str
    family: str
    implementation: str | None = None
    pattern: str | None = None
    """Rust regular expression, searched in the name."""
    collective: str | None = None
    """Rust regular expression, searched in the `Collective name` beside the kernel."""
    source: str = ""
    """File that the rule comes from."""

    @property
    def condition(self) -> pl.Expr:
        """The rule over a frame with `name` and `collective`."""
        parts = [(column, text) for column, text in (("name", self.pattern), ("collective", self.collective)) if text is not None]
        return pl.all_horizontal(*(pl.col(column).str.contains(text).fill_null(value=False) for column, text in parts))


BY_KIND = {
    "memcpy": Rule("category-copy", "memory", "copy", source="category"),
    "memset": Rule("category-memset", "memory", "memset", source="category"),
}
"""What the category alone decides: copies and memsets."""


def user_file() -> Path:
    """Return where a user's own rules are looked for; the file need not exist."""
    named = os.environ.get("KINETOP_RULES")
    return Path(named) if named else Path(platformdirs.user_config_dir("kinetop", appauthor=False)) / "kernels.toml"


def rules() -> tuple[Rule, ...]:
    """Return the rules in the order they are tried: the user's, then kinetop's.

    Raises:
        RulesError: the user's file cannot be used.

    Example:
        >>> rules()[-1].family
        'other'
    """
    path = user_file()
    try:
        stamp = path.stat().st_mtime_ns
    except OSError as error:
        if os.environ.get("KINETOP_RULES"):
            raise RulesError(f"{path}, which KINETOP_RULES names, cannot be read: {error.strerror}.") from error
        return _rules_of(_OWN_FILE, 0)
    return _rules_of(path, stamp) + _rules_of(_OWN_FILE, 0)


def classified(activities: pl.DataFrame) -> pl.DataFrame:
    """Return the activities with `CLASS_COLUMNS` added, rows in the same order.

    Args:
        activities: has `kind`, `name` and `collective` (see `kinetop.traces.activities`).

    Raises:
        RulesError: the user's rules file cannot be used.

    Example:
        >>> import polars as pl
        >>> rows = pl.DataFrame({"kind": ["kernel", "memcpy"], "name": ["ampere_sgemm_128x64_nn", "Memcpy HtoD"]})
        >>> classified(rows.with_columns(collective=pl.lit(None, pl.String)))["class", "family", "implementation"].rows()
        [('compute', 'gemm', 'cublas'), ('memory', 'copy', None)]
    """
    # Texts are few and rows many: codes put together as one number tell them apart in a third of the time of a join by texts.
    texts = activities.select(pl.col("name", "collective").cast(pl.Categorical))
    beside = pl.col("collective").to_physical().fill_null(2**32 - 1)
    for at, kind in enumerate(BY_KIND, 2):  # which decides alone
        beside = pl.when(activities["kind"] == kind).then(pl.lit(2**32 - at, pl.UInt32)).otherwise(beside)
    key = texts.select(pl.col("name").to_physical().fill_null(2**32 - 1).cast(pl.UInt64) * 2**32 + beside).to_series()
    known = key.to_frame("key").with_row_index("row").unique("key", keep="first").sort("key")
    decided = _decided(activities.select(pl.col("kind", "name", "collective").gather(known["row"]))).select(*CLASS_COLUMNS)
    return activities.hstack(decided.select(pl.all().gather(known["key"].search_sorted(key))))


def explain(name: str, *, collective: str | None = None, kind: str = "kernel") -> Rule:
    """Return the rule that takes a name.

    Args:
        name: kernel name.
        collective: the `Collective name` beside it, if any.
        kind: kernel, memcpy or memset.

    Example:
        >>> explain("ncclDevKernel_AllReduce_Sum_f32_RING_LL").id
        'library-all-reduce'
    """
    row = pl.DataFrame({"kind": [kind], "name": [name], "collective": [collective]}, schema_overrides={"collective": pl.String})
    return _in_order()[int(row.select(_first()).item())]


def _in_order() -> tuple[Rule, ...]:
    return (*BY_KIND.values(), *rules())


def _first() -> pl.Expr:
    """Position in `_in_order` of the rule that decides; two rules may share an id."""
    tests = [*(pl.col("kind") == kind for kind in BY_KIND), *(rule.condition for rule in rules())]
    return pl.coalesce(pl.when(test).then(pl.lit(at, pl.UInt32)) for at, test in enumerate(tests))


def _decided(names: pl.DataFrame) -> pl.DataFrame:
    """Add `CLASS_COLUMNS` to distinct names."""
    table = pl.DataFrame(
        [(rule.class_, rule.family, rule.implementation, rule.id) for rule in _in_order()],
        schema=dict.fromkeys(CLASS_COLUMNS, pl.String),
        orient="row",
    )
    fired = names.select(_first()).to_series()
    return names.hstack(table.select(pl.all().gather(fired)))


_OWN_FILE = Path(__file__).parent / "rules" / "kernels.toml"


@cache
def _rules_of(path: Path, _stamp: int) -> tuple[Rule, ...]:
    """Read a rules file; `_stamp` makes a changed file a new question."""
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8")).get("rule", [])
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RulesError(f"The rules file {path} cannot be read: {error}.") from error
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise RulesError(f"The rules file {path} holds no list of [[rule]] entries.")
    found = tuple(_rule(entry, number, path) for number, entry in enumerate(entries, 1))
    if path != _OWN_FILE:  # ours are tested: to try them all takes a tenth of a second
        for number, rule in enumerate(found, 1):
            _try(rule, number)
    return found


def _rule(entry: dict[str, Any], number: int, path: Path) -> Rule:
    """Build one rule, or say in a sentence why it cannot be one."""
    where = f"Rule {number} of {path}"
    if unknown := set(entry) - _FIELDS:
        raise RulesError(f"{where} has an unknown field {sorted(unknown)[0]!r}; a rule has {', '.join(sorted(_FIELDS))}.")
    if wrong := [key for key, value in entry.items() if not isinstance(value, str)]:
        raise RulesError(f"{where}: {wrong[0]} must be text.")
    if missing := {"id", "class", "family"} - set(entry):
        raise RulesError(f"{where} lacks {sorted(missing)[0]!r}.")
    if entry["class"] not in CLASSES:
        raise RulesError(f"{where}: class is one of {', '.join(CLASSES)}, not {entry['class']!r}.")
    if "pattern" not in entry and "collective" not in entry:
        raise RulesError(f"{where} has neither a pattern nor a collective, so it could never fire.")
    return Rule(
        entry["id"],
        entry["class"],
        entry["family"],
        entry.get("implementation"),
        entry.get("pattern"),
        entry.get("collective"),
        str(path),
    )


def _try(rule: Rule, number: int) -> None:
    """Say it where a pattern is no regular expression."""
    try:
        pl.DataFrame({"name": [""], "collective": [""]}).select(rule.condition)
    except pl.exceptions.ComputeError as error:
        said = " ".join(str(error).split())
        where = f"Rule {number} of {rule.source} ({rule.id})"
        raise RulesError(f"{where} has a pattern that is no regular expression: {said}.") from error
