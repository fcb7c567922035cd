"""What only a process of its own shows: which modules are loaded, how pipes and signals end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"polars", "pyarrow", "duckdb", "textual", "torch", "rich", "numpy", "pandas"}


DELAYS_MS = (20, 50, 80, 110, 140, 170, 200, 250, 300, 400, 500, 600)


def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    whole = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment}
    command = [sys.executable, *arguments]
    return subprocess.Popen(command, cwd=ROOT, env=whole, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def loaded(*arguments: str) -> set[str]:
    """Return the top-level modules that a command loads; a stand-in that was never used is not loaded."""
    code = (
        "import sys; sys.argv = ['kinetop', *sys.argv[1:]]\n"
        "from kinetop.tui.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print('loaded', *{n.split('.')[0] for n, m in sys.modules.items() if type(m).__name__ != '_Deferred'}, file=sys.stderr)"
    )
    with start("-c", code, *arguments) as process:
        said = process.communicate(timeout=60)[1]
    return set(said.splitlines()[-1].split()[1:])


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["summary", "--help"], ["sql", "--help"], ["cache", "--help"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    assert loaded(*arguments) & HEAVY == set()


def test_summary_loads_neither_textual_nor_torch() -> None:
    assert loaded("summary", "tests/data/hazards/01_baseline_clean.json") & {"textual", "torch"} == set()


def test_import_kinetop_loads_nothing_heavy() -> None:
    with start("-c", "import kinetop, sys; print(*sys.modules)") as process:
        modules = process.communicate(timeout=60)[0].split()
    assert {name.split(".")[0] for name in modules} & HEAVY == set()


def test_a_reader_that_goes_away_is_no_error() -> None:
    # Enough rows that the pipe is full when the reader goes.
    sql = "select repeat('x', 200) as text from range(20000)"
    with start("-m", "kinetop", "sql", "tests/data/hazards/01_baseline_clean.json", sql, "--format", "csv") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "text\n"
        process.stdout.close()
        said = process.stderr.read()
        assert (process.wait(60), said) == (0, "")


def computed_s(process: subprocess.Popen[str]) -> float:
    """Return the processor time that a process has had so far."""
    said = subprocess.run(["ps", "-o", "time=", "-p", str(process.pid)], capture_output=True, text=True, check=True).stdout
    return sum(60**place * float(part) for place, part in enumerate(reversed(said.strip().split(":"))))


def test_ctrl_c_ends_with_130_and_one_line() -> None:
    sql = "select count(*) from range(100000000) a, range(100000000) b"
    with start("-m", "kinetop", "sql", "tests/data/hazards/01_baseline_clean.json", sql) as process:
        while computed_s(process) < 3:  # it starts in less than one, whatever else this machine does, and then the query runs
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=60)
    assert (process.returncode, out, said) == (130, "", "kinetop: cancelled\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ended_at_any_moment_it_shows_nothing_of_python(number: signal.Signals) -> None:
    code = "import sys; from kinetop.__main__ import main; sys.argv[0] = 'kinetop'; print('begun', flush=True); main()"
    for delay_ms in DELAYS_MS:
        with start("-c", code, "summary", "tests/data/hazards/01_baseline_clean.json", "--no-cache") as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            time.sleep(delay_ms / 1000)
            process.send_signal(number)
            out, said = process.communicate(timeout=60)
        if process.returncode == 0:
            assert "kernels" in out  # it was faster
        elif number == signal.SIGINT:
            assert (process.returncode, said.splitlines()[-1]) == (130, "kinetop: cancelled"), delay_ms
        else:
            assert process.returncode in {128 + number, -number}, delay_ms
        assert "Traceback" not in said, delay_ms
        assert "Interrupt" not in said, delay_ms


@pytest.mark.parametrize("ending", ["KeyboardInterrupt", "SystemExit"])
def test_an_ending_that_python_drops_comes_again(ending: str) -> None:
    code = f"""
import time
from kinetop.tui.signals import cancellable
class Late:
    def __del__(self):
        raise {ending}(7)
try:
    with cancellable():
        Late()
        time.sleep(50)
except {ending} as heard:
    print(heard)
"""
    with start("-c", code) as process:
        assert process.communicate(timeout=40) == ("7\n", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_ended_from_outside_it_takes_its_temporary_files_away(number: signal.Signals, tmp_path: Path) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("the signal is ignored here, as under nohup, and kinetop leaves it so")
    command = [sys.executable, "-m", "kinetop", "summary", "-"]
    whole = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(tmp_path), "KINETOP_CACHE_DIR": str(tmp_path / "cache")}
    with subprocess.Popen(command, env=whole, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"[" * (1 << 20))
        process.stdin.flush()
        limit_s = time.monotonic() + 60
        while not list(tmp_path.glob("kinetop-*/**/stdin")) and time.monotonic() < limit_s:
            time.sleep(0.05)
        assert list(tmp_path.glob("kinetop-*/**/stdin"))
        process.send_signal(number)
        assert process.wait(60) == 128 + number
    assert list(tmp_path.glob("kinetop-*")) == []


@pytest.mark.parametrize(
    ("typed", "goes_on"),
    [
        ("kinetop ke", ["kernels"]),
        ("kinetop con", ["convert"]),
        ("kinetop kernels --group-by fam", ["family"]),
        ("kinetop summary --for", ["--format"]),
    ],
)
def test_the_shell_completes_commands_options_and_choices(typed: str, goes_on: list[str]) -> None:
    code = "import sys; sys.argv[0] = 'kinetop'; from kinetop.tui.cli import main; main()"
    at = str(len(typed.split()) - 1)
    with start("-c", code, _KINETOP_COMPLETE="complete_bash", COMP_WORDS=typed, COMP_CWORD=at) as process:
        assert process.communicate(timeout=60) == ("\n".join(goes_on) + "\n", "")
