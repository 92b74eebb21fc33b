"""How long the segments on the network were, which a capture need not show: cards and kernels merge them before.

The option of the handshake says it, less 12 bytes where segments carry timestamps (RFC 6691). Without a handshake it is
estimated: the length of which most frequent lengths, and what ACKs acknowledge, are multiples.
"""

from __future__ import annotations

from collections import Counter

from storlab.tools.pcap.agent_output import Direction

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
