"""What an import repaired, dropped or noticed: each thing counted, placed and said in one sentence."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Notice:
    """One kind of finding about a trace."""

    code: str
    """Stable identifier, e.g. `invalid-utf8`."""
    count: int
    """How many events or values it concerns."""
    message: str
    """One plain sentence, figures included."""
    offset: int | None = None
    """Byte offset of the first one in the uncompressed trace, where it is known."""
    level: str = "warning"
    """`warning` when a figure or a value may be affected, else `info`."""

    def as_dict(self) -> dict[str, Any]:
        """Return the notice as plain JSON values."""
        return asdict(self)


@dataclass(slots=True)
class ImportReport:
    """What happened while a trace was read."""

    events: int = 0
    """Events kept."""
    bytes: int = 0
    """Uncompressed bytes read."""
    notices: list[Notice] = field(default_factory=list)
    """Findings, in the order met."""

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        return {"events": self.events, "bytes": self.bytes, "notices": [notice.as_dict() for notice in self.notices]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ImportReport:
        """Rebuild a report from `as_dict`'s value."""
        return cls(data["events"], data["bytes"], [Notice(**notice) for notice in data["notices"]])
