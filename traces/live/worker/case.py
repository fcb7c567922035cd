"""What is measured: the shape, type and kind of one attention problem."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

DTYPES = {"fp64": 8, "fp32": 4, "bf16": 2, "fp16": 2}
"""Element types, with their bytes."""
MODES = ("forward", "backward", "decode")
DEVICES = ("cpu", "cuda", "xpu", "mps", "xla")
"""Kinds of devices."""
_DEVICE = re.compile(rf"(?:{'|'.join(DEVICES)})(?::\d{{1,4}})?")
_LARGEST = 2**31 - 1
_SHAPE = re.compile(r"(\d+),(\d+)(?:/(\d+))?,(\d+)(?:/(\d+))?,(\d+)(?:/(\d+))?")


@dataclass(frozen=True)
class Case:
    """One attention problem: q is [batch, q_heads, q_len, qk_dim], k and v have kv_heads and kv_len, v has v_dim.

    >>> Case.of("2,4/2,512,64", dtype="fp32", causal=True).shape_text
    '2,4/2,512,64'
    """

    batch: int
    q_heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    qk_dim: int
    v_dim: int
    dtype: str = "bf16"
    causal: bool = True
    """Query i sees keys up to i + kv_len - q_len (bottom-right)."""
    window: int | None = None
    """Keys that a query sees, its own included; all when None."""
    mode: str = "forward"
    device: str = "cpu"
    graph: bool = False
    """Whether calls are replayed from a CUDA graph."""

    def __post_init__(self) -> None:
        sizes = ("batch", "q_heads", "kv_heads", "q_len", "kv_len", "qk_dim", "v_dim")
        if odd := [name for name in sizes if not _is_size(getattr(self, name))]:
            raise ValueError(f"{', '.join(odd)} must be 1 or more, and {_LARGEST:,} at most")
        if self.q_heads % self.kv_heads:
            raise ValueError(f"{self.q_heads} query heads are no multiple of {self.kv_heads} key heads")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype is one of {' '.join(DTYPES)}, not {self.dtype!r}")
        if self.mode not in MODES:
            raise ValueError(f"mode is one of {' '.join(MODES)}, not {self.mode!r}")
        if self.window is not None and not _is_size(self.window):
            raise ValueError(f"window is 1 key or more, and {_LARGEST:,} at most")
        if not _DEVICE.fullmatch(self.device):
            raise ValueError(f"device is one of {' '.join(DEVICES)}, maybe with an index such as cuda:1; not {self.device!r}")
        if type(self.causal) is not bool or type(self.graph) is not bool:
            raise TypeError("causal and graph are yes or no")
        if self.causal and self.q_len > self.kv_len:
            raise ValueError("a causal case needs kv_len >= q_len: else its first queries see no key")

    @classmethod
    def of(cls, shape: str, **rest: Any) -> Case:
        """Read a shape as people write it: `B,Hq[/Hkv],S[/Sk],D[/Dv]`; decode cases take S as the length of the cache.

        Raises:
            ValueError: it cannot be read, and why.
        """
        found = _SHAPE.fullmatch(shape.replace(" ", ""))
        if found is None:
            raise ValueError(f"a shape is B,Hq[/Hkv],S[/Sk],D[/Dv], such as 2,8/2,1024,64; not {shape!r}")
        batch, heads, kv_heads, length, kv_len, dim, v_dim = (int(part) if part else None for part in found.groups())
        decode = rest.get("mode") == "decode"
        return cls(
            batch=batch or 0,
            q_heads=heads or 0,
            kv_heads=heads or 0 if kv_heads is None else kv_heads,
            q_len=1 if decode else length or 0,
            kv_len=length or 0 if kv_len is None else kv_len,
            qk_dim=dim or 0,
            v_dim=dim or 0 if v_dim is None else v_dim,
            **rest,
        )

    @classmethod
    def from_dict(cls, members: dict[str, Any]) -> Case:
        """Read what `to_dict` made; unknown members of a newer version are ignored."""
        known = {field.name for field in fields(cls)}
        return cls(**{key: value for key, value in members.items() if key in known})

    def to_dict(self) -> dict[str, Any]:
        """Return the members for JSON."""
        return asdict(self)

    def with_(self, **changes: Any) -> Case:
        """Return the case with other members."""
        return replace(self, **changes)

    @property
    def shape_text(self) -> str:
        """The shape as `of` reads it."""
        heads = _pair(self.q_heads, self.kv_heads)
        length = str(self.kv_len) if self.mode == "decode" else _pair(self.q_len, self.kv_len)
        return f"{self.batch},{heads},{length},{_pair(self.qk_dim, self.v_dim)}"

    @property
    def text(self) -> str:
        """The whole case in a few words; equal cases have equal texts."""
        words = [self.shape_text, self.dtype, "causal" if self.causal else "full", self.mode, self.device]
        if self.window is not None:
            words.insert(3, f"window {self.window}")
        return " ".join([*words, *(["graph"] if self.graph else [])])

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return DTYPES[self.dtype]

    def first_key(self, query: int) -> int:
        """Return the first key that a query sees."""
        return max(0, self.last_key(query) + 1 - self.window) if self.window is not None else 0

    def last_key(self, query: int) -> int:
        """Return the last key that a query sees; without causal a window reaches to the query's own place."""
        own = query + self.kv_len - self.q_len
        return own if self.causal or self.window is not None else self.kv_len - 1


def _is_size(value: object) -> bool:
    return type(value) is int and 0 < value <= _LARGEST


def _pair(first: int, second: int) -> str:
    return str(first) if first == second else f"{first}/{second}"
