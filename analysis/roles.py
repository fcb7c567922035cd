"""Which part of attention each operator belongs to: by a variant's own ranges, else by name and order around the softmax."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

import polars as pl

from kinetop.traces.calls import tree
from kinetop.traces.nesting import THREAD, innermost

RANGE = "kinetop.part|"
"""What the name of a variant's own range begins with."""
_RULES = Path(__file__).parent / "rules" / "parts.toml"
_BATCHED = r"^aten::(bmm|baddbmm)(_out)?$"
_ELEMENTWISE = ("scale", "mask")
_HELD = {
    "fused": ("scale", "mask", "softmax", "copy", "cast", "layout", "matmul", "other"),
    "softmax": (*_ELEMENTWISE, "layout"),
    "qk": (*_ELEMENTWISE, "matmul"),
    "pv": (*_ELEMENTWISE, "matmul"),
    "cast": ("copy", "mask", "layout"),
    "copy": ("mask", "layout"),
    "scale": ("cast", "mask"),
    "mask": ("cast", "scale"),
    "layout": ("layout",),
}
"""What counts as its surroundings' part: the `where` of a safe softmax is softmax, the clone of a masked_fill is a copy."""
_OWN_MOVES = ("copy", "cast", "layout")


def assigned(rows: pl.DataFrame) -> pl.DataFrame:
    """Return operators and own ranges as call trees, each with its part.

    Args:
        rows: rank, process, thread, name, start_ns, end_ns, step (u32?, which step it is in), labelled (whether that is a step of
            a kinetop window, all of which is attention).

    Returns:
        The rows in order of thread and start, with parent, self_ns, range (whether it is an own range) and part.
    """
    made = tree(rows.with_columns(part=pl.col("rank").fill_null(0).cast(pl.Int32))).with_row_index("at")
    kinds = _kinds(made["name"])
    made = made.join(kinds, on="name", how="left", maintain_order="left").with_columns(
        range=pl.col("name").str.starts_with(RANGE)
    )
    made = made.with_columns(kind=pl.when("range").then(None).otherwise("kind"))
    made = _with_roles(made)
    own = _down(made)
    own = _framed(made, own)
    attention = _in_attention(made, own)
    return made.drop("part", "kind", "role").with_columns(part=pl.when(attention).then(own).otherwise(pl.lit("other")))


def named(names: pl.Series) -> pl.Series:
    """Return the part that a GPU activity's own name says: fused, softmax, copy; other where it says none."""
    text = names.cast(pl.String)
    lower = pl.col("n").str.to_lowercase()
    return (
        pl.DataFrame({"n": text})
        .select(
            pl.when(pl.col("n").str.contains("^Mem(cpy|set)"))
            .then(pl.lit("copy"))
            .when(lower.str.contains(r"flash|fmha|attn|attention|sdpa"))
            .then(pl.lit("fused"))
            .when(lower.str.contains("^triton_"))
            .then(pl.lit("fused"))
            .when(lower.str.contains("softmax"))
            .then(pl.lit("softmax"))
            .otherwise(pl.lit("other"))
        )
        .to_series()
    )


@cache
def _rules() -> tuple[tuple[str, str], ...]:
    return tuple((rule["part"], rule["pattern"]) for rule in tomllib.loads(_RULES.read_text(encoding="utf-8"))["rule"])


def _kinds(names: pl.Series) -> pl.DataFrame:
    """Return the rule's part of each distinct name; null where none fits."""
    rules = (pl.when(pl.col("name").str.contains(pattern)).then(pl.lit(part)) for part, pattern in _rules())
    return pl.DataFrame({"name": names.unique()}).with_columns(kind=pl.coalesce(*rules, pl.lit(None, pl.String)))


def _with_roles(made: pl.DataFrame) -> pl.DataFrame:
    """Add `role`: qk or pv for the batched matmuls around a softmax; an inner matmul or softmax belongs to its outer one."""
    units, softmaxes = (_outermost(made.filter(pl.col("kind") == kind)) for kind in ("matmul", "softmax"))
    leaves = made.filter(pl.col("name").str.contains(_BATCHED))
    batched = innermost(leaves.select(*THREAD, at_ns="start_ns"), units).drop_nulls().unique().sort()
    units = units[batched].sort("start_ns")
    fused = made.filter((pl.col("kind") == "fused") & pl.col("name").str.contains("(?i)softmax"))
    marks = pl.concat([softmaxes, fused.select(softmaxes.columns)])
    roles = pl.concat([_by_order(units, marks), _by_graph(units, made, marks)]).unique("at", keep="first", maintain_order=True)
    return made.join(roles, on="at", how="left", maintain_order="left")


