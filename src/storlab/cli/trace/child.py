"""The processes of a trace: the tracer, a program of the agent's, and the command that is traced, in its own cgroup."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from storlab.base.errors import MissingTool, NodeError, UserError
from storlab.cli.output import warn
from storlab.run.observer import ending_signals

L = TypeVar("L")
S = TypeVar("S")

_NOT_FOUND, _NOT_EXECUTABLE = 127, 126  # as shells have it
_KILLED = 128  # and the signal's number, as shells have it
_CHUNK = 1 << 20
_PREFIX = "storlab-agent: "
_LAST_WORD = 10.0  # s, for a tracer that was told to end
_NO_DISK_OR_OPTION = 2  # its exit status for what the user asked for wrongly


class Interruptible:
    """What a signal ends: the command if there is one, else the tracing."""

    def __init__(self) -> None:
        self.tracer: TraceChild[Any] | None = None
        self.signal: signal.Signals | None = None  # the last
        self.began = False
        self._command: asyncio.subprocess.Process | None = None

    async def command(self, argv: tuple[str, ...], group: OwnGroup | None = None, *, aside: bool = False) -> int:
        """Run it with our own standard input and output; returns its status as a shell would.

        ``aside``: what it prints goes to standard error, as standard output is for a document.
        """
        if self.signal is not None:
            return _KILLED + self.signal
        try:
            self._command = await asyncio.create_subprocess_exec(
                *argv, stdout=sys.stderr if aside else None, preexec_fn=group.join if group else None
            )
        except OSError as error:
            warn(f"storlab: cannot execute {argv[0]}: {error.strerror}")
            return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
        self.began = True
        status = await self._command.wait()
        self._command = None
        return status if status >= 0 else _KILLED - status

    def signalled(self, number: signal.Signals) -> None:
        """A signal for us. What the terminal sends at Ctrl-C the command has got too, and ends as it likes.

        A second Ctrl-C does not wait for what the tracer has still to say, such as the names of many functions.
        """
        first, self.signal = self.signal is None, number
        if self._command is not None:
            if number != signal.SIGINT or not first or not _in_foreground():
                send(self._command, number)
        elif self.tracer is not None:
            self.tracer.end(at_once=number == signal.SIGINT and not first)


def _in_foreground() -> bool:
    """Whether the terminal's Ctrl-C reaches this process and its children at once."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


