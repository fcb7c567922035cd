"""What FlexAttention is given beside q, k and v, masks and changes of the scores, and what must come of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import calls

if TYPE_CHECKING:
    from ..case import Case
    from ..variant import Inputs

SOFT_CAP = 20.0
DOCUMENTS = 4
"""Documents that lie side by side in a sequence; each is longer than the one before."""


def seen(case: Case, on: Any) -> Any:  # noqa: ARG001 -- as all that makes masks
    """Return the case's mask as a function of batch, head, query and key; None when nothing is hidden."""
    offset = case.kv_len - case.q_len
    if not calls.hides(case):
        return None

    def causal(_batch: Any, _head: Any, query: Any, key: Any) -> Any:
        return key <= query + offset

    def windowed(_batch: Any, _head: Any, query: Any, key: Any) -> Any:
        return (key <= query + offset) & (key > query + offset - case.window)

    return causal if case.window is None else windowed


def same_document(case: Case, on: Any) -> Any:
    """Return the mask of documents, within the case's own."""
    rest, document, offset = seen(case, on), documents(case, on), case.kv_len - case.q_len

    def same(batch: Any, head: Any, query: Any, key: Any) -> Any:
        together = document[query + offset] == document[key]
        return together if rest is None else together & rest(batch, head, query, key)

    return same


def alibi(case: Case, on: Any) -> Any:
    """Return the change of scores by ALiBi: less by the distance times the head's slope."""
    slope, offset = slopes(case, on), case.kv_len - case.q_len

    def change(score: Any, _batch: Any, head: Any, query: Any, key: Any) -> Any:
        return score - slope[head] * (query + offset - key).abs()

    return change


def soft_cap(case: Case, on: Any) -> Any:  # noqa: ARG001
    """Return the change of scores by a soft cap."""
    import torch

    def change(score: Any, _batch: Any, _head: Any, _query: Any, _key: Any) -> Any:
        return SOFT_CAP * torch.tanh(score / SOFT_CAP)

    return change


def documents(case: Case, on: Any) -> Any:
    """Return the document of each key, int32 [Sk]: document d begins at (d / DOCUMENTS) ** 2 of the length."""
    import torch

    return torch.tensor([_document(case, key) for key in range(case.kv_len)], dtype=torch.int32, device=on)


def slopes(case: Case, on: Any) -> Any:
    """Return ALiBi's slope of each query head, fp32 [Hq]: 2 ** (-8 h / Hq) for h from 1."""
    import torch

    return torch.exp2(-8 * torch.arange(1, case.q_heads + 1, device=on, dtype=torch.float32) / case.q_heads)


def alibi_reference(case: Case, inputs: Inputs) -> Any:
    """Compute attention with ALiBi plainly."""
    import torch

    query = torch.arange(case.q_len, device=inputs.q.device)[:, None] + case.kv_len - case.q_len
    distance = (query - torch.arange(case.kv_len, device=inputs.q.device)).abs()
    return calls.plain(case, inputs, bias=-slopes(case, inputs.q.device)[:, None, None].to(inputs.q.dtype) * distance)


def document_reference(case: Case, inputs: Inputs) -> Any:
    """Compute attention within documents plainly."""
    document, visible = documents(case, inputs.q.device), calls.visible(case, inputs.q.device)
    mask = document[case.kv_len - case.q_len :, None] == document
    return calls.plain(case, inputs, mask=mask if visible is None else mask & visible)


def document_share(case: Case, block: int) -> float:
    """Return the share of the square in blocks that hold a visible pair of one document."""
    edges = _edges(case)
    offset = case.kv_len - case.q_len

    def first(query: int) -> int:
        return max(case.first_key(query), edges[_document(case, query + offset)])

    def last(query: int) -> int:
        return min(case.last_key(query), edges[_document(case, query + offset) + 1] - 1)

    return calls.block_share(case, block, block, first, last)


def _edges(case: Case) -> list[int]:
    square = DOCUMENTS**2
    return [-(-part * part * case.kv_len // square) for part in range(DOCUMENTS + 1)]


def _document(case: Case, key: int) -> int:
    return max(part for part, edge in enumerate(_edges(case)[:-1]) if edge <= key)