def _outermost(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that lie in no other of them."""
    return tree(rows.drop("parent", "depth", "self_ns")).filter(pl.col("parent").is_null())


def _by_order(units: pl.DataFrame, marks: pl.DataFrame) -> pl.DataFrame:
    """Return at, role of the matmuls next to a softmax, in the order of a step's work on all its threads.

    Backwards, the two before the softmax's gradient are those of V and of the probabilities, the two after it those of Q and K.
    """
    here = ["rank", "step"]
    numbered = units.with_columns(number=pl.int_range(pl.len()).over(here))
    before = (
        marks.sort("start_ns")
        .select(*here, "start_ns", back=pl.col("name").str.contains("backward"))
        .join_asof(numbered.select(*here, "start_ns", "number"), on="start_ns", by=here, check_sortedness=False)
        .with_columns(count=pl.col("number").fill_null(-1) + 1)
    )
    places = [(False, -1, "qk"), (False, 0, "pv"), (True, -1, "pv"), (True, -2, "pv"), (True, 0, "qk"), (True, 1, "qk")]
    wanted = pl.concat(
        before.filter(pl.col("back") == back).select(*here, number=pl.col("count") + shift, role=pl.lit(role))
        for back, shift, role in places
    )
    return numbered.join(wanted, on=[*here, "number"], nulls_equal=True, maintain_order="right").select("at", "role")


def _by_graph(units: pl.DataFrame, made: pl.DataFrame, marks: pl.DataFrame) -> pl.DataFrame:
    """Return the roles of the two matmuls of a compiled graph whose softmax is inside generated code."""
    graphs = made.filter(pl.col("kind") == "graph")
    inside = units.with_columns(graph=innermost(units.select(*THREAD, at_ns="start_ns"), graphs)).drop_nulls("graph")
    seen = innermost(marks.select(*THREAD, at_ns="start_ns"), graphs).drop_nulls().unique()
    pairs = inside.filter((pl.len().over("graph") == 2) & ~pl.col("graph").is_in(seen.implode()))
    first = pl.int_range(pl.len()).over("graph") == 0
    return pairs.select("at", role=pl.when(first).then(pl.lit("qk")).otherwise(pl.lit("pv")))


def _down(made: pl.DataFrame) -> pl.Series:
    """Return the part of each row, from the outermost rows inwards: its own, unless its surroundings hold it."""
    own_range = pl.col("name").str.strip_prefix(RANGE)
    known = pl.when(own_range.is_in([*_HELD, "other"])).then(own_range).otherwise(pl.lit("other"))
    word = (
        made.select(
            pl.when("range")
            .then(known)
            .when(pl.col("kind") == "matmul")
            .then(pl.coalesce("role", pl.lit("matmul")))
            .when(pl.col("kind") == "attention")
            .then(pl.lit("other"))
            .when(pl.col("kind") == "graph")
            .then(pl.lit("fused-graph"))
            .otherwise("kind")
        )
        .to_series()
        .alias("word")
    )
    under = made["range"]
    part = word.clone()
    for depth in range(int(made["depth"].max() or 0) + 1):  # type: ignore[arg-type]
        rows = (made["depth"] == depth).arg_true()
        parents = made["parent"].gather(rows)
        level = pl.DataFrame(
            {
                "own": word.gather(rows),
                "range": made["range"].gather(rows),
                "outer": part.gather(parents),
                "under": under.gather(parents).fill_null(value=False),
            }
        )
        part = part.scatter(rows, level.select(_resolved()).to_series())
        under = under.scatter(rows, level["range"] | level["under"])
    return part.replace({"matmul": "other", "fused-graph": "fused"}).fill_null("other")


def _resolved() -> pl.Expr:
    """The part of a row, from its own word and its surroundings' part."""
    moves = pl.col("own").is_in(_OWN_MOVES) & ~pl.col("outer").is_in(_OWN_MOVES)
    held = pl.any_horizontal((pl.col("outer") == outer) & pl.col("own").is_in(inner) for outer, inner in _HELD.items())
    # In a variant's own range only copies and casts stand out: they are what its author did not mean to do.
    return (
        pl.when("range")
        .then("own")
        .when("under")
        .then(pl.when(moves & (pl.col("own") != "layout")).then("own").otherwise("outer"))
        .when(pl.col("own").is_null() | held.fill_null(value=False))
        .then(pl.col("outer"))
        .otherwise("own")
    )


def _framed(made: pl.DataFrame, part: pl.Series) -> pl.Series:
    """Give the dispatching operator around a fused one to it."""
    frames = made.select((pl.col("kind") == "attention").fill_null(value=False)).to_series()
    parents = made["parent"].filter((part == "fused") & made["parent"].is_not_null()).unique()
    framing = parents.filter(frames.gather(parents)) if len(parents) else parents
    return part.scatter(framing, pl.Series(["fused"] * len(framing), dtype=pl.String)) if len(framing) else part


def _in_attention(made: pl.DataFrame, part: pl.Series) -> pl.Series:
    """Return whether each row is in attention: in a step of a window, an attention operator, or from QK to PV of one softmax."""
    whole = made.filter(pl.col("kind").is_in(["attention", "fused"]) | pl.col("range")).select(*THREAD, "start_ns", "end_ns")
    roles = made.with_columns(now=part).filter(pl.col("role").is_not_null() & pl.col("now").is_in(["qk", "pv"])).sort("start_ns")
    pairs = roles.select(
        *THREAD, "start_ns",
        end_ns=pl.when((pl.col("now") == "qk") & (pl.col("now").shift(-1) == "pv")).then(pl.col("end_ns").shift(-1)).over(THREAD),
    ).drop_nulls("end_ns")  # fmt: skip
    backwards = roles.select(*THREAD, "start_ns", "end_ns")
    spans = pl.concat([whole, pairs, backwards])
    inside = innermost(made.select(*THREAD, at_ns="start_ns"), spans).is_not_null()
    return made["labelled"] | inside
