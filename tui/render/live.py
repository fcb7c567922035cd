"""The lines of the live screen: case, parts, latency, findings, log. What the machine says of itself is in `live_machine`."""

from __future__ import annotations

from math import isfinite
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from textual.content import Content

from ..format import ABSENT, clean, size
from .bars import EIGHTHS, sparkline

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kinetop.traces.live.worker.case import Case

    from ..live_now import Chosen, Now

    Part = tuple[str, float, str]

LABEL_CELLS = 9
WINDOW_STYLE = "bold underline $text-warning"
"""Of the cell of the latency line in which a window was profiled."""
BAR_CELLS = 12
"""Of the bars in a line of parts together; with fewer they cannot be told apart."""
PART_COLOURS = {
    **dict.fromkeys(("qk", "pv", "softmax", "fused"), "$compute"),
    **dict.fromkeys(("scale", "mask"), "$comm"),
    **dict.fromkeys(("copy", "cast", "layout"), "$memory"),
    **dict.fromkeys(("other", "gaps"), "$idle"),
}
PART_NAMES = {"qk": "QK", "pv": "PV"}
MARKS = {"error": ("✗", "bold $text-error"), "warning": ("⚠", "bold $text-warning"), "info": ("·", "bold")}
"""Mark and colour of a finding by its level."""


def machine_text(environment: dict[str, Any]) -> str:
    """Return host, device and versions in one line, what matters most first."""
    if not environment:
        return ""
    device = environment.get("device_name") or environment.get("cpu_name") or "CPU"
    words = [str(environment.get("host") or ""), str(device), f"torch {environment.get('torch', '?')}"]
    words += [f"{name} {environment[name]}" for name in ("cuda", "hip") if environment.get(name)]
    return " · ".join(clean(word, 40) for word in words if word)


def case_line(now: Now, width: int) -> list[Content]:
    """Return the line of the case: its shape in words, the baseline, and to the right how much is profiled."""
    case, wish = now.wish.case, now.wish
    words = case_words(case) if case is not None else [("", "no case yet")]
    line = Content(" ")
    for name, value in words:
        line = line.append(Content.assemble((f"{name} " if name else "", "$muted"), (value, "bold"), "  "))
    if wish.paused:
        line = line.append(Content.styled("paused  ", "bold $text-warning"))
    if wish.baseline:
        line = line.append(Content.assemble(("base ", "$muted"), clean(wish.baseline, 24), "  "))
    lost = Content.styled(f"{now.dropped:,} events lost", "bold $text-warning" if now.dropped else "$muted")
    duty = f"profiled {now.duty_pct:.1f} % of the time, " if now.duty_pct is not None else ""
    right = Content.assemble((duty, "$muted"), lost)
    if line.cell_length + right.cell_length + 1 > width:
        right = lost
    if line.cell_length + right.cell_length + 1 > width:
        return [line]
    return [line.append(" " * (width - line.cell_length - right.cell_length - 1)).append(right)]


def case_words(case: Case) -> list[tuple[str, str]]:
    """Return a case as names and values, for people.

    >>> from kinetop.traces.live.worker.case import Case
    >>> " ".join(f"{name} {value}".strip() for name, value in case_words(Case.of("2,4/2,512,64", window=128)))
    'B 2 H 4/2 S 512 D 64 causal window 128 bf16 forward'
    """
    batch, heads, length, dim = case.shape_text.split(",")
    words = [("B", batch), ("H", heads), ("S", length), ("D", dim), ("", "causal" if case.causal else "full")]
    words += [("window", f"{case.window:,}")] if case.window is not None else []
    words += [("", case.dtype), ("", case.mode)]
    return [*words, *([("", "graph")] if case.graph else [])]


def parts_lines(chosen: Chosen, problem: str, width: int, *, most: int = 2) -> list[Content]:
    """Return the chosen variant's parts of a step, each with its bar, in two lines where one is too short.

    Where there is a baseline, its parts stand below, and both are in microseconds and on one scale.

    Args:
        chosen: the variant.
        problem: why there are none.
        width: cells of a line.
        most: lines of each of two variants.
    """
    room = width - LABEL_CELLS - 2
    if problem or not chosen.parts:
        told = problem or ("no window of it was profiled yet" if chosen.variant else "")
        return [_labelled("parts").append(Content.styled(clean(told, max(0, room)), "$muted"))]
    if chosen.base_parts:
        mine, base = (
            _fitting(_shown([(name, us) for name, us, _ in parts]), room, most, _microseconds)
            for parts in (chosen.parts, chosen.base_parts)
        )
        labels = ["parts µs", *[""] * (len(mine) - 1), clean(chosen.base, LABEL_CELLS - 1), ""]
        return _bars(labels, [*mine, *base], room, _microseconds)
    rows = _fitting(_shown([(name, share) for name, _, share in chosen.parts]), room, 2, _share)
    return _bars(["parts", ""], rows, room, _share)


