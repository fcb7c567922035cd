"""Sessions: the same frames come back, from the trace and from a journal that breaks off, and every analysis opens the trace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kinetop
from kinetop.traces.convert import convert
from kinetop.traces.errors import NotATraceError, TraceError, UnreadableError
from kinetop.traces.live import journal, session
from kinetop.traces.live.recording import Recording
from kinetop.traces.live.rows import unpacked
from kinetop.traces.live.worker.case import Case
from kinetop.traces.live.worker.frames import CODES, Frame, Reader, pack
from kinetop.traces.store import read_metadata

ROOT = Path(kinetop.__file__).parent.parent
CASE = Case.of("1,2,64,16", dtype="fp32")
T0_NS = 1_796_064_000_000_000_000


def sent(kind: str, columns: dict[str, Any] | None = None, body: bytes = b"", *, at: int = 0, **members: Any) -> Frame:
    """A frame as it comes from the pipe of a worker."""
    (made,) = Reader().feed(pack({"kind": kind, "t_ns": T0_NS + at * 1_000_000, "seq": at, **members}, columns, body))
    return made


def a_window(at: int, number: int) -> Frame:
    names = {0: f"kinetop.step|eager|{number}|0", 1: "aten::mm", 2: "gemm", 3: "cudaLaunchKernel"}
    start = T0_NS + at * 1_000_000
    columns = {
        "name": ("u32", [0, 1, 3, 2]), "kind": ("u8", [0, 1, 2, 3]),
        "start_ns": ("i64", [start, start + 10, start + 20, start + 40]), "dur_ns": ("i64", [900, 50, 5, 200]),
        "device_type": ("u8", [0, 0, 0, 1]), "device": ("i32", [5, 5, 5, 0]),
        "resource": ("i64", [9, 9, 9, 7]), "correlation": ("u64", [1, 2, number, number]), "linked": ("u64", [0, 0, 2, 2]),
    }  # fmt: skip
    kinds = ["user_annotation", "cpu_op", "cuda_runtime", "kernel"]
    told = {"variant": "eager", "case": CASE.to_dict(), "window": number, "steps": 1, "pid": 5, "kinds": kinds, "dropped": 1}
    return sent("window", columns, at=at, names=names, **told)


def a_session(rounds: int = 5) -> list[Frame]:
    environment = {
        "host": "box",
        "torch": "2.13",
        "cuda": "13.1",
        "device": "cuda:1",
        "device_name": "NVIDIA H200",
        "flags": {"OMP_NUM_THREADS": "1"},
    }
    made = [
        sent("hello", protocol=1, environment=environment, variants=[{"name": "eager", "title": "Eager", "available": True}]),
        sent("prepared", at=1, variant="eager", case=CASE.to_dict(), backend="math", compile_s=None),
    ]
    for number in range(rounds):
        at = 10 * number + 2
        ns = [1000 + 7 * number + i for i in range(20)]
        told = {"variant": "eager", "case": CASE.to_dict(), "round": number, "marks": ["throttled"] if number == 1 else []}
        made += [
            sent("samples", {"ns": ("i64", ns)}, at=at, **told),
            a_window(at + 1, number + 1),
            sent("telemetry", at=at + 2, device="cpu", cores_pct=[1.5, 2.5], load1=0.5, throttle=[]),
            sent("beat", at=at + 3, doing={"what": "measuring", "variant": "eager", "since_ns": 1}),
        ]
    return [*made, sent("captured", body=b"\x1f\x8btrace", at=99, variant="eager", trace_bytes=7)]


def written(path: Path, frames: list[Frame]) -> Path:
    with session.Writer(path) as file:
        for frame in frames:
            file.add(frame)
    return path


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    return written(tmp_path / "run.parquet", a_session())


def test_the_same_frames_come_back(recorded: Path) -> None:
    assert list(session.frames(recorded)) == a_session()
    assert session.is_session(recorded)
    assert [path.name for path in recorded.parent.iterdir()] == ["run.parquet"]


def test_frames_come_back_before_the_session_is_closed(tmp_path: Path) -> None:
    frames, path = a_session(), tmp_path / "run.parquet"
    file = session.Writer(path)
    assert list(session.frames(session.journal_of(path))) == []
    for count, frame in enumerate(frames, 1):
        file.add(frame)
        notices: list[Any] = []
        assert len(list(session.frames(session.journal_of(path), notices))) == count
        assert not notices
    assert session.is_session(session.journal_of(path))
    assert not path.exists()
    file.close()
    file.close()
    assert list(session.frames(path)) == frames


def test_a_recording_of_the_session_is_the_recording_of_its_frames(recorded: Path) -> None:
    live, replayed = Recording(), Recording()
    for frame in a_session():
        live.add(frame)
    for frame in session.frames(recorded):
        replayed.add(frame)
    assert live.samples().equals(replayed.samples())
    assert live.events().equals(replayed.events())
    assert not replayed.ignored


def test_the_trace_says_that_it_is_a_session_and_of_what(recorded: Path) -> None:
    said = read_metadata(recorded)
    about = said["header"]["kinetop_session"]
    assert (about["version"], about["frames"], about["variants"]) == (1, len(a_session()), ["eager"])
    assert about["environment"]["host"] == "box"
    assert (about["began_ns"], about["ended_ns"]) == (T0_NS, T0_NS + 99_000_000)
    assert said["header"]["deviceProperties"] == [{"id": 1, "name": "NVIDIA H200"}]
    assert said["report"]["events"] == pl.scan_parquet(recorded).select(pl.len()).collect().item()


def test_its_rows_are_samples_telemetry_windows_and_frames(recorded: Path) -> None:
    rows = pl.read_parquet(recorded).with_columns(pl.col("cat", "name", "ph", "thread").cast(pl.String))
    assert rows["event_id"].to_list() == list(range(rows.height))
    assert rows.filter(cat="kinetop_frame").height == len(a_session())
    samples = rows.filter(cat="kinetop_sample")
    assert samples["dur_ns"].to_list() == [1000 + 7 * number + i for number in range(5) for i in range(20)]
    assert (samples["name"].unique().to_list(), samples["thread"].unique().to_list()) == (["eager"], ["eager"])
    ends = (samples["ts_ns"] + samples["dur_ns"]).to_list()
    assert ends[19::20] == [T0_NS + (10 * number + 2) * 1_000_000 for number in range(5)]
    assert ends[:19] == samples["ts_ns"].to_list()[1:20], "one after another"
    assert json.loads(samples["args"][25]) == {"case": CASE.text, "round": 1, "marks": ["throttled"]}
    counters = rows.filter(ph="C")
    assert json.loads(counters["args"][0]) == {"cores_pct 0": 1.5, "cores_pct 1": 2.5, "load1": 0.5}
    assert rows.filter(cat="kernel")["ts_ns"].to_list() == [T0_NS + (10 * number + 3) * 1_000_000 + 40 for number in range(5)]


@pytest.mark.parametrize("jobs", ["summary", "kernels", "idle", "overlap"])
def test_every_analysis_opens_it(recorded: Path, jobs: str) -> None:
    done = kinetop_command(jobs, str(recorded), "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    if jobs == "summary":
        (device,) = said["devices"]
        assert (device["kernels"], device["kernel_sum_us"], device["busy_us"]) == (5, 1.0, 1.0)
        assert said["coverage"]["linked_pct"] == 100
    if jobs == "kernels":
        assert "gemm" in done.stdout


def kinetop_command(*args: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-m", "kinetop", *args], env=env, capture_output=True, text=True, check=False)


def test_it_stays_a_session_as_chrome_json_and_back(recorded: Path, tmp_path: Path) -> None:
    convert([recorded], tmp_path / "run.json")
    convert([tmp_path / "run.json"], tmp_path / "again.parquet")
    convert([recorded], tmp_path / "less.parquet", where=pl.col("cat") == "kinetop_frame")
    for name in ("again.parquet", "less.parquet"):
        assert session.is_session(tmp_path / name)
        assert list(session.frames(tmp_path / name)) == a_session()


def test_a_journal_that_ends_in_the_middle_of_a_frame_gives_the_frames_before(tmp_path: Path) -> None:
    frames = a_session(2)
    data = b"".join(map(journal.packed, frames))
    ends = [len(b"".join(map(journal.packed, frames[:count]))) for count in range(len(frames) + 1)]
    path = tmp_path / "run.parquet.journal"
    for cut in [*range(0, len(data), 97), *ends]:
        path.write_bytes(data[:cut])
        notices: list[Any] = []
        whole = sum(end <= cut for end in ends) - 1
        assert list(session.frames(path, notices)) == frames[:whole]
        if cut in ends:
            assert not notices
        else:
            assert [(notice.code, notice.offset) for notice in notices] == [("truncated-journal", ends[whole])]


def test_a_journal_left_behind_becomes_a_session_that_says_what_is_missing(tmp_path: Path) -> None:
    frames = a_session(2)
    path = tmp_path / "run.parquet.journal"
    path.write_bytes(b"".join(map(journal.packed, frames))[:-5])
    session.finish(path, tmp_path / "run.parquet")
    assert not path.exists()
    assert list(session.frames(tmp_path / "run.parquet")) == frames[:-1]
    assert kinetop.open(tmp_path / "run.parquet").warnings[0].code == "truncated-journal"


def test_a_journal_opened_as_a_trace_is_called_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "run.parquet.journal"
    path.write_bytes(journal.packed(a_session(1)[0]))
    with pytest.raises(NotATraceError, match=r"journal of a live session that was not closed; kinetop replay"):
        kinetop.open(path)


def test_a_journal_that_is_damaged_gives_the_frames_before(tmp_path: Path) -> None:
    frames, path, notices = a_session(2), tmp_path / "run.parquet.journal", []
    path.write_bytes(journal.packed(frames[0]) + b"\0" * 4096)  # what a power cut leaves
    assert list(session.frames(path, notices)) == frames[:1]
    assert notices[0].code == "damaged-journal"


def test_a_recorder_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path\n"
        "from kinetop.traces.live import session; from kinetop.traces.live.worker.frames import Frame\n"
        "file = session.Writer(Path(sys.argv[1]))\n"
        "for n in range(1000):\n    file.add(Frame({'kind': 'beat', 'n': n}))\n"
        "os.kill(os.getpid(), 9)"
    )
    path = tmp_path / "run.parquet"
    done = subprocess.run([sys.executable, "-c", code, str(path)], env={"PYTHONPATH": str(ROOT)}, check=False)
    assert done.returncode == -9
    assert [frame.header["n"] for frame in session.frames(session.journal_of(path))] == list(range(1000))
    with pytest.raises(TraceError, match="was not closed"):
        session.Writer(path)


def test_where_nothing_can_be_written_it_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no session can be recorded there"):
        session.Writer(tmp_path / "absent" / "run.parquet")


def test_a_full_disk_leaves_a_journal_of_whole_frames(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk."""
    code = (
        "import resource, sys; from pathlib import Path\n"
        "from kinetop.traces.live import session; from kinetop.traces.live.worker.frames import Frame\n"
        "from kinetop.traces.errors import TraceError\n"
        "file = session.Writer(Path(sys.argv[1]))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
        "for n in range(2):\n    file.add(Frame({'kind': 'log', 'line': 'x' * 2000}))\n"
        "for n in range(2):\n"
        "    try:\n        file.add(Frame({'kind': 'log', 'line': 'x' * 2000}))\n"
        "    except TraceError as error:\n        print(error)\n"
        "try:\n    file.close()\nexcept TraceError as error:\n    print(error)\n"
    )
    path = tmp_path / "run.parquet"
    env = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}  # the limit is for those files too
    done = subprocess.run([sys.executable, "-c", code, str(path)], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert ["cannot be written" in line for line in said] == [True] * 3
    assert "it stays in" in said[-1]
    notices: list[Any] = []
    assert [len(frame.header["line"]) for frame in session.frames(session.journal_of(path), notices)] == [2000, 2000]
    assert not notices
    assert [one.name for one in tmp_path.iterdir()] == ["run.parquet.journal"]


def test_other_files_are_no_sessions(tmp_path: Path, hazards: Path) -> None:
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "other.parquet")
    convert([hazards / "01_baseline_clean.json"], tmp_path / "trace.parquet")
    (tmp_path / "text").write_text("KTP")
    (tmp_path / "empty").touch()
    (tmp_path / "half.parquet").write_bytes((tmp_path / "trace.parquet").read_bytes()[:-20])
    for name in ("other.parquet", "trace.parquet", "text", "empty", "half.parquet", "absent", "."):
        assert not session.is_session(tmp_path / name), name
        with pytest.raises(UnreadableError):
            session.frames(tmp_path / name)
    with pytest.raises(NotATraceError, match="no recorded session"):
        session.frames(tmp_path / "trace.parquet")


