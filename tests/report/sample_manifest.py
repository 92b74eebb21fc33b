"""How the made-up run of ``sample`` came about: its study, its manifest, and the facts that layers recorded."""

from __future__ import annotations

from typing import Any

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


def manifest(seed: int) -> dict[str, Any]:
    node = {
        "kernel": "6.1.0-18-amd64",
        "cpus": 4,
        "memory": 8 * 2**30,
        "tools": {"fio": "3.33", "mkfs.ext4": "1.47.0", "mkfs.xfs": "6.1.0"},
        "btf": True,
    }
    return {
        "title": "File systems under small writes and large reads",
        "description": "Which file system on a loop device is the better home for a small database?",
        "study_text": STUDY,
        "study_file": "file-systems.toml",
        "seed": seed,
        "run": "2026-03-14-092653-file-systems",
        "started": "2026-03-14T09:26:53+00:00",
        "finished": "2026-03-14T09:31:02+00:00",
        "storlab": "0.1.0",
        "argv": ["storlab", "run", "file-systems.toml", "--seed", str(seed)],
        "nodes": dict.fromkeys(NODES, node),
        "plan": {
            "factors": {"filesystem": list(SYSTEMS), "load": list(LOADS)},
            "cells": [
                {
                    "cell": cell.number,
                    "levels": cell.levels,
                    "stack": [
                        {"layer": "file", "size": 2**30},
                        {"layer": "loop"},
                        {"layer": "mkfs", "type": cell.system},
                        {"layer": "mount"},
                    ],
                    "workloads": [cell.load],
                }
                for cell in CELLS
            ],
        },
        "platform_notes": ["This machine is a virtual machine: its host's load can't be seen from here."],
    }


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
