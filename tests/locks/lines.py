"""Lines as the agent prints them."""

from __future__ import annotations

from typing import Any

import orjson

STARTED = {"event": "started", "monotonic_ns": 1_000_000_000, "realtime_ns": 1}
NOTHING_LOST = {"full": 0, "begun": 0, "ends": 0, "locks": 0, "missed": 0}


def waits(
    function: str | None,
    count: int = 1,
    *,
    lock: str = "mutex",
    time: int = 1000,
    waiter: str = "other",
    slept: int = 0,
) -> list[Any]:
    """Waits of ``time`` ns each, of a function of ZFS."""
    bin_of = time.bit_length() - 1
    times = [[2**bin_of, 2 ** (bin_of + 1), count]] if count else []
    return [[function, function and "zfs", lock], waiter, count, slept, count * time, times]


def counts(
    *rows: list[Any], locks: dict[str, int] | None = None, lost: Any = None, final: bool = True
) -> dict[str, Any]:
    """All counts after 2 s; ``locks``: how many different mutexes a function waited for, by default one."""
    functions = dict.fromkeys(row[0][0] for row in rows)
    return {
        "event": "counts",
        "final": final,
        "monotonic_ns": 3_000_000_000,
        "realtime_ns": 2_000_000_001,
        "waits": list(rows),
        "locks": [[[name, name and "zfs", "mutex"], (locks or {}).get(name or "", 1)] for name in functions],
        "waiting": 0,
        "lost": {**NOTHING_LOST, **(lost or {})},
    }


def printed(*lines: dict[str, Any]) -> bytes:
    """All that the program prints, with its first line."""
    return b"".join(orjson.dumps(line) + b"\n" for line in (STARTED, *lines))
