"""Files that are none: whoever opens or reads one of them may wait or read for ever, or start a machine's watchdog."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

HUGE = 1 << 42


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as made, contextlib.chdir(path.parent):
        made.bind(path.name)  # relative: a long path is none for a socket


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(HUGE)


KINDS: dict[str, Callable[[Path], object]] = {
    "fifo": _fifo,
    "socket": _socket,
    "directory": lambda path: path.mkdir(),
    "zero": lambda path: path.symlink_to("/dev/zero"),
    "terminal": lambda path: path.symlink_to("/dev/ptmx"),
    "kernel log": lambda path: path.symlink_to("/proc/kmsg"),
    "loop": lambda path: path.symlink_to(path.name),
    "huge": _huge,
}


def lay(kind: str, path: Path) -> None:
    """Put such a file in the place of another."""
    remove(path)
    KINDS[kind](path)


class Hang(BaseException):
    """It took so long that it would for ever."""


@contextmanager
def bounded(seconds: int = 20, memory: int = 4 << 30) -> Iterator[Callable[[], object]]:
    """Within, whatever hangs ends with ``Hang``, and whatever reads without end with ``MemoryError``.

    Yields what gives it all of ``seconds`` again, for the next of many things to try.
    """

    def end(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, end)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + memory, limits[1]))
    signal.alarm(seconds)
    try:
        yield lambda: signal.alarm(seconds)
    finally:
        signal.alarm(0)
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.signal(signal.SIGALRM, before)
