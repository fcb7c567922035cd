"""Sums over call trees: nearest callers of a kind, sums over subtrees, trees merged by path; no loop over rows.

A tree is the column `parent`: row numbers (u32), null at the bottom, in an order in which a row stands before its subtree and a
subtree is one stretch of rows, as in `TraceSet.calls`.
"""

from __future__ import annotations

import polars as pl

from kinetop.traces.calls import depths


def nearest(marked: pl.Series, parent: pl.Series) -> pl.Series:
    """Return for each row the nearest marked one among itself and the rows below it; null where there is none.

    Args:
        marked: whether a row counts.
        parent: the tree.

    Example:
        >>> import polars as pl
        >>> nearest(pl.Series([True, False, False, True]), pl.Series([None, 0, 1, 2], dtype=pl.UInt32)).to_list()
        [0, 0, 0, 3]
    """
    rows = pl.DataFrame({"marked": marked, "parent": parent})
    found = rows.select(pl.when("marked").then(pl.int_range(pl.len(), dtype=pl.UInt32)).otherwise("parent")).to_series()
    left = (~marked & parent.is_not_null()).arg_true()
    while True:
        # Each round a row takes over what the row it points to has found: the distance doubles.
        left = left.filter((~marked.gather(found.gather(left))).fill_null(value=False))
        if left.is_empty():
            return found
        found = found.scatter(left, found.gather(found.gather(left)))


