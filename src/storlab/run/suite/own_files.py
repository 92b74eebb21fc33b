"""Files of this machine that say what a suite is; what is wrong with them is known before any guest is started."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from storlab.errors import UserError
from storlab.reading import read_file
from storlab.suite.runfile import Runfile, RunfileError, check_runfiles

MOST_RUNFILE = 4 * 1024**2  # bytes


def own_runfile(name: str) -> Runfile | None:
    """A runfile of this machine; ``None`` where there is no such file. Raises ``UserError`` where it can't be read."""
    path = Path(name)
    if not path.is_file():
        return None
    try:
        data = read_file(path, MOST_RUNFILE)
    except OSError as error:
        raise UserError(f"cannot read {name}: {error.strerror}") from None
    try:
        return Runfile(name, data.decode(), own=True)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise RunfileError(name, line, "this is no UTF-8, so it is no runfile") from None


def check_own_files(names: Sequence[str]) -> None:
    """Raise ``UserError`` for what is wrong with these, as far as they are files of this machine."""
    check_runfiles([own for name in names if (own := own_runfile(name)) is not None])
