"""A way to compute attention, declared: its name, its call, what it needs, what it costs and what should run."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from .case import Case


@dataclass
class Inputs:
    """Fresh tensors of a case: q [B, Hq, Sq, D], k [B, Hkv, Sk, D], v [B, Hkv, Sk, Dv], normal, never zeros."""

    q: Any
    k: Any
    v: Any
    grad: Any = None
    """Gradient of the output [B, Hq, Sq, Dv], for backward cases."""


@dataclass(frozen=True)
class Built:
    """A variant made ready for one case."""

    call: Callable[[], Any]
    """Computes the output once; what it returns has the layout of `output`."""
    output: Callable[[Any], Any] = lambda result: result
    """Turns the result into [B, Hq, Sq, Dv] for the comparison; not timed."""
    backend: str = ""
    """What really runs, where that is known beforehand: flash, math, triton, ..."""
    reset: Callable[[], None] | None = None
    """Called before each sample, not timed: a growing cache goes back to its length."""


@dataclass(frozen=True)
class Variant:
    """One declared variant; a new one is one more of these in a module of `variants/`, or a plug-in's."""

    name: str
    """As users write it: `eager`, `sdpa:flash`, `flex:window`."""
    title: str
    group: str
    """eager, compiled, sdpa, flex, sparse, linear, decode, layout, package."""
    about: str
    """One sentence: how it computes, and what to know about it."""
    build: Callable[[Case, Inputs], Built]
    why_not: Callable[[Case], str | None] = lambda case: None  # noqa: ARG005
    """Why it cannot run a case here, in a short sentence; None when it can. May import torch, must not compute."""
    missing: Callable[[], str | None] = lambda: None
    """Why it cannot run here at all (a package, a device); None when it can."""
    executed: Callable[[Case], float] | None = None
    """Share of the dense q_len x kv_len square that is computed; the whole square when None."""
    flops: Callable[[Case], float] | None = None
    """FLOPs executed forward where it is no share of the square (linear attention)."""
    expected: tuple[str, ...] = ()
    """Regular expressions of ops or kernels that should run, forward, on any device."""
    unexpected: tuple[str, ...] = ()
    """Regular expressions of ops or kernels that must not (a copy, a fallback)."""
    modes: tuple[str, ...] = ("forward", "backward")
    exact: bool = True
    """Whether it computes plain attention under the case's mask, as the reference does; linear attention does not."""
    reference: Callable[[Case, Inputs], Any] | None = None
    """What it should give where that is another function: [B, Hq, Sq, Dv] in the dtype of the inputs given (fp64 ones)."""
    tolerance: float = 1.0
    """Factor on the dtype's error bound (int8 kernels have a looser one)."""
    timeout_s: float = 60.0
    """Longest that preparing or one round may take before it is ended; compiling takes a minute on a CPU."""
    within: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Setting of the process that it needs while it is built and called, such as another kernel behind a torch function."""
    tags: frozenset[str] = field(default_factory=frozenset)
    """`compiled`, `materializes`, `mask`, ... for rules."""