def among(marked: pl.Series, parent: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Return the tree of the marked rows alone.

    Args:
        marked: which rows stay.
        parent: the tree.

    Returns:
        For each row the nearest marked one, counted among the marked ones, and the parents of these.

    Example:
        >>> import polars as pl
        >>> owner, smaller = among(pl.Series([True, False, True]), pl.Series([None, 0, 1], dtype=pl.UInt32))
        >>> owner.to_list(), smaller.to_list()
        ([0, 0, 1], [None, 0])
    """
    number = pl.select(pl.lit(marked).cast(pl.UInt32).cum_sum() - 1).to_series().cast(pl.UInt32, strict=False)
    owner = number.gather(nearest(marked, parent))
    return owner, owner.gather(parent.filter(marked))


def subtree_ends(parent: pl.Series) -> pl.Series:
    """Return for each row the first row behind its subtree.

    Args:
        parent: the tree.

    Example:
        >>> import polars as pl
        >>> subtree_ends(pl.Series([None, 0, 1, 0, None], dtype=pl.UInt32)).to_list()
        [4, 3, 3, 4, 5]
    """
    rows = pl.select(pl.int_range(len(parent), dtype=pl.UInt32).alias("row")).with_columns(parent=parent)
    order = rows.sort("parent", maintain_order=True)
    # A subtree ends where the next sibling begins; where there is none, where the parent's ends.
    sibling = order.select(
        "row", next=pl.when(pl.col("parent").eq_missing(pl.col("parent").shift(-1))).then(pl.col("row").shift(-1))
    )
    following = pl.repeat(None, len(parent), dtype=pl.UInt32, eager=True).scatter(sibling["row"], sibling["next"])
    holder = nearest(following.is_not_null(), parent)
    return following.gather(holder).fill_null(len(parent)).cast(pl.UInt32)


def ends_among(marked: pl.Series, ends: pl.Series) -> pl.Series:
    """Return the `subtree_ends` of the tree of the marked rows alone.

    Args:
        marked: which rows stay.
        ends: those of the whole tree.

    Example:
        >>> import polars as pl
        >>> ends_among(pl.Series([True, False, True, True]), pl.Series([3, 3, 3, 4], dtype=pl.UInt32)).to_list()
        [2, 2, 3]
    """
    before = pl.concat([pl.Series([0], dtype=pl.UInt32), marked.cast(pl.UInt32).cum_sum()])
    return before.gather(ends.filter(marked))


def subtree_sums(values: pl.Series, ends: pl.Series) -> pl.Series:
    """Return the sum of each row's subtree, itself included.

    Args:
        values: integers, a row each.
        ends: see `subtree_ends`.

    Example:
        >>> import polars as pl
        >>> subtree_sums(pl.Series([1, 2, 4]), pl.Series([3, 3, 3], dtype=pl.UInt32)).to_list()
        [7, 6, 4]
    """
    before = pl.concat([pl.Series([0], dtype=pl.Int64), values.cast(pl.Int64).cum_sum()])
    return (before.gather(ends) - before.head(len(values))).rename(values.name)


def outermost(label: pl.Series, ends: pl.Series) -> pl.Series:
    """Return which rows lie in no row of their own label: where recursion begins.

    Args:
        label: what a row is called.
        ends: see `subtree_ends`.

    Example:
        >>> import polars as pl
        >>> outermost(pl.Series(["f", "g", "f"]), pl.Series([3, 3, 3], dtype=pl.UInt32)).to_list()
        [True, True, False]
    """
    rows = pl.DataFrame({"label": label, "end": ends}).with_row_index("row")
    reached = pl.col("end").cum_max().shift(1).over("label")
    return rows.select((reached <= pl.col("row")).fill_null(value=True)).to_series()


def merged(label: pl.Series, parent: pl.Series) -> tuple[pl.DataFrame, pl.Series]:
    """Merge the rows that have the same path of labels, level by level.

    Args:
        label: what a row is called.
        parent: the tree.

    Returns:
        The merged tree in order of depth (parent u32?, depth i32, label), and the node of each row.

    Example:
        >>> import polars as pl
        >>> nodes, at = merged(pl.Series(["f", "g", "g"]), pl.Series([None, 0, 0], dtype=pl.UInt32))
        >>> nodes.rows(), at.to_list()
        ([(None, 0, 'f'), (0, 1, 'g')], [0, 1, 1])
    """
    rows = pl.DataFrame({"label": label, "parent": parent, "depth": depths(parent)}).with_row_index("row")
    rows = rows.sort("depth", maintain_order=True)
    place = rows.select("row", at=pl.int_range(pl.len()).over("depth")).sort("row")["at"]
    tables = [pl.DataFrame(schema={"parent": pl.UInt32, "depth": pl.Int32, "label": label.dtype})]
    at = [pl.Series(dtype=pl.UInt32)]
    first = done = 0
    for level, height in enumerate(rows.group_by("depth", maintain_order=True).len()["len"]):
        here = rows.slice(done, height)
        paths = here.select("label", parent=at[-1].gather(place.gather(here["parent"])))
        new = paths.unique(maintain_order=True).with_row_index("node", offset=first)
        at.append(paths.join(new, on=["label", "parent"], how="left", nulls_equal=True, maintain_order="left")["node"])
        tables.append(new.select("parent", pl.lit(level, pl.Int32).alias("depth"), "label"))
        first, done = first + new.height, done + height
    return pl.concat(tables), rows.select("row", node=pl.concat(at)).sort("row")["node"]


def paths(text: pl.Series, nodes: pl.DataFrame, between: str) -> pl.Series:
    """Return the texts on the way to each node, joined.

    Args:
        text: of each node.
        nodes: parent and depth, in order of depth, as `merged` gives them.
        between: what stands between two texts.

    Example:
        >>> import polars as pl
        >>> nodes, _ = merged(pl.Series(["f", "g"]), pl.Series([None, 0], dtype=pl.UInt32))
        >>> paths(nodes["label"], nodes, " > ").to_list()
        ['f', 'f > g']
    """
    rows = nodes.select("parent", "depth", text=text)
    made, first, done = [rows["text"].clear()], 0, 0
    for height in rows.group_by("depth", maintain_order=True).len()["len"]:
        here = rows.slice(done, height)
        above = made[-1].gather(here["parent"] - first)
        made.append(here.select(pl.concat_str(above.alias("above"), "text", separator=between, ignore_nulls=True)).to_series())
        first, done = done, done + height
    return pl.concat(made)
