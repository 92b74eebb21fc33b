"""The standard streams as every command has them: they take all text, and a failure to write names the stream.

What the locale's encoding can't write is replaced by what looks or reads most like it, ``×`` by ``x``, ``≥`` by ``>=``:
the figures of a run are worth more than their typography. Loaded before all else, so only with what Python has loaded.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from typing import TextIO

NAMES = {1: "standard output", 2: "standard error"}
"""By descriptor; it is the ``filename`` of the ``OSError`` where one can't be written to."""
_READABLE = {
    "×": "x", "µ": "u", "μ": "u", "–": "-", "—": "-", "−": "-", "→": ">", "⇢": ">", "▸": ">", "…": "...", "·": ".",
    "•": "*", "●": "*", "✓": "+", "✗": "x", "▲": "^", "▼": "v", "█": "#", "▒": "=", "░": ".", "±": "+-", "÷": "/",
    "≤": "<=", "≥": ">=", "≠": "!=", "≈": "~", "∞": "inf", "√": "sqrt ", "²": "^2", "³": "^3", "½": " 1/2", "‘": "'",
    "’": "'", "“": '"', "”": '"', "\u00a0": " ", "\u202f": " ",
}  # fmt: skip
_ERRORS = "storlab.readable"


class _Stream(io.FileIO):
    """A descriptor that stays open, and whose errors say which it is; that a reader has gone is ``BrokenPipeError``."""

    def write(self, data: object) -> int | None:  # type: ignore[override]
        try:
            return super().write(data)  # type: ignore[arg-type]
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OSError(error.errno, error.strerror, NAMES[self.fileno()]) from None


def open_streams() -> None:
    """Make the standard streams what this module says, also those that the caller has closed.

    No file that is opened later gets their numbers. Input and messages then lead nowhere; to write a result is refused.
    """
    codecs.register_error(_ERRORS, _readable)
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDWR), encoding="utf-8")
    sys.stdout = _opened(1, sys.stdout, os.O_RDONLY)
    sys.stderr = _opened(2, sys.stderr, os.O_RDWR)


def _opened(number: int, now: TextIO | None, closed: int) -> io.TextIOWrapper:
    """``closed``: how the descriptor is opened where it is not; what is open for reading alone can't be written to."""
    if now is None and (lowest := os.open(os.devnull, closed)) != number:
        os.dup2(lowest, number)
        os.close(lowest)
    raw = _Stream(number, "w", closefd=False)
    encoding = "utf-8" if now is None else now.encoding
    immediate = number == 2 or raw.isatty()
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, _ERRORS, line_buffering=immediate)


def discard(number: int) -> None:
    """Let what is still to be written to a stream lead nowhere: Python would complain once more while it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), number)


def _readable(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return "".join(map(readable, error.object[error.start : error.end])), error.end


def readable(sign: str) -> str:
    """A sign in ASCII: by its look, its letter without accents, or its name in Greek; ``?`` where it has none."""
    if (same := _READABLE.get(sign)) is not None:
        return same
    if "\u2500" <= sign <= "\u257f":  # lines of boxes, tables and bars
        return "-" if sign in "─━╌╍╴╶╸╺═" else "|" if sign in "│┃║" else "+"
    import unicodedata

    if (name := unicodedata.name(sign, "")).startswith("GREEK "):
        return name.rpartition(" ")[2].lower()
    return unicodedata.normalize("NFKD", sign).encode("ascii", "ignore").decode() or "?"
