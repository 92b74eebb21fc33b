"""The folder of an imported run, which is there once all is in it, or else isn't."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from storlab.errors import UserError
from storlab.records.files import sync_folder
from storlab.records.run_folder import RunFolder, new_run_folder
from storlab.run.temporary import remembered, remove_dead
from storlab.units import printable

_LONGEST = 63
_LOST = (errno.ENOENT, errno.EACCES, errno.ESTALE)  # of a file that was there when it was read


@contextmanager
def new_import(folder: Path) -> Iterator[RunFolder]:
    """The run's folder. Of a kill, a hidden folder beside it is left, which the next import there removes.

    One that exists and is empty is used as it is, for it may be where a file system is mounted.
    """
    try:
        existed = folder.exists()
    except OSError as error:  # a name that no file can have
        raise UserError(f"{printable(str(folder))[:_LONGEST]}… can't be a run's folder: {error.strerror}") from None
    _remove_dead_ones(folder)
    place = folder if existed else folder.with_name(f".{folder.name}.{os.urandom(2).hex()}.new")
    with new_run_folder(place, named=folder) as run, ExitStack() as held:
        if not existed:  # a folder of the user's is none that could be removed
            held.enter_context(remembered(place))
        try:
            yield run
            if not existed:
                place.rename(folder)
                sync_folder(folder.parent)
        except BaseException as error:
            _remove(place, itself=not existed)
            if isinstance(error, OSError) and error.errno == errno.ENOTEMPTY:
                raise UserError(f"{folder} was made by somebody else meanwhile: choose another folder") from None
            if isinstance(error, OSError) and error.errno in _LOST and not _is_in(place, error):
                raise UserError(f"{error.filename} can't be read: {error.strerror}; nothing was imported") from None
            if isinstance(error, OSError):
                raise UserError(f"{folder} can't be written: {error.strerror}; nothing of it is left") from None
            raise


def _is_in(place: Path, error: OSError) -> bool:
    return error.filename is None or Path(error.filename).is_relative_to(place)


def _remove_dead_ones(folder: Path) -> None:
    """Remove what imports to the same place have left that were killed. What can't be removed is in nobody's way."""
    name = re.compile(rf"\.{re.escape(folder.name)}\.[0-9a-f]{{4}}\.new", re.DOTALL)
    with contextlib.suppress(OSError):
        for path in list(folder.parent.iterdir()):
            if name.fullmatch(path.name):
                with contextlib.suppress(OSError):
                    remove_dead(path)


def _remove(folder: Path, itself: bool) -> None:
    for path in list(folder.iterdir()):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()
    if itself:
        folder.rmdir()
