"""This user's own state: ``$XDG_STATE_HOME/storlab``, whose folders nobody else can write to.

What lies in it is acted on, by root too: folders that it names are removed. So it is nobody's who merely chose the
environment. ``sudo -E`` keeps the ``HOME`` of another user, which is then passed over for that of the user database.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
from pathlib import Path

from storlab.errors import RecordsError

_PRIVATE = 0o700
_OTHERS_WRITE = 0o022


def state_folder() -> Path:
    """What should outlast a restart and is this user's own: ``$XDG_STATE_HOME/storlab``."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else _home() / ".local" / "state") / "storlab"


def read_state(name: str) -> list[Path]:
    """What lies in a folder of the state, if it is this user's own; nothing, if there is no such folder.

    Raises ``RecordsError`` if others may have written into it.
    """
    folder = state_folder() / name
    try:
        for each in (folder.parent, folder):
            _refuse_foreign(each)
        return sorted(path for path in folder.iterdir() if path.lstat().st_uid == os.geteuid())
    except OSError:
        return []


def foreign_state() -> list[str]:
    """What is passed over because others may have written it, a sentence each."""
    said = []
    for name in ("runs", "scratch", "temporary"):
        try:
            read_state(name)
        except RecordsError as error:
            said.append(str(error))
    return list(dict.fromkeys(said))


def make_state(name: str) -> Path:
    """A folder of the state, for writing into it. Raises ``OSError``, and ``RecordsError`` if it isn't the user's."""
    folder = state_folder() / name
    folder.parent.parent.mkdir(parents=True, exist_ok=True)
    for each in (folder.parent, folder):
        with contextlib.suppress(FileExistsError):
            each.mkdir(_PRIVATE)
        _refuse_foreign(each)
        if each.stat().st_mode & 0o077:
            each.chmod(_PRIVATE)
    return folder


def _home() -> Path:
    home = Path.home()
    with contextlib.suppress(OSError, KeyError):
        if home.stat().st_uid != os.geteuid():
            return Path(pwd.getpwuid(os.geteuid()).pw_dir)
    return home


def _refuse_foreign(folder: Path) -> None:
    found = folder.lstat()
    remedy = "Storlab remembers nothing there: name another folder by XDG_STATE_HOME"
    if not stat.S_ISDIR(found.st_mode):
        raise RecordsError(f"{folder} is not a folder. {remedy}")
    if found.st_uid != os.geteuid():
        raise RecordsError(f"{folder} belongs to another user (uid {found.st_uid}). {remedy}")
    if found.st_mode & _OTHERS_WRITE:
        raise RecordsError(f"{folder}: others can write to it (mode {found.st_mode & 0o7777:04o}). {remedy}, or, if "
                           "nobody has changed anything in it, `chmod go-w` it")  # fmt: skip
