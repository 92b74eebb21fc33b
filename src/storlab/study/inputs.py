"""Reading a study's file, and the files beside it that it names."""

from __future__ import annotations

import errno
from pathlib import Path

from storlab.below import opened_below
from storlab.limits import STUDY_TEXT
from storlab.reading import read_file


def read_bounded(path: Path, refusal: type[Exception], pipes: bool = False, named: Path | None = None) -> bytes:
    """At most ``STUDY_TEXT`` bytes: never a whole disk image, should one be named by mistake.

    Raises ``refusal``, which calls the file ``named`` where ``path`` is a descriptor of it.
    """
    try:
        return read_file(path, STUDY_TEXT, pipes)
    except OSError as error:
        hint = "; is it the right file?" if error.errno == errno.EFBIG else ""
        raise refusal(f"cannot read {named or path}: {error.strerror}{hint}") from None


def read_input(folder: Path, name: str) -> str:
    """The text of a file that a study in ``folder`` names: one below that folder, not behind a link.

    What it holds is recorded with the run, and shared with it. Raises ``ValueError``.
    """
    try:
        with opened_below(folder, name) as found:
            return read_bounded(found, ValueError, named=folder / name).decode()
    except OSError as error:
        raise ValueError(f"cannot read {folder / name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"cannot read {folder / name}: it is not text") from None
