"""TCP segments for each request, each counted where it was sent: what the probe ``tcp`` of one end alone can't say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from storlab.measurements import Measurements
from storlab.metrics import Value
from storlab.tcp.metrics import SEGMENTS_PER_REQUEST

_ALIKE = 0.05
"""Looks of both ends are an interval apart; by more than this share, they are not of the same connections."""


def segments_per_request(load: Iterable[Measurements], below: Iterable[Measurements]) -> list[Value]:
    """Of the nodes where the load runs and those that serve them; none where either has not seen what the other sent.

    The nodes below may serve others as well, or be served themselves: then what they have sent is not what came in.
    """
    here, there = _sum(load), _sum(below)
    if not here["requests"] or not (_saw(here, there) and _saw(there, here)):
        return []
    return [SEGMENTS_PER_REQUEST.value((here["segments.sent"] + there["segments.sent"]) / here["requests"])]


def _saw(receiver: Counter[str], sender: Counter[str]) -> bool:
    sent, received = sender["bytes.sent"] - sender["bytes.retransmitted"], receiver["bytes.received"]
    return sent > 0 and abs(sent - received) <= _ALIKE * sent


def _sum(measured: Iterable[Measurements]) -> Counter[str]:
    found: Counter[str] = Counter()
    for each in measured:
        found.update({name: int(value) for name, value in each.totals().items() if name in _COUNTED})
    return found


_COUNTED = frozenset({"requests", "segments.sent", "bytes.sent", "bytes.retransmitted", "bytes.received"})
