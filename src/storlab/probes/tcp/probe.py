"""Probe ``tcp``: what the connections of a stack do, counted by the kernels at both ends.

The agent asks its kernel (sock_diag) for each connection to what the node serves, or is served by: at the start of the
watch, at its end, and in between. It prints them as ``docs/reference/tcp-output.md`` says.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Annotated, ClassVar

import orjson
import polars as pl
from pydantic import Field

from storlab.errors import CommandFailed, NodeError, ParseError
from storlab.measurements import SERIES_COLUMNS, Measurements, metric_frame
from storlab.metrics import MetricSpec
from storlab.nodes.needs import Needs
from storlab.nodes.node import Exit
from storlab.nodes.process import Process
from storlab.probes.alignment.probe import NOTES, read_notes
from storlab.probes.base import Probe, ProbeContext, ProbeRecord
from storlab.probes.subject import Kind, Subject
from storlab.probes.tcp.capture import MOST, keeper
from storlab.probes.tcp.packets import kept_packets
from storlab.tcp.acks import METRICS as OF_ACKS
from storlab.tcp.acks import ack_histograms
from storlab.tcp.agent_output import Started, read_output
from storlab.tcp.metrics import COUNTS, METRICS, values
from storlab.tcp.totals import Moment, within
from storlab.units import Duration
from storlab.waiting import to_its_end

NAME = "tcp.jsonl"
"""What the agent's program printed."""

_STARTED = 30.0  # s; an emulated guest takes a second
_MAX_OUTPUT = 2 * 1024**3  # bytes; a sample of a busy connection is some 300
_LAST_WORD = 20.0  # s, for its last sample


class TcpProbe(Probe):
    """Counts segments, ACKs and retransmissions of the connections of a stack, by the kernel's own counters."""

    kind: ClassVar[str] = "tcp"
    watches: ClassVar[frozenset[Kind]] = frozenset({"interfaces"})
    metrics: ClassVar[tuple[MetricSpec, ...]] = METRICS
    in_slices: ClassVar[frozenset[str]] = COUNTS

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

    def parse(self, record: ProbeRecord) -> Measurements:
        notes = read_notes(record.raw)
        if not (record.raw / NAME).exists():
            return Measurements(warnings=notes or ("tcp: there was nothing to watch",))
        output = read_output(record.raw / NAME)
        watched = within(output, record.window.start, record.window.end)
        totals, said = watched.totals, [*self._without(output.started), *watched.warnings]
        if not watched.warnings and not totals.connections:
            said.append("tcp: no connection was seen at the watched ports")
        if self.capture:
            try:
                kept_packets(record.raw, record.window)
            except ParseError as error:
                said.append(f"tcp: {error}")
        facts: dict[str, object] = {"endpoints": list(output.started.endpoints), "disks": list(output.started.disks)}
        if totals.congestion:
            facts["congestion_control"] = sorted(totals.congestion)
        return Measurements(
            metrics=metric_frame(values(totals) if totals.connections else ()),
            histograms=ack_histograms(totals.acks),
            series=_series(watched.moments, record.window.start),
            warnings=(*notes, *said),
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

    def _without(self, started: Started) -> list[str]:
        if not self.distributions or started.distributions:
            return []
        return [f"tcp: there are no distributions of ACKs: {started.no_distributions or 'no reason given'}"]

    @asynccontextmanager
    async def watch(self, context: ProbeContext) -> AsyncIterator[None]:
        endpoints = self.endpoints(context.subject)
        _note(context.raw, [] if endpoints else ["tcp: nothing on this node is served over TCP"])
        process = await self._started(context, endpoints) if endpoints else None
        packets = keeper(context.node, context.subject, context.raw, endpoints, self.capture if endpoints else 0)
        try:
            async with nullcontext() if packets is None else packets.keeping():
                yield
        finally:
            if process is not None:
                await to_its_end(_finish(process, context.raw))

    async def _started(self, context: ProbeContext, endpoints: Sequence[str]) -> Process | None:
        """The program, after its first sample; ``None`` where it can't be, with the reason among the notes."""
        # The agent's executable by way of its process: in a guest, the file itself is gone.
        argv = [f"/proc/{context.node.pid}/exe", "tcp", "--interval", f"{self.interval:.6f}"]
        argv += [word for each in endpoints for word in ("--endpoint", each)]
        argv += ["--distributions"] if self.distributions else []
        argv += [word for each in context.subject.disks or () for word in ("--disk", each)]
        try:
            process = await context.node.start(argv, max_output=_MAX_OUTPUT)
        except CommandFailed as error:
            _note(context.raw, [f"tcp: {error}"])
            return None
        try:
            async with asyncio.timeout(_STARTED):
                first = await process.first_line()
        except TimeoutError:
            await process.end()
            _note(context.raw, [f"tcp: the agent's program had not started within {_STARTED:.0f} s"])
            return None
        except BaseException:
            await process.end()
            raise
        if first is not None:
            return process
        _note(context.raw, [_refusal(await process.last_word(0.0))])
        return None


async def _finish(process: Process, raw: Path) -> None:
    with suppress(NodeError):  # whoever needs the node says so
        ended = await process.last_word(_LAST_WORD)
        (raw / NAME).write_bytes(ended.stdout)


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


def _refusal(ended: Exit) -> str:
    lines = [line for line in ended.stderr.decode(errors="replace").splitlines() if line]
    return f"tcp: {lines[0].removeprefix('storlab-agent: ') if lines else 'the program ended and said nothing'}"


def _note(raw: Path, sentences: Sequence[str]) -> None:
    (raw / NOTES).write_bytes(orjson.dumps(list(sentences)))
