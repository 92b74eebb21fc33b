"""The file that ``storlab new`` writes: never in the place of another one, unless that is asked for."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from storlab.errors import UserError


def target_of(name: str) -> Path:
    """``log`` → ``log.toml``; what has an ending, or names a folder, stays as it stands."""
    path = Path(name)
    return path if path.suffix or path.name in ("", "..") or os.path.isdir(path) else path.with_suffix(".toml")  # noqa: PTH112


def refuse_existing(file: Path, force: bool) -> None:
    """Raise ``UserError`` for what can't be written, before anybody answers questions for it."""
    if os.path.isdir(file):  # noqa: PTH112 - Path.is_dir() raises where a name is too long
        raise UserError(f"{file} is a folder; name a file in it")
    if os.path.lexists(file) and not force:
        raise UserError(f"{file} already exists and was not changed: choose another name, or add --force")
    if not os.path.isdir(file.parent):  # noqa: PTH112
        raise UserError(f"there is no folder {file.parent} to write {file.name} to; create it first, or choose another")


def write_new(file: Path, text: str, force: bool) -> None:
    """Write it whole or not at all. Raises ``UserError``."""
    refuse_existing(file, force)
    try:
        descriptor, name = tempfile.mkstemp(prefix=".storlab-new-", dir=file.parent)
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}") from None
    whole = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as written:
            written.write(text)
        umask = os.umask(0)
        os.umask(umask)
        whole.chmod(0o666 & ~umask)  # mkstemp's own mode is for secrets
        if force:
            whole.replace(file)
        else:
            os.link(whole, file)  # which, unlike a rename, replaces nothing that came there meanwhile
    except FileExistsError:
        raise UserError(f"{file} already exists and was not changed: choose another name, or add --force") from None
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}") from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            whole.unlink()
