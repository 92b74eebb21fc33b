"""How the made-up run of ``sample`` came about: its study, its manifest, and the facts that layers recorded."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from storlab.records.manifest import Cpus, Kernel, Manifest, Memory, NodeFacts, Planned, PlannedCell, PlannedChain, Tool

from .sample_run import CELLS, LOADS, NODES, SYSTEMS

STUDY = """\
title   = "File systems under small writes and large reads"
primary = "bandwidth"

[repeat]
until = "±5%"
min   = 5
max   = 8

[factors.filesystem]
ext4  = [{ layer = "file", size = "1G" }, { layer = "loop" }, { layer = "mkfs", type = "ext4" }, { layer = "mount" }]
xfs   = [{ layer = "file", size = "1G" }, { layer = "loop" }, { layer = "mkfs", type = "xfs" }, { layer = "mount" }]
btrfs = [{ layer = "file", size = "1G" }, { layer = "loop" }, { layer = "mkfs", type = "btrfs" }, { layer = "mount" }]
zfs   = [{ layer = "file", size = "1G" }, { layer = "zpool" }, { layer = "zfs" }]

[factors.load]
levels = ["random-write", "sequential-read"]
"""


def manifest(seed: int) -> Manifest:
    versions = {"fio": "3.33", "mkfs.ext4": "1.47.0", "mkfs.xfs": "6.1.0"}
    node = NodeFacts(
        kind="local",
        kernel=Kernel("6.1.0-18-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.76-1", "x86_64"),
        cpus=Cpus(4, None),
        memory=Memory(8 * 2**30, 6 * 2**30),
        tools={name: Tool(f"/usr/sbin/{name}", version) for name, version in versions.items()},
    )
    return Manifest(
        title="File systems under small writes and large reads",
        description="Which file system on a loop device is the better home for a small database?",
        study_text=STUDY,
        study_file="file-systems.toml",
        seed=seed,
        run="2026-03-14-092653-file-systems",
        started=datetime(2026, 3, 14, 9, 26, 53, tzinfo=UTC),
        finished=datetime(2026, 3, 14, 9, 31, 2, tzinfo=UTC),
        storlab="0.1.0",
        argv=("storlab", "run", "file-systems.toml", "--seed", str(seed)),
        nodes=dict.fromkeys(NODES, node),
        plan=Planned(
            factors={"filesystem": list(SYSTEMS), "load": list(LOADS)},
            cells=[_planned(cell.number, cell.levels, cell.system, cell.load) for cell in CELLS],
        ),
        platform_notes=("This machine is a virtual machine: its host's load can't be seen from here.",),
    )


def _planned(number: int, levels: dict[str, str], system: str, load: str) -> PlannedCell:
    layers: list[dict[str, Any]] = [
        {"layer": "file", "size": 2**30},
        {"layer": "loop"},
        {"layer": "mkfs", "type": system},
        {"layer": "mount"},
    ]
    return PlannedCell(number, levels, [PlannedChain("host", "", layers)], [load], [])


def facts() -> dict[int, dict[str, dict[str, dict[str, object]]]]:
    info = (
        "meta-data=/dev/loop3   isize=512    agcount=4, agsize=65536 blks\n         =             sectsz=512   attr=2"
    )
    found: dict[int, dict[str, dict[str, dict[str, object]]]] = {}
    for cell in CELLS:
        if cell.system == "zfs":
            continue
        found[cell.number] = {
            node: {
                "file": {"path": "/var/tmp/storlab/disk.img", "size": 2**30, "preallocated": True},
                "loop": {"device": "/dev/loop3", "logical_sector": 512, "direct_io": True},
                "mkfs": {"type": cell.system, "output": info},
                "mount": {"options": ["rw", "noatime"], "line": f"/dev/loop3 /mnt {cell.system} rw,noatime 0 0"},
            }
            for node in NODES
        }
    return found
