"""The commands, run in this process, on small traces."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from typer.testing import CliRunner

import kinetop
from kinetop.analysis.question import all_questions
from kinetop.traces import trace as trace_module
from kinetop.traces.errors import CancelledError
from kinetop.tui.cli import app
from kinetop.tui.commands.info import _lines as info_lines

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

QUESTIONS = sorted(all_questions())


def run(*arguments: object, code: int = 0) -> Result:
    found = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert found.exit_code == code, f"{found.exit_code}: {found.output}"
    assert "Traceback" not in found.output
    if found.exception is not None:
        assert isinstance(found.exception, SystemExit), found.exception
    return found


@pytest.fixture
def opened_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs on one trace share it, with all that was worked out of it."""
    kept: dict[str, kinetop.TraceSet] = {}
    opened = trace_module.open_traces

    def open_kept(paths: Path | list[Path], **options: Any) -> kinetop.TraceSet:
        if (key := str(paths)) not in kept:
            kept[key] = opened(paths, **options)
        return kept[key]

    monkeypatch.setattr(trace_module, "open_traces", open_kept)


@pytest.fixture
def clean(hazards: Path) -> Path:
    return hazards / "01_baseline_clean.json"


def finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(finite, value.values()))
    if isinstance(value, list):
        return all(map(finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def test_summary_json_is_the_contract(clean: Path, hazards: Path) -> None:
    told = json.loads(run("summary", clean, "--json").stdout)
    assert told["schema"] == "kinetop.summary/1"
    assert {"trace", "window", "devices", "coverage", "warnings"} <= set(told)
    assert (told["trace"]["events"], told["trace"]["ranks"], told["trace"]["paths"]) == (28, [0], [str(clean)])
    assert told["window"]["devices"] == [{"rank": 0, "device": 0, "start_us": 90.0, "end_us": 220.0, "span_us": 130.0}]
    expected = next(row for row in json.loads((hazards / "EXPECTED.json").read_text())["hazards"] if row["file"] == clean.name)
    (device,) = told["devices"]
    assert (device["rank"], device["device"], device["overlap_pct"]) == (0, 0, 62.5)
    assert {key: device[key] for key in expected["figures"]["0"]} == expected["figures"]["0"]
    assert all(value is None or isinstance(value, int | float) for value in device.values())


def test_warnings_have_code_count_offset_and_message(hazards: Path) -> None:
    told = json.loads(run("summary", hazards / "34_negative_duration.json", "--json").stdout)
    assert told["warnings"]
    for warning in told["warnings"]:
        assert set(warning) == {"code", "count", "offset", "message"}


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_question_in_every_format(name: str, clean: Path, opened_once: None) -> None:
    question = all_questions()[name]
    answer = question.ask(kinetop.open(clean))
    told = json.loads(run(name, clean, "--json").stdout)
    assert told["schema"] == f"kinetop.{name}/{question.version}"
    assert finite(told)
    for table, frame in answer.tables.items():
        assert len(told[table]) == frame.height
    rows = list(csv.reader(io.StringIO(run(name, clean, "--format", "csv").stdout, newline="")))
    assert rows[0] == answer.main.columns
    assert len(rows) == 1 + answer.main.height
    data = run(name, clean, "--format", "parquet").stdout_bytes
    assert pl.read_parquet(io.BytesIO(data)).columns == answer.main.columns
    about = json.loads(pl.read_parquet_metadata(io.BytesIO(data))["kinetop.result"])
    assert {"schema", "trace", "window", "coverage", "warnings"} == set(about)
    assert f"# {question.title}" in run(name, clean, "--format", "md").stdout
    text = run(name, clean).stdout
    assert "window: GPU span, 130.000 µs" in text
    assert "coverage: " in text
    assert "verdict: trust" in text


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_question_on_a_trace_without_gpu_work(name: str, hazards: Path, opened_once: None) -> None:
    told = json.loads(run(name, hazards / "75_cpu_only.json", "--json").stdout)
    assert told["coverage"]["verdict"] == "no gpu"
    assert "no GPU work" in run(name, hazards / "75_cpu_only.json").stdout


def test_summary_in_place_of_the_app_where_stdout_is_no_terminal(clean: Path) -> None:
    assert run(clean).stdout == run("summary", clean).stdout
    assert run("--where", "gemm", clean).stdout == run("summary", clean, "--where", "gemm").stdout
    assert "name a trace" in run(code=2).stderr


def test_numbers_of_a_table_end_in_one_column(clean: Path) -> None:
    lines = run("kernels", clean).stdout.splitlines()
    head = next(at for at, line in enumerate(lines) if line.startswith("name"))
    ends = {match.end() for match in re.finditer(r"total µs ▼|count", lines[head])}
    assert len(ends) == 2
    for line in lines[head + 1 : head + 6]:
        assert all(line[end - 1].isdigit() and line[end : end + 1] in {"", " "} for end in ends), line


def test_filter_narrows_and_is_stated(clean: Path) -> None:
    told = json.loads(run("kernels", clean, "--where", "/gemm|relu/ and dur >= 40us", "--json").stdout)
    assert [row["name"] for row in told["kernels"]] == ["gemm_kernel"]
    assert told["window"]["where"] == "/gemm|relu/ and dur >= 40us"
    assert "filter gemm" in run("kernels", clean, "--where", "gemm").stdout
    assert [row["name"] for row in json.loads(run("kernels", clean, "--top", 1, "--json").stdout)["kernels"]] == [
        "gemm_kernel",
        "others",
    ]


def test_wrong_filter_shows_the_place(clean: Path) -> None:
    said = run("kernels", clean, "--where", "gemm and durr > 5", code=2)
    assert said.stdout == ""
    assert "no column durr" in said.stderr
    assert said.stderr.splitlines()[1:] == ["  gemm and durr > 5", "           ^"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--step", "99"], "step"),
        (["--step", "x"], "step"),
        (["--window", "5"], "window"),
        (["--rank", "7"], "rank"),
        (["--device", "7"], "device"),
        (["--rank", "-1"], "--rank"),
        (["--top", "0"], "--top"),
        (["--format", "xml"], "table, json, csv, md, parquet"),
        (["--json", "--format", "csv"], "contradict"),
        (["--compat", "nvidia"], "hta"),
        (["--table", "nope"], "devices"),
        (["--table", "hta"], "another option"),
        (["-o", "out.xyz"], ".parquet"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_wrong_options_end_with_two_and_say_what_is_allowed(clean: Path, arguments: list[str], says: str) -> None:
    said = run("summary", clean, *arguments, code=2)
    assert says in said.stderr
    assert said.stdout == ""


def test_unknown_command_is_not_taken_for_a_path() -> None:
    assert "did you mean summary or memory?" in run("summry", "x", code=2).stderr


@pytest.mark.parametrize("what", ["missing", "text", "empty", "folder"])
def test_unreadable_input_ends_with_three_and_names_the_file(tmp_path: Path, what: str) -> None:
    path = tmp_path / "input.json"
    if what == "text":
        path.write_text("This is no trace at all.\n")
    elif what == "empty":
        path.write_bytes(b"")
    elif what == "folder":
        path.mkdir()
    said = run("summary", path, code=3)
    assert "input.json" in said.stderr
    assert said.stdout == ""
    assert len(said.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, CancelledError])
def test_cancelled(clean: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]) -> None:
    def stop(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(trace_module, "open_traces", stop)
    said = run("summary", clean, code=130)
    assert (said.stdout, said.stderr) == ("", "kinetop: cancelled\n")


def test_output_file_by_suffix_is_whole_and_alone(clean: Path, tmp_path: Path) -> None:
    for suffix in ("json", "csv", "md", "parquet", "txt"):
        out = tmp_path / f"out.{suffix}"
        out.write_text("older")
        said = run("kernels", clean, "-o", out)
        assert said.stdout == ""
        assert f"wrote {out}" in said.stderr
        kind = {"txt": "table"}.get(suffix, suffix)
        assert out.read_bytes() == run("kernels", clean, "--format", kind).stdout_bytes
    assert len(list(tmp_path.iterdir())) == 5


def test_output_never_replaces_the_trace_or_a_folder(clean: Path, tmp_path: Path) -> None:
    mine = tmp_path / "a.json"
    mine.write_bytes(clean.read_bytes())
    assert "the trace itself" in run("summary", mine, "-o", mine, code=2).stderr
    (tmp_path / "link.json").symlink_to(mine)
    assert "the trace itself" in run("summary", mine, "-o", tmp_path / "link.json", code=2).stderr
    assert mine.read_bytes() == clean.read_bytes()
    assert "is a folder" in run("summary", mine, "--format", "json", "-o", tmp_path, code=2).stderr
    said = run("summary", mine, "-o", tmp_path / "no" / "such" / "x.json", code=2)
    assert "cannot be written" in said.stderr


def test_hostile_names_come_out_byte_for_byte(hazards: Path) -> None:
    path = hazards / "77_hostile_names.json"
    events = json.loads(path.read_text())["traceEvents"]
    names = sorted({event["name"] for event in events if event.get("cat") == "kernel"})
    assert any("\x1b" in name for name in names)
    told = json.loads(run("kernels", path, "--json").stdout_bytes)
    assert sorted({row["name"] for row in told["kernels"]} & set(names)) == names
    rows = csv.DictReader(io.StringIO(run("kernels", path, "--format", "csv").stdout_bytes.decode(), newline=""))
    assert {row["name"] for row in rows} >= set(names)
    frame = pl.read_parquet(io.BytesIO(run("kernels", path, "--format", "parquet").stdout_bytes))
    assert set(frame["name"]) >= set(names)


@pytest.mark.parametrize("form", ["table", "md"])
def test_hostile_names_do_a_terminal_no_harm(hazards: Path, form: str) -> None:
    shown = run("kernels", hazards / "77_hostile_names.json", "--format", form).stdout
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", shown)


def test_sql_command(clean: Path) -> None:
    told = json.loads(run("sql", clean, "select kind, count(*) as n from gpu group by kind order by n", "--json").stdout)
    assert (told["schema"], told["rows"]) == ("kinetop.sql/1", [{"kind": "memcpy", "n": 1}, {"kind": "kernel", "n": 5}])
    assert run("sql", clean, "select 1 as one", "--format", "csv").stdout == "one\n1\n"
    assert "syntax error" in run("sql", clean, "selct 1", code=2).stderr
    assert "may not read" in run("sql", clean, "select * from read_csv('/etc/passwd')", code=2).stderr


def test_rules_command() -> None:
    told = json.loads(run("rules", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "--json").stdout)
    assert [(rule["class"], rule["family"]) for rule in told["rules"]] == [("comm", "all-reduce")]
    every = json.loads(run("rules", "--json").stdout)["rules"]
    assert (len(every) > 10, every[-1]["family"]) == (True, "other")
    assert "all-reduce" in run("rules").stdout


def test_info_command(clean: Path) -> None:
    told = json.loads(run("info", clean, "--json").stdout)
    (file,) = told["files"]
    assert file["events_by_category"]["kernel"] == 5
    assert sum(file["events_by_category"].values()) == file["events"] == 28
    assert file["devices"][0]["name"] == "Synthetic GPU"
    assert "Synthetic GPU" in run("info", clean).stdout
    own = json.loads(run("info", "--json").stdout)
    assert own["kinetop"] == kinetop.__version__
    assert {"cache", "rules", "state"} == set(own["folders"])
    assert "polars" in run("info").stdout


def test_convert_command(clean: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.parquet"
    said = run("convert", clean, "-o", out)
    assert "28 events" in said.stdout
    frame = pl.read_parquet(out)
    assert frame.height == 28
    run("convert", clean, "-o", tmp_path / "b.parquet", "--where", "cat = 'kernel' and dur >= 20us")
    assert sorted(pl.read_parquet(tmp_path / "b.parquet")["dur_ns"]) == [20_000, 40_000, 40_000]
    told = json.loads(run("convert", clean, "-o", out, "--json").stdout)
    assert [(file["events"], file["rank"]) for file in told["files"]] == [(28, 0)]
    assert "no column durr" in run("convert", clean, "-o", out, "--where", "durr > 5", code=2).stderr
    assert "the trace itself" in run("convert", out, "-o", out, code=2).stderr
    assert run("summary", out, "--format", "csv").stdout == run("summary", clean, "--format", "csv").stdout


def test_cache_commands(clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETOP_CACHE_DIR", str(tmp_path))
    assert "empty" in run("cache", "list").stderr
    run("summary", clean)
    (entry,) = json.loads(run("cache", "list", "--json").stdout)["entries"]
    assert entry["events"] == 28
    shown = run("cache", "list").stdout
    assert clean.name in shown
    assert re.search(r" \d{4}-\d\d-\d\d \d\d:\d\d$", shown, re.MULTILINE)
    assert "1 trace" in run("cache", "clear").stdout
    assert json.loads(run("cache", "list", "--json").stdout)["entries"] == []


def test_demo_command(tmp_path: Path) -> None:
    told = json.loads(run("demo", "--json", "--keep", tmp_path / "demo").stdout)
    assert told["trace"]["ranks"] == [0, 1]
    assert len(list((tmp_path / "demo").iterdir())) == 2
    assert all(device["busy_us"] > 0 for device in told["devices"])


def test_the_demo_leaves_nothing_in_the_cache_unless_it_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETOP_CACHE_DIR", str(tmp_path / "cache"))
    run("demo", "--json")
    assert list(tmp_path.glob("cache/traces/*.parquet")) == []
    run("demo", "--json", "--keep", tmp_path / "demo")
    assert len(list(tmp_path.glob("cache/traces/*.parquet"))) == 2


def test_info_names_the_folders_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETOP_STATE_DIR", str(tmp_path / "state"))
    assert json.loads(run("info", "--json").stdout)["folders"]["state"] == str(tmp_path / "state")


def test_info_counts_with_separators_and_leaves_the_header_as_it_is() -> None:
    lines = info_lines({"events_by_category": {"kernel": 12345}, "header": {"displayTimeUnit": "ms", "cupti": 12345}})
    assert [line.strip() for line in lines] == [
        "events_by_category:",
        "kernel: 12,345",
        "header:",
        "displayTimeUnit: ms",
        "cupti: 12345",
    ]


def test_version() -> None:
    assert run("--version").stdout == f"kinetop {kinetop.__version__}\n"


@pytest.mark.parametrize("command", QUESTIONS)
def test_help_speaks_of_paths_files_and_numbers(command: str) -> None:
    usage = run(command, "--help").stdout
    assert "PATH..." in usage
    assert "--output FILE" in usage
    assert "--jobs N" in usage
    assert "--top <" not in usage


def test_help_says_what_a_command_does_in_full() -> None:
    shown = " ".join(run("--help").stdout.split())
    assert "..." not in shown.partition("Traces:")[2]
    for question in all_questions().values():
        assert " ".join(question.about.split(".")[0].split()) in shown


def test_help_names_every_command() -> None:
    shown = run("--help").stdout
    for name in (*QUESTIONS, "open", "convert", "sql", "rules", "info", "cache", "demo"):
        assert re.search(rf"^  {name}  ", shown, re.MULTILINE), name
    for name in QUESTIONS:
        own = run(name, "--help").stdout
        assert all(f"--{parameter.name.replace('_', '-')}" in own for parameter in all_questions()[name].parameters)
