"""What the made-up run of ``sample`` consists of: its cells, its nodes, and what went wrong."""

from __future__ import annotations

from dataclasses import dataclass

SYSTEMS = ("ext4", "xfs", "btrfs", "zfs")
LOADS = ("random-write", "sequential-read")
NODES = ("a", "b")
ROUNDS = 8
FAILED = (3, 5)  # cell, round
NO_ZFS = "the kernel module zfs is not available: modprobe zfs ended with status 1"
DISK_FULL = "/dev/loop3 (btrfs) is full after 812 MiB; give the layer 'file' a larger size"
MIB = 2.0**20


@dataclass(frozen=True)
class Cell:
    number: int
    system: str
    load: str

    @property
    def levels(self) -> dict[str, str]:
        return {"filesystem": self.system, "load": self.load}

    @property
    def kind(self) -> str:
        return "write" if self.load == "random-write" else "read"


CELLS = tuple(
    Cell(number, system, load)
    for number, (load, system) in enumerate(((load, system) for load in LOADS for system in SYSTEMS), start=1)
)