@contextmanager
def signals(handler: Callable[[signal.Signals], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    handled = ending_signals()
    for number in handled:
        loop.add_signal_handler(number, handler, number)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


class TraceChild(Generic[L]):
    """A running tracer, made by ``tracing``, whose lines are ``decode``'s. It never outlives its parent.

    It ends by itself when that dies (``PR_SET_PDEATHSIG``) or when nobody reads what it prints. It has a process group
    of its own, so that Ctrl-C reaches it only through this program, after the command that is traced has ended.
    """

    def __init__(self, process: asyncio.subprocess.Process, decode: Callable[[bytes, str], list[L]]) -> None:
        self._process, self._decode = process, decode
        self._rest = b""
        self._read: list[L] = []

    async def started(self, kind: type[S]) -> S:
        """Its first line: it is attached. Raises ``UserError`` or ``MissingTool`` with its reason where it can't be."""
        lines = await self.lines()
        if not lines:
            raise await self._refusal()
        first, *self._read = lines
        if not isinstance(first, kind):
            raise NodeError("the tracer did not say that it has started")
        return first

    async def lines(self) -> list[L]:
        """The next lines, as many as there are; none once it has ended. Raises ``ParseError``."""
        if self._read:
            lines, self._read = self._read, []
            return lines
        assert self._process.stdout is not None
        while chunk := await self._process.stdout.read(_CHUNK):
            whole, newline, rest = chunk.rpartition(b"\n")
            if newline:
                text, self._rest = self._rest + whole, rest
                return self._decode(text, "the tracer")
            self._rest += chunk
        return []

    def end(self, at_once: bool = False) -> None:
        """Ask it for its last counts; ``lines`` then gives them, unless it is to end at once."""
        send(self._process, signal.SIGKILL if at_once else signal.SIGTERM)

    async def close(self) -> None:
        self.end()
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(_LAST_WORD):
                while await self._process.stdout.read(_CHUNK):
                    pass
                await self._process.wait()
        except TimeoutError:
            send(self._process, signal.SIGKILL)
            await self._process.wait()

    async def _refusal(self) -> Exception:
        assert self._process.stderr is not None
        said = (await self._process.stderr.read()).decode(errors="replace")
        status = await self._process.wait()
        sentence = next((line for line in said.splitlines() if line), "").removeprefix(_PREFIX)
        if not sentence:
            return NodeError(f"the tracer ended with status {status} and said nothing")
        if status == _NO_DISK_OR_OPTION:
            return UserError(sentence)
        remedy = (
            "`storlab doctor` says what this machine lacks" if os.geteuid() == 0 else "run it as root, or with sudo"
        )
        return MissingTool(f"{sentence}; {remedy}")


@asynccontextmanager
async def tracing(words: Sequence[str], decode: Callable[[bytes, str], list[L]]) -> AsyncIterator[TraceChild[L]]:
    nothing, pipe = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *words, stdin=nothing, stdout=pipe, stderr=pipe, limit=_CHUNK, process_group=0
    )
    child = TraceChild(process, decode)
    try:
        yield child
    finally:
        await child.close()


def send(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Signal a child that asyncio waits for.

    ``Process.send_signal`` first looks whether it still runs: of one that has just ended, it takes the status away from
    asyncio, which then says 255.
    """
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


_GROUP = "storlab-trace-"


@dataclass(frozen=True)
class OwnGroup:
    """``identity``: as the kernel has it in ``bpf_get_current_cgroup_id()``."""

    folder: Path
    identity: int

    def join(self) -> None:
        """For a process that was just forked: it, and all that it starts, are in the group."""
        (self.folder / "cgroup.procs").write_text("0")


@contextmanager
def own_group() -> Iterator[OwnGroup | None]:
    """A cgroup for the command that is traced, by which the kernel tells what it and its children issue.

    It is made below the one that this process is in, so whatever limits that has hold for the command as well; and it
    is gone when the command is. A child that stays behind goes back to where this process is. Nothing if this machine
    has no cgroup v2 in which this process may make one.
    """
    parent = _group_of_this_process()
    folder = parent / f"{_groups_here()}{os.getpid()}" if parent else None
    if parent is None or folder is None or not _made(parent, folder):
        yield None
        return
    try:
        yield OwnGroup(folder, folder.stat().st_ino)
    finally:
        _remove(folder, parent)


def _groups_here() -> str:
    """What names of groups begin with here: a process's number is one within its namespace only."""
    return f"{_GROUP}{Path('/proc/self/ns/pid').stat().st_ino}-"


def _made(parent: Path, folder: Path) -> bool:
    with suppress(OSError):
        ours = _groups_here()
        for left in parent.glob(f"{ours}*"):
            if Path("/proc", left.name.removeprefix(ours)).exists():
                continue  # of a trace that may be about to use it
            with suppress(OSError):
                left.rmdir()  # of a trace that was killed
        folder.mkdir()
        return True
    return False


def _remove(folder: Path, parent: Path) -> None:
    with suppress(OSError):
        for process in (folder / "cgroup.procs").read_text().split():
            with suppress(OSError):
                (parent / "cgroup.procs").write_text(process)
        folder.rmdir()


def _group_of_this_process() -> Path | None:
    """Its folder in cgroup v2, which may be mounted beside v1."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text("utf-8").splitlines()
        own = Path("/proc/self/cgroup").read_text("utf-8").splitlines()
    except OSError:
        return None
    at = next((line.split()[4] for line in mounts if " - cgroup2 " in line), None)
    group = next((line.removeprefix("0::") for line in own if line.startswith("0::")), None)
    return Path(at) / group.lstrip("/") if at and group else None
