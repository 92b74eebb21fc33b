"""Lines as the agent prints them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

SECOND = 1_000_000_000
COUNTERS = ("DelayedACKs", "TCPTimeouts")
FIELDS = (
    "bytes_sent", "bytes_retrans", "bytes_acked", "bytes_received", "segs_out", "segs_in", "data_segs_out",
    "data_segs_in", "total_retrans", "dsack_dups", "reord_seen", "rcv_ooopack", "delivered", "rtt", "rttvar", "min_rtt",
    "cwnd", "ssthresh", "snd_mss", "unacked", "receive_queue", "send_queue", "busy_time", "rwnd_limited",
    "sndbuf_limited",
)  # fmt: skip


def connection(cookie: int = 7, **numbers: int) -> list[Any]:
    """A row of one connection; numbers that are not named are 0."""
    assert numbers.keys() <= set(FIELDS)
    ends = ("10.0.0.2", 40000, "10.0.0.1", 10809)
    return [cookie, *ends, 1, "cubic", [numbers.get(name, 0) for name in FIELDS]]


def sample(at: float, *connections: list[Any], **more: Any) -> dict[str, Any]:
    """At so many seconds."""
    line = {"event": "sample", "final": False, "monotonic_ns": int(at * SECOND), "took_ns": 1, "gone": []}
    return {**line, "connections": list(connections), "counters": [0, None], "disks": [], **more}


def closed(at: float, row: list[Any]) -> dict[str, Any]:
    """The end of a connection, caught as it came."""
    return {"event": "closed", "monotonic_ns": int(at * SECOND), "connection": row}


def printed(*lines: dict[str, Any], **started: Any) -> list[bytes]:
    """All that the program prints, with its first line."""
    first = {"event": "started", "interval_ns": SECOND // 10, "endpoints": ["10.0.0.1:10809"], "disks": ["nbd0"]}
    first |= {"counters": COUNTERS, "events": True, "reason": None, "monotonic_ns": 1, "realtime_ns": 1, **started}
    return [orjson.dumps(each) + b"\n" for each in (first, *lines)]


def joined(lines: Sequence[bytes]) -> bytes:
    return b"".join(lines)
