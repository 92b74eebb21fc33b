"""One start of guests, and what can be seen of their QEMUs from outside."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_MAPPING = re.compile(r"[0-9a-f]+-[0-9a-f]+ \S{4} ")


@dataclass(frozen=True)
class Start:
    """Seconds and CPU seconds, see boot.py; bytes of the RAM and of all others for each guest. 0: does not apply."""

    command: float
    answering: float
    emulated: float
    cpu: float
    ram: float
    others: float


@dataclass(frozen=True)
class Memory:
    """Bytes (PSS) of a QEMU: its guest's RAM, and all else."""

    ram: int
    others: int


def cpu_seconds(pid: int) -> float:
    """User's and system's, of all threads."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS


def age(pid: int) -> float:
    """Seconds since the process began."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(_stat(pid)[19]) / _TICKS


def _stat(pid: int) -> list[str]:
    """The fields after the name (proc_pid_stat(5)): the third is the first here."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def memory(pid: int, ram: int) -> Memory:
    """Of a QEMU whose guest has ``ram`` bytes."""
    return memory_of(Path(f"/proc/{pid}/smaps").read_text(), ram)


def memory_of(smaps: str, ram: int) -> Memory:
    """The guest's RAM is the mapping of exactly its size; parts of it may have other flags, and lines of their own."""
    inside = others = 0
    sizes: dict[tuple[str, bool], list[int]] = {}
    current: tuple[str, bool] = ("", False)
    for line in smaps.splitlines():
        if _MAPPING.match(line):
            name = line.split(maxsplit=5)[5:]
            current = (name[0] if name else line, bool(name))
            sizes.setdefault(current, [0, 0])
        elif line.startswith("Size:"):
            sizes[current][0] += int(line.split()[1]) * 1024
        elif line.startswith("Pss:"):
            sizes[current][1] += int(line.split()[1]) * 1024
    for size, pss in sizes.values():
        if size == ram:
            inside += pss
        else:
            others += pss
    return Memory(inside, others)


def pid_of(name: str) -> int | None:
    """The QEMU that was started with ``-name NAME``."""
    words = f"\0-name\0{name}\0".encode()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if words in (folder / "cmdline").read_bytes():
                    return int(folder.name)
            except OSError:
                continue
    return None
