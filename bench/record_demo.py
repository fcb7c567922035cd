"""Records the session that comes with kinetop: `kinetop replay --demo` shows it where there is no torch.

Needs torch. What would name a person or a machine is taken out.

    python bench/record_demo.py --seconds 20
"""

from __future__ import annotations

import argparse
import asyncio
import getpass
import json
import re
import socket
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kinetop.traces.live import session
from kinetop.traces.live.link import Link, Start
from kinetop.traces.live.worker.case import Case

if TYPE_CHECKING:
    from kinetop.traces.live.worker.frames import Frame

VARIANTS = "eager,eager-inplace,baddbmm,sdpa:math,sdpa:flash,linear"
SHAPE = "1,4,256,64"
SAMPLES = 12
"""Most samples of a variant in a round: enough for a curve, few enough for a package."""
MOST_BYTES = 300_000
LEFT_OUT = {"log", "captured"}
"""Kinds of frames that may hold anything of the machine."""
GENERAL = {"host": "demo", "os": sys.platform, "git_sha": None}
"""What the environment says in place of the machine's own."""


def private_words() -> re.Pattern[str]:
    """Return what finds the names of this machine and its user in a text."""
    names = {socket.gethostname(), socket.getfqdn(), getpass.getuser()}
    listed = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.compile(rf"{re.escape(str(Path.home()))}|(?<![\w:.-])(?:{listed})(?![\w:.-])")


def scrubbed(frame: Frame, private: re.Pattern[str]) -> Frame:
    """Return a frame without what names a person or a machine."""
    header = json.loads(private.sub("demo", json.dumps(frame.header)))
    if frame.kind == "hello":
        header["environment"] |= GENERAL
    return replace(frame, header=header)


async def record(out: Path, case: Case, variants: list[str], seconds: float) -> Counter[str]:
    """Record a live worker, from the first sample on for so many seconds; return how many frames of each kind there were."""
    link, private, counted, until = Link(Start()), private_words(), Counter[str](), None
    link.send("start", case=case.to_dict(), variants=variants, samples=SAMPLES)
    with session.Writer(out) as file:
        try:
            async for frame in link.frames():
                if frame.kind in {"error", "link"}:
                    print(frame.header, file=sys.stderr)
                if frame.kind not in LEFT_OUT:
                    file.add(scrubbed(frame, private))
                    counted[frame.kind] += 1
                if until is None and frame.kind == "samples":
                    until = time.monotonic() + seconds
                if until is not None and time.monotonic() > until:
                    break
        finally:
            await link.close()
    return counted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=session.demo())
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--variants", default=VARIANTS)
    parser.add_argument("--shape", default=SHAPE)
    asked = parser.parse_args()
    case = Case.of(asked.shape, dtype="fp32", causal=True)
    counted = asyncio.run(record(asked.out, case, asked.variants.split(","), asked.seconds))
    size = asked.out.stat().st_size
    print(asked.out, f"{size:,} bytes", dict(counted))
    if size > MOST_BYTES:
        sys.exit(f"{size:,} bytes are more than the {MOST_BYTES:,} that a package should carry: record less")


if __name__ == "__main__":
    main()
