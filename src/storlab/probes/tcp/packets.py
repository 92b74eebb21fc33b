"""Some packets of the measured phase, for the probe ``tcp``: tcpdump keeps them from when the server sends data.

They are worth reading where replies are on their way, which need not be so at the start of a load: the counters of the
card say when. Until then, those of the first requests with data count. tcpdump runs only for as long as it takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import orjson

from storlab.errors import CommandFailed, NodeError
from storlab.nodes.node import Node
from storlab.nodes.process import Process, telling
from storlab.probes.procfs import is_number
from storlab.probes.subject import Subject
from storlab.probes.tcp.output import ABOUT, MOST_TEXT, PACKETS, PRINTED
from storlab.waiting import to_its_end

MOST = 10_000  # packets
_SNAPSHOT = 128  # bytes of each: all headers, no more than a few of the data
_MOST_BYTES = MOST * (_SNAPSHOT + 16) + 4096  # with what pcap adds
_COUNTERS = "/proc/net/dev"
_INTERVAL = 0.1  # s
_DATA = 64 * 1024  # bytes within an interval: more than requests, or ACKs, take
_PATIENCE = 5.0  # s, for so many packets to come, and for tcpdump to end


class Moved(NamedTuple):
    """Bytes that some cards received and sent."""

    received: int
    sent: int


def moved_bytes(text: str, names: Iterable[str]) -> Moved:
    """``/proc/net/dev`` of these cards together; lines that are none are skipped."""
    received = sent = 0
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        numbers = rest.split()
        if name.strip() in names and len(numbers) >= 9 and all(map(is_number, numbers)):
            received, sent = received + int(numbers[0]), sent + int(numbers[8])
    return Moved(received, sent)


@dataclass
class Keeper:
    """Keeps ``count`` packets of one node. ``serves``: whether the server is here, so replies are what it sends."""

    node: Node
    raw: Path
    card: str
    ports: Sequence[str]
    serves: bool
    count: int
    _over: bool = False
    _process: Process | None = None

    @asynccontextmanager
    async def keeping(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            await to_its_end(self._end(task))

    async def _watch(self) -> None:
        last, begun = None, False
        async with aclosing(self.node.sample([_COUNTERS], _INTERVAL)) as samples:
            async for sample in samples:
                if self._over:
                    return
                now = moved_bytes((sample.contents[0] or b"").decode(errors="replace"), [self.card])
                since = Moved(*(new - old for new, old in zip(now, last or now, strict=True)))
                last = now
                requests, replies = since if self.serves else since[::-1]
                if replies >= max(_DATA, requests / 4):
                    await self._capture(sample.t)
                    return
                if requests >= _DATA and not begun:
                    begun = await self._capture(sample.t)
                    last = None  # what was moved meanwhile is of no interval

    async def _capture(self, t: float) -> bool:
        ports = " or ".join(f"port {port}" for port in self.ports)
        argv = ["tcpdump", "-i", self.card, "-n", "-p", "--immediate-mode", "-U", "-s", str(_SNAPSHOT)]
        argv += ["-c", str(self.count), "-w", "-", f"tcp and ({ports})"]
        self._process = await self.node.start(argv, timeout=_PATIENCE, max_output=_MOST_BYTES)
        ended = await self._process.wait()
        self._process = None
        printed = await self.node.run(
            ["tcpdump", "-n", "-r", "-"], stdin=ended.stdout, check=False, max_output=MOST_TEXT
        )
        if not printed.stdout:
            lines = ended.stderr.decode(errors="replace").splitlines()
            (self.raw / ABOUT).write_bytes(orjson.dumps({"why": telling(lines) if lines else "tcpdump said nothing"}))
            return False
        (self.raw / PACKETS).write_bytes(ended.stdout)
        (self.raw / PRINTED).write_bytes(printed.stdout)
        (self.raw / ABOUT).write_bytes(orjson.dumps({"t": t}))
        return True

    async def _end(self, task: asyncio.Task[None]) -> None:
        self._over = True
        with suppress(NodeError, CommandFailed):  # whoever needs the node says so
            if self._process is not None:
                await self._process.stop(grace=_PATIENCE)
            await task


def keeper(node: Node, subject: Subject, raw: Path, endpoints: Iterable[str], count: int) -> Keeper | None:
    """Of the packets to and from ``endpoints``; ``None`` where there is no card that they could come by."""
    if not count or not subject.interfaces:
        return None
    ports = tuple(dict.fromkeys(each.rpartition(":")[2] for each in endpoints))
    serves = any(service.here for service in subject.servers)
    return Keeper(node, raw, subject.interfaces[0].name, ports, serves, count)
