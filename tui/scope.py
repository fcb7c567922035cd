"""What part of the traces all views look at: rank, device, step, window; and how keys move it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Scope:
    """The part looked at; None means all.

    `extent_ns` and `steps` say what there is to move over; they are known once a trace is open.
    """

    rank: int | None = None
    device: int | None = None
    step: str | None = None
    window: str | None = None
    """As the user wrote it: `gpu`, `trace` or `START..END`; `zoom_ns` replaces it."""
    zoom_ns: tuple[int, int] | None = None
    """Start and end since the start of the trace."""
    extent_ns: tuple[int, int] = (0, 0)
    """Start and end of the GPU work since the start of the trace."""
    steps: tuple[int, ...] = ()
    """Numbers of the profiler steps."""

    @property
    def options(self) -> dict[str, Any]:
        """As `Question.ask` takes it."""
        window = self.window if self.zoom_ns is None else f"{self.zoom_ns[0]}ns..{self.zoom_ns[1]}ns"
        return {"rank": self.rank, "device": self.device, "step": self.step, "window": window}

    @property
    def text(self) -> str:
        """For the title line."""
        parts = [
            f"{name} {value}"
            for name, value in (("rank", self.rank), ("GPU", self.device), ("step", self.step))
            if value is not None
        ]
        if self.zoom_ns is not None:
            parts.append(f"{self.zoom_ns[0] / 1e6:,.3f} to {self.zoom_ns[1] / 1e6:,.3f} ms")
        elif self.window is not None:
            parts.append(f"window {self.window}")
        return "  ".join(parts)

    def stepped(self, move: int) -> Scope:
        """Go to the next (1) or previous (-1) step; from all steps to the first or the last."""
        if not self.steps:
            return self
        if self.step is not None and self.step.isdigit() and int(self.step) in self.steps:
            at = min(max(0, self.steps.index(int(self.step)) + move), len(self.steps) - 1)
        else:
            at = 0 if move > 0 else len(self.steps) - 1
        return replace(self, step=str(self.steps[at]), zoom_ns=None, window=None)

    def zoomed(self, factor: float) -> Scope:
        """Show `factor` times the time around the middle of the window; 0 shows everything again."""
        low, high = self.extent_ns
        if factor == 0 or high <= low:
            return replace(self, zoom_ns=None, window=None, step=None)
        start, end = self.zoom_ns or self.extent_ns
        half, middle = max(500, int((end - start) * factor / 2)), (start + end) // 2
        if 2 * half >= high - low:
            return replace(self, zoom_ns=None)
        start = min(max(low, middle - half), high - 2 * half)
        return replace(self, zoom_ns=(start, start + 2 * half), window=None, step=None)

    def panned(self, move: int) -> Scope:
        """Go half a window later (1) or earlier (-1)."""
        if self.zoom_ns is None:
            return self
        (start, end), (low, high) = self.zoom_ns, self.extent_ns
        shift = min(max(low - start, move * (end - start) // 2), high - end)
        return replace(self, zoom_ns=(start + shift, end + shift))
