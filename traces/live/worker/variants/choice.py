"""Which backend scaled_dot_product_attention takes, and why it refuses another, in torch's own words."""

from __future__ import annotations

import re
import sys
import warnings
from typing import TYPE_CHECKING, Any

from .. import device

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..case import Case

BACKENDS = {0: "math", 1: "flash", 2: "efficient", 3: "cudnn", 4: "overrideable"}
"""Numbers of SDPBackend."""
SWITCHES = {"math": "math_sdp", "flash": "flash_sdp", "efficient": "mem_efficient_sdp", "cudnn": "cudnn_sdp"}
"""Names in torch.backends.cuda of what turns a backend on; they hold on other devices too."""
_PROBES = {"flash": "flash", "efficient": "efficient", "cudnn": "cudnn"}
_NOISE = re.compile(r"\s*\(Triggered internally at .*", re.DOTALL)
_HEADLINE = re.compile(r"(not used because|kernel not used):?$")


class Only:
    """Lets scaled_dot_product_attention take one backend while inside; a tenth of the cost of torch's `sdpa_kernel`."""

    def __init__(self, backend: str) -> None:
        import torch

        cuda = torch.backends.cuda
        self._wanted = [
            (getattr(cuda, f"{switch}_enabled"), getattr(cuda, f"enable_{switch}"), name == backend)
            for name, switch in SWITCHES.items()
            if hasattr(cuda, f"enable_{switch}")
        ]
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before = [enabled() for enabled, _, _ in self._wanted]
        for _, enable, wanted in self._wanted:
            enable(wanted)

    def __exit__(self, *_: object) -> None:
        for (_enabled, enable, _wanted), before in zip(self._wanted, self._before, strict=True):
            enable(before)


def taken(q: Any, k: Any, v: Any, mask: Any = None, *, causal: bool = False, gqa: bool = False, dropout: float = 0.0) -> str:
    """Return the backend that scaled_dot_product_attention takes for these tensors; empty where torch does not say.

    Args:
        q: [B, Hq, Sq, D]; k and v likewise.
        k: keys.
        v: values.
        mask: a tensor, or a causal bias of torch.nn.attention.bias.
        causal: upper-left causal.
        gqa: enable_gqa.
        dropout: dropout_p.
    """
    import torch

    biases = sys.modules.get("torch.nn.attention.bias")  # imported by who made one; importing it takes seconds
    if biases is not None and isinstance(mask, biases.CausalBias):
        if mask.variant.name != "LOWER_RIGHT" or mask.seq_len_q == mask.seq_len_kv:
            return taken(q, k, v, causal=True, gqa=gqa, dropout=dropout)
        for name in ("flash", "efficient"):
            if _can_use(name, q, k, v, None, causal=False, gqa=gqa):
                return name
        mask = mask._materialize(q.device)
    try:
        return BACKENDS.get(torch._fused_sdp_choice(q, k, v, mask, dropout, causal, scale=None, enable_gqa=gqa), "")
    except (RuntimeError, NotImplementedError, AttributeError):
        return ""  # a device without a say in it, such as mps


def reasons(backend: str, case: Case, *, masked: bool, causal: bool) -> str | None:
    """Return why a backend refuses a case, as torch words it; None when it does not.

    On CUDA the question is put with tensors of the case's shape that share one row of memory; on a CPU with one query and key.

    Args:
        backend: `flash`, `efficient` or `cudnn`.
        case: shapes, dtype and mode.
        masked: whether a mask is passed.
        causal: whether is_causal is.
    """
    import torch

    gqa = case.q_heads != case.kv_heads
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        if device.kind(case.device) == "cuda":
            q, k, v = _strided(case, case.q_len, case.kv_len)
            mask = torch.zeros(1, dtype=torch.bool, device=q.device).expand(1, 1, case.q_len, case.kv_len) if masked else None
            fits = _can_use(backend, q, k, v, mask, causal=causal, gqa=gqa, debug=True)
            why = None if fits else "torch does not say why"
        else:
            q, k, v = _strided(case, 1, 1)
            mask = torch.ones(1, 1, dtype=torch.bool, device=q.device) if masked else None
            why = _attempt(backend, q, k, v, mask, causal=causal, gqa=gqa)
    return None if why is None else "; ".join(_sentences(said)) or why


def _attempt(backend: str, q: Any, k: Any, v: Any, mask: Any, *, causal: bool, gqa: bool) -> str | None:
    import torch

    try:
        with Only(backend), torch.no_grad():
            torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, enable_gqa=gqa)
    except RuntimeError as error:
        return str(error).partition("This is likely")[0].strip()
    return None


def _can_use(backend: str, q: Any, k: Any, v: Any, mask: Any, *, causal: bool, gqa: bool, debug: bool = False) -> bool:
    from torch.backends import cuda

    question = getattr(cuda, f"can_use_{_PROBES[backend]}_attention", None)
    if question is None:
        return False
    with Only(backend) if debug else _nothing():
        return bool(question(cuda.SDPAParams(q, k, v, mask, 0.0, causal, gqa), debug))


def _nothing() -> Any:
    from contextlib import nullcontext

    return nullcontext()


def _strided(case: Case, q_len: int, kv_len: int) -> tuple[Any, Any, Any]:
    import torch

    from ..inputs import dtype

    def one(heads: int, length: int, dim: int) -> Any:
        rows = torch.zeros(length, dim, dtype=dtype(case.dtype), device=case.device)
        made = rows.expand(case.batch, heads, length, dim)
        return made.requires_grad_() if case.mode == "backward" else made

    return one(case.q_heads, q_len, case.qk_dim), one(case.kv_heads, kv_len, case.qk_dim), one(case.kv_heads, kv_len, case.v_dim)


def _sentences(said: list[warnings.WarningMessage]) -> Iterator[str]:
    for warning in said:
        text = _NOISE.sub("", str(warning.message)).strip()
        if text and not _HEADLINE.search(text):
            yield text.rstrip(".")
