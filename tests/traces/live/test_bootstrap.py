"""How a worker is started: what is sent, what a remote shell makes of the command, and what no host may be."""

from __future__ import annotations

import inspect
import json
import shutil
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from kinetop.traces.errors import WorkerError
from kinetop.traces.live import bootstrap
from kinetop.traces.live.link import Link, Start
from kinetop.traces.live.worker import loader
from kinetop.traces.live.worker.frames import Reader

HELLO = b'{"do":"hello"}\n'


def bare(python: str, tmp_path: Path, sent: bytes = HELLO) -> subprocess.CompletedProcess[bytes]:
    """Run the worker in an interpreter with no packages at all."""
    command = [python, "-I", "-S", "-u", "-c", bootstrap.BOOTSTRAP]
    return subprocess.run(command, input=bootstrap.blob() + sent, capture_output=True, cwd=tmp_path, timeout=60, check=False)


@pytest.mark.parametrize("python", [sys.executable, "python3.10", "python3.12", "python3.13", "python3.14"])
def test_the_worker_starts_with_nothing_installed_and_says_that_torch_is_missing(python: str, tmp_path: Path) -> None:
    found = shutil.which(python)
    if found is None or subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip(f"there is no {python} here")
    done = bare(found, tmp_path)
    said = [frame for frame in Reader().feed(done.stdout) if frame.kind != "beat"]
    assert done.returncode == 69, done.stderr.decode()
    assert [(frame.kind, frame.header["type"]) for frame in said] == [("error", "TorchMissing")]
    assert "there is no torch in" in said[0].header["message"]
    assert "pip install torch" in said[0].header["message"]


@pytest.mark.parametrize("python", ["python3.8", "python3.9"])
def test_an_old_interpreter_is_told_so(python: str, tmp_path: Path) -> None:
    found = shutil.which(python)
    if found is None or subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip(f"there is no {python} here")
    done = bare(found, tmp_path)
    assert done.returncode == 1
    assert done.stderr.decode().strip().startswith("the worker needs Python 3.10; ")


