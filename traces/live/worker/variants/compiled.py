"""torch.compile for variants: each build compiled by itself, and never falling back to eager unseen."""

from __future__ import annotations

import itertools
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..case import Case
    from ..variant import Built

LIMIT = 10_000
_numbers = itertools.count()


def settings() -> None:
    """Set torch.compile up: no silent fall to eager at the recompile limit, and no pool of compiling processes."""
    import torch._dynamo
    import torch._inductor.config

    wanted = {
        "recompile_limit": LIMIT,
        "cache_size_limit": LIMIT,  # its name before torch 2.7
        "accumulated_recompile_limit": LIMIT,
        "accumulated_cache_size_limit": LIMIT,
        "fail_on_recompile_limit_hit": True,
        "suppress_errors": False,
    }
    for name, value in wanted.items():
        if hasattr(torch._dynamo.config, name):
            setattr(torch._dynamo.config, name, value)
    torch._inductor.config.compile_threads = 1  # the pool's processes outlive the worker


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function compiled for the first shapes it meets.

    It gets a code object of its own: what dynamo compiled for another case is neither searched on each call nor counted.
    """
    import torch

    settings()
    code = function.__code__.replace(co_name=f"{function.__name__}_{next(_numbers)}")
    own = types.FunctionType(code, function.__globals__, code.co_name, function.__defaults__, function.__closure__)
    made: Callable[..., Any] = torch.compile(own, dynamic=False, fullgraph=True)
    return made


def first_call(built: Built, case: Case) -> dict[str, int]:
    """Call a variant as its mode does, so that it compiles now (a backward later); return what inductor counted.

    Raises:
        RuntimeError: nothing was compiled: it would run eagerly.
    """
    import torch
    from torch._dynamo.utils import counters

    counters.clear()
    with torch.set_grad_enabled(case.mode == "backward"):
        built.call()
    if not counters["stats"]["unique_graphs"]:
        raise RuntimeError("torch.compile made no graph: it would run eagerly (is TORCH_COMPILE_DISABLE set?)")
    return dict(counters["inductor"])
