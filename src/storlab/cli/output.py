"""The way to standard output and standard error: what passes here is text, and no order to a terminal.

Nothing else prints (``ruff`` sees to it), except what draws (``storlab.cli.console``). What the locale can't write is
replaced, but for what programs read: that is UTF-8 in any locale, as files are.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from storlab.base.errors import UserError
from storlab.base.text import plain, spelled

# The standard streams as every command has them: they take all text, and a failure to write names the stream.
#
# What the locale's encoding can't write is replaced by what looks or reads most like it, ``×`` by ``x``, ``≥`` by
# ``>=``: the figures of a run are worth more than their typography. Loaded before all else, so only with what Python
# has loaded.

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


_FOR_PEOPLE = ("text", "full text", "zts")
"""The formats that are read where they are printed."""


def show(text: str = "") -> None:
    print(plain(text))


def show_part(text: str) -> None:
    """Print a piece of a result, whose lines need not be whole."""
    print(plain(text), end="", flush=True)


def show_bytes(data: bytes) -> None:
    """Print what another machine printed, for a program to read."""
    _write_bytes(data)


def show_json(text: str) -> None:
    """Print what programs read. It is changed in nothing, for in JSON each sign can be spelled."""
    _write_bytes(f"{spelled(text)}\n".encode())


def show_rendered(text: str, format_: str) -> None:
    if format_ in _FOR_PEOPLE:
        show(text.removesuffix("\n"))
    elif format_ == "json":
        show_json(text.removesuffix("\n"))
    else:
        _write_bytes(text.encode())


def write_output(path: Path, rendered: str | bytes, option: str = "") -> None:
    """Write ``rendered`` to ``path``, text as UTF-8: all of it or nothing. Raises ``UserError`` if that can't be.

    What is no regular file, such as ``/dev/stdout``, is written into as it is.
    """
    from storlab.records.files import write_whole

    data = rendered.encode() if isinstance(rendered, str) else rendered
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
        else:
            write_whole(path.resolve(), data)  # where a link leads, so that it stays one
    except OSError as error:
        raise UserError(f"cannot write {option}{path}: {error.strerror}") from None


@contextmanager
def until_closed() -> Iterator[None]:
    """Around what shows something: where nobody reads on, the rest is dropped, and the exit status stays as it was."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        if error.errno not in (errno.EIO, errno.EPIPE):  # EIO: the terminal is gone
            raise
        discard(1)


def warn(text: str) -> None:
    """Print on standard error what isn't the result. Raises ``OSError`` where nobody listens any more."""
    print(plain(text), file=sys.stderr, flush=True)


def is_drawable(stream: TextIO) -> bool:
    """Whether it is a terminal on which what was drawn can be drawn over."""
    return stream.isatty() and os.environ.get("TERM", "dumb").lower() not in ("dumb", "unknown", "")


def _write_bytes(data: bytes) -> None:
    sys.stdout.flush()
    if (binary := getattr(sys.stdout, "buffer", None)) is None:  # a stream of text in its place
        sys.stdout.write(data.decode())
    else:
        binary.write(data)


_FIRST, _EACH = 2.0, 5.0
"""Seconds of this process's own work after which a line comes: what waits for other programs says so itself."""
_LOOK = 0.5  # s


@contextmanager
def waiting(doing: str) -> Iterator[None]:
    """On standard error, say what is being done, and for how long already: nothing if it is done soon."""
    import threading

    done = threading.Event()

    def tell() -> None:
        began, due = time.monotonic(), time.process_time() + _FIRST
        while not done.wait(_LOOK):
            if time.process_time() >= due:
                due += _EACH
                with suppress(OSError):  # nobody listens any more
                    warn(f"{doing}: {time.monotonic() - began:.0f} s so far")

    teller = threading.Thread(target=tell, daemon=True)
    with suppress(RuntimeError):  # no room for a thread: that is no reason to stop
        teller.start()
    try:
        yield
    finally:
        done.set()
        if teller.ident is not None:
            teller.join()


def confirmed(question: str) -> bool | None:
    """Ask the user, who may sit at another machine: yes or no; ``None`` if nobody is there to answer."""
    from storlab.cli.run_events import Question, drawn_elsewhere, write_event

    if drawn_elsewhere():
        sys.stdout.flush()
        write_event(Question(question))
        return {"yes": True, "no": False}.get(sys.stdin.readline().strip())
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    import typer

    return typer.confirm(question)


def one_thread_for_algebra() -> None:
    """Before NumPy is loaded: its OpenBLAS would start a thread a core, which spin for a tenth of a second for nothing.

    For commands that only read and compute: our matrices are small. Not for those that start others, which inherit it.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
