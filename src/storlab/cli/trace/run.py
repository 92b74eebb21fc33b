"""Tracing from its start to what is shown at its end, with or without a command that is traced."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from storlab.agent_binary import agent_path
from storlab.blockio.text import of_partition, without_requests
from storlab.cli.output import is_drawable, warn
from storlab.cli.status import OWN_FAULT
from storlab.cli.trace.options import TraceOptions
from storlab.cli.trace.own import OwnGroup, own_group
from storlab.errors import MissingTool, NodeError, UserError
from storlab.run.interrupts import ending_signals

if TYPE_CHECKING:
    from storlab.blockio.trace_output import Line
    from storlab.cli.trace.screen import Screen


_NOT_FOUND, _NOT_EXECUTABLE = 127, 126  # as shells have it
_KILLED = 128  # and the signal's number, as shells have it
_LIVE_INTERVAL = 1.0  # s


def run(options: TraceOptions) -> int:
    """Trace until Ctrl-C, for the time that was asked for, or while the command runs; returns the exit status."""
    for sentence in notes_on(options.disks):
        warn(f"storlab: {sentence}")
    return asyncio.run(_trace(options, agent_path()))


async def _trace(options: TraceOptions, agent: Path) -> int:
    # A terminal on which what was printed can be replaced, as Rich has it.
    drawable = is_drawable(sys.stdout)
    live = not (options.command or options.events or options.json) and drawable
    interval = options.interval or (_LIVE_INTERVAL if live else None)
    work = Interruptible()
    with signals(work.signalled), own_group() if options.command else nullcontext() as group:
        words = [*options.arguments(interval), *(["--cgroup", str(group.identity)] if group else [])]
        async with tracing([str(agent), "trace", *words], _decoded) as tracer:
            # Imported while the tracer attaches: Polars takes longer than that does.
            from storlab.blockio.trace_output import Started
            from storlab.cli.trace.screen import LiveScreen, Screen

            work.tracer = tracer
            started = await tracer.started(Started)
            with (LiveScreen if live else Screen)(options, started, told_apart=group is not None) as screen:
                following = asyncio.create_task(_follow(tracer, screen, for_its_own_sake=not options.command))
                aside = options.json
                status = await work.command(options.command, group, aside=aside) if options.command else 0
                if options.command or work.signal is not None:
                    tracer.end()
                await following
            if work.began or not options.command:
                screen.finish()
            if not options.command and not screen.complete:
                return OWN_FAULT
    return status


def _decoded(chunk: bytes, source: str) -> list[Line]:
    from storlab.blockio.trace_output import decode_lines

    return decode_lines(chunk, source)


async def _follow(tracer: TraceChild[Line], screen: Screen, for_its_own_sake: bool) -> None:
    while lines := await tracer.lines():
        screen.show(list(lines))
        if screen.failure is not None and for_its_own_sake:
            tracer.end()  # nobody looks any more


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
    """Within, what would end this program goes to ``handler``."""
    loop = asyncio.get_running_loop()
    handled = ending_signals()
    for number in handled:
        loop.add_signal_handler(number, handler, number)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


_CHUNK = 1 << 20
L = TypeVar("L")
S = TypeVar("S")
_PREFIX = "storlab-agent: "
_LAST_WORD = 10.0  # s, for a tracer that was told to end
_NO_DISK_OR_OPTION = 2  # its exit status for what the user asked for wrongly


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
    """A tracer for as long as the context lasts."""
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


_SYS = Path("/sys/class/block")


def notes_on(disks: Sequence[str], sys: Path = _SYS) -> list[str]:
    """Sentences on partitions, and on disks that make no requests of their own.

    A disk that does not exist is left to the tracer to name.
    """
    return [sentence for disk in disks for sentence in _said_of(disk, sys)]


def kernel_name(disk: str) -> str:
    """A disk as ``/sys/class/block`` has it, where it was named by a path: ``/dev/disk/by-id/…``, ``/dev/mapper/…``.

    What is no block device is left to the tracer to refuse.
    """
    if disk.startswith("/"):
        with suppress(OSError, ValueError):
            status = Path(disk).stat()
            if stat.S_ISBLK(status.st_mode):
                number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
                return Path(f"/sys/dev/block/{number}").resolve(strict=True).name
    return disk.removeprefix("/dev/")


def _said_of(disk: str, sys: Path) -> Iterator[str]:
    folder = sys / disk
    if disk in ("", ".", "..") or "/" in disk or not folder.exists():
        return
    whole = folder.resolve()
    if (folder / "partition").exists():
        whole = whole.parent
        yield of_partition(disk, whole.name, int((folder / "start").read_text()))
    if not (whole / "mq").exists():
        slaves = whole / "slaves"
        yield without_requests(disk, sorted(path.name for path in slaves.iterdir()) if slaves.is_dir() else ())
