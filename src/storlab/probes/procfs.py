"""Parsers of kernel counters: pure functions, text in, values out. See proc(5) and Documentation/accounting/psi.rst."""

from __future__ import annotations

from dataclasses import dataclass

_CPU_STATES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_SECTOR = 512  # bytes; the unit of these counters whatever the disk's sector size is


@dataclass(frozen=True)
class DiskCounters:
    """What a disk has done since boot. Bytes, operations, seconds; ``in_flight`` is the number right now."""

    reads: int
    bytes_read: int
    writes: int
    bytes_written: int
    in_flight: int
    busy: float
    discards: int = 0
    flushes: int = 0

    @property
    def completed(self) -> int:
        """Operations of all kinds that have completed."""
        return self.reads + self.writes + self.discards + self.flushes


def parse_loadavg(text: str) -> tuple[float, float, float] | None:
    """Load averages over 1, 5 and 15 minutes; ``None`` where this is no such file."""
    words = text.split()
    try:
        return float(words[0]), float(words[1]), float(words[2])
    except (IndexError, ValueError):
        return None


def parse_cpu(text: str) -> dict[str, int]:
    """The first line of ``/proc/stat``: ticks by state over all CPUs; empty where it is not there."""
    for line in text.splitlines():
        words = line.split()
        if words and words[0] == "cpu":
            try:
                return dict(zip(_CPU_STATES, (int(word) for word in words[1:]), strict=False))
            except ValueError:
                return {}
    return {}


def parse_pressure(text: str) -> dict[str, float]:
    """``/proc/pressure/*``: ``some`` and ``full`` → stalled time since boot in seconds."""
    totals = {}
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        total = rest.rpartition("total=")[2]
        if kind in ("some", "full") and total.isascii() and total.isdigit():
            totals[kind] = int(total) / 1e6
    return totals


def parse_disk_stat(text: str) -> DiskCounters | None:
    """``/sys/block/NAME/stat``, or the counters of a line of ``/proc/diskstats``; ``None`` where they are not that."""
    words = text.split()
    if len(words) < 11 or not all(word.isascii() and word.isdigit() for word in words):
        return None
    numbers = [int(word) for word in words] + [0] * (17 - len(words))
    return DiskCounters(
        reads=numbers[0],
        bytes_read=numbers[2] * _SECTOR,
        writes=numbers[4],
        bytes_written=numbers[6] * _SECTOR,
        in_flight=numbers[8],
        busy=numbers[9] / 1e3,
        discards=numbers[11],
        flushes=numbers[15],
    )


def parse_diskstats(text: str) -> dict[str, DiskCounters]:
    """``/proc/diskstats``: kernel name → counters; lines that are none are skipped."""
    disks = {}
    for line in text.splitlines():
        words = line.split(None, 3)
        if len(words) == 4 and (counters := parse_disk_stat(words[3])) is not None:
            disks[words[2]] = counters
    return disks
