"""A whole capture, as its connections: each from the end that opened it, as the probe ``tcp`` counts there."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from io import UnsupportedOperation
from itertools import chain
from os import SEEK_SET, lseek
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec

from storlab.base.errors import MissingTool, ParseError

# What ``storlab-agent pcap`` prints: one JSON document, as ``docs/reference/pcap-output.md`` describes it.

BINS = 8
"""Of gaps between ACKs, for each factor of two, from 1 µs on."""

Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Time = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
Size = Annotated[int, msgspec.Meta(ge=1, le=2**24)]
Bin = Annotated[int, msgspec.Meta(ge=0, le=27 * BINS)]
Side = Annotated[int, msgspec.Meta(ge=0, le=1)]


class Direction(msgspec.Struct, frozen=True):
    """What one end of a connection sent. Times in ns."""

    packets: Count
    segments: Count
    bytes: Count
    acks: Count
    advancing: Count  # ACKs of which it is known how much they acknowledge
    advanced: Count  # bytes, by these
    retransmits: Count
    bytes_again: Count
    overtaken: Count
    sacks: Count
    dsacks: Count
    zero_windows: Count
    delayed: Count
    delayed_ns: Count
    rtt_count: Count
    rtt_sum: Count
    rtt_most: Count
    missing: Count  # bytes that the capture lacks
    mss_option: Count
    stamped: bool
    closed: bool
    lengths: dict[Size, Count]
    advances: dict[Size, Count]
    gaps: dict[Bin, Count]  # bin → number of gaps between its ACKs


class Endpoint(msgspec.Struct, frozen=True):
    """``host``: an address, or the number of a name (``text``)."""

    host: Annotated[str, msgspec.Meta(max_length=64)] | Count
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)]


class Connection(msgspec.Struct, frozen=True):
    """``ends``: whoever sent the first segment that was captured, and the other one; ``ways``: what each sent.

    ``opener``: which of them asked for the connection, if its SYN was captured. ``first``, ``last``: ns.
    """

    ends: tuple[Endpoint, Endpoint]
    opener: Side | None
    first: Time
    last: Time
    ways: tuple[Direction, Direction]


class Document(msgspec.Struct, frozen=True):
    """All of a capture, with what could not be looked at in it: numbers of packets."""

    packets: Count
    others: Count
    cut: Count
    without_options: Count
    without_time: Count
    left_out: Count
    cut_off: bool
    connections: tuple[Connection, ...]


_DECODER = msgspec.json.Decoder(Document)


def decode(text: bytes, source: str) -> Document:
    """Raises ``ParseError``."""
    try:
        return _DECODER.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ParseError(f"cannot read what the agent says of it: {error}", source) from None


# The agent as a reader of captures: a program of its own, which may open nothing and take only so much memory.

_PIECE = 1024**2  # bytes that are handed on at a time
_LONGEST = 512 * 1024**2  # bytes of a document: 100,000 connections have 120 MB
_USAGE = 2  # the exit status of an agent that knows no captures


def read_file(agent: Path, file: BinaryIO, source: str) -> Document:
    """A pcap or pcapng. Raises ``ParseError``."""
    try:
        descriptor = file.fileno()
    except UnsupportedOperation:
        return read_pieces(agent, iter(lambda: file.read(_PIECE), b""), source)
    lseek(descriptor, 0, SEEK_SET)
    with _started(agent, descriptor) as process:
        return _document(process, agent, source)


def read_pieces(agent: Path, pieces: Iterator[bytes], source: str) -> Document:
    """The same, of which there is no file. Raises ``ParseError``, and whatever making the pieces raises."""
    first = next(pieces, b"")  # where that fails, no agent is started
    with _started(agent, subprocess.PIPE) as process:
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin as pipe:
            for piece in chain([first], pieces):
                pipe.write(piece)
        return _document(process, agent, source)


@contextmanager
def _started(agent: Path, stdin: int) -> Iterator[subprocess.Popen[bytes]]:
    pipe = subprocess.PIPE
    with subprocess.Popen([agent, "pcap"], stdin=stdin, stdout=pipe, stderr=pipe) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


def _document(process: subprocess.Popen[bytes], agent: Path, source: str) -> Document:
    """It prints only once it has read all, or a sentence, which has room in the pipe."""
    assert process.stdout is not None
    assert process.stderr is not None
    text = process.stdout.read(_LONGEST + 1)
    if len(text) > _LONGEST:
        raise ParseError(f"what the agent says of it has more than {_LONGEST // 1024**2} MiB", source)
    said = process.stderr.read(4096).decode(errors="replace").strip()
    status = process.wait()
    if status == _USAGE:
        raise MissingTool(
            f"{agent} is too old to read captures: unset STORLAB_AGENT where it is set, and install Storlab again; "
            "in a checkout, run `make agent`"
        )
    if status < 0:
        raise ParseError(f"the agent that read it was ended by {signal.Signals(-status).name}: {said}", source)
    if status:
        raise ParseError(said.removeprefix("storlab-agent: "), source)
    return decode(text, source)


# How long the segments on the network were, which a capture need not show: cards and kernels merge them before.
#
# The option of the handshake says it, less 12 bytes where segments carry timestamps (RFC 6691). Without a handshake
# it is estimated: the length of which most frequent lengths, and what ACKs acknowledge, are multiples.

_TIMESTAMPS = 12  # bytes, with blanks
_LEAST, _MOST = 500, 65_495  # bytes: below is no segment of a full length; loopback's
_ETHERNET = 1300, 1460  # bytes of data in a frame of 1500, with options and tunnels
_FREQUENT = 0.02
_CANDIDATES = 64
_ENOUGH = 0.9


def mss_of(sender: Direction, receiver: Direction) -> tuple[int, bool]:
    """Bytes of a full segment of ``sender``'s, and whether that is an estimate; 0 where nothing tells."""
    options = [each.mss_option for each in (sender, receiver) if each.mss_option]
    if options:
        stamped = sender.stamped and receiver.stamped
        return max(min(options) - (_TIMESTAMPS if stamped else 0), 1), False
    return estimate(Counter(sender.lengths) + Counter(receiver.advances)), True


def estimate(lengths: Counter[int]) -> int:
    """That of which nearly all of ``lengths`` that are frequent are multiples; 0 where there is none."""
    total = sum(lengths.values())
    frequent = [(n, count) for n, count in lengths.most_common(_CANDIDATES) if count >= max(2, _FREQUENT * total)]
    candidates = {n for n, _ in frequent if _LEAST <= n <= _MOST}
    for n, _ in frequent:
        parts = range(-(-n // _ETHERNET[1]), n // _ETHERNET[0] + 1)
        candidates |= {n // part for part in parts if part and n % part == 0}
    if not candidates:
        return 0
    held = {each: sum(count for n, count in frequent if n % each == 0) for each in candidates}
    best = max(held.values())
    enough = [each for each, count in held.items() if count >= _ENOUGH * best]
    usual = [each for each in enough if _ETHERNET[0] <= each <= _ETHERNET[1]]
    return max(usual or enough)


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
