"""Where a trace computes attention: calls of attention operators, eager products around a softmax, kernels that stand alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from kinetop.traces import schema
from kinetop.traces.nesting import THREAD, innermost, laid_out
from kinetop.traces.once import once
from kinetop.traces.pairs import ranges

from .attention_shapes import BACKWARD_FUSED, BACKWARD_KEPT, Shape, flops, least_bytes, operator, shape_of, square, visible_pairs
from .op_calls import Call, read_call
from .op_costs import SIGNATURE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kinetop.traces.trace import TraceSet

EAGER = "eager"
MATERIALIZING = (EAGER, "math")
"""Implementations that write the scores to memory."""
CALL_COLUMNS: dict[str, str] = {
    "call": "UInt32",
    "part": "Int32",
    "host_ns": "Int64",
    "implementation": "String",
    "backward": "Boolean",
    "batch": "Int64",
    "q_heads": "Int64",
    "kv_heads": "Int64",
    "q_len": "Int64",
    "kv_len": "Int64",
    "qk_dim": "Int64",
    "v_dim": "Int64",
    "dtype": "String",
    "causal": "Boolean",
    "window": "Int64",
    "tokens": "Int64",
    "useful_flops": "Int64",
    "executed_flops": "Int64",
    "bytes": "Int64",
    "shape": "String",
}
"""Columns of `Found.calls`; with their Polars types; null where the trace does not say."""
PROBLEM = tuple(name for name in CALL_COLUMNS if name not in {"call", "part", "host_ns"})
"""The columns that tell one problem from another."""
_SPAN = (*THREAD, "start_ns", "end_ns")

_BATCHED, _PLAIN, _SOFTMAX, _SOFTMAX_BACKWARD, _MASK = range(5)
_ROLES = (
    (_BATCHED, re.compile(r"aten::(bmm|baddbmm)")),
    (_PLAIN, re.compile(r"aten::(mm|addmm|convolution|_scaled_mm)")),
    (_SOFTMAX, re.compile(r"aten::(_softmax|_masked_softmax)|triton_\w*softmax\w*")),
    (_SOFTMAX_BACKWARD, re.compile(r"aten::_softmax_backward_data")),
    (_MASK, re.compile(r"aten::(masked_fill_?|where|add_?)")),
)
"""Roles of operators in eager attention; a plain product between two of its operators says that these belong apart."""


@dataclass(frozen=True)
class Found:
    """The attention of a trace that its operators tell of."""

    calls: pl.DataFrame
    """`CALL_COLUMNS`, a row for each call."""
    members: pl.DataFrame
    """part, event_id, call: the GPU activities that each call launched."""


def attention_calls(trace: TraceSet) -> Found:
    """Find attention calls and the GPU work that they launched; what is found is kept with the set.

    Of nested attention operators the outermost is the call. Eager attention is a batched product, a softmax and a batched product
    in a row on one thread, from the start of the first to the end of the last one; its backward pass the same around the
    softmax's gradient. Attention inside an attention operator is that operator's.

    Args:
        trace: the opened set.
    """
    return once(trace, "_attention_calls", lambda: _found(trace))


def _found(trace: TraceSet) -> Found:
    ops = ranges(trace, schema.OP_CATS, *THREAD[1:], "name")
    names = ops["name"].unique().cast(pl.String).drop_nulls().to_list()
    fused = _named(ops, {name: 0 for name in names if operator(name)}).drop("role")
    tops = _tops(fused)
    outer = tops.filter(pl.col("at") == pl.col("top"))
    roles = {name: role for name in names if (role := _role(name)) is not None}
    eager = _eager(_named(ops, roles if _may_be_eager(roles.values()) else {}), outer)
    if outer.is_empty() and eager.is_empty():
        nothing = pl.DataFrame(schema={"part": pl.Int32, "event_id": pl.UInt64, "call": pl.UInt32})
        return Found(pl.DataFrame(schema=_kinds(CALL_COLUMNS)), nothing)
    ids = [fused.select("part", "event_id"), *(eager.select("part", event_id=name) for name in _EAGER_IDS)]
    texts = _texts(trace, pl.concat(ids), [*fused["name"].unique(), *roles])
    spans = pl.concat([outer.select(*_SPAN), eager.select(*_SPAN)]).with_row_index("call")
    calls = pl.concat([_fused_calls(tops, outer, texts), _eager_calls(eager, texts)]).with_row_index("call")
    return Found(calls.select(*CALL_COLUMNS), _members(trace, tops, outer, spans))


def _may_be_eager(roles: Iterable[int]) -> bool:
    there = set(roles)
    return _BATCHED in there and bool(there & {_SOFTMAX, _SOFTMAX_BACKWARD})


def _role(name: str) -> int | None:
    return next((role for role, pattern in _ROLES if pattern.fullmatch(name)), None)


def _named(ops: pl.DataFrame, roles: dict[str, int]) -> pl.DataFrame:
    """Return the operators of some names, with the role of each."""
    table = pl.DataFrame({"name": [*roles], "role": [*roles.values()]}, schema={"name": pl.String, "role": pl.Int8})
    return ops.filter(pl.col("name").is_in([*roles])).with_columns(pl.col("name").cast(pl.String)).join(table, on="name")


def _tops(fused: pl.DataFrame) -> pl.DataFrame:
    """Return the attention operators in order of thread and start, each with the outermost one it lies in (`top`)."""
    spans = laid_out(fused)
    outer, top = spans["outer"], spans["at"]
    while (further := outer.gather(top)).is_not_null().any():
        top = further.zip_with(further.is_not_null(), top)
    return fused[spans["row"]].with_columns(at=spans["at"], top=top)


# ---- eager attention ---------------------------------------------------------------------------------------------------------

_EAGER_IDS = ("qk_id", "softmax_id", "pv_id")


def _eager(rows: pl.DataFrame, outer: pl.DataFrame) -> pl.DataFrame:
    """Return the eager calls: `_SPAN`, backward, masked and the ids of the products and the softmax."""
    softmax = rows.filter(pl.col("role").is_in([_SOFTMAX, _SOFTMAX_BACKWARD]))
    if softmax.is_empty() or rows.filter(pl.col("role") == _BATCHED).is_empty():
        return pl.DataFrame(schema={**rows.select(_SPAN).schema, "backward": pl.Boolean, "masked": pl.Boolean}).with_columns(
            pl.lit(None, pl.UInt64).alias(name) for name in _EAGER_IDS
        )
    core = rows.filter(pl.col("role") != _MASK).sort(*THREAD, "start_ns", "event_id")
    near = {
        f"{what}{step:+d}": _beside(what, step) for what in ("role", "start_ns", "end_ns", "event_id") for step in (-2, -1, 1, 2)
    }
    batched = {step: pl.col(f"role{step:+d}") == _BATCHED for step in (-2, -1, 1, 2)}
    backward = pl.col("role") == _SOFTMAX_BACKWARD
    found = core.with_columns(**near).filter(
        pl.col("role").is_in([_SOFTMAX, _SOFTMAX_BACKWARD]), batched[-1], batched[1]
    ).select(
        *THREAD,
        start_ns=pl.when(backward & batched[-2]).then("start_ns-2").otherwise("start_ns-1"),
        end_ns=pl.when(backward & batched[2]).then("end_ns+2").otherwise("end_ns+1"),
        backward=backward,
        softmax_ns=pl.col("start_ns"),
        qk_id=pl.col("event_id-1"), softmax_id=pl.col("event_id"), pv_id=pl.col("event_id+1"),
    )  # fmt: skip
    inside = innermost(found.select(*THREAD, at_ns="softmax_ns"), outer)
    found = found.filter(inside.is_null())
    masks = rows.filter(pl.col("role") == _MASK)
    masked = innermost(masks.select(*THREAD, at_ns="start_ns"), found).drop_nulls().unique()
    return found.with_row_index().with_columns(masked=pl.col("index").is_in(masked.implode())).drop("index", "softmax_ns")


def _beside(what: str, step: int) -> pl.Expr:
    """The value so many rows further on, of the same thread."""
    same = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift(-step)) for name in THREAD)
    return pl.when(same).then(pl.col(what).shift(-step))


def _eager_calls(eager: pl.DataFrame, texts: _Texts) -> pl.DataFrame:
    """Return the rows of `Found.calls` of eager attention."""
    keyed = eager.select("part", "backward", "masked", *_EAGER_IDS)
    for name in _EAGER_IDS:
        signed = texts.frame.rename({"event_id": name, "sign": f"{name}_sign"})
        keyed = keyed.join(signed, on=["part", name], how="left", maintain_order="left")
    signs = [f"{name}_sign" for name in _EAGER_IDS]

    def read(row: tuple[Any, ...]) -> tuple[object, ...]:
        backward, masked, *three = row
        shape = _eager_shape(*(texts.call(sign) for sign in three), masked=masked) if not backward else None
        return _about(shape, implementation=EAGER, backward=backward)

    return _calls(eager, keyed.select("backward", "masked", *signs), read)


def _eager_shape(qk: Call | None, softmax: Call | None, pv: Call | None, *, masked: bool) -> Shape | None:
    """Return the problem of eager attention: [BH, Sq, D] x [BH, D, Sk], softmax, [BH, Sq, Sk] x [BH, Sk, Dv]."""
    if qk is None or pv is None:
        return None
    at = 1 if qk.name == "aten::baddbmm" else 0
    q, k, p, v = qk.tensor(at), qk.tensor(at + 1), pv.tensor(0), pv.tensor(1)
    if q is None or k is None or p is None or v is None or any(len(one.dims) != 3 for one in (q, k, p, v)):
        return None
    if (q.dims[1], k.dims[2]) != p.dims[1:]:
        return None
    scores = None if softmax is None else softmax.tensor(0)
    split = scores is not None and len(scores.dims) == 4 and scores.dims[0] * scores.dims[1] == q.dims[0]
    batch, heads = scores.dims[:2] if split and scores is not None else (q.dims[0], 1)
    # A bias that the product adds may be a mask too.
    causal = None if masked or (at == 1 and qk.value(3) != 0) else False
    return Shape(batch, heads, heads, q.dims[1], k.dims[2], q.dims[2], v.dims[2], q.dtype, causal)


# ---- calls of operators ------------------------------------------------------------------------------------------------------


def _fused_calls(tops: pl.DataFrame, outer: pl.DataFrame, texts: _Texts) -> pl.DataFrame:
    """Return the rows of `Found.calls` of attention operators: sizes of the outermost, backend of the innermost."""
    signed = tops.join(texts.frame, on=["part", "event_id"], how="left", maintain_order="left")
    chains = signed.group_by("top", maintain_order=True).agg("sign")
    keyed = outer.join(chains, left_on="at", right_on="top", how="left", maintain_order="left")
    return _calls(outer, keyed.select("sign"), lambda row: _chained(call for sign in row[0] if (call := texts.call(sign))))


def _chained(chain: Iterable[Call]) -> tuple[object, ...]:
    calls = list(chain)
    hows = [how for call in calls if (how := operator(call.name)) is not None]
    backend = next((how.implementation for how in reversed(hows) if how.implementation), None)
    shape = next((shape for call in calls if (shape := shape_of(call)) is not None), None)
    return _about(shape, implementation=backend, backward=any(how.backward for how in hows))


def _about(shape: Shape | None, *, implementation: str | None, backward: bool) -> tuple[object, ...]:
    """Return the columns of a problem, in order of `PROBLEM`."""
    if shape is None:
        return (implementation, backward, *(None,) * (len(PROBLEM) - 2))
    seen, keeps = visible_pairs(shape), implementation in MATERIALIZING
    whole = keeps or (seen is None and shape.causal is None and shape.window is None)
    executed = flops(shape, square(shape) if whole else seen, BACKWARD_KEPT if keeps else BACKWARD_FUSED)
    return (
        implementation, backward, shape.batch, shape.q_heads, shape.kv_heads, shape.q_len, shape.kv_len, shape.qk_dim,
        shape.v_dim, shape.dtype, shape.causal, shape.window, shape.tokens if shape.q_len is None else None,
        flops(shape, seen), executed, least_bytes(shape), shape.text,
    )  # fmt: skip


def _calls(spans: pl.DataFrame, keys: pl.DataFrame, read: Callable[[tuple[Any, ...]], tuple[object, ...]]) -> pl.DataFrame:
    """Give each call the columns that `read` makes of its key; each distinct key is read once."""
    numbered = keys.with_columns(key=pl.struct(pl.all()).rank("dense") if keys.width > 1 else pl.first().rank("dense"))
    distinct = numbered.unique("key").sort("key")
    about = pl.DataFrame(
        [read(row) for row in distinct.drop("key").iter_rows()],
        schema=_kinds(PROBLEM),
        orient="row",
    )
    told = about[numbered["key"].cast(pl.Int64) - 1]
    return spans.select("part", host_ns=pl.col("end_ns") - pl.col("start_ns")).hstack(told)


@dataclass(frozen=True)
class _Texts:
    """The arguments of some operators; each distinct text is read once."""

    frame: pl.DataFrame
    """part, event_id, sign: number of the text."""
    calls: tuple[Call, ...]

    def call(self, sign: int | None) -> Call | None:
        return None if sign is None else self.calls[sign]


def _texts(trace: TraceSet, ids: pl.DataFrame, names: list[str]) -> _Texts:
    """Return the arguments of the operators with these ids (part, event_id), all of which have one of these names."""
    rows = (
        trace.events.filter(pl.col("cat").is_in([*schema.OP_CATS]), pl.col("name").is_in(names))
        .select("part", "event_id", *SIGNATURE)
        .join(ids.lazy(), on=["part", "event_id"], how="semi")
        .collect()
    )
    distinct = rows.group_by(SIGNATURE, maintain_order=True).agg("part", "event_id").with_row_index("sign")
    calls = distinct.select(pl.col("name").cast(pl.String), *SIGNATURE[1:])
    signed = distinct.select("part", "event_id", "sign").explode("part", "event_id")
    return _Texts(signed, tuple(read_call(*row) for row in calls.iter_rows()))


# ---- GPU work ----------------------------------------------------------------------------------------------------------------


def _members(trace: TraceSet, tops: pl.DataFrame, outer: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Return which activity was launched by which call: inside its range, or linked to its operator by id."""
    own = trace.launches.select("part", "event_id", "op_id", "process", "thread", at_ns="launch_start_ns")
    number = dict(zip(outer["at"], range(outer.height), strict=True))
    by_op = tops.select("part", op_id="event_id", linked=pl.col("top").replace_strict(number, return_dtype=pl.UInt32))
    linked = own.join(by_op, on=["part", "op_id"], how="inner").select("part", "event_id", "linked")
    near = own.filter(_covered(own["at_ns"], spans)).with_columns(pl.col("process", "thread").cast(pl.Categorical))
    inside = near.select("part", "event_id", inside=spans["call"].gather(innermost(near, spans))).drop_nulls("inside")
    both = inside.join(linked, on=["part", "event_id"], how="full", coalesce=True)
    return both.select("part", "event_id", call=pl.coalesce("inside", "linked"))


def _covered(moments: pl.Series, spans: pl.DataFrame) -> pl.Series:
    """Whether a span of any thread may contain each moment: what cannot be inside need not be looked up by thread."""
    ordered = spans.select("start_ns", "end_ns").sort("start_ns")
    before = ordered["start_ns"].search_sorted(moments.fill_null(ordered["start_ns"][0] - 1), side="right").cast(pl.Int64) - 1
    reach = ordered["end_ns"].cum_max().gather(before.clip(lower_bound=0))
    return ((before >= 0) & (reach > moments)).fill_null(value=False)


def _kinds(names: Iterable[str]) -> dict[str, pl.DataType]:
    """Polars' types of columns; made when asked for, since `--help` loads no Polars."""
    return {name: getattr(pl, CALL_COLUMNS[name])() for name in names}
