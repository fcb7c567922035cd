"""How a worker is started: the command, here or through ssh, and the sources sent to it."""

from __future__ import annotations

import json
import re
import shlex
import zlib
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ..errors import WorkerError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from importlib.resources.abc import Traversable

PACKAGE = "kinetop.traces.live.worker"
BOOTSTRAP = (
    "import os,sys;o=os.dup(1);os.dup2(2,1);i=os.fdopen(os.dup(0),{q}rb{q});os.dup2(os.open(os.devnull,0),0);"
    "import json,zlib;s=json.loads(zlib.decompress(i.read(int(i.readline()))));n={{{q}__name__{q}:{q}kinetop_loader{q}}};"
    "exec(compile(s[{q}loader{q}],{q}kinetop/loader.py{q},{q}exec{q}),n);n[{q}start{q}](s,i,o)"
).format(q='"')
"""Runs in the worker; no apostrophe, backslash, `!` or newline, so that any remote shell takes it between apostrophes.

Descriptor 1 is led to 2 and 0 to nothing before anything is imported: no print or input() of other code touches the stream.
"""
_SSH = (
    *("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15"),
    *("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3", "-o", "ClearAllForwardings=yes"),
)
_HOST = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.+-]*@)?(?:[A-Za-z0-9_][A-Za-z0-9_.-]*|[0-9A-Fa-f]*:[0-9A-Fa-f:.]+)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def blob() -> bytes:
    """Return all that is sent before the first command: a line with the length, then the compressed sources."""
    modules = dict(_modules(files(PACKAGE), PACKAGE))
    sent: dict[str, Any] = {"package": PACKAGE, "loader": modules[f"{PACKAGE}.loader"][1], "modules": modules}
    packed = zlib.compress(json.dumps(sent).encode(), 6)
    return b"%d\n" % len(packed) + packed


def _modules(folder: Traversable, package: str) -> Iterator[tuple[str, tuple[bool, str]]]:
    for entry in folder.iterdir():
        if entry.name == "__init__.py":
            yield package, (True, entry.read_text("utf-8"))
        elif entry.name.endswith(".py"):
            yield f"{package}.{entry.name.removesuffix('.py')}", (False, entry.read_text("utf-8"))
        elif entry.is_dir() and entry.joinpath("__init__.py").is_file():
            yield from _modules(entry, f"{package}.{entry.name}")


def command(python: str | None, host: str | None = None, environment: Mapping[str, str] | None = None) -> list[str]:
    """Return the command that starts a worker, to be run without a shell.

    Args:
        python: the interpreter; None only with a host: `python3`, as its login shell finds it.
        host: `user@box`, an alias of the ssh configuration, or None for this machine.
        environment: variables set on the host; on this machine the caller sets them.

    Raises:
        WorkerError: the host is no name of a host, or a variable has no name that can be.

    >>> command("/venv/bin/python")[:3]
    ['/venv/bin/python', '-u', '-c']
    """
    variables = dict(environment or {})
    if bad := [name for name in variables if not _NAME.fullmatch(name)]:
        raise WorkerError(f"{bad[0]!r} is no name of an environment variable")
    if host is None:
        return [python or "python3", "-u", "-c", BOOTSTRAP]
    return [*_SSH, "--", checked_host(host), _remote(python or "python3", variables)]


def checked_host(host: str) -> str:
    """Return the host when it can be nothing but a host: no option of ssh, nothing that a ProxyCommand's shell would run.

    Raises:
        WorkerError: it can.

    >>> checked_host("me@gpu-01.lab")
    'me@gpu-01.lab'
    """
    if not _HOST.fullmatch(host):
        raise WorkerError(f"{host!r} is no host: give user@box, or an alias of your ssh configuration")
    return host


def _remote(python: str, variables: Mapping[str, str]) -> str:
    """Return the words as one line for the remote user's shell; a leading ~/ stays open to it."""
    program = "~/" + shlex.quote(python[2:]) if python.startswith("~/") else shlex.quote(python)
    setting = [shlex.quote(f"{name}={value}") for name, value in variables.items()]
    return " ".join(["exec", "env", *setting, program, "-u", "-c", shlex.quote(BOOTSTRAP)])
