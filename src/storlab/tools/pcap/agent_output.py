"""What ``storlab-agent pcap`` prints: one JSON document, as ``docs/reference/pcap-output.md`` describes it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from storlab.errors import ParseError

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
