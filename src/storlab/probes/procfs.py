"""Parsers of kernel counters: pure functions, text in, values out. See proc(5) and Documentation/accounting/psi.rst."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

CPU_STATES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_SECTOR = 512  # bytes; the unit of these counters whatever the disk's sector size is
TICKS = 100  # a second: USER_HZ, which is the same on every architecture that Storlab knows
_DIGITS = 20  # of the largest number of 64 bits
_RESIDENT = re.compile(r"^VmRSS:[ \t]+([0-9]{1,18}) kB$", re.MULTILINE)


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
    reads_merged: int = 0  # into a request that waited already
    writes_merged: int = 0
    read_time: float = 0.0  # of all reads together, from their start to their end
    write_time: float = 0.0
    flush_time: float = 0.0

    @property
    def completed(self) -> int:
        return self.reads + self.writes + self.discards + self.flushes

    def since(self, before: DiskCounters) -> DiskCounters:
        return DiskCounters(*(new - old for new, old in zip(_numbers(self), _numbers(before), strict=True)))


def added_up(disks: Sequence[DiskCounters]) -> DiskCounters:
    total = DiskCounters(*map(sum, zip(*map(_numbers, disks), strict=True)))
    return replace(total, busy=max(disk.busy for disk in disks))


def _numbers(counters: DiskCounters) -> Collection[int]:
    return vars(counters).values()  # many times faster than ``dataclasses.astuple``


def parse_loadavg(text: str) -> tuple[float, float, float] | None:
    """Load averages over 1, 5 and 15 minutes; ``None`` where this is no such file."""
    try:
        one, five, fifteen = (float(word) for word in text.split()[:3])
    except ValueError:
        return None
    return (one, five, fifteen) if math.isfinite(one + five + fifteen) else None


def parse_cpu(text: str) -> dict[str, int]:
    """The first line of ``/proc/stat``: ticks by state over all CPUs; empty where it is not there."""
    for line in text.splitlines():
        words = line.split()
        if words and words[0] == "cpu":
            numbers = words[1 : 1 + len(CPU_STATES)]
            return dict(zip(CPU_STATES, map(int, numbers), strict=False)) if all(map(is_number, numbers)) else {}
    return {}


def parse_activity(text: str) -> tuple[int, int] | None:
    """``/proc/stat``: interrupts and context switches since boot; ``None`` where they are not there."""
    counts = {}
    for line in text.splitlines():
        name, _, rest = line.partition(" ")
        number = rest.partition(" ")[0]
        if name in ("intr", "ctxt") and is_number(number):
            counts[name] = int(number)
    return (counts["intr"], counts["ctxt"]) if len(counts) == 2 else None


def parse_softirqs(text: str) -> dict[str, int]:
    """``/proc/softirqs``: how often each kind was handled since boot, over all CPUs; empty where it is not that.

    A line a kind, ``NET_RX:``, and a number for each CPU (proc(5)).
    """
    counts = {}
    for line in text.splitlines():
        kind, colon, rest = line.partition(":")
        numbers = rest.split()
        if colon and numbers and all(map(is_number, numbers)):
            counts[kind.strip()] = sum(map(int, numbers))
    return counts


def parse_pressure(text: str) -> dict[str, float]:
    """``/proc/pressure/*``: ``some`` and ``full`` → stalled time since boot in seconds."""
    totals = {}
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        total = rest.rpartition("total=")[2]
        if kind in ("some", "full") and is_number(total):
            totals[kind] = int(total) / 1e6
    return totals


def disk_stat_path(disk: str) -> str:
    return f"/sys/class/block/{disk}/stat"


def parse_disk_stat(text: str) -> DiskCounters | None:
    """``/sys/block/NAME/stat``, or the counters of a line of ``/proc/diskstats``; ``None`` where they are not that."""
    words = text.split()
    digits = "".join(words)  # all at once: this is looked at for every disk in every sample
    if len(words) < 11 or not (digits.isascii() and digits.isdigit()) or max(map(len, words)) > _DIGITS:
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
        reads_merged=numbers[1],
        writes_merged=numbers[5],
        read_time=numbers[3] / 1e3,
        write_time=numbers[7] / 1e3,
        flush_time=numbers[16] / 1e3,
    )


def parse_diskstats(text: str) -> dict[str, DiskCounters]:
    """``/proc/diskstats``: kernel name → counters; lines that are none are skipped."""
    disks = {}
    for line in text.splitlines():
        words = line.split(None, 3)
        if len(words) == 4 and (counters := parse_disk_stat(words[3])) is not None:
            disks[words[2]] = counters
    return disks


@dataclass(frozen=True)
class ProcessStat:
    """What a process has used since it began: user and system time of all its threads in seconds.

    ``state`` is one letter of proc_pid_stat(5). ``begun``, in ticks since boot, tells it from a later one of its id.
    """

    name: str
    state: str
    cpu_time: float
    begun: int


def parse_process_stat(text: str) -> ProcessStat | None:
    """``/proc/PID/stat``, see proc_pid_stat(5); ``None`` where it is not that.

    The name, in parentheses, may hold blanks, parentheses and new lines: it ends at the last parenthesis of all.
    """
    head, opening, rest = text.partition("(")
    name, closing, fields = rest.rpartition(")")
    words = fields.split()
    if not opening or not closing or not is_number(head.strip()) or len(words) < 20 or len(words[0]) != 1:
        return None
    user, system, begun = words[11], words[12], words[19]
    if not (is_number(user) and is_number(system) and is_number(begun)):
        return None
    return ProcessStat(name, words[0], (int(user) + int(system)) / TICKS, int(begun))


def parse_resident(text: str) -> int | None:
    """Resident bytes out of ``/proc/PID/status``; ``None`` where they are not there."""
    found = _RESIDENT.search(text)
    return None if found is None else int(found[1]) * 1024


def parse_cgroup_cpu(text: str) -> float | None:
    """CPU time of all processes of a group in seconds, out of its ``cpu.stat``; ``None`` where it is not there."""
    for line in text.splitlines():
        name, _, number = line.partition(" ")
        if name == "usage_usec" and is_number(number):
            return int(number) / 1e6
    return None


def is_number(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= _DIGITS
