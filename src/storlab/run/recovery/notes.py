"""Notes of what a run has announced: beside its journal, where nobody but its user can write.

A journal lies in the run's folder, which may be somebody else's work. What it names is known by the run's id in its
name; a value that is to be restored has no name. So of that there is a note for as long as it isn't undone, in a folder
that is root's alone, or the user's: without it, nothing is restored by what a journal says. It ends with the boot, as
what is restored does.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from storlab.errors import RecordsError
from storlab.nodes.identity import NodeIdentity
from storlab.run.recovery.state import make_state

_OF_ROOT = Path("/run/storlab")
_FOLDER = "announced"


def note(run: str, node: NodeIdentity, undo: str, arguments: Mapping[str, Any]) -> None:
    """Note that this is about to be set up. Without a place for it, only this process can undo it."""
    with contextlib.suppress(OSError, RecordsError):
        (_folder() / _name(run, node, undo, arguments)).touch(0o600)


def is_noted(run: str, node: NodeIdentity, undo: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a run of this user's has noted it."""
    try:
        found = (_folder() / _name(run, node, undo, arguments)).lstat()
    except (OSError, RecordsError):
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()


def forget_note(run: str, node: NodeIdentity, undo: str, arguments: Mapping[str, Any]) -> None:
    """It is undone."""
    with contextlib.suppress(OSError, RecordsError):
        (_folder() / _name(run, node, undo, arguments)).unlink(missing_ok=True)


def _folder() -> Path:
    """Raises ``OSError`` or ``RecordsError`` where there is none that is this user's alone."""
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
