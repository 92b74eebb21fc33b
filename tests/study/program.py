"""The command ``storlab``, called in this process: as a user calls it, but without a second of imports each time."""

from __future__ import annotations

import contextlib
import io
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from storlab.cli.main import main

PROGRAM = Path(sys.executable).parent / "storlab"


@dataclass(frozen=True)
class Ran:
    status: int
    output: str
    message: str


def call(*arguments: str) -> Ran:
    output, message = io.StringIO(), io.StringIO()
    status: object = None
    with (
        mock.patch.object(sys, "argv", ["storlab", *arguments]),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(message),
    ):
        try:
            main()
        except SystemExit as ended:
            status = ended.code
    assert status is None or isinstance(status, int), status
    return Ran(status or 0, output.getvalue(), message.getvalue())