def test_a_session_of_a_newer_kinetop_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "VERSION", 2)
    path = written(tmp_path / "run.parquet", a_session(1))
    monkeypatch.undo()
    assert session.is_session(path)
    with pytest.raises(NotATraceError, match="another version"):
        session.frames(path)


def test_a_session_whose_frames_were_tampered_with_is_damaged(recorded: Path, tmp_path: Path) -> None:
    rows = pl.read_parquet(recorded).with_columns(args=pl.col("args").str.replace("body", "soul"))
    header = {"kinetop": json.dumps(read_metadata(recorded))}
    rows.write_parquet(tmp_path / "odd.parquet", metadata=header)
    with pytest.raises(UnreadableError, match="damaged"):
        list(session.frames(tmp_path / "odd.parquet"))


@pytest.mark.parametrize(
    "args", ["", "[]", '{"frame": 5}', '{"frame": {"columns": 7}}', '{"frame": {}, "body": "!"}', "[" * 9999]
)
def test_args_that_hold_no_frame_are_said(args: str) -> None:
    with pytest.raises(UnreadableError, match="a frame cannot be read"):
        unpacked(args)


def test_a_window_that_is_no_events_is_kept_as_a_frame_and_said(tmp_path: Path) -> None:
    odd = sent("window", {"name": ("u32", [1])}, variant="eager", case=CASE.to_dict())
    path = written(tmp_path / "run.parquet", [odd, *a_session(1)])
    assert next(session.frames(path)) == odd
    said = [notice.message for notice in kinetop.open(path).warnings if notice.code == "unusable-window"]
    assert said == ["1 frame of the session could not be turned into events."]


