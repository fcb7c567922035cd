"""Local attention without a kernel of its own: a window by mask, by chunks, and a pattern of blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import ranges
from ..case import MODES
from ..variant import Variant
from . import calls, scaled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..case import Case
    from ..variant import Built, Inputs

SINKS, LOCAL = 1, 2
"""sparse:block: each block of queries sees so many first blocks of keys, and so many up to its own."""


@dataclass(frozen=True)
class Plan:
    """Which blocks of keys each block of queries is multiplied with; queries are padded in front to lie on blocks of keys."""

    size: int
    """Queries and keys of a block."""
    first: int
    """The first block of keys in which a query has its own place."""
    lead: int
    """Rows put before the queries, so that they begin with that block."""
    listed: Sequence[Sequence[int]]
    """For each block of queries its blocks of keys, all lists of one length; a block named again is hidden."""

    def share(self, case: Case) -> float:
        """Return the share of the q_len x kv_len square that is computed."""
        return sum(len(row) for row in self.listed) * self.size**2 / (case.q_len * case.kv_len)


def _plan(case: Case, size: int, choose: Callable[[int], list[int]]) -> Plan:
    first, lead = divmod(case.kv_len - case.q_len, size)
    rows = [choose(block) for block in range(first, -(-case.kv_len // size))]
    width = max(map(len, rows))
    return Plan(size, first, lead, [[*row, *[row[0]] * (width - len(row))] for row in rows])


def _window_plan(case: Case) -> Plan:
    window = min(case.window or case.kv_len, case.kv_len)
    size = min(512, max(16, 1 << (window - 1).bit_length()))
    back = -(-(window - 1) // size)
    return _plan(case, size, lambda block: list(range(max(0, block - back), block + 1)))


def _block_plan(case: Case) -> Plan:
    size = 64 if case.kv_len >= 512 else 16
    ahead = 0 if case.causal or case.window is not None else 1
    blocks = -(-case.kv_len // size)

    def choose(block: int) -> list[int]:
        local = range(max(0, block - LOCAL + 1), min(block + ahead, blocks - 1) + 1)
        return [*(sink for sink in range(min(SINKS, blocks)) if sink < local.start), *local]

    return _plan(case, size, choose)


def pattern(case: Case, on: Any) -> Any:
    """Return the mask [Sq, Sk] of sparse:block: the case's own, within the blocks."""
    import torch

    plan = _block_plan(case)
    query = torch.arange(case.q_len, device=on)[:, None] + (case.kv_len - case.q_len)
    block = torch.arange(case.kv_len, device=on) // plan.size
    own = query // plan.size
    ahead = 0 if case.causal or case.window is not None else 1
    mask = ((block > own - LOCAL) & (block <= own + ahead)) | (block < SINKS)
    visible = calls.visible(case, on)
    return mask if visible is None else mask & visible


def _blocked(case: Case, inputs: Inputs, plan: Plan) -> Built:
    """Attend block by block: the listed keys are gathered and all blocks go through SDPA as one batch."""
    import torch
    import torch.nn.functional as F  # noqa: N812

    on, size = inputs.q.device, plan.size
    index = torch.tensor(plan.listed, device=on)
    blocks, width = index.shape
    group, batch = case.q_heads // case.kv_heads, case.batch * case.kv_heads
    query = torch.arange(blocks * size, device=on).view(blocks, size, 1) + plan.first * size
    key = (index[:, :, None] * size + torch.arange(size, device=on)).view(blocks, 1, width * size)
    again = torch.tensor([[block in row[:at] for at, block in enumerate(row)] for row in plan.listed], device=on)
    mask = (key < case.kv_len) & ~again.repeat_interleave(size, 1)[:, None]
    if case.causal or case.window is not None:
        mask = mask & (key <= query)
    if case.window is not None:
        mask = mask & (key > query - case.window)
    mask = mask | (query < case.kv_len - case.q_len) | (query >= case.kv_len)  # padding sees all: no row may see nothing
    mask = mask.expand(batch, -1, -1, -1).reshape(batch * blocks, 1, size, width * size)
    after = blocks * size - plan.lead - case.q_len
    spare = (plan.first + blocks) * size - case.kv_len

    def gather(tensor: Any) -> Any:
        whole = F.pad(tensor, (0, 0, 0, spare)) if spare else tensor
        cut = whole.reshape(batch, -1, size, tensor.shape[-1])[:, index]
        return cut.reshape(batch * blocks, 1, width * size, -1)

    def attend(q: Any, k: Any, v: Any) -> Any:
        with ranges.part("layout"):
            q = F.pad(q, (0, 0, plan.lead, after)).view(batch, group, blocks, size, -1)
            q = q.transpose(1, 2).reshape(batch * blocks, group, size, -1)
        with ranges.part("copy"):
            k, v = gather(k), gather(v)
        with ranges.part("fused"):
            out = F.scaled_dot_product_attention(q, k, v, mask, scale=calls.scale(case), enable_gqa=group > 1)
        with ranges.part("layout"):
            out = out.view(batch, blocks, group, size, -1).transpose(1, 2).reshape(case.batch, case.q_heads, blocks * size, -1)
            return out[:, :, plan.lead : plan.lead + case.q_len]

    return calls.built(inputs, attend)


def _masked(case: Case, inputs: Inputs) -> Built:
    import torch

    given = {"attn_mask": calls.visible(case, inputs.q.device), "enable_gqa": case.q_heads != case.kv_heads}

    def attend(q: Any, k: Any, v: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, **given)

    return calls.built(inputs, attend, backend=scaled.backend_of(inputs.q, inputs.k, inputs.v, given))


def _windowed(case: Case) -> str | None:
    return "the case has no window" if case.window is None else None


VARIANTS = (
    Variant(
        "window:mask",
        "window by mask",
        "sparse",
        "SDPA with a boolean mask: the whole square is computed however small the window is.",
        _masked,
        why_not=_windowed,
        modes=MODES,
        expected=("scaled_dot_product",),
    ),
    Variant(
        "window:chunked",
        "window by chunks",
        "sparse",
        "Queries in chunks meet their own and the chunks before it, gathered; work grows with the window, not the square.",
        lambda case, inputs: _blocked(case, inputs, _window_plan(case)),
        why_not=_windowed,
        executed=lambda case: _window_plan(case).share(case),
        modes=MODES,
        expected=("scaled_dot_product", r"aten::index$"),
    ),
    Variant(
        "sparse:block",
        "block-sparse",
        "sparse",
        "Each block of queries sees the first block of keys, its own and the one before it (and after it, if not causal).",
        lambda case, inputs: _blocked(case, inputs, _block_plan(case)),
        why_not=lambda case: "blocks need kv_len >= q_len" if case.q_len > case.kv_len else None,
        exact=False,
        reference=lambda case, inputs: calls.plain(case, inputs, mask=pattern(case, inputs.q.device)),
        executed=lambda case: _block_plan(case).share(case),
        modes=MODES,
        expected=("scaled_dot_product", r"aten::index$"),
    ),
)
