"""Watching what has no process of its own that could end: a server in the kernel, and the network up to it.

Whoever watches sees to it that the layer's loss is reported, with a sentence that says what is wrong.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import ClassVar

from storlab.errors import NodeError, NodeLost, TrialError
from storlab.layers.base import LayerContext
from storlab.layers.resources import Export, Share
from storlab.layers.server.stop import server_name, stop
from storlab.nodes.agent import steps
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.process import Exit
from storlab.nodes.undo import RunName, Undo, undo
from storlab.waiting import cancelled

_EVERY = 0.5  # s between two requests
_OUTAGE = 4  # requests in a row without an answer: more than chance, even where one in twenty is lost
_STUCK = 5.0  # s beyond the limit, for a ping that is stuck itself
_AGAIN = 1.0  # s; had the controller stood still, its timer was due before what had come meanwhile
_LOOK = 1.0  # s between two looks at a file
_PATIENCE = 5.0  # s, for ping to end
_ANSWER = re.compile(r"bytes from .*icmp_seq=(\d{1,9})\b")
_SILENCE = re.compile(r"no answer yet for icmp_seq=(\d{1,9})\b")


@undo("watch.end")
async def _end(node: Node, name: RunName) -> str | None:
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
        *lines, self._begun = (self._begun + text[-_LONGEST:]).split("\n")
        self._begun = self._begun[-_LONGEST:]
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


_LONGEST = 4096  # characters of a line; ping's are far shorter


@dataclass(frozen=True)
class Reachable:
    """The node that serves a share, or a disk, answers over the network, by a ``ping`` that goes on and on."""

    give_up: float = 10.0  # s of silence after which it is gone
    undoes: ClassVar[tuple[Undo, ...]] = (stop,)

    def needs(self) -> Needs:
        return Needs(programs=("ping",))

    async def set_up(self, below: Share | Export, context: LayerContext) -> None:
        answers = Answers(f"node {below.node}", below.host, float(max(round(self.give_up), 1)))
        await _Pinging(context, answers).begin()


@dataclass
class _Pinging:
    """One ``ping``, from its start until it is stopped, or says that what it asks is lost."""

    context: LayerContext
    answers: Answers
    lost: str | None = None
    _up: asyncio.Event = field(default_factory=asyncio.Event)
    _timer: asyncio.TimerHandle | None = None

    @property
    def _name(self) -> str:
        return server_name(self.context.run, self.context.path("reachable"))

    async def begin(self) -> None:
        context = self.context
        end = {"program": "ping", "folders": [], "signal": "SIGTERM", "patience": _PATIENCE}
        await context.register_undo("server.stop", name=self._name, **end)
        argv = ["ping", "-n", "-O", "-i", f"{_EVERY:g}", self.answers.host]
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
    undoes: ClassVar[tuple[Undo, ...]] = (_end,)

    async def set_up(self, context: LayerContext) -> None:
        node, name = context.node, server_name(context.run, context.path("file-says"))
        await context.register_undo("watch.end", name=name)
        if not await self._is_so(node):
            raise TrialError(f"node {node.name}: {self.otherwise}")
        node.watching[name] = asyncio.create_task(self._look(node, context.notify_lost), name=f"look at {self.path}")

    async def _look(self, node: Node, notify_lost: Callable[[str, str], None]) -> None:
        while True:
            await asyncio.sleep(_LOOK)
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
        (done,) = await node.carry_out(steps.read(self.path, _LONGEST), go_on=True)
        return done.ok and fnmatchcase(done.text.partition("\n")[0], self.pattern)
