"""A whole capture, as its connections: each from the end that opened it, as the probe ``tcp`` counts there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from storlab.tools.pcap.agent import read_file, read_pieces
from storlab.tools.pcap.agent_output import Connection, Direction, Document, Endpoint
from storlab.tools.pcap.mss import mss_of

_MAGICS = (b"\xa1\xb2\xc3\xd4", b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\x3c\x4d", b"\x4d\x3c\xb2\xa1", b"\x0a\x0d\x0d\x0a")
"""The first bytes of pcap, and of pcapng."""
_SERVERS = (2049, 3260, 4420, 10809, 445, 139, 111, 20048, 8009)
"""Ports on which storage is served: NFS, iSCSI, NVMe, NBD, SMB, and what goes with NFS."""


@dataclass(frozen=True)
class Talk:
    """A connection. ``sent``: what the end that opened it sent; ``received``: what the other one did.

    ``mss_*``: bytes, 0 where unknown; ``estimated``: whether one of them is. ``first``, ``last``: ns.
    """

    name: str
    first: int
    last: int
    sent: Direction
    received: Direction
    mss_sent: int
    mss_received: int
    estimated: bool

    @property
    def bytes(self) -> int:
        return self.sent.bytes + self.received.bytes

    @property
    def missing(self) -> int:
        """Bytes that the capture lacks."""
        return self.sent.missing + self.received.missing

    @cached_property
    def merged(self) -> tuple[int, int]:
        """Segments that are longer than a full one, of both ends; and how many the network saw of these, about."""
        found = [(self.sent, self.mss_sent), (self.received, self.mss_received)]
        longer = [(count, -(-n // mss)) for way, mss in found if mss for n, count in way.lengths.items() if n > mss]
        return sum(count for count, _ in longer), sum(count * parts for count, parts in longer)


@dataclass(frozen=True)
class Capture:
    """``talks``: all connections, those with most bytes first. ``warnings``: sentences on what it lacks."""

    packets: int
    talks: tuple[Talk, ...]
    warnings: tuple[str, ...]


def read_capture(file: BinaryIO, source: str, agent: Path) -> Capture:
    """A pcap, a pcapng or tcpdump's text, by how it begins. Raises ``ParseError``."""
    head = file.read(4)
    file.seek(0)
    if head in _MAGICS:
        return capture_of(read_file(agent, file, source))
    from storlab.tools.pcap.text import Text  # with all its patterns

    text = Text(source)
    document = read_pieces(agent, text.records(file), source)
    said = {
        f"{text.others} packets are not of TCP, or say too little": text.others,
        _left_out(text.too_many + document.left_out): text.too_many + document.left_out,
    }
    return _capture(document, text.packets, text.names, said)


def capture_of(document: Document) -> Capture:
    """What the agent says of a pcap or a pcapng."""
    return _capture(document, document.packets, (), _of_frames(document))


def _of_frames(document: Document) -> dict[str, int]:
    return {
        "it is cut off within its last packet": document.cut_off,
        f"{document.without_time} packets have no time: nothing that takes time is known of them":
            document.without_time,
        f"{document.others} packets are not of TCP": document.others,
        f"{document.cut} packets were captured without their TCP header: take a larger snapshot length": document.cut,
        f"{document.without_options} packets were captured without all TCP options: SACK and MSS may be missing":
            document.without_options,
        _left_out(document.left_out): document.left_out,
    }  # fmt: skip


def _left_out(packets: int) -> str:
    return f"{packets} packets are left out: of too many connections"


def _capture(document: Document, packets: int, names: Sequence[str], said: Mapping[str, int]) -> Capture:
    """``names``: those by whose numbers the document calls machines. ``said``: sentences, and whether they hold."""
    talks = [_talk(connection, names) for connection in document.connections]
    warnings = tuple(sentence for sentence, holds in said.items() if holds)
    return Capture(packets, tuple(sorted(talks, key=lambda talk: -talk.bytes)), warnings)


def _talk(connection: Connection, names: Sequence[str]) -> Talk:
    a, b = connection.ends
    opener = connection.opener if connection.opener is not None else _client(a.port, b.port)
    sent, received = connection.ways[opener], connection.ways[1 - opener]
    client, server = (_endpoint(end, names) for end in ((a, b) if opener == 0 else (b, a)))
    out, into = mss_of(sent, received), mss_of(received, sent)
    name = f"{client} > {server}".replace("\n", " ")
    return Talk(name, connection.first, connection.last, sent, received, out[0], into[0], out[1] or into[1])


def _endpoint(end: Endpoint, names: Sequence[str]) -> str:
    """``10.0.0.1:2049``, ``[fe80::1]:2049``, ``client.nfs``."""
    name = end.host if isinstance(end.host, str) else "".join(names[end.host : end.host + 1])
    return name if not end.port else f"[{name}]:{end.port}" if ":" in name else f"{name}:{end.port}"


def _client(port_a: int, port_b: int) -> int:
    """Without a handshake: the end whose port is not one of a server's, or else the higher one."""
    if (port_a in _SERVERS) != (port_b in _SERVERS):
        return int(port_a in _SERVERS)
    return int(0 < port_a < port_b)