def _shown(parts: Sequence[tuple[str, float]]) -> list[Part]:
    """Return name, figure and colour of each part that took time."""
    return [(PART_NAMES.get(name, name), figure, PART_COLOURS.get(name, "")) for name, figure in parts if figure > 0]


def _fitting(shown: list[Part], room: int, lines: int, words: Callable[[float], str]) -> list[list[Part]]:
    """Return the parts in so many lines at most, the smallest as one, `more`, where else there was no room for bars."""
    kept, folded = list(shown), 0.0
    while True:
        rows = _rows([*kept, *_more(folded)], room, lines, words)
        if len(kept) <= 3 or all(_fixed(row, words) + BAR_CELLS <= room for row in rows):
            return rows
        least = min(kept, key=lambda part: part[1])
        kept.remove(least)
        folded += least[1]


def _rows(parts: list[Part], room: int, lines: int, words: Callable[[float], str]) -> list[list[Part]]:
    if lines == 1 or len(parts) < 3 or _fixed(parts, words) + max(BAR_CELLS, 2 * len(parts)) <= room:
        return [parts]
    half = (len(parts) + 1) // 2
    return [parts[:half], parts[half:]]


def _more(folded: float) -> list[Part]:
    return [("more", folded, PART_COLOURS["other"])] if folded else []


def _fixed(row: Sequence[Part], words: Callable[[float], str]) -> int:
    """Cells of a line of parts without its bars."""
    return sum(cell_len(name) + len(words(figure)) + 5 for name, figure, _ in row)


def _bars(labels: Sequence[str], rows: Sequence[Sequence[Part]], room: int, words: Callable[[float], str]) -> list[Content]:
    """Return a line for each row of parts; bars are on one scale, the longest that fits all."""
    cells = min(max(0, room - _fixed(row, words)) / (sum(figure for _, figure, _ in row) or 1) for row in rows)
    lines = []
    for label, row in zip(labels, rows, strict=False):
        line = _labelled(label)
        for at, (name, figure, colour) in enumerate(row):
            full, rest = divmod(int(figure * cells * 8), 8)
            bar = "█" * full + (EIGHTHS[rest] if rest else "")
            line = line.append(
                Content.assemble("   " if at else "", (f"{name} ", "bold"), (bar or "▏", colour), f" {words(figure)}")
            )
        lines.append(line)
    return lines


def _microseconds(us: float) -> str:
    return f"{us:,.0f}" if us >= 10 else f"{us:.1f}"


def _share(share_pct: float) -> str:
    return f"{share_pct:.0f} %" if share_pct >= 0.95 else f"{share_pct:.1f} %"


def latency_lines(chosen: Chosen, width: int) -> list[Content]:
    """Return the chosen variant's newest samples as a line, with median, interval and what disturbed it."""
    row = chosen.row
    median = row.get("median_us")
    if median is None or not chosen.latency_us:
        told = clean(str(row.get("status") or ""), 2 * width) if row.get("why") else "no sample of it yet"
        lines = _wrapped(told, width - LABEL_CELLS - 2)[:2] if chosen.variant else [""]
        return [_labelled("" if at else "latency").append(Content.styled(line, "$muted")) for at, line in enumerate(lines)]
    text = f"{_us(median)} µs"
    if row.get("low_us") is not None:
        text += f"  95 % {interval(row['low_us'], row['high_us'])}"
    text += f"  n {row.get('n') or 0:,}"
    disturbed = [(name, row.get(f"{name}_pct") or 0) for name in ("throttled", "contended")]
    warn = "".join(f"  {share:.0f} % {name}" for name, share in disturbed if share > 0)
    room = max(0, width - LABEL_CELLS - 4 - cell_len(text) - cell_len(warn))
    low, top = _scale(chosen.latency_us)
    line = sparkline([min(value, top) for value in chosen.latency_us], min(room, len(chosen.latency_us)), low=low, high=top)
    marks = Content.styled(line.ljust(min(room, 60)), "$accent")
    for place in chosen.windows_at:
        cell = place * len(line) // len(chosen.latency_us)
        marks = marks.stylize(WINDOW_STYLE, cell, cell + 1)
    return [_labelled("latency").append(marks).append(Content.assemble("  ", (text, ""), (warn, "bold $text-warning")))]


