"""Whether a script that takes long is slow or hangs, and what the kernel says of it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_IDLE = 0.01  # share of one CPU: what uses less does not work but waits
_REQUESTS = 32  # at all disks between two looks: a pool that nobody uses makes a few, by its multihost and txg threads
_USAGE = re.compile(r"^usage_usec (\d{1,18})$", re.MULTILINE)
_DISK = re.compile(r"^ *\d+ +\d+ (?!loop|ram|zd|dm-)\S+ (\d{1,18}) \d+ \d+ \d+ (\d{1,18}) ", re.MULTILINE)
# ZFS's own assertions stop a thread and not the kernel: whoever waits for it then hangs (spl_panic in spl-err.c).
_ASSERTION = re.compile(
    r"\] (?P<what>(?:VERIFY|ASSERT|PANIC)\w*[ :(][^\n]{0,300})\n(?:[^\n]{0,20}\] )?PANIC at (?P<where>[^\n]{1,200})"
)
_BUG = re.compile(r"\] (?P<what>(?:BUG: |kernel BUG at |Oops: |general protection fault)[^\n]{1,200})")


@dataclass(frozen=True)
class Work:
    """What a script, or the kernel for it, has done so far: seconds of CPU, requests at disks."""

    cpu: float = 0.0
    requests: int = 0

    def idle_since(self, last: Work, seconds: float) -> bool:
        """Whether nothing worth mentioning was done in the time between two looks."""
        return self.cpu - last.cpu < _IDLE * seconds and self.requests - last.requests < _REQUESTS


def parse_work(cpu_stat: str, diskstats: str) -> Work:
    """By a cgroup's ``cpu.stat`` and ``/proc/diskstats``; devices that stand on others are not counted."""
    usage = _USAGE.search(cpu_stat)
    requests = sum(int(read) + int(written) for read, written in _DISK.findall(diskstats))
    return Work(int(usage[1]) / 1e6 if usage else 0.0, requests)


def kernel_complaint(log: str) -> str:
    """What the kernel's log says of a failed assertion of ZFS or a bug; empty where it says nothing."""
    if (failed := _ASSERTION.search(log)) is not None:
        return f"ZFS failed an assertion: {failed['what'].strip()}, in {failed['where'].strip()}"
    bug = _BUG.search(log)
    return f"the kernel's log has: {bug['what'].strip()}" if bug else ""
