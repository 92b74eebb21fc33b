"""What a file had when it was imported, which is what is kept of it, although the file may change meanwhile."""

from __future__ import annotations

import codecs
import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from storlab.errors import UserError
from storlab.limits import IMPORTED
from storlab.reading import open_file, read_file
from storlab.records.files import copy_durably, write_durably


def without_bom(text: bytes) -> bytes:
    return text.removeprefix(codecs.BOM_UTF8)


_Seen = tuple[int, int, int, int]


def _look(path: Path) -> _Seen:
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


@dataclass(frozen=True)
class Text:
    """One file. ``known``: the SHA-256 of what was read; ``None`` where it is read piece by piece, being long.

    ``held``: all of what was read, where it can be read only once, as from a pipe. ``seen``: which file one that is
    read piece by piece was, and how large and when changed, before that.
    """

    path: Path
    known: bytes | None = None
    held: bytes | None = None
    seen: _Seen | None = None

    @classmethod
    def of_read(cls, path: Path, text: bytes) -> Text:
        """A file that was read at once as ``text``, without a byte order mark."""
        return cls(path, hashlib.sha256(text).digest(), None if path.is_file() else text)

    @classmethod
    def of_stream(cls, path: Path) -> Text:
        """A file that is read piece by piece, from now on. Raises ``OSError``."""
        return cls(path, seen=_look(path))

    @cached_property
    def digest(self) -> bytes:
        """The SHA-256 of its contents. Raises ``OSError``."""
        if self.known is not None:
            return self.known
        with open_file(self.path) as file:
            return hashlib.file_digest(file, "sha256").digest()

    def keep(self, place: Path) -> None:
        """Write it to ``place``, durably. Raises ``OSError``, or ``UserError`` where it is not any more what it was."""
        if self.known is None:
            copy_durably(self.path, place)
            if _look(self.path) != self.seen:
                raise UserError(self._changed)
            return
        try:
            text = self.held if self.held is not None else without_bom(read_file(self.path, IMPORTED))
        except OSError as error:
            raise UserError(f"cannot read {self.path}: {error.strerror}; nothing was imported") from None
        if hashlib.sha256(text).digest() != self.known:
            raise UserError(self._changed)
        write_durably(place, text)

    @property
    def _changed(self) -> str:
        return f"{self.path} changed while it was imported; nothing was imported"
