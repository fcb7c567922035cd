"""Memory snapshots of PyTorch (`torch.cuda.memory._dump_snapshot`) as events, so that everything that reads traces reads them.

The history becomes `[memory]` instants as the profiler writes them, with the totals counted back from the state at the end.
Blocks in use that were allocated before the history become `[live]` instants, and all blocks of all segments `[block]` instants.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..errors import NotATraceError, UnreadableError
from ..report import ImportReport, Notice
from ..writer import Writer
from .unpickle import MAX_BYTES, unpickled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_PICKLE = tuple(bytes([0x80, protocol]) for protocol in range(2, 6))
_WRITTEN_AT_A_TIME = 1 << 16
_STACK_FRAMES = 24
_FRAME_CHARACTERS = 200
_CUDA = 1
"""PyTorch's number of the device type."""
_FREE = ("free_requested", "free")
_GROWS = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
_IGNORED = ("free_completed", "snapshot")

Entry = dict[str, Any]


def is_pickle(path: Path) -> bool:
    """Tell whether a file begins like a pickle.

    Args:
        path: the file; one that cannot be opened is none.
    """
    try:
        with path.open("rb") as stream:
            return stream.read(2) in _PICKLE
    except OSError:
        return False


def import_snapshot(path: Path, out: Path, *, rank: int = 0) -> tuple[dict[str, Any], ImportReport]:
    """Read a memory snapshot and write it as a Parquet trace.

    Args:
        path: the pickle.
        out: the file to write.
        rank: the rank of the process that it is of.

    Raises:
        NotATraceError: it is a pickle of something else, or one that would run something.
        UnreadableError: it is damaged, or too large.
    """
    from .repair import table

    size = path.stat().st_size
    if size > MAX_BYTES:
        raise UnreadableError(f"{path}: a pickle of {size:,} bytes; up to {MAX_BYTES:,} are read.")
    found = Snapshot(unpickled(path.read_bytes(), str(path)), str(path), size)
    header = {"traceName": path.name, "memory_snapshot": 1}
    with Writer(out) as writer:
        writer.source, writer.rank = str(path), rank
        events = found.events()
        while chunk := list(islice(events, _WRITTEN_AT_A_TIME)):
            writer.write(table(chunk))
        report = ImportReport(writer.events, size, found.notices())
        writer.finish(header, report)
    return header, report


