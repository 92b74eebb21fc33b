"""The folder of an imported run, which is there once all is in it, or else isn't."""

from __future__ import annotations

import contextlib
import errno
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from storlab.errors import UserError
from storlab.records.files import sync_folder
from storlab.records.held import make_private, new_run_folder
from storlab.records.manifest import NAME as MANIFEST
from storlab.records.run_folder import RunFolder
from storlab.run.recovery.temporary import new_mark, remembered, remove_dead
from storlab.text import printable

_LONGEST = 63
_LOST = (errno.ENOENT, errno.EACCES, errno.ESTALE)  # of a file that was there when it was read


@contextmanager
def new_import(folder: Path) -> Iterator[RunFolder]:
    """The run's folder. Of a kill, a hidden folder is left, which the next import there removes: beside ``folder`` or,
    where that exists and is empty, in it, for it may be where a file system is mounted.
    """
    try:
        existed = folder.exists()
    except OSError as error:  # a name that no file can have
        raise UserError(f"{printable(str(folder))[:_LONGEST]}… can't be a run's folder: {error.strerror}") from None
    _remove_dead_ones(folder)
    if folder.is_dir():
        try:
            make_private(folder)
        except OSError as error:
            raise UserError(f"{folder} can't be used for the run: {error.strerror}") from None
    mark = new_mark()
    place = (folder if existed else folder.parent) / f".{folder.name}.{mark}.new"
    with new_run_folder(place, named=folder, mark=mark) as holding, remembered(place, mark):
        try:
            yield holding.named
            _take(place, folder, existed)
        except BaseException as error:
            shutil.rmtree(place, ignore_errors=True)
            if isinstance(error, OSError) and error.errno == errno.ENOTEMPTY:
                raise UserError(f"{folder} was made by somebody else meanwhile: choose another folder") from None
            if isinstance(error, OSError) and error.errno in _LOST and not _is_in(place, error):
                raise UserError(f"cannot read {error.filename}: {error.strerror}; nothing was imported") from None
            if isinstance(error, OSError):
                raise UserError(f"cannot write {folder}: {error.strerror}; nothing of it is left") from None
            raise


def _take(place: Path, folder: Path, existed: bool) -> None:
    """Move all in ``place`` to ``folder``: at once or, where that exists, the manifest last, which makes it a run."""
    if not existed:
        place.rename(folder)
        sync_folder(folder.parent)
        return
    taken: list[Path] = []
    try:
        for path in sorted(place.iterdir(), key=lambda path: (path.name == MANIFEST, not path.is_dir())):
            taken.append(path.rename(folder / path.name))
    except BaseException:
        for path in reversed(taken):
            path.rename(place / path.name)
        raise
    place.rmdir()
    sync_folder(folder)


def _is_in(place: Path, error: OSError) -> bool:
    return error.filename is None or Path(error.filename).is_relative_to(place)


def _remove_dead_ones(folder: Path) -> None:
    """Remove what imports to the same place have left that were killed. What can't be removed is in nobody's way."""
    name = re.compile(rf"\.{re.escape(folder.name)}\.([0-9a-f]{{16}})\.new", re.DOTALL)
    for around in (folder.parent, folder):
        with contextlib.suppress(OSError):
            for path in list(around.iterdir()):
                if (found := name.fullmatch(path.name)) is not None:
                    with contextlib.suppress(OSError):
                        remove_dead(path, found[1])
