"""A session file that begins in the middle still holds what its frames refer to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kinetop.traces.live import session
from kinetop.traces.live.recording import Recording
from kinetop.tui.live_now import Board
from kinetop.tui.live_tape import Tape

if TYPE_CHECKING:
    from pathlib import Path

    from kinetop.traces.live.worker.frames import Frame


@pytest.fixture(scope="module")
def demo() -> list[Frame]:
    return list(session.frames(session.demo()))


def test_it_may_begin_anywhere(demo: list[Frame], tmp_path: Path) -> None:
    windows = [at for at, frame in enumerate(demo) if frame.kind == "window"]
    cut = windows[len(windows) // 2]
    tape = Tape()
    for frame in demo[:cut]:
        tape.add(frame)
    tape.start(tmp_path / "late.parquet")
    for frame in demo[cut:]:
        tape.add(frame)
    tape.stop()
    whole, late = Recording(), Recording()
    for frame in demo:
        whole.add(frame)
    for frame in session.frames(tmp_path / "late.parquet"):
        late.add(frame)
    assert late.environment == whole.environment
    assert list(late.variants) == list(whole.variants)
    for key, trial in late.trials.items():
        assert (trial.state, trial.backend) == (whole.trials[key].state, whole.trials[key].backend)
    names = late.events()["name"].cast(str)
    assert set(names) <= set(whole.events()["name"].cast(str))
    assert "aten::bmm" in set(names)
    assert sum(len(trial.windows) for trial in late.trials.values()) == len(windows) - len(windows) // 2


def test_a_file_that_cannot_be_written_is_said(demo: list[Frame], tmp_path: Path) -> None:
    board = Board()
    board.add(demo[:5])
    board.record(tmp_path / "missing" / "x.parquet")
    assert board.state[2] is None
    board.add(demo[5:9])
    assert any(name == "recording" for name, _ in board.state[4:])


def test_a_disk_that_fills_up_ends_the_recording_and_nothing_else(
    demo: list[Frame], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = Board()
    board.add(demo[:5])
    board.record(tmp_path / "x.parquet")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(session.Writer, "add", full)
    board.add(demo[5:])
    assert ("recording", "OSError: [Errno 28] No space left on device") in board.state
    assert board.state[2] is None
    assert len(list(session.frames(tmp_path / "x.parquet"))) <= 5
    assert board.recording.trials
