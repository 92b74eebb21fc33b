"""What runs beside a layer: a server's log, how it is ended, and watches over what has no process that could end."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, ClassVar

from msgspec import Meta

from storlab.base.errors import NodeError, NodeLost, StorlabError, TrialError
from storlab.base.waiting import cancelled
from storlab.layers.base import LayerContext
from storlab.layers.resources import Export, Share
from storlab.nodes.agent import steps
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node, Process
from storlab.nodes.process import Exit
from storlab.nodes.undo import LONG, RunName, RunPath, Undo, refuse_foreign, remove_folder, undo, until_free

_LISTENING = "0A"  # of a socket in /proc/net/tcp, see net/tcp_states.h of the kernel


def is_listening(sockets: str, port: int) -> bool:
    """Whether there is a socket that listens at this port, of what ``/proc/net/tcp`` says, see proc(5)."""
    lines = [line.split() for line in sockets.splitlines()[1:]]
    return any(line[1].endswith(f":{port:04X}") and line[3] == _LISTENING for line in lines if len(line) > 3)


async def is_taken(node: Node, port: int | None) -> bool:
    sockets = await node.texts("/proc/net/tcp", "/proc/net/tcp6")  # the latter is not there without IPv6
    return port is not None and any(is_listening(each or "", port) for each in sockets)


# What a server prints, a line each with its time, in the run's records; the last lines stay at hand.

_LINES = 20
_LONGEST = 64 * 1024  # bytes of a line; more is cut into several


class ServerLog:
    """Takes output as it comes, and writes each line as it ends: seconds on the node's monotonic clock, and the text.

    A line's time is that of its first byte. Without a path, only the last lines are kept.
    """

    def __init__(self, path: Path | None) -> None:
        self._file = None if path is None else path.open("ab", buffering=0)  # whole, should Storlab be killed
        self._last: deque[str] = deque(maxlen=_LINES)
        self._begun, self._at = b"", 0.0

    def take(self, payload: bytes, at: float) -> None:
        if len(self._begun) > _LONGEST:
            payload = b"\n" + payload
        *ended, rest = (self._begun + payload).split(b"\n")
        times = [self._at if self._begun else at, *(at for _ in ended)]
        self._write(list(zip(times, ended, strict=False)))
        self._begun, self._at = rest, times[len(ended)]

    def close(self, _: Exit | None = None) -> None:
        if self._begun:
            self._write([(self._at, self._begun)])
            self._begun = b""
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def lines(self) -> list[str]:
        """The last lines, without their times."""
        begun = [self._begun.decode(errors="replace")] if self._begun else []
        return [line for line in (*self._last, *begun) if line.strip()] or ["no output"]

    @property
    def tail(self) -> str:
        return "\n".join(self.lines)

    def _write(self, lines: list[tuple[float, bytes]]) -> None:
        self._last.extend(line.decode(errors="replace").rstrip("\r") for _, line in lines)
        if self._file is not None and lines:
            self._file.write(b"".join(b"%.6f %s\n" % (at, line) for at, line in lines))


# Ending a program that a layer has started, whoever comes to do so, and removing its folders.

_LOOK = 0.02  # s
_REST = 10.0  # s, for what was killed to be gone
_KILL = 'echo 1 > "$1/cgroup.kill" || xargs --no-run-if-empty kill -KILL < "$1/cgroup.procs"'  # the latter before 5.14
_REMOVE = 'find "$1" -depth -type d -exec rmdir -- {} ";"; ! test -e "$1"'

_Program = Annotated[str, Meta(max_length=255)]
_Signal = Annotated[str, Meta(pattern=r"^SIG[A-Z0-9]{1,12}$")]
_Seconds = Annotated[float, Meta(ge=0, le=86400)]


@undo("server.stop", patience=LONG, outlives_boot=True)
async def stop(
    node: Node, name: RunName, program: _Program, folders: list[RunPath], signal: _Signal, patience: _Seconds
) -> str | None:
    """End a program that was started by a name, as ``Node.start`` takes it, and remove its folders."""
    refuse_foreign(f"/{name}", itself=True)
    for path in folders:
        refuse_foreign(path)
    process = node.named.get(name)
    if process is None or process.ended is not None or process.lost is not None:
        did = await _end_leftovers(node, name, program)
    else:
        did = await _end(process, program, signal, patience)
    node.named.pop(name, None)
    for path in folders:
        removed = await remove_folder(node, path, itself=False)
        did = did or removed
    return did


async def _end(process: Process, program: str, signal: str, patience: float) -> str | None:
    await process.stop(patience, signal)
    try:
        async with asyncio.timeout(patience + _REST):
            await process.rest()
    except TimeoutError:
        raise _hangs(program) from None
    if process.ended is not None and process.ended.stopped_by is None:
        return None  # it had ended by itself, and word of that was still on its way
    if process.ended is not None and process.ended.stopped_by == "KILL":
        return f"killed {program} (process {process.pid}), which had not ended {patience:g} s after {signal}"
    return f"stopped {program} (process {process.pid})"


async def _end_leftovers(node: Node, name: str, program: str) -> str | None:
    """Kill what an agent left that was killed itself. One that could make no cgroup took its programs with it."""
    run = name.rpartition("-")[0]
    own = ["-path", f"*/{run}.*/run-*-{name}"]  # below that of an agent of this run
    found = await node.run(["find", "/sys/fs/cgroup", "-type", "d", *own], check=False)
    killed = False
    for folder in found.stdout.decode().split():
        deadline = asyncio.get_running_loop().time() + _REST
        while await _is_populated(node, folder):
            if asyncio.get_running_loop().time() > deadline:
                raise _hangs(program)
            killed = True
            await node.run(["sh", "-c", _KILL, "sh", folder], check=False)
            await asyncio.sleep(_LOOK)
        await until_free(node, ["sh", "-c", _REMOVE, "sh", folder])
    return f"killed {program}, which its agent had left" if killed else None


async def _is_populated(node: Node, folder: str) -> bool:
    try:
        return "populated 1" in (await node.read_text(f"{folder}/cgroup.events")).splitlines()
    except FileNotFoundError:
        return False


def _hangs(program: str) -> StorlabError:
    return StorlabError(f"{program} does not end, not even by KILL: it hangs in the kernel")


def server_name(run: str, folder: str) -> str:
    return f"storlab-{run}-{hashlib.sha256(folder.encode()).hexdigest()[:12]}"


# Watching what has no process of its own that could end: a server in the kernel, and the network up to it.
#
# Whoever watches sees to it that the layer's loss is reported, with a sentence that says what is wrong.

_EVERY = 0.5  # s between two requests
_OUTAGE = 4  # requests in a row without an answer: more than chance, even where one in twenty is lost
_STUCK = 5.0  # s beyond the limit, for a ping that is stuck itself
_AGAIN = 1.0  # s; had the controller stood still, its timer was due before what had come meanwhile
_WATCH_LOOK = 1.0  # s between two looks at a file
_PATIENCE = 5.0  # s, for ping to end
_ANSWER = re.compile(r"bytes from .*icmp_seq=(\d{1,9})\b")
_SILENCE = re.compile(r"no answer yet for icmp_seq=(\d{1,9})\b")


@undo("watch.end")
async def _watch_end(node: Node, name: RunName) -> str | None:
    """Look no longer. A controller that is gone does not look either."""
    watching = node.watching.pop(name, None)
    if watching is not None:
        await cancelled(watching)
    return None


@dataclass
class Answers:
    """What ping(8) prints of another node, line by line, and what that says: nothing, or why the node is lost.

    Answers that come late say that a machine is busy; one that never comes, that the network or the machine was gone.
    Each that comes says by its number how many before it never will.
    """

    whose: str  # "node server"
    host: str
    limit: float  # s without any answer
    up: bool = False  # it has answered
    last: str = "ping ended"
    _seen: int = 0
    _begun: str = ""

    def take(self, text: str) -> str | None:
        """The next piece of output; why the node is lost, where it is."""
        *lines, self._begun = (self._begun + text[-_WATCH_LONGEST:]).split("\n")
        self._begun = self._begun[-_WATCH_LONGEST:]
        reasons = [self._line(line) for line in lines]
        return next((reason for reason in reasons if reason is not None), None)

    def _line(self, line: str) -> str | None:
        self.last = line.strip() or self.last
        if (found := _ANSWER.search(line)) is not None:
            missed, known = int(found[1]) - self._seen, self.up
            self.up, self._seen = True, int(found[1])
            if known and missed > _OUTAGE:
                return f"{self.whose} ({self.host}) was unreachable for {missed * _EVERY:.1f} s"
        elif (found := _SILENCE.search(line)) is not None:
            silent = (int(found[1]) - self._seen) * _EVERY
            if silent >= self.limit:
                return f"no answer from {self.whose} ({self.host}) for {silent:.1f} s"
        return None

    def unreachable(self) -> str:
        return f"{self.whose} ({self.host}) can't be reached: {self.last}"


_WATCH_LONGEST = 4096  # characters of a line; ping's are far shorter


@dataclass
class Reachable:
    """The node that serves a share, or a disk, answers over the network, by a ``ping`` that goes on and on."""

    context: LayerContext
    answers: Answers
    lost: str | None = None
    _up: asyncio.Event = field(default_factory=asyncio.Event)
    _timer: asyncio.TimerHandle | None = None
    undoes: ClassVar[tuple[Undo, ...]] = (stop,)
    needs: ClassVar = Needs(programs=("ping",))

    @property
    def _name(self) -> str:
        return server_name(self.context.run, self.context.path("reachable"))

    @classmethod
    async def watch(cls, below: Share | Export, context: LayerContext, give_up: float) -> None:
        """Begin; after ``give_up`` s of silence it is gone. Raises ``TrialError`` if it does not answer now."""
        answers = Answers(f"node {below.node}", below.host, float(max(round(give_up), 1)))
        self = cls(context, answers)
        end = {"program": "ping", "folders": [], "signal": "SIGTERM", "patience": _PATIENCE}
        await context.register_undo("server.stop", name=self._name, **end)
        argv = ["ping", "-n", "-O", "-i", f"{_EVERY:g}", answers.host]
        process = await context.node.start(argv, name=self._name, env={"LC_ALL": "C"}, on_output=self._take)
        self._wind_up(self._wait)
        process.when_ended(self._ended)
        await self._up.wait()
        if self.lost is not None:
            raise TrialError(f"node {context.node.name}: {self.lost}")

    @property
    def _wait(self) -> float:
        return self.answers.limit + _STUCK

    def _take(self, payload: bytes, _: float) -> None:
        reason = self.answers.take(payload.decode(errors="replace"))
        if reason is not None:
            self._lose(reason)
        elif self.answers.up:
            self._up.set()
        self._wind_up(self._wait)

    def _wind_up(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        last = self.answers.last
        self._timer = asyncio.get_running_loop().call_later(seconds, self._silent, last, seconds == self._wait)

    def _silent(self, last: str, first: bool) -> None:
        if first:
            self._wind_up(_AGAIN)
        elif last == self.answers.last:
            self._lose(self.answers.unreachable())

    def _ended(self, how: Exit | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if how is not None and how.stopped_by is None and how.signal is None:
            self._lose(self.answers.unreachable())
        elif not self._up.is_set():  # its node is lost, which is known elsewhere, or somebody killed it
            self._lose(f"ping of {self.answers.host} ended" if how is None else how.describe())

    def _lose(self, reason: str) -> None:
        if self.lost is not None or self.context.node.named.get(self._name) is None:
            return
        self.lost = reason
        if self._up.is_set():
            self.context.notify_lost(f"node {self.context.node.name}: {reason}", self.answers.last)
        self._up.set()


@dataclass(frozen=True)
class FileSays:
    """The first line of a file of the kernel's matches a pattern of the shell's; ``otherwise`` says what it means where
    it does not, or where the file is gone."""

    path: str
    pattern: str
    otherwise: str
    undoes: ClassVar[tuple[Undo, ...]] = (_watch_end,)

    async def set_up(self, context: LayerContext) -> None:
        node, name = context.node, server_name(context.run, context.path("file-says"))
        await context.register_undo("watch.end", name=name)
        if not await self._is_so(node):
            raise TrialError(f"node {node.name}: {self.otherwise}")
        node.watching[name] = asyncio.create_task(self._look(node, context.notify_lost), name=f"look at {self.path}")

    async def _look(self, node: Node, notify_lost: Callable[[str, str], None]) -> None:
        while True:
            await asyncio.sleep(_WATCH_LOOK)
            try:
                if await self._is_so(node):
                    continue
            except NodeLost:
                return  # which is known elsewhere
            except NodeError as error:
                notify_lost(f"node {node.name}: {self.otherwise}", str(error))
                return
            notify_lost(f"node {node.name}: {self.otherwise}", "")
            return

    async def _is_so(self, node: Node) -> bool:
        (done,) = await node.carry_out(steps.read(self.path, _WATCH_LONGEST), go_on=True)
        return done.ok and fnmatchcase(done.text.partition("\n")[0], self.pattern)
