"""This user's own state, ``$XDG_STATE_HOME/storlab``, where nobody else can write; and notes of what runs announce.

What lies in it is acted on, by root too: folders that it names are removed. So it is nobody's who merely chose the
environment. ``sudo -E`` keeps the ``HOME`` of another user, which is then passed over for that of the user database.

A journal lies in the run's folder, which may be somebody else's work. What it names is known by the run's id in its
name; a value that is to be restored has no name. So of that there is a note for as long as it isn't undone, in a folder
that is root's alone, or the user's: without it, nothing is restored by what a journal says. It ends with the boot, as
what is restored does.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from storlab.base.errors import RecordsError
from storlab.nodes.identity import NodeIdentity

_OF_ROOT = Path("/run/storlab")
_FOLDER = "announced"
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


def note(run: str, node: NodeIdentity, undo: str, arguments: Mapping[str, Any]) -> None:
    """Note that this is about to be set up. Without a place for it, only this process can undo it."""
    with contextlib.suppress(OSError, RecordsError):
        (_folder() / _name(run, node, undo, arguments)).touch(0o600)


def is_noted(run: str, node: NodeIdentity, undo: str, arguments: Mapping[str, Any]) -> bool:
    try:
        found = (_folder() / _name(run, node, undo, arguments)).lstat()
    except (OSError, RecordsError):
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()


def forget_note(run: str, node: NodeIdentity, undo: str, arguments: Mapping[str, Any]) -> None:
    with contextlib.suppress(OSError, RecordsError):
        (_folder() / _name(run, node, undo, arguments)).unlink(missing_ok=True)


def _folder() -> Path:
    """Raises ``OSError`` or ``RecordsError`` if there is none that is this user's alone."""
    if os.geteuid() != 0:
        return make_state(_FOLDER)
    with contextlib.suppress(FileExistsError):
        _OF_ROOT.mkdir(0o755)
    folder = _OF_ROOT / _FOLDER
    with contextlib.suppress(FileExistsError):
        folder.mkdir(0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != 0 or found.st_mode & 0o077:
        raise PermissionError(f"{folder} is not root's alone")
    return folder


def _name(run: str, node: NodeIdentity, undo: str, arguments: Mapping[str, Any]) -> str:
    said = orjson.dumps([run, node, undo, dict(arguments)], option=orjson.OPT_SORT_KEYS)
    return f"{run}.{hashlib.sha256(said).hexdigest()}"