def _scale(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of a line of samples: a rare slow call must not press it flat, nor noise of a percent fill it."""
    ordered = sorted(values)
    rare = len(ordered) // 20
    low, top = ordered[rare], ordered[-1 - rare]
    return min(low, 0.98 * top), max(top, low / 0.98)


def interval(low_us: float | None, high_us: float | None) -> str:
    """Return an interval with as many decimals as it is wide.

    >>> interval(4790.2, 4841.9).replace(ABSENT, "to")
    '4,790 to 4,842'
    """
    if low_us is None or high_us is None or not (isfinite(low_us) and isfinite(high_us)):
        return ABSENT
    return f"{_us(low_us)} {ABSENT} {_us(high_us)}"


def _us(value: float) -> str:
    return f"{value:,.{0 if value >= 1000 else 1 if value >= 100 else 3}f}"


def finding_lines(findings: Sequence[Any], problem: str, chosen: Chosen, width: int, *, most: int = 3) -> list[Content]:
    """Return why the chosen variant failed, else its first finding, cut to a few lines; how many more stands at its end."""
    own = [finding for finding in findings if finding.variant == chosen.variant]
    if chosen.row.get("state") == "FAILED":
        text = clean(str(chosen.row.get("status")), 4_000)
        marks = zip("✗  ", _wrapped(text, width - 4), strict=False)
        return [Content.assemble(" ", (mark, "bold $text-error"), " ", line) for mark, line in marks][:most]
    if problem:
        return [_labelled("finding").append(Content.styled(clean(problem, width - LABEL_CELLS - 2), "$text-error"))]
    if not own:
        others = len(findings)
        text = "nothing to note about this variant" + (f"; {others} about others" if others else "")
        return [_labelled("finding").append(Content.styled(text if chosen.variant else "", "$muted"))]
    first = own[0]
    mark, style = MARKS.get(first.level, MARKS["info"])
    more = f"  (+{len(findings) - 1} more: t)" if len(findings) > 1 else ""
    room = max(10, width - 4)
    lines = [Content.assemble(" ", (mark, style), " ", (clean(first.title, room - len(more)), "bold"), (more, "$muted"))]
    lines += [Content(f"   {part}") for text in (first.evidence, first.fix) for part in _wrapped(text, room)]
    if len(lines) > most > 1:
        lines[most - 1] = Content(f"{lines[most - 1].plain[:room]} …")
    return lines[:most]


def findings_page(findings: Sequence[Any], problem: str, width: int) -> list[Content]:
    """Return every finding in full."""
    if problem:
        return [Content.styled(f" The findings could not be made: {problem}", "$text-error")]
    if not findings:
        return [Content.styled(" Nothing to note so far.", "$muted")]
    lines = []
    for finding, names in _alike(findings):
        mark, style = MARKS.get(finding.level, MARKS["info"])
        for at, part in enumerate(_wrapped(", ".join(names), max(10, width - 4))):
            lines.append(Content.assemble(" ", ("" if at else mark, style), "  " if at else " ", (part, "bold $accent")))
        lines += [Content.styled(f"   {part}", "bold") for part in _wrapped(finding.title, max(10, width - 4))]
        evidence = finding.evidence if len(names) == 1 else f"{finding.evidence} ({names[0]})"
        for name, text in (("seen", evidence), ("do", finding.fix)):
            for at, part in enumerate(_wrapped(text, max(10, width - 10))):
                lines.append(Content.assemble((f"   {name if at == 0 else '':6}", "$muted"), part))
    return lines


def _alike(findings: Sequence[Any]) -> list[tuple[Any, list[str]]]:
    """Return each thing that was found once, with the variants it was found in, in the order given."""
    found: dict[tuple[str, str, str], tuple[Any, list[str]]] = {}
    for finding in findings:
        found.setdefault((finding.level, finding.title, finding.fix), (finding, []))[1].append(finding.variant)
    return list(found.values())


def log_page(log: Sequence[str], errors: Sequence[str], problems: dict[str, str], width: int) -> list[Content]:
    """Return what failed on this side and in the worker, then the worker's log, newest last."""
    failed = [*(f"{name}: {text}" for name, text in problems.items()), *errors]
    lines = [Content.styled(f" {part}", "$text-error") for text in failed for part in _wrapped(text, max(10, width - 2))]
    lines += [Content(f" {clean(text, width - 2)}") for text in log]
    return lines or [Content.styled(" The worker has said nothing.", "$muted")]


def badge(now: Now, *, replays: bool = False) -> str:
    """Return the state of the worker, or of the replay, in a few words."""
    event, why = str(now.link.get("event") or ""), clean(str(now.link.get("why") or ""), 60)
    if now.ended and event != "stopped":
        return clean(now.ended, 70)
    if not now.environment and event in {"", "started"}:
        return "reading the session" if replays else "starting the worker"
    times = f" ({now.link['attempt']})" if isinstance(now.link.get("attempt"), int) and now.link["attempt"] > 1 else ""
    return "" if event in {"", "started"} else f"worker {clean(event, 20)}{times}{f': {why}' if why else ''}"


def memory_text(used: float | None, total: float | None) -> str:
    """Return memory in use, of how much.

    >>> memory_text(3 * 2**30, 2**33)
    '3.0/8.0 GiB'
    """
    if used is None:
        return ABSENT
    if total is None:
        return size(used)
    return f"{used / 2**30:,.1f}/{total / 2**30:,.1f} GiB"


def _labelled(label: str) -> Content:
    return Content.styled(f" {label:{LABEL_CELLS}}", "$muted")


def _wrapped(text: str, width: int) -> list[str]:
    return [clean(part, width) for part in wrap(clean(text, 4_000), width)]
