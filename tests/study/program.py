"""The command ``storlab`` as a user calls it, but without a second of imports each time."""

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from typer.main import get_command

from laboratory.preloaded import Forked, can_fork
from storlab.cli import main as cli

PROGRAM = Path(sys.executable).parent / "storlab"


@dataclass(frozen=True)
class Ran:
    status: int
    output: str
    message: str


def program(
    *arguments: str, folder: Path | None = None, environment: Mapping[str, str] = os.environ, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """In a process of its own: for what goes on for long, starts others, or changes the process that it is."""
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    process: subprocess.Popen[bytes]
    if can_fork(environment):
        process = Forked(arguments, environment, folder, **streams)
    else:
        process = subprocess.Popen([PROGRAM, *arguments], cwd=folder, env=environment, **streams)
    with process:
        try:
            output, message = process.communicate(timeout=timeout)
        finally:
            process.kill()
    encoding = environment.get("PYTHONIOENCODING", "utf-8")
    said = (each.decode(encoding, "backslashreplace") for each in (output, message))
    return subprocess.CompletedProcess(arguments, process.returncode, *said)


@cache
def _command() -> Any:
    """What Typer would make again for each call."""
    return get_command(cli.app)


def call(*arguments: str) -> Ran:
    output, message = io.StringIO(), io.StringIO()
    status: object = None
    with (
        mock.patch.object(sys, "argv", ["storlab", *arguments]),
        mock.patch.object(cli, "app", _command()),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(message),
    ):
        try:
            cli.main()
        except SystemExit as ended:
            status = ended.code
    assert status is None or isinstance(status, int), status
    return Ran(status or 0, output.getvalue(), message.getvalue())
