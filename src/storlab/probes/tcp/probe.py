"""Probe ``tcp``: what the connections of a stack do, counted by the kernels at both ends.

The agent asks its kernel (sock_diag) for each connection to what the node serves, or is served by: at the start of the
watch, at its end, and in between. It prints them as ``docs/reference/tcp-output.md`` says.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple

import orjson
import polars as pl
from pydantic import Field

from storlab.base.errors import CommandFailed, NodeError, ParseError
from storlab.base.units import Duration
from storlab.base.waiting import to_its_end
from storlab.measurements import SERIES_COLUMNS, Measurements, metric_frame
from storlab.metrics import MetricSpec, Value
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.process import Process, telling
from storlab.probes.agent import AgentProbe
from storlab.probes.base import ProbeContext, ProbeRecord, Seen, sums
from storlab.probes.procfs import is_number
from storlab.probes.subject import Kind, Subject
from storlab.probes.tcp.metrics import COUNTS, METRICS, OF_ACKS, SEGMENTS_PER_REQUEST, ack_histograms, values
from storlab.probes.tcp.output import ABOUT, MOST_TEXT, PACKETS, PRINTED, kept_packets, read_output
from storlab.probes.tcp.totals import Moment, within

# Some packets of the measured phase, for the probe ``tcp``: tcpdump keeps them from when the server sends data.
#
# They are worth reading where replies are on their way, which need not be so at the start of a load: the counters of
# the card say when. Until then, those of the first requests with data count. tcpdump runs only for as long as it
# takes.

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


_COUNTED = frozenset({"requests", "segments.sent", "bytes.sent", "bytes.retransmitted", "bytes.received"})
_ALIKE = 0.05
"""Looks of both ends are an interval apart; if they differ by more than this share, they are of other connections."""


class TcpProbe(AgentProbe):
    """Counts segments, ACKs and retransmissions of the connections of a stack, by the kernel's own counters."""

    kind: ClassVar[str] = "tcp"
    watches: ClassVar[frozenset[Kind]] = frozenset({"interfaces"})
    metrics: ClassVar[tuple[MetricSpec, ...]] = METRICS
    in_slices: ClassVar[frozenset[str]] = COUNTS
    output: ClassVar[str] = "tcp.jsonl"
    missing: ClassVar[str] = "there was nothing to watch"

    interval: Duration = Field(0.1, ge=0.01, le=3600, description="Between two looks at all connections.")
    ports: tuple[Annotated[int, Field(ge=1, le=65535)], ...] = Field(
        (), description="Ports of servers whose connections are watched; by default those of what the stack serves."
    )

    capture: int = Field(
        0,
        ge=0,
        le=MOST,
        description="Packets to keep of the measured phase at each end, from when the server sends data: as pcap in "
        "the run's folder, and as tcpdump prints them in the report.",
    )
    distributions: bool = Field(
        False,
        description="Count ACKs by the bytes that each acknowledges, and by the gaps between them. Takes eBPF programs "
        "that run for every segment; all else costs the same however many there are.",
    )

    def measured(self, record: ProbeRecord, path: Path) -> Measurements:
        output = read_output(path)
        watched = within(output, record.window.start, record.window.end)
        totals, said = watched.totals, [*watched.warnings]
        if self.distributions and not output.started.distributions:
            why = output.started.no_distributions or "no reason given"
            said.insert(0, f"there are no distributions of ACKs: {why}")
        if not watched.warnings and not totals.connections:
            said.append("no connection was seen at the watched ports")
        if self.capture:
            try:
                kept_packets(record.raw, record.window.start, record.window.end)
            except ParseError as error:
                said.append(str(error))
        facts: dict[str, object] = {"endpoints": list(output.started.endpoints), "disks": list(output.started.disks)}
        if totals.congestion:
            facts["congestion_control"] = sorted(totals.congestion)
        return Measurements(
            metrics=metric_frame(values(totals) if totals.connections else ()),
            histograms=ack_histograms(totals.acks),
            series=_series(watched.moments, record.window.start),
            warnings=tuple(said),
            facts=facts,
        )

    def needs(self) -> Needs:
        return Needs(programs=("tcpdump",)) if self.capture else Needs()

    def endpoints(self, subject: Subject) -> tuple[str, ...]:
        """``ADDRESS:PORT`` of the servers that the node runs or uses, as the agent's program takes them."""
        if self.ports:
            return tuple(f"*:{port}" for port in self.ports)
        found = (_endpoint(each.address) for each in subject.servers)
        return tuple(dict.fromkeys(each for each in found if each is not None))

    def declares(self) -> tuple[MetricSpec, ...]:
        return tuple(spec for spec in self.metrics if self.distributions or spec not in OF_ACKS)

    @asynccontextmanager
    async def watch(self, context: ProbeContext) -> AsyncIterator[None]:
        endpoints = self.endpoints(context.subject)
        packets = keeper(context.node, context.subject, context.raw, endpoints, self.capture if endpoints else 0)
        async with super().watch(context), nullcontext() if packets is None else packets.keeping():
            yield

    async def words(self, context: ProbeContext, notes: list[str]) -> Sequence[str] | None:
        endpoints = self.endpoints(context.subject)
        if not endpoints:
            notes.append("tcp: nothing on this node is served over TCP")
            return None
        words = ["tcp", "--interval", f"{self.interval:.6f}"]
        words += [word for each in endpoints for word in ("--endpoint", each)]
        words += ["--distributions"] if self.distributions else []
        return words + [word for each in context.subject.disks or () for word in ("--disk", each)]

    def derive(self, seen: Seen) -> Iterator[Value]:
        """Segments for each request, of the nodes where the load runs and those that serve them: none if either has not
        seen what the other sent. The nodes below may serve others as well, or be served themselves: then what they have
        sent is not what came in.
        """
        here, there = _counted(seen.nodes), _counted(seen.others)
        if seen.at_load and here["requests"] and _saw(here, there) and _saw(there, here):
            yield SEGMENTS_PER_REQUEST.value((here["segments.sent"] + there["segments.sent"]) / here["requests"])