def test_no_secret_and_nothing_undocumented_is_kept(tmp_path: Path) -> None:
    flags = {
        "OMP_NUM_THREADS": "4",
        "CUDA_VISIBLE_DEVICES": "0",
        "HF_TOKEN": "s1",
        "TORCH_API_KEY": "s2",
        "HOME": "/home/s3",
        "allow_tf32": True,
    }
    environment = {"host": "box", "torch": "2.13", "user": "s4", "env": {"PASSWORD": "s5"}, "flags": flags}
    path = written(tmp_path / "run.parquet", [sent("hello", environment=environment)])
    (frame,) = session.frames(path)
    kept = {"OMP_NUM_THREADS": "4", "CUDA_VISIBLE_DEVICES": "0", "allow_tf32": True}
    assert frame.header["environment"] == {"host": "box", "torch": "2.13", "flags": kept}
    assert read_metadata(path)["header"]["kinetop_session"]["environment"] == frame.header["environment"]


def test_a_long_session_is_turned_into_many_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet as pq

    monkeypatch.setattr(session, "GROUP_BYTES", 20_000)
    frames = a_session(60)
    path = written(tmp_path / "run.parquet", frames)
    assert pq.read_metadata(path).num_row_groups > 5
    assert list(session.frames(path)) == frames


