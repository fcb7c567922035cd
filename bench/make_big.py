"""Make a big trace out of a small one: its events, N times over. usage: make_big.py TRACE OUT COPIES."""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path

KEY = b'"traceEvents"'


def make_big(trace: Path, out: Path, copies: int) -> int:
    """Write `trace` with its event array repeated, uncompressed.

    Args:
        trace: a Kineto trace in object form, plain or gzip.
        out: the file to write.
        copies: how often the events are repeated.

    Returns:
        Bytes written.
    """
    raw = trace.read_bytes()
    text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    begin = text.index(b"[", text.index(KEY)) + 1
    end = text.rindex(b"]", 0, _after_array(text))
    with out.open("wb") as file:
        file.write(text[:begin])
        for copy in range(copies):
            file.write((b"," if copy else b"") + text[begin:end])
        file.write(text[end:])
    return out.stat().st_size


def _after_array(text: bytes) -> int:
    """Return a place after the array's end: the first member that may follow it, else the end of the text."""
    tail = max(0, len(text) - 65_536)
    places = [text.find(b'"' + key + b'"', tail) for key in (b"traceName", b"displayTimeUnit", b"INFO", b"baseTimeNanoseconds")]
    return min((place for place in places if place >= 0), default=len(text))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("copies", type=int)
    args = parser.parse_args()
    print(f"{args.out}: {make_big(args.trace, args.out, args.copies) / 1e6:.1f} MB")
