"""Other processes: what a check does in two of them, and what a check's own process says when it is done."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from typing import Any, NoReturn

_MOST = 4096  # bytes of what a process says


def elsewhere(work: Callable[[], Any]) -> Any:
    """What ``work`` gives in another process: anything of JSON. Raises its ``OSError``."""
    return result(*started(work))


def together(*works: Callable[[], Any]) -> list[Any]:
    """The same of several, all at once: none begins before all can."""
    reader, writer = os.pipe()

    def at_once(work: Callable[[], Any]) -> Any:
        os.close(writer)
        os.read(reader, 1)  # ends when the last process has closed the other end
        return work()

    all_started = [started(partial(at_once, work)) for work in works]
    os.close(writer)
    os.close(reader)
    return [result(*each) for each in all_started]


def started(work: Callable[[], Any]) -> tuple[int, int]:
    """A process that does it, and where it says what it gives: for ``result``."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _say(writer, _tried(work))
    os.close(writer)
    return child, reader


def result(child: int, reader: int) -> Any:
    """Waits for a process that was ``started``. Raises as ``elsewhere`` does."""
    said = _all_of(reader)
    _, status = os.waitpid(child, 0)
    if not said:
        raise ChildProcessError(f"the second process ended with status {os.waitstatus_to_exitcode(status)}")
    number, found = json.loads(said)
    if number is not None:
        raise OSError(number, os.strerror(number))
    return found


def _tried(work: Callable[[], Any]) -> tuple[int | None, Any]:
    try:
        return None, work()
    except OSError as error:
        return error.errno, None


def is_done(reader: int, within: float) -> bool:
    """Whether a process that was ``started`` has said what it gives."""
    return bool(select.select([reader], [], [], within)[0])


@contextmanager
def meanwhile(work: Callable[[], Any]) -> Iterator[None]:
    """Another process that has done ``work``, and lives until the block ends. An ``OSError`` of it is raised here."""
    reader, writer = os.pipe()
    waits, goes = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.close(goes)
        os.write(writer, json.dumps(_tried(work)).encode())
        os.close(writer)
        os.read(waits, 1)
        os._exit(0)
    os.close(writer)
    os.close(waits)
    try:
        number, _ = json.loads(_all_of(reader) or b"[5, null]")
        if number is not None:
            raise OSError(number, os.strerror(number))
        yield
    finally:
        os.write(goes, b".")
        os.close(goes)
        os.waitpid(child, 0)


def _all_of(reader: int) -> bytes:
    with os.fdopen(reader, "rb") as file:
        return file.read()


def _say(writer: int, what: object) -> NoReturn:
    os.write(writer, json.dumps(what).encode())
    os._exit(0)


def answer(work: Callable[[], list[str]], limit: float) -> list[str] | None:
    """What ``work`` gives in a process of its own: words, ``None`` if it doesn't within ``limit`` s.

    One that ended without a word is a fault of what it did, as a bus error is: ``["fail", "ended by SIGBUS"]``.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os.close(reader)
        _say(writer, work())
    os.close(writer)
    try:
        said = _within(reader, limit)
    finally:
        os.close(reader)
        status = _end(child, said is None)
    if said is None:
        return None
    if not said:
        return ["fail", f"ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"]
    return [str(word) for word in json.loads(said)]


def _within(reader: int, limit: float) -> bytes | None:
    """All that is written before the other end is closed, or one whole answer; ``None`` if there is none in time."""
    deadline, said = time.monotonic() + limit, b""
    while not said.endswith(b"]"):  # a process that the check left behind may hold the other end open
        ready, _, _ = select.select([reader], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        part = os.read(reader, _MOST)
        if not part:
            break
        said += part
    return said


def _end(child: int, hangs: bool) -> int:
    """Its exit status; a signal's number is negative. One that hangs in the kernel can't be ended, nor waited for."""
    deadline = time.monotonic() + 1
    while True:
        if hangs:
            _kill(child)
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended or (hangs and time.monotonic() > deadline):
            break
        time.sleep(0.001)
    _kill(child)  # what it left behind
    return os.waitstatus_to_exitcode(status) if ended else 0


def _kill(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


# Nodes that wait for each other in a directory which is all that they have in common.
#
# What a node has looked up it may have cached for ever, so no file can be a signal. But mkdir(2) of a name that a
# node has never asked for is decided by the server. So who waits makes one name after another, .0, .1, .2; and who
# has come makes the first one of them that is not there yet: the next attempt of who waits is EEXIST.

Steps = Generator[None, None, str | None]
"""A check that several nodes make at once: at each ``yield``, all wait until all have come this far."""

_TURNS_MOST = 6  # yields of a check
_SHORTEST, _LONGEST = 0.01, 0.1  # s between attempts: well below the second for which FUSE has attributes


class Turns:
    """One node's view: ``me`` is one of ``nodes``, whose first one acts where the others look."""

    def __init__(self, nodes: Sequence[str], me: str) -> None:
        self.me, self.others, self.first = me, [node for node in nodes if node != me], me == nodes[0]
        self._leader = nodes[0]

    def play(self, check: Callable[[bool], Steps]) -> str | None:
        """Make a check in the working directory, which is the same for all. Its remark, or what it raises."""
        steps = check(self.first)
        for number in range(_TURNS_MOST):
            try:
                next(steps)
            except StopIteration as end:
                remark: str | None = end.value
                return remark
            except BaseException:
                for rest in range(number, _TURNS_MOST):  # nobody waits for a node that has given up
                    self._arrive(rest)
                raise
            self.meet(number)
        raise AssertionError(f"a check meets more often than {_TURNS_MOST} times")

    def meet(self, number: int) -> None:
        """Wait until all nodes have come to the meeting of this number."""
        self._arrive(number)
        self._wait(number)

    def part(self) -> bool:
        """The first node waits until all others have nothing left to do here. Whether this is it."""
        if self.first:
            self._wait(_TURNS_MOST)
        else:
            self._tell(self._leader, _TURNS_MOST)
        return self.first

    def _arrive(self, number: int) -> None:
        for other in self.others:
            self._tell(other, number)

    def _tell(self, other: str, number: int) -> None:
        name = f"turn-{number}-{self.me}-{other}"
        next(attempt for attempt in count() if _make(f"{name}.{attempt}"))

    def _wait(self, number: int) -> None:
        for other in self.others:
            pause, attempts = _SHORTEST, count()
            while _make(f"turn-{number}-{other}-{self.me}.{next(attempts)}"):
                time.sleep(pause)
                pause = min(pause * 1.3, _LONGEST)


def _make(name: str) -> bool:
    try:
        os.mkdir(name)
    except FileExistsError:
        return False
    return True


NAME = "synced"
LENGTH = 64 * 1024
CONTENTS = bytes(range(256)) * (LENGTH // 256)


def hold(folder: str) -> None:
    """Prints ``ready`` once it is synced, and keeps it open until it is ended."""
    os.makedirs(folder)
    file = os.open(os.path.join(folder, NAME), os.O_RDWR | os.O_CREAT | os.O_EXCL)
    os.write(file, CONTENTS)
    os.fsync(file)
    print("ready", flush=True)
    signal.pause()