def test_what_cannot_be_sent_is_counted(tmp_path: Path) -> None:
    with session.Writer(tmp_path / "run.parquet") as file:
        for header in ({"kind": "log", "line": b"bytes"}, {"kind": "log", "columns": "claimed", "line": "kept"}):
            file.add(Frame(header))
        file.add(Frame({"kind": "log", "line": "x" * (17 << 20)}))
    assert [frame.header for frame in session.frames(tmp_path / "run.parquet")] == [{"kind": "log", "line": "kept"}]
    notices = read_metadata(tmp_path / "run.parquet")["report"]["notices"]
    assert [(notice["code"], notice["count"]) for notice in notices] == [("unsendable-frame", 2)]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=5,
)
ITEMS = st.sampled_from(sorted(CODES.items())).flatmap(
    lambda code: st.tuples(
        st.just(code[0]),
        st.lists(
            st.floats(allow_nan=False)
            if code[1] == "d"
            else st.integers(-(2 ** (8 * array(code[1]).itemsize - 1)) * code[1].islower(), 127),
            max_size=5,
        ),
    )
)
KINDS = st.sampled_from(["hello", "samples", "window", "telemetry", "log", "odd"])
NAMES = st.sampled_from(["ns", "name", "kind", "start_ns", "dur_ns", "x"]) | st.text(max_size=4)
MEMBERS = st.dictionaries(st.text(max_size=5) | st.sampled_from(["t_ns", "variant", "names", "kinds", "marks"]), JSON, max_size=4)
COLUMNS = st.dictionaries(NAMES, ITEMS, max_size=4)
FRAMES = st.one_of(
    st.builds(lambda kind, members, columns: pack({**members, "kind": kind}, columns), KINDS, MEMBERS, COLUMNS),
    st.builds(lambda kind, members, body: pack({**members, "kind": kind}, body=body), KINDS, MEMBERS, st.binary(max_size=40)),
    st.builds(lambda at, number: journal.packed(a_window(at, number)), st.integers(0, 50), st.integers(0, 9)),
)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(FRAMES, max_size=6), st.integers(0, 400))
def test_any_frames_come_back_from_the_journal_and_from_the_trace(tmp_path: Path, made: list[bytes], cut: int) -> None:
    frames = list(Reader().feed(b"".join(made)))
    path = tmp_path / "run.parquet"
    file = session.Writer(path)
    for frame in frames:
        file.add(frame)
    kept = session.journal_of(path)
    assert list(session.frames(kept)) == frames
    broken = tmp_path / "broken.journal"
    broken.write_bytes(kept.read_bytes()[: -cut or None])
    before = list(session.frames(broken))
    assert before == frames[: len(before)]
    file.close()
    assert list(session.frames(path)) == frames
    assert read_metadata(path)["report"]["events"] == pl.scan_parquet(path).select(pl.len()).collect().item() >= len(frames)


def test_the_session_that_comes_with_kinetop_shows_everything_and_names_nobody() -> None:
    path = session.demo()
    assert path.stat().st_size <= 300_000
    made, texts = Recording(), []
    for frame in session.frames(path):
        made.add(frame)
        texts.append(json.dumps(frame.header))
    assert not made.ignored
    assert made.environment["host"] == "demo"
    assert not [text for text in texts if "/root" in text or "/home/" in text or "/Users/" in text or "/work" in text]
    assert 15 < (made.last_ns - made.began_ns) / 1e9 < 60
    assert len(made.trials) >= 5
    assert made.telemetry
    for trial in made.trials.values():
        assert len(trial.samples_ns) >= 100, trial.variant
        assert trial.prepared["flops_useful"] > 0
        assert len(trial.windows) >= 3, trial.variant
    events = made.events()
    assert events.filter(pl.col("step").is_not_null() & (pl.col("cat") == "cpu_op"))["variant"].n_unique() == len(made.trials)
    assert not (kinetop.open(path).warnings[1:]), "only that there is no GPU"