@dataclass
class Snapshot:
    """What a snapshot holds, whatever is missing or of another kind than it should be."""

    found: Any
    """What was in the pickle."""
    label: str
    """The file's name for messages."""
    size: int
    """Bytes of the file: no more entries than these are believed, since one list can stand in many places."""
    _stacks: dict[int, str | None] = field(default_factory=dict)
    _unknown: dict[str, int] = field(default_factory=dict)
    _untimed: int = 0
    _spent: int = 0

    def events(self) -> Iterator[Entry]:
        """Return the events of the trace that the snapshot stands for.

        Raises:
            NotATraceError: it is no snapshot.
            UnreadableError: it refers to the same data more often than a file of its size has room for.
        """
        found = {"segments": self.found} if isinstance(self.found, list) else self.found
        if not isinstance(found, dict) or not isinstance(found.get("segments"), list):
            raise NotATraceError(f"{self.label}: this pickle is no memory snapshot of PyTorch: it has no list `segments`.")
        segments = list(self._dicts(found["segments"]))
        histories = {device: list(self._dicts(one)) for device, one in enumerate(self._members(found.get("device_traces")))}
        held: dict[int, list[Entry]] = {device: [] for device, history in histories.items() if history}
        for segment in segments:
            held.setdefault(_whole(segment.get("device")) or 0, []).append(segment)
        for device in sorted(held):
            yield from self._device(device, held[device], histories.get(device, []))

    def notices(self) -> list[Notice]:
        """Return what there is to say about it, once its events are made."""
        made = [
            Notice("memory-snapshot", 1, "A memory snapshot: it has figures of memory only, see kinetop memory.", level="info")
        ]
        if self._unknown:
            said = ", ".join(f"{count:,} {name}" for name, count in sorted(self._unknown.items())[:8])
            total = sum(self._unknown.values())
            made.append(Notice("unknown-action", total, f"Entries of the history of an unknown kind are left out: {said}."))
        if self._untimed:
            said = f"{self._untimed:,} entries of the history have no time; they stand a microsecond apart."
            made.append(Notice("no-timestamp", self._untimed, said, level="info"))
        return made

    def _device(self, device: int, segments: list[Entry], history: list[Entry]) -> Iterator[Entry]:
        blocks = [(segment, block) for segment in segments for block in self._blocks(segment)]
        at = -1
        times = []
        for entry in history:
            time = _whole(entry.get("time_us"))
            self._untimed += time is None
            at = at + 1 if time is None else time
            times.append(at)
        last = max(times, default=0)
        yield from self._history(device, history, times, _totals(segments, blocks), last)
        known = _last_allocated(history)
        for segment, block in blocks:
            size, asked = _whole(block.get("size")) or 0, _whole(block.get("requested_size"))
            about = {"segment": _whole(segment.get("address")), "pool": _text(segment.get("segment_type"))}
            about |= {"state": _text(block.get("state")), "requested": asked}
            yield self._event("[block]", device, last, segment, block, size, **about)
            if block.get("state") == "active_allocated" and _whole(block.get("address")) not in known:
                yield self._event("[live]", device, last, segment, block, size if asked is None else asked)

    def _history(
        self, device: int, history: list[Entry], times: list[int], totals: tuple[int, int], last: int
    ) -> Iterator[Entry]:
        """Return the history forwards, its totals counted back from the end; then the state at the end."""
        changes = [self._change(entry) for entry in history]
        allocated, reserved = (end - sum(change[at] for change in changes) for at, end in enumerate(totals))
        for entry, time, (size, grown) in zip(history, times, changes, strict=True):
            allocated, reserved = allocated + size, reserved + grown
            totals_now = {"Total Allocated": allocated, "Total Reserved": reserved}
            if entry.get("action") == "oom":
                yield self._event("[OutOfMemory]", device, time, entry, entry, _whole(entry.get("size")) or 0, **totals_now)
            elif size or grown:
                yield self._event("[memory]", device, time, entry, entry, size, **totals_now)
        yield self._event("[memory]", device, last, {}, {}, 0, **{"Total Allocated": totals[0], "Total Reserved": totals[1]})

    def _change(self, entry: Entry) -> tuple[int, int]:
        """Return how an entry of the history changes what is in use and what is held."""
        action, size = _text(entry.get("action")), _whole(entry.get("size")) or 0
        if action == "alloc":
            return size, 0
        if action in _FREE:
            return -size, 0
        if action in _GROWS:
            return 0, size * _GROWS[action]
        if action not in (*_IGNORED, "oom"):
            name = (action or "?")[:40]
            self._unknown[name] = self._unknown.get(name, 0) + 1
        return 0, 0

    def _event(self, name: str, device: int, time_us: int, lane: Entry, entry: Entry, size: int, **more: Any) -> Entry:
        address = _whole(entry.get("addr", entry.get("address")))
        args = {
            "Device Type": _CUDA,
            "Device Id": device,
            "Bytes": size,
            "Addr": address,
            "Call stack": self._stack(entry),
            **more,
        }
        place = {"pid": 0, "tid": f"stream {_whole(lane.get('stream')) or 0}"}
        args = {key: value for key, value in args.items() if value is not None}
        return {"ph": "i", "cat": "cpu_instant_event", "name": name, "ts": time_us, **place, "s": "t", "args": args}

    def _blocks(self, segment: Entry) -> Iterator[Entry]:
        """Return the blocks of a segment; older snapshots say only the sizes, one block behind the other."""
        address = _whole(segment.get("address"))
        for block in self._dicts(segment.get("blocks")):
            own = _whole(block.get("address"))
            yield block if own is not None else {**block, "address": address}
            if address is not None:
                address = (own or address) + (_whole(block.get("size")) or 0)

    def _stack(self, entry: Entry) -> str | None:
        """Return the frames of an entry, the innermost first: those of Python where there are any."""
        frames = entry.get("frames")
        history = entry.get("history")
        if frames is None and isinstance(history, list) and history and isinstance(history[0], dict):  # before 2.0
            frames = history[0].get("frames")
        if not isinstance(frames, list) or not frames:
            return None
        if id(frames) not in self._stacks:
            self._spend(len(frames))
            said = [one for one in frames if isinstance(one, dict)]
            python = [one for one in said if isinstance(place := one.get("filename"), str) and place.endswith(".py")]
            self._stacks[id(frames)] = ";".join(map(_frame, (python or said)[:_STACK_FRAMES])) or None
        return self._stacks[id(frames)]

    def _dicts(self, value: Any) -> Iterator[Entry]:
        return (one for one in self._members(value) if isinstance(one, dict))

    def _members(self, value: Any) -> Iterable[Any]:
        if not isinstance(value, list):
            return ()
        self._spend(len(value))
        return value

    def _spend(self, count: int) -> None:
        self._spent += count
        if self._spent > self.size:
            raise UnreadableError(f"{self.label}: the pickle refers to the same data more often than a snapshot does.")


def _whole(value: Any) -> int | None:
    """Return a number that fits the event table, None for anything else."""
    return value if type(value) is int and -(2**62) < value < 2**62 else None


def _text(value: Any) -> str | None:
    return value[:200] if isinstance(value, str) else None


def _frame(frame: Entry) -> str:
    """Return a frame as the profiler writes it in call stacks; a semicolon would part it from the next."""
    name, place = (value if isinstance(value := frame.get(key), str) else "?" for key in ("name", "filename"))
    line, name = _whole(frame.get("line")), name[:_FRAME_CHARACTERS]
    return f"{place[-_FRAME_CHARACTERS:]}({'?' if line is None else line}): {name}".replace(";", ",").replace("\n", " ")


def _totals(segments: list[Entry], blocks: list[tuple[Entry, Entry]]) -> tuple[int, int]:
    """Return what is in use, in bytes asked for as the history counts them, and what is held."""
    used = 0
    for _, block in blocks:
        if block.get("state") == "active_allocated":
            asked = _whole(block.get("requested_size"))
            used += asked if asked is not None else _whole(block.get("size")) or 0
    return used, sum(_whole(segment.get("total_size")) or 0 for segment in segments)


def _last_allocated(history: list[Entry]) -> set[int | None]:
    """Return the addresses whose last entry in the history is an allocation."""
    last: dict[int | None, str] = {}
    for entry in history:
        action = _text(entry.get("action"))
        if action == "alloc" or action in _FREE:
            last[_whole(entry.get("addr"))] = action
    return {address for address, action in last.items() if action == "alloc"}
