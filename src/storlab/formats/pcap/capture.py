"""A whole capture, as its connections: each from the end that opened it, as the probe ``tcp`` counts there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import BinaryIO

from storlab.formats.pcap.container import MAGICS, SECTION, Notes, packets_of
from storlab.formats.pcap.frames import Frames
from storlab.formats.pcap.mss import mss_of
from storlab.formats.pcap.segments import Addresses, endpoint
from storlab.formats.pcap.streams import Connection, Direction, Streams
from storlab.formats.pcap.text import Text

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
        return self.sent.holes.missing + self.received.holes.missing

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


def read_capture(file: BinaryIO, source: str) -> Capture:
    """A pcap, a pcapng or tcpdump's text, by how it begins. Raises ``ParseError``."""
    streams, head = Streams(), file.read(4)
    file.seek(0)
    if head in MAGICS or head == SECTION:
        notes, frames = Notes(), Frames(source)
        for packets in packets_of(file, source, notes):
            streams.add(frames.segments(packets))
        return _capture(frames.packets, frames.addresses, streams, _of_frames(notes, frames))
    text = Text(source)
    for segments in text.segments(file):
        streams.add(segments)
    others = [f"{text.others} packets are not of TCP, or say too little"] if text.others else []
    return _capture(text.packets, text.addresses, streams, others)


def _of_frames(notes: Notes, frames: Frames) -> list[str]:
    said = {
        "it is cut off within its last packet": notes.cut_off,
        f"{notes.without_time} packets have no time: nothing that takes time is known of them": notes.without_time,
        f"{frames.others} packets are not of TCP": frames.others,
        f"{frames.cut} packets were captured without their TCP header: take a larger snapshot length": frames.cut,
        f"{frames.without_options} packets were captured without all TCP options: SACK and MSS may be missing":
            frames.without_options,
    }  # fmt: skip
    return [sentence for sentence, holds in said.items() if holds]


def _capture(packets: int, addresses: Addresses, streams: Streams, said: list[str]) -> Capture:
    if streams.too_many or addresses.too_many:
        said.append(f"{streams.too_many + addresses.too_many} packets are left out: of too many connections")
    talks = [_talk(connection, addresses) for connection in streams.connections if connection.last >= connection.first]
    return Capture(packets, tuple(sorted(talks, key=lambda talk: -talk.bytes)), tuple(said))


def _talk(connection: Connection, addresses: Addresses) -> Talk:
    a, b = _ends(connection.flow)
    opener = connection.opener if connection.opener is not None else _client(a[1], b[1])
    sent, received = connection.ways[opener], connection.ways[1 - opener]
    _unseen(sent, received)
    _unseen(received, sent)
    client, server = (endpoint(addresses, *end) for end in ((a, b) if opener == 0 else (b, a)))
    out, into = mss_of(sent, received), mss_of(received, sent)
    name = f"{client} > {server}".replace("\n", " ")
    return Talk(name, connection.first, connection.last, sent, received, out[0], into[0], out[1] or into[1])


def _unseen(sender: Direction, receiver: Direction) -> None:
    """What was acknowledged, and comes after all that was captured, is missing as well."""
    if sender.next is not None and receiver.newest_ack is not None:
        beyond = (receiver.newest_ack - sender.next + 2**31) % 2**32 - 2**31
        sender.holes.closed += max(beyond, 0)


def _ends(flow: int) -> tuple[tuple[int, int], tuple[int, int]]:
    return (flow >> 48, flow >> 16 & 0xFFFF), (flow >> 32 & 0xFFFF, flow & 0xFFFF)


def _client(port_a: int, port_b: int) -> int:
    """Without a handshake: the end whose port is not one of a server's, or else the higher one."""
    if (port_a in _SERVERS) != (port_b in _SERVERS):
        return int(port_a in _SERVERS)
    return int(0 < port_a < port_b)
