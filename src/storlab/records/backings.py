"""What was written beneath for each byte that the nodes above wrote: at a disk that their own disks lie on.

Counted from before the load until all that it wrote was down, so nothing hides in a cache, in an ARC or in a
transaction group. Counts, which noise hardly touches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from storlab.measurements import Measurements, Value
from storlab.probes.procfs import DiskCounters, parse_disk_stat

_GUEST_DISK = {"write": "disk.target.bytes_written", "read": "disk.target.bytes_read"}


def counters_path(disk: str) -> str:
    """The kernel's file with a disk's counters. ``before.stat`` and ``after.stat`` are what it held."""
    return f"/sys/class/block/{disk}/stat"


def read_counters(raw: Path) -> tuple[DiskCounters, DiskCounters] | None:
    """Before and after; ``None`` where the disk was not there, or the files are not what they should be."""
    try:
        texts = [(raw / f"{when}.stat").read_text(errors="replace") for when in ("before", "after")]
    except OSError:
        return None
    before, after = map(parse_disk_stat, texts)
    if before is None or after is None or after.completed < before.completed:
        return None
    return before, after


def counted(before: DiskCounters, after: DiskCounters) -> Counter[str]:
    """What the disk did meanwhile: bytes and operations, by metric."""
    return Counter(
        {
            "backing.write.bytes": after.bytes_written - before.bytes_written,
            "backing.writes": after.writes - before.writes,
            "backing.flushes": after.flushes - before.flushes,
            "backing.read.bytes": after.bytes_read - before.bytes_read,
            "backing.reads": after.reads - before.reads,
        }
    )


def asked_bytes(loads: Iterable[Measurements]) -> Counter[str] | None:
    """Bytes that workloads moved (``write.bytes``, ``read.bytes``); ``None`` where one of them does not say."""
    total: Counter[str] = Counter()
    for each in loads:
        found = {name: value for name, value in each.totals().items() if f".{name}".endswith(".bytes")}
        if not found:
            return None
        total.update({name: int(found.get(name, 0)) for name in ("write.bytes", "read.bytes")})
    return total


def guest_disk_bytes(host_load: Measurements) -> Counter[str] | None:
    """Bytes moved at a node's own disk under test; ``None`` where ``host-load`` has not seen it."""
    rows = host_load.totals()
    if not all(name in rows for name in _GUEST_DISK.values()):
        return None
    return Counter({name: int(rows[name]) for name in _GUEST_DISK.values()})


def backing_metrics(
    counted: Counter[str], asked: Counter[str] | None, at_guests: Counter[str] | None, drain: float
) -> list[Value]:
    """The metrics of one backing, or of several together.

    ``asked`` and ``at_guests`` are of all the nodes above; a ratio to what is unknown or 0 is left out.
    """
    values = [Value(name, count, "B" if name.endswith(".bytes") else "1") for name, count in counted.items()]
    values.append(Value("backing.drain", drain, "s", "lower", "max"))
    for way, disk_counter in _GUEST_DISK.items():
        moved = counted[f"backing.{way}.bytes"]
        if asked is not None and asked[f"{way}.bytes"]:
            values.append(Value(f"{way}.amplification.backing", moved / asked[f"{way}.bytes"], "1", "lower", "none"))
        if at_guests is not None and at_guests[disk_counter]:
            ratio = moved / at_guests[disk_counter]
            values.append(Value(f"{way}.amplification.guest-disk", ratio, "1", "lower", "none"))
    return values
