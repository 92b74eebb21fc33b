"""Files that a user names for what a command has to say."""

from __future__ import annotations

from pathlib import Path

from storlab.errors import UserError
from storlab.records.files import write_whole


def write_output(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` as UTF-8: all of it or nothing. Raises ``UserError`` where that can't be.

    What is no regular file, such as ``/dev/stdout``, is written into as it is.
    """
    try:
        if path.exists() and not path.is_file():
            path.write_text(text, "utf-8")
        else:
            write_whole(path.resolve(), text.encode())  # where a link leads, so that it stays one
    except OSError as error:
        raise UserError(f"{path} can't be written: {error.strerror}") from None