def _counted(nodes: Iterable[Measurements]) -> Counter[str]:
    return Counter({name: int(value) for name, value in sums(nodes).items() if name in _COUNTED})


def _saw(receiver: Counter[str], sender: Counter[str]) -> bool:
    sent, received = sender["bytes.sent"] - sender["bytes.retransmitted"], receiver["bytes.received"]
    return sent > 0 and abs(sent - received) <= _ALIKE * sent


def _endpoint(address: str) -> str | None:
    """Of ``HOST:PORT``; a socket's path is none, and a host that has a name may be at any address."""
    host, colon, port = address.rpartition(":")
    if not colon or "/" in address or not port.isdecimal():
        return None
    bare = host.removeprefix("[").removesuffix("]")
    try:
        parsed = ipaddress.ip_address(bare)
    except ValueError:
        return f"*:{port}"
    if parsed.is_unspecified:
        return f"*:{port}"
    return f"[{parsed}]:{port}" if parsed.version == 6 else f"{parsed}:{port}"


def _series(moments: Sequence[Moment], start: float) -> pl.DataFrame:
    """Means over the connections at each sample: ``rtt`` in s, ``cwnd`` in segments."""
    rows: list[tuple[None, str, float, float, str]] = []
    for moment in moments:
        numbers = [each.numbers for each in moment.connections.values() if each.state == 1]
        if numbers:
            t = moment.t - start
            rows.append((None, "rtt", t, sum(each.rtt for each in numbers) / len(numbers) / 1e6, "s"))
            rows.append((None, "cwnd", t, sum(each.cwnd for each in numbers) / len(numbers), "1"))
    return pl.DataFrame(rows, schema=SERIES_COLUMNS, orient="row")