def test_prints_and_input_of_other_code_touch_neither_frames_nor_commands(tmp_path: Path) -> None:
    """Sources that print on import, on descriptor 1 and through a child, and read standard input."""
    main = """
import os, sys
print("by print"); os.write(1, b"by descriptor\\n"); os.system("echo by a child")
assert sys.stdin.read() == "" and os.read(0, 9) == b""
def main(commands, frames):
    print("later")
    os.write(frames, commands.readline())
"""
    package = "kinetop.traces.live.worker"
    modules = {package: (True, ""), f"{package}.main": (False, main)}
    source = Path(loader.__file__).read_text()
    sent = {"package": package, "loader": source, "modules": modules}
    import zlib

    packed = zlib.compress(json.dumps(sent).encode())
    done = subprocess.run(
        [sys.executable, "-I", "-u", "-c", bootstrap.BOOTSTRAP],
        input=b"%d\n" % len(packed) + packed + b"a command\n",
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"a command\n"
    assert done.stderr.splitlines() == [b"by print", b"by descriptor", b"by a child", b"later"]


def run(code: str, tmp_path: Path, *, path: Path | None = None) -> str:
    """Run code in an interpreter without kinetop, `loader` being loaded from its source."""
    start = (
        f"import sys\nsource = open({loader.__file__!r}).read()\nsys.path.insert(0, {str(path or tmp_path)!r})\nexec(source)\n"
    )
    return subprocess.run(
        [sys.executable, "-I", "-c", start + code], capture_output=True, text=True, check=True, cwd=tmp_path
    ).stdout


def test_parents_are_made_up_only_where_there_are_none(tmp_path: Path) -> None:
    code = """
install("aa.bb.cc", {"aa.bb.cc": (True, ""), "aa.bb.cc.dd": (False, "from . import __name__ as up\\nvalue = 7")})
import aa.bb.cc.dd as dd, aa
print(dd.value, dd.up, getattr(aa, "real", None), dd.__file__)
"""
    assert run(code, tmp_path) == "7 aa.bb.cc None aa/bb/cc/dd.py\n"
    for name, text in (("aa/__init__.py", "real = True"), ("aa/bb/cc/__init__.py", ""), ("aa/bb/cc/dd.py", "value = 'on disk'")):
        target = tmp_path / "installed" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    (tmp_path / "installed/aa/bb/__init__.py").write_text("")
    assert run(code, tmp_path, path=tmp_path / "installed") == "7 aa.bb.cc True aa/bb/cc/dd.py\n"


def test_sources_can_be_read_by_tracebacks_and_inspect() -> None:
    source = "def fails():\n    raise ValueError('here')  # in memory\n"
    finder = loader.Sources({"kinetop_test_memory": (False, source)})
    sys.meta_path.insert(0, finder)
    try:
        import kinetop_test_memory as memory

        assert inspect.getsource(memory.fails) == source
        with pytest.raises(ValueError, match="here") as caught:
            memory.fails()
        assert "# in memory" in "".join(traceback.format_exception(caught.value))
    finally:
        sys.meta_path.remove(finder)
        sys.modules.pop("kinetop_test_memory", None)


def test_the_blob_holds_every_module_of_the_worker() -> None:
    folder = Path(loader.__file__).parent
    packed = dict(bootstrap._modules(folder, bootstrap.PACKAGE))
    names = {".".join((bootstrap.PACKAGE, *path.relative_to(folder).with_suffix("").parts)) for path in folder.rglob("*.py")}
    assert set(packed) == {name.removesuffix(".__init__") for name in names}
    assert packed[f"{bootstrap.PACKAGE}.case"] == (False, (folder / "case.py").read_text())


def test_the_bootstrap_needs_no_escape_in_any_shell() -> None:
    assert not set(bootstrap.BOOTSTRAP) & set("'\\!\n`$%")
    assert len(bootstrap.BOOTSTRAP) < 1000


@pytest.mark.parametrize("host", ["box", "me@box", "me.x+y@gpu-01.lab.example", "10.0.0.7", "me@fe80::1", "::1", "a_b"])
def test_hosts(host: str) -> None:
    assert bootstrap.checked_host(host) == host
    command = bootstrap.command(None, host)
    assert command[0] == "ssh"
    assert command[command.index("--") + 1] == host
    assert command.index("--") == len(command) - 3


@pytest.mark.parametrize(
    "host",
    [
        *(
            "-oProxyCommand=touch /tmp/x",
            "-oProxyCommand=x",
            "--",
            "-l",
            "me@-oProxyCommand=x",
            "-me@box",
            "",
            " box",
            "box ",
            "a b",
        ),
        *(
            "box;id",
            "box$(id)",
            "box`id`",
            "box|id",
            "box&id",
            "box\nid",
            "box\n",
            "box'",
            'box"',
            "a@b@c",
            "@box",
            "me@",
            "box/..",
            "box%h",
        ),
        *("bo\x00x", "ssh://box", "box\\", "böx", "[::1", "x]"),
    ],
)
def test_what_is_no_host(host: str) -> None:
    with pytest.raises(WorkerError, match="is no host"):
        bootstrap.command(None, host)


HOSTILE = "a 'b' \"c\" $(touch pwned) `touch pwned` ; touch pwned & \\ \n %s {} !x"
SAYS = """
import os
case = hello().get("case", {})
say("log", line=os.environ["KINETOP_TEST"])
while True: told()
"""


async def test_a_worker_through_ssh_has_its_variables_whatever_they_hold(ssh: Path, fake, quick, ask) -> None:
    local = fake(SAYS)
    link = Link(Start(python=local.python, host="me@box", environment={"KINETOP_TEST": HOSTILE}), timeouts=quick)
    link.send("start", case={}, variants=[])
    seen = await ask.until(link, ask.kind("log"))
    await link.close()
    assert seen[-1].header["line"] == HOSTILE
    assert not list(ssh.rglob("pwned"))
    argv = json.loads((ssh / "argv").read_text())
    assert {"-T", "BatchMode=yes", "ServerAliveInterval=5"} <= set(argv)
    assert argv[-3:-1] == ["--", "me@box"]


async def test_a_remote_interpreter_of_a_home_folder_or_with_a_space(ssh: Path, fake, quick, ask, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    program = tmp_path / "my env; touch pwned" / "python"
    program.parent.mkdir()
    shutil.move(fake(SAYS).python, program)
    link = Link(Start(python=f"~/{program.parent.name}/python", host="box", environment={"KINETOP_TEST": "x"}), timeouts=quick)
    link.send("start", case={}, variants=[])
    await ask.until(link, ask.kind("log"))
    await link.close()
    assert not list(ssh.rglob("pwned"))


async def test_a_trace_that_comes_over_the_wire_goes_where_it_was_asked_for(ssh: Path, fake, quick, ask, tmp_path) -> None:
    body = """
order = hello()
case = order["case"]
def send(path, body):
    sys.stdout.buffer.write(frames.pack({"kind": "captured", "variant": "eager", "path": path, "t_ns": 1}, body=body))
    sys.stdout.buffer.flush()
for path in ("../../evil.json.gz", "/etc/evil", ""): send(path, b"trace")
order = told()
assert order["send_traces"]
send("/etc/evil", b"deep")
while True: told()
"""
    folder = tmp_path / "traces"
    folder.mkdir()
    link = Link(Start(python=fake(body).python, host="box"), timeouts=quick)
    link.send("bench", case={}, variants=["eager"], trace_dir=str(folder))
    seen = await ask.until(link, ask.kind("error"))
    assert "nobody asked for" in seen[-1].header["message"]
    link.send("capture", variant="eager", path=str(tmp_path / "deep.json.gz"), steps=3)
    seen = await ask.until(link, ask.kind("captured"))
    await link.close()
    assert seen[-1].header["path"] == str(tmp_path / "deep.json.gz")
    assert (tmp_path / "deep.json.gz").read_bytes() == b"deep"
    assert sorted(path.name for path in folder.iterdir()) == ["evil", "evil.json.gz"]


async def test_a_host_that_is_none_and_a_variable_that_is_none_are_said(quick, ask) -> None:
    for start, why in (
        (Start(host="-oProxyCommand=x"), "is no host"),
        (Start(host="box", environment={"A=B;x": "1"}), "is no name of an environment variable"),
    ):
        link = Link(start, timeouts=quick)
        seen = await ask.until(link, ask.event("stopped"))
        await link.close()
        assert why in seen[-1].header["why"]
